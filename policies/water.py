"""Water: how a shortfall is divided among tenants that were promised something. Pure, tokens/s.

    cap = max( guarantee · cut, floor, weight · L + unused ),    unused = max( 0, weight · L - demand )
    L from  Σ min( demand, max( guarantee, floor, weight · L ) ) = supply          ``policies.maxmin``

Only one of the two limits. Guarantees are cut, in proportion, when those who ask for them are promised more than there
is; the level is 0 then, and the floors of those who were promised nothing are taken off first.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from controller.core.ports import View
from controller.core.tenancy import TenantRules
from policies.maxmin import Flow, used, water_level
from policies.shield import NOBODY, weight_of


class Water(NamedTuple):
    """How a shortfall is divided: factor on guarantees, and water level in tokens/s."""

    cut: float = 1.0
    level: float = math.inf

    def fair(self, rules: TenantRules, demand: float, floor: float) -> float:
        """The cap of a tenant under a shortfall. Who asks for less than is left of its guarantee makes nothing
        infeasible, and its next minute may be above."""
        promised = rules.guarantee * (self.cut if demand > rules.guarantee * self.cut else 1.0)
        part = weight_of(rules) * self.level
        return max(promised, floor, part + max(0.0, part - demand))


def divided(
    view: View, flows: Mapping[str, float], still: Mapping[str, float], floors: Mapping[str, float], supply: float,
    other: float, fits: float, trims: tuple[float, float],
) -> Water:  # fmt: skip
    """The level that the pool has, trimmed by what is measured (``policies.trim``), and no less than that at which what
    is `still` there of the flows `fits`. `other` is demand that nobody can cap."""
    trim, press = trims
    by_pool = _level(view, flows, floors, supply, other)
    by_left = _level(view, still, floors, max(0.0, fits), 0.0)
    cut, level = max((by_pool[0], by_pool[1] * trim), by_left)
    if cut < 1.0:  # what is cut is no promise any more that a queue must be kept up for
        cut *= min(trim, 1.0)
    return Water(cut, level * press)


def _level(
    view: View, demands: Mapping[str, float], floors: Mapping[str, float], supply: float, other: float
) -> tuple[float, float]:
    """(factor on guarantees, water level): only one of the two is ever limited."""
    rules = {name: view.tenants.get(name, NOBODY) for name in demands}
    promised = [Flow(d, 0.0, rules[name].guarantee) for name, d in demands.items() if rules[name].guarantee > 0]
    if used(promised, 1.0) > supply:
        # What is kept for those who were promised nothing is not there for the others.
        kept = math.fsum(min(d, floors[name]) for name, d in demands.items() if not rules[name].guarantee > 0)
        return min(water_level(promised, max(0.0, supply - kept)), 1.0), 0.0
    flows = [Flow(d, max(rules[name].guarantee, floors[name]), weight_of(rules[name])) for name, d in demands.items()]
    if other > 0:
        flows.append(Flow(other))
    return 1.0, water_level(flows, supply)
