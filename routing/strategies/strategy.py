"""What a routing strategy is: it picks a replica, and is told what became of its picks.

The host calls `pick`, then `sent` if it did send, `first_token` when prefill is over, and `finished` exactly once for
each `sent`, whatever the end. It tells of replicas by `joined` and `left`, and of their caches by `stored` and
`evicted`, if their engines tell. No hook is needed for a pick to be right; they make it good.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from routing.model import Replica, Request
from routing.parameters import Value, build

P = TypeVar("P")

OWED: Final = "idle and owed its share"
CROWDED: Final = "load before affinity"
EVEN: Final = 1e-9  # loads that differ by less, as a share, are the same


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a request goes. `replica` is empty when nothing can take it now, and `why` says why; `prefill` names the
    replica that does the prefill when it is another one. `hit_tokens` of the prompt are believed to be cached where
    the prefill happens."""

    replica: str
    prefill: str = ""
    why: str = ""
    hit_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Counters:
    """Since the strategy was made. The believed prefix hit rate is hit_tokens / prompt_tokens; `extra` holds what one
    strategy alone counts, by name."""

    decisions: int = 0
    refused: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    extra: tuple[tuple[str, int], ...] = ()

    @property
    def hit_rate(self) -> float:
        """The share of prompt tokens that were believed to be cached where they were sent, 0..1."""
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


class Strategy(Protocol):
    """A law of routing. Not thread-safe; one gateway owns it. `replicas` come in a stable order and already match the
    request's wishes (`routing.capability`); a strategy does not change them."""

    def pick(self, request: Request, replicas: Sequence[Replica], now: float) -> Choice: ...

    def sent(self, request: Request, choice: Choice, now: float) -> None: ...

    def first_token(self, request_id: int, now: float) -> None: ...

    def finished(self, request_id: int, output_tokens: int | None, now: float) -> None:
        """The end of a sent request; `output_tokens` is None when it was not served to its end."""

    def joined(self, replica: Replica, now: float) -> None:
        """A replica is there, with an empty cache: a new one, or the same name again after a restart."""

    def left(self, name: str, now: float) -> None: ...

    def stored(self, name: str, blocks: Sequence[int], now: float) -> None:
        """A replica's cache now holds these blocks; hashes as in `Request.prefix`, the leading block first."""

    def evicted(self, name: str, blocks: Sequence[int], now: float) -> None: ...

    def tune(self, parameters: Mapping[str, Value]) -> None:
        """Other parameters from now on, absolute as in `make`; what it has learned stays. After a ValueError nothing
        has changed."""

    @property
    def leans(self) -> bool:
        """Whether it has an affinity that can be lowered."""

    def lean(self, affinity: float) -> None:
        """How much affinity counts against load from now on: 1 as it was made, 0 load alone. Raises ValueError where
        there is none to lower."""

    @property
    def counters(self) -> Counters: ...


@dataclass(frozen=True, slots=True)
class NoParameters:
    """Nothing to tune."""


