"""KV-utilisation aware: memory is what engines run out of first, so the emptiest gets the request."""

from dataclasses import dataclass
from typing import Final

from routing.model import Replica, Request
from routing.parameters import knob
from routing.strategies.strategy import OWED, Base, Choice

_EMPTY: Final = 0.01  # usage of a replica that tells 0: by it, even an empty one is judged by its weight
_WHY: Final = (
    "least KV memory in use",
    "all queue or are full: least KV memory in use",
    "no fresh report: least loaded",
)


@dataclass(frozen=True, slots=True)
class KvUsageParameters:
    """Where full begins, and how old a report may be."""

    ceiling: float = knob("share of KV memory in use above which a replica is asked last", 0.9, gt=0, le=1)
    stale: float = knob(
        "a report older than this is not believed; such a replica is asked last", 30.0, unit="seconds", gt=0
    )


@dataclass(slots=True)
class _Since:
    reported_at: float | None
    tokens: int  # of prompts sent since that report


class KvUsage(Base[KvUsageParameters]):
    """The replica with the least KV memory in use for its weight: what it last told, and the prompts sent since. Those
    that queue, are over the ceiling or have gone silent are asked last; among the silent, requests in flight decide."""

    Parameters = KvUsageParameters

    def __init__(self, parameters: KvUsageParameters) -> None:
        super().__init__(parameters)
        self._since: dict[str, _Since] = {}
        self._reported: dict[str, float | None] = {}

    def choose(self, request: Request, replicas: list[Replica], now: float) -> Choice:
        owed = self.owed(replicas)
        if owed is not None:
            self._reported[owed.name] = owed.reported_at
            return Choice(owed.name, why=OWED)
        oldest, ceiling = now - self.parameters.stale, self.parameters.ceiling
        own = request.prompt_tokens
        best, least = replicas[0], (len(_WHY), 0.0)
        for one in self.rotated(replicas):
            at = one.reported_at
            if at is None or at < oldest:
                rank = (2, (one.inflight + 1) / one.weight)
            else:
                since = self._since.get(one.name)
                sent = since.tokens if since is not None and since.reported_at == at else 0
                usage = one.kv_usage + (sent + own) / one.kv_tokens if one.kv_tokens else one.kv_usage
                rank = (1 if usage > ceiling or one.waiting else 0, (usage + _EMPTY) / one.weight)
            if rank < least:
                best, least = one, rank
        self._reported[best.name] = best.reported_at
        return Choice(best.name, why=_WHY[least[0]])

    def sent(self, request: Request, choice: Choice, now: float) -> None:
        at = self._reported.get(choice.replica)
        since = self._since.get(choice.replica)
        if since is None or since.reported_at != at:
            self._since[choice.replica] = since = _Since(at, 0)
        since.tokens += request.prompt_tokens

    def left(self, name: str, now: float) -> None:
        super().left(name, now)
        self._since.pop(name, None)
        self._reported.pop(name, None)
