"""Members that come and go: the targets of levers that are moved replica by replica."""

from collections.abc import Mapping, Sequence

from controller.core.model import PoolReadings, Target
from controller.core.rules import PER_REPLICA, FleetRules


def seen(rules: FleetRules, pools: Mapping[str, PoolReadings], before: Sequence[Target]) -> tuple[Target, ...]:
    """One target for each replica that is seen, and each lever that is moved by replica, sorted. Of a pool that nothing
    was read of, those of `before`: an outage of the metrics takes no replica away."""
    found: list[Target] = []
    for pool in rules.pools:
        levers = [lever.lever for lever in pool.levers if lever.lever in PER_REPLICA]
        if not levers:
            continue
        readings = pools.get(pool.pool)
        if readings is None or not readings.replicas:
            found += [target for target in before if target.pool == pool.pool and target.lever in levers]
        else:
            found += [Target(pool.pool, lever, name) for lever in levers for name in readings.replicas]
    return tuple(sorted(found))
