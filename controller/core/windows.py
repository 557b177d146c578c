"""The recent past of one pool, as increments: what the meter sums into windows.

Deterministic given the observations. Mutable because it is a ring buffer that turns over every tick; nothing else in
the core keeps state outside a frozen value.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from controller.core.facts import Fact
from controller.core.histogram import add
from controller.core.observation import Facts, HistogramIncrement
from controller.core.tally import aborts

NEWEST = 4  # entries that are whole, however long the ticks
# One of each for all: a thousand pools remember sixty thousand entries.
_NO_HISTOGRAMS: Mapping[Fact, HistogramIncrement] = {}
_NO_CLASSES: Mapping[str, Facts] = {}
NO_FACTS: frozenset[Fact] = frozenset()
FILLED = 0.9  # share of a window that the unbroken stretch must have for the window to count as full


class Entry(NamedTuple):
    """Increments over (since, at], and the gauges at `at`. `failed` are the facts that could not be read; `classes` and
    `tenants` are those that anybody asks about; `named` are the facts that are told by class. `seen` is the tick at
    which the gauges were new, None for this one."""

    since: float
    at: float
    histograms: Mapping[Fact, HistogramIncrement]
    counters: Mapping[Fact, float]
    gauges: Mapping[Fact, float]
    replicas: Mapping[str, "ReplicaEntry"]
    classes: Mapping[str, Facts] = _NO_CLASSES
    named: frozenset[Fact] = NO_FACTS
    failed: frozenset[Fact] = NO_FACTS
    tenants: Mapping[str, Facts] = _NO_CLASSES
    seen: float | None = None

    @property
    def seconds(self) -> float:
        return self.at - self.since


class ReplicaEntry(NamedTuple):
    """One replica in an entry; counters and histograms are increments. `seen` is the tick at which its gauges were
    new, None for that of the entry."""

    counters: Mapping[Fact, float]
    gauges: Mapping[Fact, float]
    histograms: Mapping[Fact, HistogramIncrement] = _NO_HISTOGRAMS
    seen: float | None = None


class History:
    """Entries of one pool, newest last, as far back as `keep` seconds.

    Windows reach back `reach` seconds. Entries before that are thinned: they keep how many waited and how many left the
    queue, and of replicas who was there and which gauges it told. The rest would be most of a daemon's memory.
    """

    def __init__(self, keep: float, reach: float) -> None:
        self.keep, self.reach = keep, reach
        self.entries: deque[Entry] = deque()
        self._thin = 0  # entries that are thinned, the oldest ones
        self._inside: dict[tuple[float, float], list[Entry]] = {}  # of this tick: windows are asked for many times
        self.filled_since: float | None = None
        self.anchor: Entry | None = None

    def begin(self, entry: Entry) -> None:
        """A new stretch begins at an observation that has gauges and no increments: what is in flight there is where
        its growth is counted from, else a burst in the first interval would never be seen."""
        self.filled_since, self.anchor = None, entry
        self._inside.clear()

    def push(self, entry: Entry) -> None:
        """Append; a hole since the previous entry restarts the unbroken stretch. A read that failed is no hole when the
        next one carries what was counted meanwhile."""
        last = self.entries[-1] if self.entries else None
        if last is None or self.filled_since is None or entry.since > last.at + 1e-6:
            self.filled_since = entry.since
        self.entries.append(entry)
        self._inside.clear()
        while self.entries and self.entries[0].at <= entry.at - self.keep:
            self.entries.popleft()
            self._thin = max(0, self._thin - 1)
        # One more than the windows reach, for what was in flight when they began.
        while self._thin < len(self.entries) - NEWEST and self.entries[self._thin + 1].at < entry.at - self.reach:
            older = self.entries[self._thin - 1] if self._thin else None
            self.entries[self._thin] = _thinned(self.entries[self._thin], older)
            self._thin += 1

    def join(self, entry: Entry) -> None:
        """Append to the newest entry, as one: nobody can tell which of the two counted what. A tick that does not
        follow it is pushed."""
        if not self.entries or self._thin == len(self.entries) or abs(entry.since - self.entries[-1].at) > 1e-6:
            self.push(entry)
            return
        last = self.entries.pop()
        both = {
            name: r._replace(counters=_sum(old.counters, r.counters), histograms=_sums(old.histograms, r.histograms))
            for name, r in entry.replicas.items()
            if (old := last.replicas.get(name)) is not None
        }
        whole = self.filled_since
        self.push(_added(entry._replace(since=last.since, replicas={**entry.replicas, **both}), last))
        self.filled_since = whole

    def spread(self, part: Callable[[float, float], Entry]) -> None:
        """Add to the entries before the newest one what it counted in their time; `part` gives the increments that are
        dated between two times. What is older than all entries is of no window."""
        for place in range(len(self.entries) - 2, -1, -1):
            old = self.entries[place]
            more = part(old.since, old.at)
            if not more.counters and not more.histograms:
                continue  # of two replicas one may tell of what was long ago
            replicas = {
                name: r._replace(counters=_sum(r.counters, m.counters), histograms=_sums(r.histograms, m.histograms))
                for name, r in old.replicas.items()
                if (m := more.replicas.get(name)) is not None
            }
            if place < self._thin:
                more, replicas = _thinned(more, None), {}
            failed = old.failed - more.counters.keys() - more.histograms.keys()
            self.entries[place] = _added(old._replace(replicas={**old.replicas, **replicas}, failed=failed), more)
        self._inside.clear()

    def stretch(self, keep: float, reach: float) -> None:
        """Keep other spans from now on. What longer windows would need of thinned entries is gone, so they go too."""
        if reach > self.reach and self._thin:
            for _ in range(self._thin):
                self.entries.popleft()
            self._thin = 0
            if self.filled_since is not None:
                self.filled_since = max(self.filled_since, self.entries[0].since)
        self.keep, self.reach = keep, reach
        self._inside.clear()

    def within(self, now: float, window: float) -> Sequence[Entry]:
        """Entries of which at least half lies inside (now - window, now], newest first, so that ticks with jitter
        fill a window; at least the newest one, so that a tick longer than the window still sees its own increment."""
        found = self._inside.get((now, window))
        if found is None:
            start = now - window - 1e-6
            found = self._inside[now, window] = []
            for entry in reversed(self.entries):
                if (entry.since + entry.at) / 2 < start and found:
                    break
                found.append(entry)
        return found

    def full(self, now: float, window: float) -> bool:
        """Whether the unbroken stretch is as long as the window. Not the sum of its entries: ticks of 25 s never add
        up to 60 s, and would leave the window under-filled for ever."""
        return self.filled_since is not None and now - self.filled_since >= window * FILLED

    def ends(self, now: float, window: float) -> tuple[Entry, Entry] | None:
        """The entries whose gauges stand at the start and at the end of the window, or of the part of it that the
        unbroken stretch covers. None when there is no entry."""
        inside = self.within(now, window)
        if not inside:
            return None
        before = len(self.entries) - len(inside) - 1
        stretch = [e for e in reversed(inside) if self.filled_since is None or e.since >= self.filled_since - 1e-6]
        if not stretch:
            return inside[0], inside[0]
        begun = stretch[0].since
        if before >= 0 and abs(self.entries[before].at - begun) < 1e-6:
            return self.entries[before], inside[0]
        if self.anchor is not None and abs(self.anchor.at - begun) < 1e-6:
            return self.anchor, inside[0]
        return stretch[0], inside[0]

    def knew(self, replica: str, before: float) -> bool:
        """Whether the replica was seen before that moment."""
        return any(replica in entry.replicas for entry in self.entries if entry.at < before)

    def had(self, replica: str, fact: Fact) -> bool:
        """Whether the replica ever told this gauge, as far back as is kept."""
        return any(
            fact in entry.replicas[replica].gauges for entry in reversed(self.entries) if replica in entry.replicas
        )

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


def scaled(
    entry: Entry, of: Callable[[Fact], float], single: Callable[[Fact, str], float], *, tenants: float, classes: float
) -> Entry:
    """The increments of an entry as a part of them: the share `of` a fact of the pool, of a `single` replica's, and of
    tenants and classes. Gauges stay."""
    return entry._replace(
        counters={fact: v * share for fact, v in entry.counters.items() if (share := of(fact)) > 0},
        histograms={fact: _part(h, share) for fact, h in entry.histograms.items() if (share := of(fact)) > 0},
        replicas={
            name: r._replace(
                counters={fact: v * single(fact, name) for fact, v in r.counters.items()},
                histograms={fact: _part(h, single(fact, name)) for fact, h in r.histograms.items()},
            )
            for name, r in entry.replicas.items()
        },
        tenants={name: _share(one, tenants) for name, one in entry.tenants.items()},
        classes={name: _share(one, classes) for name, one in entry.classes.items()},
    )


def _part(h: HistogramIncrement, share: float) -> HistogramIncrement:
    return HistogramIncrement(h.edges, tuple(n * share for n in h.cumulative), h.count * share, h.sum * share)


def _share(one: Facts, share: float) -> Facts:
    return Facts(
        {fact: _part(h, share) for fact, h in one.histograms.items()},
        {fact: value * share for fact, value in one.counters.items()},
        one.gauges,
    )


def _added(entry: Entry, more: Entry) -> Entry:
    """An entry with the increments of another on top; replicas are the entry's."""
    return entry._replace(
        histograms=_sums(entry.histograms, more.histograms),
        counters=_sum(entry.counters, more.counters),
        classes=_facts(entry.classes, more.classes),
        tenants=_facts(entry.tenants, more.tenants),
        named=entry.named | more.named,
    )


