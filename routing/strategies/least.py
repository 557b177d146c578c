"""Strategies that look at load: requests in flight, or tokens still to be worked off. A replica's load counts as load
over weight, so that one with weight 0.25 settles at a quarter of the others' load."""

from dataclasses import dataclass

from routing.model import Replica, Request
from routing.parameters import knob
from routing.strategies.strategy import Base, Choice, NoParameters


@dataclass(frozen=True, slots=True)
class LeastLoadedParameters:
    """Whose count is believed."""

    reported: bool = knob(
        "count what engines last told (running and waiting) where that is more than this gateway's own requests in "
        "flight: for several gateways in front of one fleet",
        False,
    )


class LeastLoaded(Base[LeastLoadedParameters]):
    """The replica with the fewest requests in flight for its weight."""

    Parameters = LeastLoadedParameters

    def choose(self, request: Request, replicas: list[Replica], now: float) -> Choice:
        if not self.parameters.reported:
            return Choice(self.least_loaded(replicas).name, why="fewest requests in flight")
        best = self.owed(replicas) or min(
            self.rotated(replicas), key=lambda one: (max(one.inflight, one.running + one.waiting) + 1) / one.weight
        )
        return Choice(best.name, why="fewest requests in flight or told of")


class LeastQueue(Base[NoParameters]):
    """The replica with the fewest tokens left to work off, prompt and expected answer, for its weight; the new
    request's own prompt counted."""

    Parameters = NoParameters

    def choose(self, request: Request, replicas: list[Replica], now: float) -> Choice:
        own = request.prompt_tokens + 1
        best = self.owed(replicas) or min(
            self.rotated(replicas), key=lambda one: (one.inflight_tokens + own) / one.weight
        )
        return Choice(best.name, why="fewest remaining tokens")
