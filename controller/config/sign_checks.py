"""What a lever is steered by: signals that nobody tells, and values that make worse what moves them, so that they run
to a bound. Parameters called `signal`, `raise_when_high` and `scope` mean in every policy what they mean in ours."""

from collections.abc import Iterator

from controller import registry
from controller.config.errors import Finding, Path
from controller.config.models import PoolConfig
from controller.config.plugins import Plugin
from controller.core.facts import Fact
from controller.core.model import Lever
from controller.core.needs import way_for
from controller.core.operating import GROWS_WITH_BATCH, GROWS_WITH_WAIT
from controller.core.rules import PER_REPLICA
from controller.core.signals import INFO, Signal
from controller.registry import PluginError

_BY_CONTRACT = ("prometheus", "direct")  # sources that read what an engine's contract names, and nothing else
_LOAD = GROWS_WITH_WAIT | GROWS_WITH_BATCH | {Signal.OFFERED_RATE, Signal.RECENT_RATE}


def check_signs(at: Path, pool: PoolConfig, source: str) -> Iterator[Finding]:
    """Both, of the pool at `at`; `source` is the kind of the source."""
    told = _told(pool) if source in _BY_CONTRACT else None
    for index, objective in enumerate(pool.objectives):
        if told is not None and _unheard(objective.signal, told):
            yield _nobody((*at, "objectives", index, "signal"), at, pool, objective.signal)
    for lever, settings in pool.levers.items():
        here: Path = (*at, "levers", lever.value, "policy")
        name = getattr(settings.policy.settings, "signal", None)
        if isinstance(name, str) and name in set(Signal) and told is not None and _unheard(Signal(name), told):
            yield _nobody((*here, "signal"), at, pool, Signal(name))
        yield from _runs_away(here, lever, settings.policy)


def _told(pool: PoolConfig) -> frozenset[Fact] | None:
    """The facts that the pool's engine and its gateway can tell; None where one of them is not known."""
    engines = (pool.engine, *((pool.gateway.engine,) if pool.gateway is not None else ()))
    try:
        if not set(engines) <= set(registry.engines()):
            return None
        contract = registry.tool("contract")
        facts = frozenset(fact for engine in engines for fact in contract(engine).candidates)
    except (PluginError, KeyError, ValueError):
        return None  # told with the engines
    return facts or None


def _unheard(signal: Signal, told: frozenset[Fact]) -> bool:
    """Whether it is told by engines and gateways alone, and not by these. Exporters of the platform tell the rest."""
    return (INFO[signal].latency or signal in _LOAD) and way_for(signal, told) is None


def _nobody(here: Path, at: Path, pool: PoolConfig, signal: Signal) -> Finding:
    who = pool.engine + (f" and {pool.gateway.engine}" if pool.gateway is not None else "")
    return Finding(
        here,
        f"{signal} is told by no metric of {who}, and would never be known",
        "name another signal, or a gateway that tells it; see `governor doctor`",
        ((*at, "engine"), (*at, "gateway")),
    )


def _runs_away(here: Path, lever: Lever, policy: Plugin) -> Iterator[Finding]:
    name, rises = getattr(policy.settings, "signal", None), getattr(policy.settings, "raise_when_high", None)
    if not isinstance(name, str):
        return
    signal = name or "a latency"
    if lever is Lever.REPLICAS and name == Signal.READY_REPLICAS:
        yield Finding(
            (*here, "signal"), f"{name} is what this lever moves: it would follow itself to a bound",
            "name a signal of load, such as queue_depth",
        )  # fmt: skip
    if rises is None or (name and name not in _LOAD):
        return
    scope = getattr(policy.settings, "scope", "")
    inverted = rises and (lever in PER_REPLICA or (lever is Lever.TENANT_CAP and scope != "member"))
    if inverted or (not rises and lever in (Lever.REPLICAS, Lever.DOWNGRADE)):
        way = "higher" if inverted else "lower"
        yield Finding(
            (*here, "raise_when_high"),
            f"a {way} value of {lever} makes {signal} higher, which makes the value {way} again",
            "remove it",
            ((*here, "signal"),),
        )
