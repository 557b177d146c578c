"""Weighted max-min: how supply is divided among flows that together ask for more than there is.

    cap of flow i   c_i(L) = max( least_i, weight_i · L )
    it then uses    u_i(L) = min( demand_i, c_i(L) )
    water level     L  such that  Σ u_i(L) = supply

Nobody gets more by taking from one who has less per weight; who asks for less than its part leaves the rest to the
others. Σ u is piecewise linear in L with its corners at least/weight and demand/weight, so the level is found by
bisection over the corners and a straight line between two: exact, and the same on every machine. Demands, least and
supply in one unit; weights have none.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple


class Flow(NamedTuple):
    """One that asks: for `demand`, of which `least` is its own whatever the others ask; `weight` above 0."""

    demand: float
    least: float = 0.0
    weight: float = 1.0

    def use(self, level: float) -> float:
        return min(self.demand, max(self.least, self.weight * level))


def used(flows: Sequence[Flow], level: float) -> float:
    """What all use together at a level."""
    return math.fsum([flow.use(level) for flow in flows])


def water_level(flows: Sequence[Flow], supply: float) -> float:
    """The level at which the flows use the supply; 0 when what is their own takes it all, infinite when it suffices
    for everybody."""
    if used(flows, 0.0) >= supply:
        return 0.0
    corners = sorted({c / f.weight for f in flows for c in (f.least, f.demand) if c > 0})
    if not corners or used(flows, corners[-1]) <= supply:
        return math.inf
    low, high = -1, len(corners) - 1  # the level is above corner `low` (-1 is no water) and not above corner `high`
    while high - low > 1:
        middle = (low + high) // 2
        if used(flows, corners[middle]) < supply:
            low = middle
        else:
            high = middle
    lower, upper = corners[low] if low >= 0 else 0.0, corners[high]
    below, above = used(flows, lower), used(flows, upper)
    return lower + (upper - lower) * min((supply - below) / (above - below), 1.0)
