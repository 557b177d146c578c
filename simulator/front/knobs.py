"""Levers that are set-points of a gateway: from a target of the controller to the knob that it moves, and back."""

import dataclasses
from collections.abc import Mapping

from controller.core.model import Lever, Target
from routing.knobs import Knobs, Tenant

LEVERS = (Lever.WEIGHT, Lever.BREAKER, Lever.TENANT_CAP, Lever.DOWNGRADE)
UNCAPPED = 1e12  # tokens/s that read as no cap


class Setting:
    """The set-points of one gateway as the controller sees them. `weights` and `breakers` are factors per replica, the
    lower one counts; `caps` tokens/s per tenant; `downgrade` the share that goes to the smaller model."""

    def __init__(self, base: Knobs) -> None:
        self._base = base
        self._factors: dict[tuple[Lever, str], float] = {}
        self._caps: dict[str, float] = {}
        self._downgrade: float | None = None

    def get(self, target: Target) -> float:
        """What stands now. Raises ValueError when there is no such knob."""
        base, member = self._base, target.member
        if target.lever is Lever.WEIGHT:
            return self._factors.get((target.lever, member), base.weights.get(member, 1.0))
        if target.lever is Lever.BREAKER:
            return self._factors.get((target.lever, member), 1.0)
        if target.lever is Lever.TENANT_CAP:
            usual = base.tenants.get(member, base.other_tenants).tokens_per_s
            return self._caps.get(member, UNCAPPED if usual is None else usual)
        if target.lever is Lever.DOWNGRADE:
            if not base.downgrade:
                raise ValueError(f"{target}: the gateway has no pool to downgrade to; write one under knobs.downgrade")
            return base.downgrade[0].share if self._downgrade is None else self._downgrade
        raise ValueError(f"{target}: is no set-point of a gateway")

    def put(self, target: Target, value: float) -> Knobs:
        """Set one; the knobs as they are then. Raises ValueError, and changes nothing, when the value cannot be."""
        self.get(target)
        factors, caps, downgrade = dict(self._factors), dict(self._caps), self._downgrade
        if target.lever in (Lever.WEIGHT, Lever.BREAKER):
            factors[target.lever, target.member] = value
        elif target.lever is Lever.TENANT_CAP:
            caps[target.member] = value
        else:
            downgrade = value
        knobs = _knobs(self._base, factors, caps, downgrade)
        self._factors, self._caps, self._downgrade = factors, caps, downgrade
        return knobs


def _knobs(
    base: Knobs, factors: Mapping[tuple[Lever, str], float], caps: Mapping[str, float], downgrade: float | None
) -> Knobs:
    weights = dict(base.weights)
    for name in dict.fromkeys(member for _, member in factors):
        weight = factors.get((Lever.WEIGHT, name), base.weights.get(name, 1.0))
        weights[name] = min(weight, factors.get((Lever.BREAKER, name), 1.0))
    tenants = dict(base.tenants)
    for name, cap in caps.items():
        usual: Tenant = base.tenants.get(name, base.other_tenants)
        tenants[name] = dataclasses.replace(usual, tokens_per_s=None if cap >= UNCAPPED else cap)
    routes = base.downgrade
    if downgrade is not None:
        routes = (dataclasses.replace(routes[0], share=downgrade), *routes[1:])
    return dataclasses.replace(base, weights=weights, tenants=tenants, downgrade=routes)