class Base(ABC, Generic[P]):
    """What strategies share: closed replicas are left out, picks are counted, hooks do nothing unless overridden."""

    Parameters: ClassVar[type[Any]]
    splits: ClassVar[bool] = False  # whether it can send the prefill elsewhere; others never pick a prefill replica
    leans: ClassVar[bool] = False  # whether it has an affinity that can be lowered while it runs

    def __init__(self, parameters: P) -> None:
        self.parameters = parameters
        self._decisions = self._refused = self._prompt_tokens = self._hit_tokens = 0
        self._turn = 0
        self.affinity = 1.0
        self.top = 1.0  # the heaviest weight among the candidates of this pick
        self.lowered = False  # whether any has less
        self._credit: dict[str, float] = {}
        self._owed: dict[str, float] = {}

    def pick(self, request: Request, replicas: Sequence[Replica], now: float) -> Choice:
        """The choice among the replicas that take new work: neither draining nor at weight 0."""
        if self.splits:
            able = [one for one in replicas if one.weight > 0.0 and not one.draining]
        else:
            able = [one for one in replicas if one.weight > 0.0 and not one.draining and one.ability.role != "prefill"]
        if able:
            weights = {one.weight for one in able}
            self.top = max(weights)
            self.lowered = len(weights) > 1
            choice = self.choose(request, able, now)
        else:
            choice = Choice("", why=_why_none(replicas))
        self._decisions += 1
        for name in (choice.replica, choice.prefill):
            if name in self._owed:
                self._owed[name] = max(-1.0, self._owed[name] - 1.0)
        if choice.replica:
            self._prompt_tokens += request.prompt_tokens
            self._hit_tokens += choice.hit_tokens
        else:
            self._refused += 1
        return choice

    @abstractmethod
    def choose(self, request: Request, replicas: list[Replica], now: float) -> Choice:
        """The law itself; `replicas` are open, and at least one."""

    def rotated(self, replicas: list[Replica]) -> list[Replica]:
        """The same replicas from another start each time, so that ties do not all go to the first."""
        self._turn = turn = (self._turn + 1) % len(replicas)
        return replicas[turn:] + replicas[:turn]

    def keeps(self, replica: Replica) -> bool:
        """Whether a replica that affinity chose gets the request: of weight `w` beside a heaviest of `top`, w/top of
        the times, evenly spaced. For choices that do not look at load; those that do divide it by the weight."""
        if replica.weight >= self.top:
            return True
        credit = self._credit.get(replica.name, 0.0) + replica.weight / self.top
        self._credit[replica.name] = credit - 1.0 if credit >= 1.0 else credit
        return credit >= 1.0

    def owed(self, replicas: Sequence[Replica]) -> Replica | None:
        """A replica of lowered weight that is idle and has not had its share. Load over weight alone would starve it
        while the fleet is calm, and a breaker that probes by a small weight would never learn anything."""
        if not self.lowered:
            return None
        total, found = sum([replica.weight for replica in replicas]), None
        for replica in replicas:
            if replica.weight < self.top:
                owed = min(1.0, self._owed.get(replica.name, 0.0) + replica.weight / total)
                self._owed[replica.name] = owed
                if owed >= 1.0 and not replica.inflight and found is None:
                    found = replica
        return found

    def least_loaded(self, replicas: list[Replica]) -> Replica:
        """The one with the fewest requests in flight for its weight, or one that is owed."""
        return self.owed(replicas) or min(self.rotated(replicas), key=lambda one: (one.inflight + 1) / one.weight)

    def crowded(self, home: Replica, replicas: Sequence[Replica]) -> bool:
        """Whether load goes before affinity: (1 - affinity) times the load of `home` is above that of the least loaded.
        Load is requests in flight, this one counted, over weight. At 1 never; at 0.5 when it would have more than twice
        as many; at 0 when anybody has fewer."""
        spread = 1.0 - self.affinity
        if spread <= 0.0:
            return False
        least = min([(one.inflight + 1) / one.weight for one in replicas])
        return spread * (home.inflight + 1) / home.weight > least * (1.0 + EVEN)

    def sent(self, request: Request, choice: Choice, now: float) -> None: ...

    def first_token(self, request_id: int, now: float) -> None: ...

    def finished(self, request_id: int, output_tokens: int | None, now: float) -> None: ...

    def joined(self, replica: Replica, now: float) -> None: ...

    def left(self, name: str, now: float) -> None:
        """A replica is gone; whoever overrides it calls this too."""
        self._credit.pop(name, None)
        self._owed.pop(name, None)

    def stored(self, name: str, blocks: Sequence[int], now: float) -> None: ...

    def evicted(self, name: str, blocks: Sequence[int], now: float) -> None: ...

    def tune(self, parameters: Mapping[str, Value]) -> None:
        """Other parameters from now on; what has been learned stays."""
        self.parameters = build(self.Parameters, parameters)

    def lean(self, affinity: float) -> None:
        """See ``Strategy``."""
        if not 0.0 <= affinity <= 1.0:
            raise ValueError(f"affinity: is {affinity:g}; write a number at least 0, at most 1")
        if affinity != 1.0 and not self.leans:
            raise ValueError(f"affinity: {type(self).__name__} has none that could be lowered; write 1")
        self.affinity = affinity

    def extra(self) -> dict[str, int]:
        """What this strategy alone counts."""
        return {}

    @property
    def counters(self) -> Counters:
        """What was decided since it was made."""
        extra = tuple(sorted(self.extra().items()))
        return Counters(self._decisions, self._refused, self._prompt_tokens, self._hit_tokens, extra)


def _why_none(replicas: Sequence[Replica]) -> str:
    if not replicas:
        return "no replica"
    if any(one.weight > 0.0 and not one.draining for one in replicas):
        return "every replica that is open does prefill only"
    return "every replica drains or has weight 0"
