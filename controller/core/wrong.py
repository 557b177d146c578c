"""Wrong: what is the matter with a pool that no lever is moved for, in words. Pure.

Where most replicas fail, a fleet without some of them would serve no more: so all stay, and a plan that said no more
than that would say that all is well. A version label that nobody has leaves all that goes by versions undone, silently.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import median

from controller.core.model import PoolReadings
from controller.core.rules import FleetRules, PoolRules
from controller.core.signals import Signal
from controller.core.worse import LEAST_ENDED, LIMIT, ended

# Looked up by name of the module: a member of an enum takes ten times as long, and this is asked of every replica.
_ERRORS = Signal.ERROR_RATIO
Readings = Mapping[str, PoolReadings]


def wrong(rules: FleetRules, pools: Readings) -> list[str]:
    """By pool, in the order of their names."""
    found: list[str] = []
    for pool in sorted(rules.pools, key=lambda one: one.pool):
        readings = pools.get(pool.pool)
        if readings is not None and readings.replicas:
            found += [*_fails(pool.pool, readings), *_untold(pool, readings)]
    return found


def _fails(pool: str, readings: PoolReadings) -> Sequence[str]:
    """Most of the replicas fail."""
    replicas = readings.replicas.values()
    if 2 * sum([(one.usable(_ERRORS) or 0.0) >= LIMIT for one in replicas]) <= len(replicas):
        return ()  # nearly always
    ends = [one for _, scope in sorted(readings.replicas.items()) if (one := ended(scope))[1] > 0]
    count = math.fsum(of for _, of in ends)
    bad = [share for share, _ in ends if share >= LIMIT]
    if count < LEAST_ENDED or median([share for share, _ in ends]) < LIMIT or 2 * len(bad) <= len(readings.replicas):
        return ()
    share = math.fsum(part * of for part, of in ends) / count
    many = f"{len(bad)} of {len(readings.replicas)} replicas of {pool} fail"
    return (
        f"{many}, {100 * share:.0f} % of {count:.0f} requests: most of them do, so that is no reason to take one out",
    )


def _untold(pool: PoolRules, readings: PoolReadings) -> Sequence[str]:
    """Versions are to go out as one cause, and replicas do not tell theirs."""
    if not pool.goes_by_version:
        return ()
    heard = [
        name for name, scope in sorted(readings.replicas.items())
        if scope.get(Signal.QUEUE_DEPTH).usable is not None or scope.get(Signal.RUNNING).usable is not None
    ]  # fmt: skip
    some = sum(name not in readings.versions for name in heard)
    if not some:
        return ()
    mend = "name in labels.version one that all their series have"
    if some == len(heard):
        return (f"no replica of {pool.pool} has the label of its version, so a bad one is not told apart; {mend}",)
    return (f"{some} of {len(heard)} replicas of {pool.pool} do not have the label of their version; {mend}",)
