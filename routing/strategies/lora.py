"""LoRA aware: a request goes where its adapter is loaded; loading one costs time and throws another out."""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from routing.model import Replica, Request
from routing.parameters import knob
from routing.strategies.strategy import OWED, Base, Choice

_LOADED: Final = "adapter loaded"


@dataclass(frozen=True, slots=True)
class LoraParameters:
    """How many adapters fit, and when one more replica is to load one."""

    slots: int = knob("adapters that a replica holds at once", 4, unit="adapters", ge=1)
    overload: float = knob(
        "another replica loads the adapter when those that have it hold so many times the mean requests in flight "
        "(by weight)",
        1.5,
        unit="times",
        ge=1,
    )
    slack: int = knob("and more than the mean by this", 4, unit="requests", ge=0)


class Lora(Base[LoraParameters]):
    """The least loaded replica that has the adapter. When all that have it are overloaded, or none has it, the least
    loaded with a free slot, and only then one that must throw another adapter out. Requests without an adapter go to
    the least loaded. Engines tell late what they loaded, so what was sent since their report counts as loaded."""

    Parameters = LoraParameters

    def __init__(self, parameters: LoraParameters) -> None:
        super().__init__(parameters)
        self._sent: dict[str, OrderedDict[str, float]] = {}  # replica -> adapter -> when it was last sent there
        self._loads = 0

    def choose(self, request: Request, replicas: list[Replica], now: float) -> Choice:
        if not request.adapter:
            return Choice(self.least_loaded(replicas).name, why="no adapter: least loaded")
        owed = self.owed(replicas)
        if owed is not None:
            return Choice(owed.name, why=_LOADED if self._holds(owed, request.adapter) else OWED)
        order = self.rotated(replicas)
        holders = [one for one in order if self._holds(one, request.adapter)]
        why = "adapter loaded nowhere"
        if holders:
            best = min(holders, key=_load)
            sole = len(holders) == 1 and len(order) > 1
            if self._overloaded(best, order):
                why = "all with the adapter are overloaded"
            elif sole and not self.keeps(best):
                why = "the one with the adapter has had its share"
                order = [one for one in order if one is not best]
            else:
                return Choice(best.name, why=_LOADED)
        slots = self.parameters.slots
        target = min(order, key=lambda one: (self._count(one, request.adapter) > slots, _load(one)))
        return Choice(target.name, why=why)

    def sent(self, request: Request, choice: Choice, now: float) -> None:
        if request.adapter:
            mine = self._sent.setdefault(choice.replica, OrderedDict())
            self._loads += choice.why != _LOADED
            mine[request.adapter] = now
            mine.move_to_end(request.adapter)
            while len(mine) > self.parameters.slots:
                mine.popitem(last=False)

    def joined(self, replica: Replica, now: float) -> None:
        self._sent.pop(replica.name, None)

    def left(self, name: str, now: float) -> None:
        super().left(name, now)
        self._sent.pop(name, None)

    def extra(self) -> dict[str, int]:
        return {"adapter_loads": self._loads}

    def _holds(self, one: Replica, adapter: str) -> bool:
        if adapter in one.adapters:
            return True
        mine = self._sent.get(one.name)
        return mine is not None and adapter in mine and (one.reported_at is None or mine[adapter] >= one.reported_at)

    def _count(self, one: Replica, adapter: str) -> int:
        """Adapters it would hold with this one."""
        mine = self._sent.get(one.name, ())
        return len({*one.adapters, adapter, *(name for name in mine if self._holds(one, name))})

    def _overloaded(self, best: Replica, replicas: list[Replica]) -> bool:
        mean = sum([one.inflight for one in replicas]) * self.top / sum([one.weight for one in replicas])
        load = best.inflight * self.top / best.weight
        return load > self.parameters.overload * mean and load > mean + self.parameters.slack


def _load(one: Replica) -> float:
    return (one.inflight + 1) / one.weight