def _sum(one: Mapping[Fact, float], other: Mapping[Fact, float]) -> Mapping[Fact, float]:
    return {**one, **{fact: one.get(fact, 0.0) + value for fact, value in other.items()}}


def _sums(
    one: Mapping[Fact, HistogramIncrement], other: Mapping[Fact, HistogramIncrement]
) -> Mapping[Fact, HistogramIncrement]:
    facts = chain(one, (fact for fact in other if fact not in one))
    return {fact: h for fact in facts if (h := add(of[fact] for of in (one, other) if fact in of)) is not None}


def _facts(one: Mapping[str, Facts], other: Mapping[str, Facts]) -> Mapping[str, Facts]:
    found = dict(one)
    for name, more in other.items():
        known = found.get(name, Facts())
        found[name] = Facts(
            _sums(known.histograms, more.histograms),
            _sum(known.counters, more.counters),
            known.gauges if name in one else more.gauges,
        )
    return found


def _thinned(entry: Entry, older: Entry | None) -> Entry:
    """`older` is the thinned entry before it: mostly the same replicas tell the same, and the two can share that."""
    replicas = entry.replicas
    if older is not None and _alike(older.replicas, replicas):
        replicas = older.replicas
    return Entry(
        entry.since,
        entry.at,
        _NO_HISTOGRAMS,
        counters={Fact.ADMITTED: left_queue(entry), Fact.ABORTED: aborts(entry.counters)},
        gauges=_waiting(entry.gauges.get(Fact.WAITING)),
        replicas=replicas,
        classes=_NO_CLASSES,
        named=entry.named,
        failed=entry.failed,
    )


@lru_cache(maxsize=4096)
def _waiting(number: float | None) -> Mapping[Fact, float]:
    return {} if number is None else {Fact.WAITING: number}


def left_queue(entry: Entry) -> float:
    """Requests that left the queue: counted as such, else by their first token, else by their end."""
    for fact in (Fact.ADMITTED, Fact.TTFT):
        if fact in entry.counters or fact in entry.histograms:
            return counted(entry, fact)
    return counted(entry, Fact.FINISHED)


def counted(entry: Entry, fact: Fact) -> float:
    """Events or samples of one fact in one entry."""
    h = entry.histograms.get(fact)
    return h.count if h is not None else entry.counters.get(fact, 0.0)


def _alike(one: Mapping[str, ReplicaEntry], other: Mapping[str, ReplicaEntry]) -> bool:
    return one.keys() == other.keys() and all(one[name].gauges.keys() == other[name].gauges.keys() for name in one)
