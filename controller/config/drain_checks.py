"""What a drain before a scale-down needs: somebody who takes the traffic of single replicas away soon enough and gives
it back also when Governor is gone, and a workload of which those go that are named."""

import math
from collections.abc import Iterator

from controller.config.errors import Finding, Path
from controller.config.models import GovernorConfig, LeverConfig, PoolConfig
from controller.config.units import format_duration
from controller.core.model import Lever, Mode
from controller.core.rules import Rate

TICKS = 3  # ticks that a drain takes at least; a value that expires must outlive as many
_LONGEST = 86400.0  # seconds beyond which no answer is waited for
_CHOOSING = ("Deployment", "ReplicaSet")  # kinds of which those go first that are named
_NO_PODS = ("instance", "address", "endpoint", "host", "hostname", "node", "ip")  # labels that are no name of a pod


def drains(config: GovernorConfig, pool_at: Path, pool: PoolConfig, settings: LeverConfig) -> Iterator[Finding]:
    """Why the drain of the pool at `pool_at` could not work, or would not end well."""
    at, by = (*pool_at, "levers", Lever.REPLICAS.value, "drain"), (*pool_at, "levers", Lever.WEIGHT.value)
    weight = pool.levers.get(Lever.WEIGHT)
    if weight is None or weight.by != "replica" or (settings.mode is Mode.AUTO and weight.mode is not Mode.AUTO):
        yield Finding(
            at,
            "nothing takes the traffic of single replicas away and gives it back",
            "write a lever weight with mode: auto and by: replica beside it, or remove drain",
            (by,),
        )
    else:
        yield from _comes_back(config, str(pool_at[1]), by, weight)
        yield from _too_slow(config, at, by, settings, weight)
    if settings.drain < TICKS * config.interval:
        yield Finding(
            at,
            f"{format_duration(settings.drain)} is over before anybody can be seen without work, at a tick every "
            f"{format_duration(config.interval)}",
            f"write at least {format_duration(TICKS * config.interval)}",
            (("interval",),),
        )
    if settings.drain > _LONGEST:
        yield Finding(
            at,
            f"{format_duration(settings.drain)} is how long one answer that hangs would hold every lowering",
            f"write what your longest answer takes, at most {format_duration(_LONGEST)}",
        )
    yield from _who_goes(config, pool_at, pool)


def _who_goes(config: GovernorConfig, pool_at: Path, pool: PoolConfig) -> Iterator[Finding]:
    at = (*pool_at, "levers", Lever.REPLICAS.value, "drain")
    plugin = config.actuator(str(pool_at[1]), Lever.REPLICAS)
    if plugin is None and pool.workload is not None and pool.workload.kind not in _CHOOSING:
        yield Finding(
            at,
            f"a {pool.workload.kind} cannot be told whom to end, and would end others than those that have finished",
            "remove it; a Deployment can choose",
            ((*pool_at, "workload", "kind"),),
        )
    if plugin is not None and plugin.kind == "kubernetes" and pool.labels.replica in _NO_PODS:
        yield Finding(
            (*pool_at, "labels", "replica"),
            f"{pool.labels.replica} is not the name of a pod, so Kubernetes could not be told who has finished",
            "write replica: pod, or remove drain",
            (at,),
        )


def _comes_back(config: GovernorConfig, pool: str, by: Path, weight: LeverConfig) -> Iterator[Finding]:
    """A weight of 0 takes a replica out, as a breaker does, and must not stay when every Governor is dead."""
    if weight.fail_static or weight.mode is not Mode.AUTO:
        return
    accept = "write fail_static: true in weight to accept that"
    if not weight.expiry:
        yield Finding(
            (*by, "expiry"),
            "0s never ends, so replicas that drain would get nothing any more when every Governor is dead",
            f"leave the key out, or {accept}",
            ((*by, "fail_static"),),
        )
        return
    plugin = config.actuator(pool, Lever.WEIGHT)
    try:
        can = plugin.cls.describe(plugin.settings).get(Lever.WEIGHT) if plugin is not None else None
    except Exception:  # noqa: BLE001 - what a stranger's actuator cannot say is told where its levers are checked
        return
    if plugin is not None and can is not None and not can.expiry:
        yield Finding(
            (*by, "actuator"),
            f"{plugin.kind} cannot drop a value by itself, so replicas that drain would get nothing any more when "
            "every Governor is dead",
            f"{accept}, or choose an actuator whose target enforces expiry",
            ((*by, "fail_static"),),
        )


def _too_slow(
    config: GovernorConfig, at: Path, by: Path, settings: LeverConfig, weight: LeverConfig
) -> Iterator[Finding]:  # fmt: skip
    """A weight that falls so slowly that the time is out before a replica is empty."""
    rate = weight.rate.down
    steps = _steps(rate, weight.quantum) if rate is not None else 1
    if rate is None or steps <= 1:
        return
    needs = (steps - 1) * max(rate.period, config.interval) + TICKS * config.interval
    if needs > settings.drain:
        yield Finding(
            at,
            f"{format_duration(settings.drain)} is over before a weight is 0, which takes {format_duration(needs)} at "
            "this rate",
            "leave out rate.down of weight, or write a longer drain",
            ((*by, "rate", "down"),),
        )


def _steps(rate: Rate, quantum: float) -> int:
    """Periods in which a full share falls to nothing."""
    if not rate.relative:
        return math.ceil(1.0 / rate.amount - 1e-9) if rate.amount > 0 else 1
    left, steps = 1.0, 0
    while left > 1e-9 and steps < 10_000:
        left -= max(quantum, rate.amount * left)
        steps += 1
    return steps
