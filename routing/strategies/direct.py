"""Direct: the caller says which replica. For tests, probes, and gateways that decide elsewhere."""

from dataclasses import dataclass

from routing.model import Replica, Request
from routing.parameters import knob
from routing.strategies.strategy import Base, Choice


@dataclass(frozen=True, slots=True)
class DirectParameters:
    """Where requests go that name no replica, and what happens when the named one is closed."""

    replica: str = knob("the replica for requests that name none", "")
    otherwise: str = knob(
        "when nothing is named, or the named one takes no work", "refuse", choices=("refuse", "least-loaded")
    )


class Direct(Base[DirectParameters]):
    """The replica that the request names, or the parameter does."""

    Parameters = DirectParameters

    def choose(self, request: Request, replicas: list[Replica], now: float) -> Choice:
        name = request.replica or self.parameters.replica
        if name and any(one.name == name for one in replicas):
            return Choice(name, why="named")
        why = f"replica {name!r} is not among those that can take it" if name else "no replica is named"
        if self.parameters.otherwise == "refuse":
            return Choice("", why=why)
        best = self.least_loaded(replicas)
        return Choice(best.name, why=f"{why}: least loaded")
