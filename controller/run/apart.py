"""Apart: each pool is measured and learned of by itself, so that what cannot be made of one pool's numbers ends the
control of no other.

Numbers that are no quantities are dropped before (``controller.core.sane``), and failures of queries are data. What
raises all the same is a plug-in that hands on something else than numbers, or a mistake of ours. Then the pool has no
readings at this tick: nothing of it is trusted, so its levers hold.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from controller.core import estimate, relief
from controller.core.learned import EstimatorSpec, EstimatorState
from controller.core.meter import Meter
from controller.core.model import Lever, PoolReadings, Snapshot, Target, TargetState
from controller.core.observation import Observation
from controller.core.ports import Estimate

_NOTHING = PoolReadings()


class Measured(NamedTuple):
    """Readings by pool, and why there are none of some."""

    pools: dict[str, PoolReadings]
    failed: dict[str, Exception]


class Learned(NamedTuple):
    """Estimates and the next states by pool; why the readings of some could not be used."""

    estimates: dict[str, Estimate]
    after: dict[str, EstimatorState]
    failed: dict[str, Exception]


def measure(meter: Meter, observation: Observation) -> Measured:
    """One tick of all pools. One that cannot be measured begins anew: it may be what its windows hold."""
    pools: dict[str, PoolReadings] = {}
    failed: dict[str, Exception] = {}
    for name, pool in sorted(meter.pools.items()):
        try:
            pools[name] = pool.update(observation)
        except Exception as error:  # noqa: BLE001 - told by the loop; whatever it is, the other pools go on
            pools[name], failed[name] = _blind(error), error
            meter.pools[name] = pool.anew()
    return Measured(pools, failed)


def learn(specs: Mapping[str, EstimatorSpec], snapshot: Snapshot, learned: Mapping[str, EstimatorState]) -> Learned:
    """Estimates of all pools and the next states; shared by the loop and by replay. A pool that fails is learned of as
    one of which nothing was read."""
    estimates: dict[str, Estimate] = {}
    after: dict[str, EstimatorState] = {}
    failed: dict[str, Exception] = {}
    now = snapshot.tick.at
    for name, spec in sorted(specs.items()):
        state = learned.get(name) or EstimatorState()
        readings = snapshot.pools.get(name)
        if readings is None:
            after[name] = state
            continue
        target = snapshot.targets.get(Target(name, Lever.REPLICAS))
        out = relief.names_out(snapshot, name) if readings.versions else ()
        sent = relief.sent_away(snapshot, name) if spec.band is not None else 0.0
        try:
            estimates[name], after[name] = estimate.update(spec, readings, target, now, state, out, sent)
        except Exception as error:  # noqa: BLE001 - told by the loop; whatever it is, the other pools go on
            failed[name] = error
            estimates[name], after[name] = _blindly(spec, target, now, state, sent)
    return Learned(estimates, after, failed)


def without(snapshot: Snapshot, pools: Mapping[str, Exception]) -> Snapshot:
    """The snapshot without the readings of these pools. It is what the ledger keeps, so that a replay learns the same
    of it."""
    if not pools:
        return snapshot
    return replace(snapshot, pools={**snapshot.pools, **{name: _blind(error) for name, error in pools.items()}})


def _blind(error: Exception) -> PoolReadings:
    return PoolReadings(partial=f"nothing could be made of its numbers: {type(error).__name__}: {error}")


def _blindly(
    spec: EstimatorSpec, target: TargetState | None, now: float, state: EstimatorState, sent: float
) -> tuple[Estimate, EstimatorState]:  # fmt: skip
    """As when nothing was read. A memory of which nothing can be made even so is none."""
    try:
        return estimate.update(spec, _NOTHING, target, now, state, (), sent)
    except Exception:  # noqa: BLE001 - the error of the readings is told, and this one is what it left behind
        return estimate.update(spec, _NOTHING, target, now, EstimatorState(), (), sent)
