"""Fairness: what each tenant got of what it should have got when there was too little for all.

Per minute of arrivals: the service given is what was served of all that arrived in it, in the currency of the tally.
Max-min divides that same amount: nobody gets more than it asked for, and nobody who asked for more gets less than
another by its weight. A tenant is backlogged in a minute in which it was served less than it asked for. Its share is
what it got over what it should have got, over all such minutes; 1 is fair, 0 is starved.
"""

from collections.abc import Iterable, Mapping
from math import fsum

SLACK = 1e-9


def max_min(supply: float, asked: Mapping[str, float], weights: Mapping[str, float] | None = None) -> dict[str, float]:
    """Weighted max-min shares of the supply. Tenants are taken in the order in which they are satisfied."""
    weights = weights or {}
    given: dict[str, float] = {}
    left = supply
    order = sorted(asked, key=lambda tenant: (asked[tenant] / weights.get(tenant, 1.0), tenant))
    open_weight = fsum(weights.get(tenant, 1.0) for tenant in order)
    for tenant in order:
        weight = weights.get(tenant, 1.0)
        given[tenant] = min(asked[tenant], max(0.0, left) * weight / open_weight)
        left -= given[tenant]
        open_weight -= weight
    return given


def shares(minutes: Iterable[tuple[Mapping[str, float], Mapping[str, float]]]) -> dict[str, float]:
    """Each tenant's share of its max-min share while it was backlogged, from (asked, served) per minute; tenants that
    never were are not in it."""
    got: dict[str, float] = {}
    due: dict[str, float] = {}
    for asked, served in minutes:
        fair = max_min(fsum(served.values()), asked)
        for tenant, wanted in asked.items():
            mine = served.get(tenant, 0.0)
            if mine < wanted * (1 - SLACK):
                got[tenant] = got.get(tenant, 0.0) + mine
                due[tenant] = due.get(tenant, 0.0) + fair[tenant]
    return {tenant: got[tenant] / due[tenant] for tenant in sorted(due) if due[tenant] > 0}
