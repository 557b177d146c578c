"""What a gateway counted: plain numbers since its start, by class and tenant, for export."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

# Upper edges of the decision-time histogram, seconds; the last bucket is open.
DECISION_EDGES = (5e-6, 1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 1e-2)


@dataclass(slots=True)
class Tally:
    """Requests of one class and tenant. Each that arrived is in the end in one of finished, failed, gone, rejected,
    dropped, cancelled and redirected; until then it is queued or sent. Tokens: `hit_tokens` of `prompt_tokens` were
    believed cached where they were sent, attempts counted each."""

    arrived: int = 0
    sent: int = 0  # attempts
    queued: int = 0
    retried: int = 0
    finished: int = 0
    failed: int = 0
    gone: int = 0
    redirected: int = 0
    rejected: Counter[str] = field(default_factory=Counter)  # by reason
    dropped: Counter[str] = field(default_factory=Counter)
    cancelled: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    hit_tokens: int = 0
    output_tokens: int = 0
    queue_seconds: float = 0.0  # of those that left the queue

    @property
    def ended(self) -> int:
        """Requests whose story is over."""
        refused = self.rejected.total() + self.dropped.total() + self.cancelled.total()
        return self.finished + self.failed + self.gone + self.redirected + refused

    @property
    def hit_rate(self) -> float:
        """Share of the prompt tokens sent that were believed cached, 0..1."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    def add(self, other: "Tally") -> None:
        """Sum up, for totals."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def copy(self) -> "Tally":
        """A value of its own that no later event changes."""
        made = Tally()
        made.add(self)
        return made


@dataclass(frozen=True, slots=True)
class Decisions:
    """How long decisions took, seconds; counted only when the host lends a clock. `buckets` are counts up to
    each of DECISION_EDGES and beyond, not cumulative."""

    count: int = 0
    seconds: float = 0.0
    longest: float = 0.0
    buckets: tuple[int, ...] = (0,) * (len(DECISION_EDGES) + 1)


class Stopwatch:
    """Gathers decision times."""

    def __init__(self) -> None:
        self._count = 0
        self._seconds = 0.0
        self._longest = 0.0
        self._buckets = [0] * (len(DECISION_EDGES) + 1)

    def add(self, seconds: float) -> None:
        self._count += 1
        self._seconds += seconds
        self._longest = max(self._longest, seconds)
        self._buckets[bisect_left(DECISION_EDGES, seconds)] += 1

    def read(self) -> Decisions:
        return Decisions(self._count, self._seconds, self._longest, tuple(self._buckets))


@dataclass(frozen=True, slots=True)
class Counts:
    """One reading of all that a gateway counted. `streams` are by (class, tenant)."""

    streams: Mapping[tuple[str, str], Tally]
    decisions: Decisions
    opened: Mapping[str, int]  # how often the breaker took out each replica

    @property
    def total(self) -> Tally:
        return total(self.streams.values())


def total(tallies: Iterable[Tally]) -> Tally:
    """The sum of tallies."""
    made = Tally()
    for tally in tallies:
        made.add(tally)
    return made
