"""Strategies that look at nothing: round robin and random."""

from dataclasses import dataclass
from itertools import accumulate

from routing.hashing import Chance
from routing.model import Replica, Request
from routing.parameters import knob
from routing.strategies.strategy import OWED, Base, Choice, NoParameters


class RoundRobin(Base[NoParameters]):
    """Each replica in its turn, as often as its weight says, and as evenly spread as that allows.

    Smooth weighted round robin: at each turn every candidate gains its weight, and the richest pays for all.
    """

    Parameters = NoParameters

    def choose(self, request: Request, replicas: list[Replica], now: float) -> Choice:
        credit, total, best, most = self._credit, 0.0, "", float("-inf")
        for replica in replicas:
            name, weight = replica.name, replica.weight
            total += weight
            credit[name] = has = credit.get(name, 0.0) + weight
            if has > most:
                best, most = name, has
        credit[best] -= total
        return Choice(best, why="its turn")


@dataclass(frozen=True, slots=True)
class RandomParameters:
    """Of chance."""

    seed: int = knob("seed of the draws; the same seed and load give the same picks", 0, ge=0)


class Random(Base[RandomParameters]):
    """Any replica, as likely as its weight says."""

    Parameters = RandomParameters

    def __init__(self, parameters: RandomParameters) -> None:
        super().__init__(parameters)
        self._chance = Chance(parameters.seed)

    def choose(self, request: Request, replicas: list[Replica], now: float) -> Choice:
        self._reseed()
        return Choice(self.drawn(replicas).name, why="drawn")

    def drawn(self, replicas: list[Replica]) -> Replica:
        """One replica, as likely as its weight says."""
        edges = list(accumulate(replica.weight for replica in replicas))
        mark = self._chance.draw() * edges[-1]
        return next((replica for replica, edge in zip(replicas, edges, strict=True) if mark < edge), replicas[-1])

    def _reseed(self) -> None:
        if self.parameters.seed != self._chance.seed:
            self._chance = Chance(self.parameters.seed)


class PowerOfTwo(Random):
    """Two replicas are drawn, and the one with fewer requests in flight for its weight gets the request."""

    def choose(self, request: Request, replicas: list[Replica], now: float) -> Choice:
        self._reseed()
        if len(replicas) == 1:
            return Choice(replicas[0].name, why="the only one")
        owed = self.owed(replicas)
        if owed is not None:
            return Choice(owed.name, why=OWED)
        first = self._chance.below(len(replicas))
        second = self._chance.below(len(replicas) - 1)
        one, other = replicas[first], replicas[second + (second >= first)]
        better = (other.inflight + 1) / other.weight < (one.inflight + 1) / one.weight
        return Choice((other if better else one).name, why="less loaded of two drawn")
