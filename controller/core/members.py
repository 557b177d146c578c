"""Members that come and go: the targets of levers that are moved replica by replica."""

from collections.abc import Mapping, Sequence

from controller.core.model import Lever, PoolReadings, Scope, Target
from controller.core.reading import Reading
from controller.core.rules import PER_REPLICA, FleetRules
from controller.core.signals import INFO, Signal

_UNSEEN = Scope()


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


def own(pool: PoolReadings, target: Target, signal: Signal, statistic: str) -> Reading:
    """A reading of a member itself. Of a latency the statistic, or the mean where that is all that is read: the buckets
    of each replica would be most of all rows of a fleet."""
    read = scope(pool, target)
    if not INFO[signal].latency:
        return read.get(signal)
    told = read.latencies.get(signal, {})
    return told[statistic] if statistic in told else read.latency(signal, "mean")


def scope(pool: PoolReadings, target: Target) -> Scope:
    """What is read of a member itself: of a replica (weight, breaker) or a tenant (tenant_cap), else of the pool.
    Empty when nothing was read of it, so that each of its signals is missing."""
    if target.lever in PER_REPLICA:
        return pool.replicas.get(target.member, _UNSEEN)
    if target.lever is Lever.TENANT_CAP:
        return pool.tenants.get(target.member, _UNSEEN)
    return pool
