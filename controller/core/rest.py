"""At rest: the value of each lever at which it does nothing, and the fleet is as if nobody governed it.

Only what a target stands at that was never told: where an owner's own bound is lower, that one is neutral
(``rules.neutral``).
"""

from collections.abc import Mapping
from types import MappingProxyType

from controller.core.model import Lever, Target
from controller.core.setpoints import OWN

NO_LIMIT = 1e12  # tokens/s, requests or tokens that no gateway reaches: a cap or gate that stands there does nothing
# Replicas have none: without any, nobody is served.
AT_REST: Mapping[Lever, float] = MappingProxyType(
    {
        Lever.WEIGHT: 1.0, Lever.BREAKER: 1.0, Lever.TENANT_CAP: NO_LIMIT, Lever.ADMISSION: NO_LIMIT,
        Lever.DOWNGRADE: 0.0, Lever.ROUTING: 1.0,
    }
)  # fmt: skip


def at_rest(target: Target) -> float:
    """The value at which a target does nothing. Raises KeyError for replicas."""
    if target.lever is Lever.ADMISSION and target.member in OWN:
        return OWN[target.member].max
    return AT_REST[target.lever]
