"""The approximate prefix tree with balance thresholds, the law of SGLang's router."""

from dataclasses import dataclass

from routing.model import Replica, Request
from routing.parameters import knob
from routing.strategies.prefix import PrefixBase, PrefixParameters
from routing.strategies.strategy import CROWDED, OWED, Choice


@dataclass(frozen=True, slots=True)
class PrefixTreeParameters(PrefixParameters):
    """When a match is good enough, and when balance goes first."""

    match: float = knob("share of the prompt that must be cached for affinity to decide", 0.3, ge=0, le=1)
    balance_abs: float = knob(
        "requests in flight, by weight, between the most and the least loaded above which load may decide",
        64.0,
        unit="requests",
        ge=0,
    )
    balance_rel: float = knob("and how many times the least the most must be", 1.5, unit="times", ge=1)


class PrefixTree(PrefixBase[PrefixTreeParameters]):
    """While load is balanced: the replica with the longest match, if that is long enough, else the one whose tree is
    smallest, which has most room. While it is not: the least loaded. Load is requests in flight over weight; a
    replica at weight w keeps the share w of what it matches. With less affinity whoever is crowded is passed over."""

    Parameters = PrefixTreeParameters
    leans = True

    def choose(self, request: Request, replicas: list[Replica], now: float) -> Choice:
        depths = self.depths(request)
        owed = self.owed(replicas)
        if owed is not None:
            return Choice(
                owed.name, why=OWED, hit_tokens=min(depths.get(owed.name, 0) * request.block, request.prompt_tokens)
            )
        order = self.rotated(replicas)
        loads = [replica.inflight * self.top / replica.weight for replica in order]
        most, least = max(loads), min(loads)
        block, prompt = request.block, request.prompt_tokens
        if most - least > self.parameters.balance_abs and most > self.parameters.balance_rel * least:
            name = _lightest(order).name
            return Choice(name, why="out of balance", hit_tokens=min(depths.get(name, 0) * block, prompt))
        matching = [replica for replica in order if replica.name in depths]
        while matching:
            depth = max([depths[replica.name] for replica in matching])
            hit = min(depth * block, prompt)
            if hit <= self.parameters.match * prompt:
                break
            equals = [replica for replica in matching if depths[replica.name] == depth]
            best = min(equals, key=lambda one: (one.inflight + 1) / one.weight)
            if not self.crowded(best, order) and (len(equals) > 1 or self.keeps(best)):
                return Choice(best.name, why="longest match", hit_tokens=hit)
            matching.remove(best)
        size = self.blocks.size
        best, why = min(order, key=lambda one: ((size(one.name) + 1) / one.weight, one.inflight)), "smallest tree"
        if self.crowded(best, order):
            best, why = _lightest(order), CROWDED
        return Choice(best.name, why=why, hit_tokens=min(depths.get(best.name, 0) * block, prompt))


def _lightest(replicas: list[Replica]) -> Replica:
    return min(replicas, key=lambda one: (one.inflight + 1) / one.weight)
