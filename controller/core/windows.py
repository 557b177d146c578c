"""The recent past of one pool, as increments: what the meter sums into windows.

Deterministic given the observations. Mutable because it is a ring buffer that turns over every tick; nothing else in
the core keeps state outside a frozen value.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from controller.core.facts import Fact
from controller.core.histogram import add
from controller.core.observation import Facts, HistogramIncrement


@dataclass(frozen=True, slots=True)
class Entry:
    """Increments over (since, at], and the gauges at `at`. `classes` are those that an objective names; `named` are the
    facts that are told by class."""

    since: float
    at: float
    histograms: Mapping[Fact, HistogramIncrement]
    counters: Mapping[Fact, float]
    gauges: Mapping[Fact, float]
    replicas: Mapping[str, "ReplicaEntry"]
    classes: Mapping[str, Facts] = field(default_factory=dict)
    named: frozenset[Fact] = frozenset()

    @property
    def seconds(self) -> float:
        return self.at - self.since


@dataclass(frozen=True, slots=True)
class ReplicaEntry:
    """One replica in an entry; counters are increments."""

    counters: Mapping[Fact, float]
    gauges: Mapping[Fact, float]


class History:
    """Entries of one pool, newest last, as far back as `keep` seconds."""

    def __init__(self, keep: float) -> None:
        self.keep = keep
        self.entries: deque[Entry] = deque()
        self.filled_since: float | None = None

    def push(self, entry: Entry) -> None:
        """Append; a hole since the previous entry restarts the unbroken stretch."""
        last = self.entries[-1] if self.entries else None
        if last is None or entry.since > last.at + 1e-6:
            self.filled_since = entry.since
        self.entries.append(entry)
        while self.entries and self.entries[0].at <= entry.at - self.keep:
            self.entries.popleft()

    def break_off(self) -> None:
        """The source lost the thread: what comes next is a new stretch."""
        self.filled_since = None

    def within(self, now: float, window: float) -> Iterator[Entry]:
        """Entries of which at least half lies inside (now - window, now], newest first, so that ticks with jitter
        fill a window; at least the newest one, so that a tick longer than the window still sees its own increment."""
        start = now - window - 1e-6
        for i, entry in enumerate(reversed(self.entries)):
            if (entry.since + entry.at) / 2 < start and i:
                return
            yield entry

    def ends(self, now: float, window: float) -> tuple[Mapping[Fact, float], Mapping[Fact, float]]:
        """The gauges at the start and at the end of the window; where nothing is known from before it, the oldest
        inside stands for the start."""
        inside = sum(1 for _ in self.within(now, window))
        entries = self.entries
        if not inside:
            return {}, {}
        return entries[max(len(entries) - inside - 1, 0)].gauges, entries[-1].gauges

    def covered(self, now: float, window: float) -> float:
        """Seconds of the window that the entries cover."""
        return sum(entry.seconds for entry in self.within(now, window))

    def histogram(self, fact: Fact, now: float, window: float) -> HistogramIncrement | None:
        return add(e.histograms[fact] for e in self.within(now, window) if fact in e.histograms)

    def counters(self, now: float, window: float) -> dict[Fact, float]:
        """Sums of the increments of every counter that was in one of the entries."""
        sums: dict[Fact, float] = {}
        for entry in self.within(now, window):
            for fact, value in entry.counters.items():
                sums[fact] = sums.get(fact, 0.0) + value
        return sums
