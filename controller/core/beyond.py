"""Beyond its room: what a receiving pool may be sent because its gate refuses something else for it. Pure.

    beyond = min( share · what it carries, its demand that may be shed )         replica-equivalents of the receiver

A receiver that is filled up to its room is full of whatever came first, and refuses a critical request that its gate
would have let in before one that may be shed. So as long as something there may be shed, more is sent than fits, and
the gate decides by class. How much more is said by the law of the sender; nothing where no gate is known to do so.
"""

import math
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from controller.core.model import Lever
from controller.core.ports import Estimate
from controller.core.rules import FleetRules

_DOWNGRADE = Lever.DOWNGRADE


class Beyond(NamedTuple):
    """Of one sender and one receiver: `share` of what it carries, and the `classes` there that may be shed first."""

    share: float
    classes: Collection[str]

    def of(self, carried: float, there: Estimate) -> float:
        """Replica-equivalents of the receiver; nothing while its classes are not told apart."""
        shed = math.fsum(there.classes.get(name, 0.0) for name in self.classes)
        return min(self.share * carried, shed) if math.isfinite(shed) and shed > 0 else 0.0


NOTHING: Mapping[tuple[str, str], Beyond] = MappingProxyType({})


def beyond(rules: FleetRules, policies: Mapping[str, Any]) -> dict[tuple[str, str], Beyond]:
    """By sender and receiver; `policies` by "pool/lever". A law says by `beyond` what it sends to a pool whose levers
    of a given set act."""
    known = {one.pool: one for one in rules.pools}
    found = {}
    for pool in rules.pools:
        if not pool.receivers:
            continue
        says = getattr(policies.get(f"{pool.pool}/{_DOWNGRADE}"), "beyond", None)
        if says is None:
            continue
        for name in pool.receivers:
            there = known.get(name)
            if there is not None and there.sheddable_classes and (share := says(there.acting)) > 0:
                found[pool.pool, name] = Beyond(share, there.sheddable_classes)
    return found
