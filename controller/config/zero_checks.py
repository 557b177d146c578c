"""Whether a pool may go to zero: only where something that lives without a replica tells what is asked for.

At zero no engine can be read. What wakes the pool is a gateway that counts who comes or holds who waits, and a law that
looks at that. A law that steers by a signal of its own sees nothing else, and of the signals only what is offered lives
at a gateway whatever it does with those for whom there is no replica.
"""

from collections.abc import Iterator

from controller import registry
from controller.config.errors import Finding, Path
from controller.config.models import PoolConfig
from controller.core.facts import Fact
from controller.core.model import Lever, Mode
from controller.core.signals import Signal
from controller.registry import PluginError

_WAKING = (Signal.OFFERED_RATE, Signal.RECENT_RATE)


def wakes(pool: PoolConfig) -> bool:
    """Whether anything tells demand while no replica runs, and the law of the replicas looks at it."""
    return next(_reasons(pool), None) is None


def check_zero(at: Path, pool: PoolConfig) -> Iterator[Finding]:
    """A minimum of zero from which nothing leads back, for the pool at `at`."""
    lever = pool.levers.get(Lever.REPLICAS)
    if lever is None or not 0 <= lever.min < 1 <= lever.max or lever.mode is Mode.OFF:
        return
    for mistake, mend in _reasons(pool):
        yield Finding(
            (*at, "levers", Lever.REPLICAS.value, "min"), f"{lever.min:g} would be for ever: {mistake}", mend,
            ((*at, "gateway"), (*at, "engine"), (*at, "levers", Lever.REPLICAS.value)),
        )  # fmt: skip


def _reasons(pool: PoolConfig) -> Iterator[tuple[str, str]]:
    """What keeps the pool from being woken, and the mend."""
    try:
        known = [name for name in registry.gateways() if _tells(name)]
    except PluginError:
        return  # reported with the engines
    some = f"one of {', '.join(known)}"
    if pool.gateway is not None:
        if not _tells(pool.gateway.engine):
            yield (
                f"{pool.gateway.engine} does not tell who comes or waits while no replica runs",
                f"write min: 1, or a gateway that does: {some}",
            )
    elif pool.engine not in known:
        yield (
            "without a replica nothing tells that a request came",
            f"write min: 1, or gateway: {{engine: ...}} with {some}",
        )
    lever = pool.levers.get(Lever.REPLICAS)
    signal = getattr(lever.policy.settings, "signal", None) if lever is not None else None
    if lever is not None and isinstance(signal, str) and signal not in _WAKING:
        yield (
            f"{lever.policy.kind} goes by {signal or 'a latency'}, which nobody tells while no replica runs",
            f"write min: 1, or signal: {_WAKING[0]}, or policy: {{kind: capacity}}",
        )


def _tells(gateway: str) -> bool:
    """Whether a gateway can tell who comes, or who waits at it. An unknown one is told elsewhere."""
    try:
        candidates = registry.tool("contract")(gateway).candidates
    except (PluginError, KeyError, ValueError):
        return True
    return Fact.ARRIVED in candidates or Fact.HELD in candidates
