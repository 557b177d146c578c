"""Rigs: how the contract suite builds each actuator over a real target, looks at it from outside and breaks it.

A new actuator joins by a module in this folder with ``RIGS``: names to builders. A name is the actuator's kind, or
begins with it and a dash where one kind has several rigs (``envoy-grpc``, ``envoy-file``).
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from controller.core.model import Outcome, Target
from controller.core.ports import Actuator, Capability

NOW = 1_704_067_800.0


@dataclass
class Rig:
    """An actuator over three targets of one lever, with what they stand at in `start`. `up` is a valid value of the
    first above its start, `down` one of the second below its start, `other` a third value of the first. `can` is what
    it claims for the lever.

    `values` looks from outside, `touched` counts writes that arrived, `edit` changes the first target by somebody
    else's hand. `fail`, `refuse` and `lose` make the next write end so; one that is None cannot happen, and `cannot`
    says why, by its name. `lost` is what became of a write whose answer was lost. `forget` makes the target begin anew.
    """

    actuator: Actuator
    can: Capability
    start: Mapping[Target, float]
    up: float
    down: float
    other: float
    values: Callable[[], dict[Target, float]]
    touched: Callable[[], int]
    edit: Callable[[float], object] | None
    fail: Callable[[], object] | None
    refuse: Callable[[], object] | None = None
    lose: Callable[[], object] | None = None
    lost: Outcome = Outcome.DONE
    forget: Callable[[], object] | None = None
    cannot: Mapping[str, str] | None = None

    @property
    def targets(self) -> tuple[Target, Target, Target]:
        first, second, third = self.start
        return first, second, third


Builder = Callable[[Path, ExitStack], Rig]


def rigs() -> dict[str, Builder]:
    """Every rig of this folder, by name."""
    found: dict[str, Builder] = {}
    for module in pkgutil.iter_modules(__path__):
        found.update(importlib.import_module(f"{__name__}.{module.name}").RIGS)
    return dict(sorted(found.items()))
