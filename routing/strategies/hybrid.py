"""Hybrid: affinity narrows, cost picks, overload widens."""

from dataclasses import dataclass, replace
from typing import Final

from routing.model import Replica, Request
from routing.parameters import knob
from routing.strategies.cost import CostBase, CostParameters
from routing.strategies.ledger import NOTHING
from routing.strategies.strategy import CROWDED, EVEN, OWED, Choice

_SPARED: Final = "affine set has had its share"


@dataclass(frozen=True, slots=True)
class HybridParameters(CostParameters):
    """How narrow, and when wide."""

    least_hit: int = knob("cached prompt tokens below which affinity has no say", 128, unit="tokens", ge=1)
    narrow: float = knob("share of the longest match that a replica must hold to be in the affine set", 0.7, gt=0, le=1)
    overload: float = knob(
        "the set is overloaded when its least open work is over so many times the mean of all", 1.5, unit="times", ge=1
    )
    slack: float = knob("and over the mean by more than this", 0.5, unit="seconds", ge=0)


class Hybrid(CostBase[HybridParameters]):
    """Among the replicas that hold nearly the longest match of the prompt the cheapest; when even the least busy of
    them is overloaded, the cheapest of all, where the match still counts as prompt that need not be computed.

    Memory is a hard limit throughout, and estimates that are not believed are not used, as in `cost`.
    """

    Parameters = HybridParameters

    def __init__(self, parameters: HybridParameters) -> None:
        super().__init__(parameters)
        self._affine = self._widened = 0

    def choose(self, request: Request, replicas: list[Replica], now: float) -> Choice:
        length = self.lengths.expect(request, self.parameters.reserve)
        depths, owed = self.depths(request), self.owed(replicas)
        if owed is not None:
            return replace(self.cheapest(request, length, [owed], depths), why=OWED)
        order = self.rotated(replicas)
        longest = max(depths.values(), default=0)
        why = "nothing cached"
        if longest * request.block >= self.parameters.least_hit:
            enough = self.parameters.narrow * longest
            affine = [one for one in order if depths.get(one.name, 0) >= enough]
            own = self.parameters.prefill_cost * request.prompt_tokens + self.parameters.decode_cost * length.expected
            why = self._why_widen(affine, order, own)
            if not why:
                choice = self.cheapest(request, length, affine, depths)
                if choice.replica:
                    self._affine += 1
                    return replace(choice, why=f"affine set, {choice.why}")
                why = "affine set has no memory"
            elif why == _SPARED:
                order = [one for one in order if one is not affine[0]]
            self._widened += 1
        choice = self.cheapest(request, length, order, depths)
        return replace(choice, why=f"{why}: {choice.why}") if choice.replica else self.refused(request, length)

    def extra(self) -> dict[str, int]:
        return super().extra() | {"affine": self._affine, "widened": self._widened}

    def _why_widen(self, affine: list[Replica], replicas: list[Replica], own: float) -> str:
        """Why the affine set will not do; empty when it will. `own` is the work of the request, seconds."""
        if not affine:
            return "affine set closed"
        at = self.ledger.at
        total = sum([at[one.name].work for one in replicas if one.name in at])
        weights = sum([one.weight for one in replicas]) if self.lowered else self.top * len(replicas)
        mean = total * self.top / weights
        least = min([at.get(one.name, NOTHING).work / one.weight for one in affine]) * self.top
        if least > self.parameters.overload * mean and least > mean + self.parameters.slack:
            return "affine set overloaded"
        spread = 1.0 - self.affinity
        if spread > 0.0:
            busy = min([(at.get(one.name, NOTHING).work + own) / one.weight for one in affine])
            if spread * busy > min([(at.get(one.name, NOTHING).work + own) / one.weight for one in replicas]) * (
                1 + EVEN
            ):
                return CROWDED
        if len(affine) == 1 and not self.keeps(affine[0]):
            return _SPARED
        return ""
