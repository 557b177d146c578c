"""The standing concurrency cap: requests beyond what the engines can run wait in the gateway, where order can be kept.

    cap = min( limit, floor( per_slot · Σ slots · min(weight, 1) ) )      over the replicas in service

Inside an engine a request that waits can be neither reordered nor given to another replica, and a critical one waits
behind whatever came before. A replica that is ramped up or half broken counts with its weight, one that drains or only
prefills not at all. While anything is in service the cap is at least 1. A replica that does not tell its slots makes
the sum unknown, and `limit` alone holds.
"""

from collections.abc import Iterable
from math import floor, inf

from routing.knobs import Concurrency
from routing.model import Replica


def cap(knobs: Concurrency, in_service: Iterable[Replica]) -> float:
    """Requests that may be at the replicas at once; infinite without a cap."""
    most = inf if knobs.limit is None else float(knobs.limit)
    if knobs.per_slot is None:
        return most
    slots, any_at_all = 0.0, False
    for replica in in_service:
        if replica.ability.role == "prefill":
            continue
        if replica.slots is None:
            return most
        slots += replica.slots * min(replica.weight, 1.0)
        any_at_all = True
    return min(most, max(1, floor(knobs.per_slot * slots)) if any_at_all else 0.0)
