"""Promised: what no law of a signal takes from a tenant. Pure.

A law that holds a latency or goes by two thresholds knows no tenant from another, and would cut the one that keeps to
its promise with the one that floods: below its guarantee it lowers no cap. ``fair_share`` alone does, where more is
guaranteed than the pool carries.
"""

from controller.core.model import Lever, Target
from controller.core.ports import View


def kept(view: View, target: Target, current: float, wish: float) -> float:
    """The value for `wish`: of a tenant's cap no less than its guarantee, or than stands there already."""
    if target.lever is not Lever.TENANT_CAP or wish >= current or target.member not in view.tenants:
        return wish
    return max(wish, min(current, view.tenants[target.member].guarantee))
