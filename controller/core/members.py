"""Members that come and go: the targets of levers that are moved replica by replica, or zone by zone.

A zone is a group of replicas: a region, a cluster, a GPU type, whatever the pool's zone label tells apart. What is read
of it is made of its members: work is summed, shares are averaged, and latencies are averaged by their samples. It is no
better known than the worst of them.
"""

import math
from collections.abc import Mapping, Sequence

from controller.core.model import Lever, PoolReadings, Scope, Target
from controller.core.reading import TRUSTED, USABLE, Reading, State
from controller.core.rules import PER_REPLICA, FleetRules
from controller.core.signals import INFO, Signal

_UNSEEN = Scope()
_SHARES = frozenset(
    {Signal.KV_USAGE, Signal.GPU_MEMORY, Signal.GPU_UTILISATION, Signal.PREFIX_HIT_RATE, Signal.ERROR_RATIO}
)  # what is averaged
_WORST_FIRST = (State.MISSING, State.STALE, State.UNDERFILLED, State.PARTIAL, State.CENSORED)


def seen(rules: FleetRules, pools: Mapping[str, PoolReadings], before: Sequence[Target]) -> tuple[Target, ...]:
    """One target for each replica, or zone, that is seen, and each lever that is moved by it, sorted. Of a pool that
    nothing was read of, those of `before`: an outage of the metrics takes no replica away."""
    found: list[Target] = []
    for pool in rules.pools:
        by = {lever.lever: lever.by for lever in pool.levers if lever.lever in PER_REPLICA}
        levers = list(by)
        if not levers:
            continue
        readings = pools.get(pool.pool)
        if readings is None or not readings.replicas:
            found += [target for target in before if target.pool == pool.pool and target.lever in levers]
        else:
            zones = {zone for name in readings.replicas if (zone := readings.zones.get(name))}
            found += [
                Target(pool.pool, lever, name)
                for lever in levers
                for name in (zones if by[lever] == "zone" else readings.replicas)
            ]
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
    """What is read of a member itself: of a replica or a zone (weight, breaker) or a tenant (tenant_cap), else of the
    pool. Empty when nothing was read of it, so that each of its signals is missing."""
    if target.lever in PER_REPLICA:
        return member(pool, target.member)
    if target.lever is Lever.TENANT_CAP:
        return pool.tenants.get(target.member, _UNSEEN)
    return pool


def stands_for(pool: PoolReadings, name: str) -> tuple[str, ...]:
    """The replicas behind a member, sorted: itself where it is one, else those of the zone."""
    if name in pool.replicas:
        return (name,)
    return tuple(sorted(one for one in pool.replicas if pool.zones.get(one) == name))


def member(pool: PoolReadings, name: str) -> Scope:
    """What is read of a replica or of a zone. Empty where there is neither."""
    single = pool.replicas.get(name)
    if single is not None:
        return single
    parts = [pool.replicas[one] for one in stands_for(pool, name)]
    return together(parts) if parts else _UNSEEN


def together(parts: Sequence[Scope]) -> Scope:
    """What is read of some replicas as one."""
    signals = {signal for part in parts for signal in part.signals}
    told = {(signal, stat) for part in parts for signal, by in part.latencies.items() for stat in by}
    latencies: dict[Signal, dict[str, Reading]] = {}
    for signal, stat in sorted(told):
        latencies.setdefault(signal, {})[stat] = _by_samples([part.latency(signal, stat) for part in parts])
    return Scope(
        {signal: _together(signal, [part.get(signal) for part in parts]) for signal in sorted(signals)}, latencies
    )


def _together(signal: Signal, parts: Sequence[Reading]) -> Reading:
    """A sum, or the mean of shares. A sum without one of its parts would be too small, and nobody could tell."""
    values = [part.value for part in parts if part.value is not None]
    state = _worst(parts)
    if not values or state is State.MISSING:
        return Reading(State.MISSING, note="not told by all of the group")
    total = math.fsum(values)
    return Reading(state, total / len(values) if signal in _SHARES else total, age=_oldest(parts))


def _by_samples(parts: Sequence[Reading]) -> Reading:
    """A mean over those that had samples; a replica without traffic has none, and is no gap."""
    used = [one for one in parts if one.state in USABLE and one.value is not None and one.count]
    samples = math.fsum(one.count or 0.0 for one in used)
    if samples <= 0:
        return Reading(State.MISSING, note="no samples in the group")
    value = math.fsum((one.value or 0.0) * (one.count or 0.0) for one in used) / samples
    windows = [one.window for one in used if one.window is not None]
    return Reading(_worst(used), value, count=samples, age=_oldest(used), window=min(windows, default=None))


def _worst(parts: Sequence[Reading]) -> State:
    states = {part.state for part in parts}
    if states <= TRUSTED:
        return State.OK
    return next((state for state in _WORST_FIRST if state in states), State.MISSING)


def _oldest(parts: Sequence[Reading]) -> float | None:
    return max((part.age for part in parts if part.age is not None), default=None)
