"""What a pool does not promise and its laws go by: no mistake, but they do less than they could."""

from collections.abc import Iterator

from controller.config.errors import Finding, Path
from controller.config.models import GovernorConfig, PoolConfig
from controller.core.model import Lever, Mode
from controller.core.operating import OF_THE_BATCH
from controller.core.signals import INFO

_SIZED = frozenset({"capacity", "gate", "fair_share", "downgrade"})  # go by what a replica serves within the promises


def unpromised(config: GovernorConfig) -> Iterator[Finding]:
    """Every such pool and lever. Laws that could do nothing at all are refused (``steering``, ``setpoint_checks``)."""
    for name, pool in config.pools.items():
        at: Path = ("pools", name)
        yield from _nothing_is_late(at, pool)
        yield from _nobody_is_slow(at, pool)


def _nothing_is_late(at: Path, pool: PoolConfig) -> Iterator[Finding]:
    sized = [str(one) for one, body in pool.levers.items() if body.mode is not Mode.OFF and body.policy.kind in _SIZED]
    if sized and not any(INFO[one.signal].latency for one in pool.objectives):
        yield Finding(
            (*at, "objectives"),
            f"promise no latency, so a replica counts as good for all that its engine takes at once, however late that "
            f"is, and {', '.join(sized)} {'goes' if len(sized) == 1 else 'go'} by that",
            "add an objective on ttft and one on itl",
        )


def _nobody_is_slow(at: Path, pool: PoolConfig) -> Iterator[Finding]:
    weight = pool.levers.get(Lever.WEIGHT)
    if weight is None or weight.mode is Mode.OFF or getattr(weight.policy.settings, "router", "") != "least_loaded":
        return
    if not any(one.signal in OF_THE_BATCH and not one.klass for one in pool.objectives):
        yield Finding(
            (*at, "levers", Lever.WEIGHT.value, "policy", "router"),
            "least_loaded leaves a slow replica what it serves within a promise on itl or tpot to all classes, and "
            "there is none, so only one that fails gets less",
            "add an objective on itl without a class",
        )
