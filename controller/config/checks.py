"""What several keys must agree on. Each finding names all the keys it looked at, so that none is reported that only
follows from a mistake in one of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from controller.config.actuator_checks import able, consenting, contested
from controller.config.budget_checks import check_budgets
from controller.config.errors import Finding, Path, dotted
from controller.config.fields import matchers
from controller.config.gateway_checks import check_gateway, shared_gateways
from controller.config.joint_checks import check_joint
from controller.config.lever_checks import check_lever, circles, promised
from controller.config.models import GovernorConfig, ObjectiveConfig, PoolConfig
from controller.config.needs import gateway_of
from controller.config.reach_checks import check_reach
from controller.config.report import nearest
from controller.config.resource_checks import check_resources
from controller.config.sense_checks import check_sense
from controller.config.steering import steering
from controller.config.units import format_duration, format_size
from controller.config.zero_checks import check_zero
from controller.core.model import Lever, Mode
from controller.core.signals import Signal
from controller.registry import PluginError


def check(config: GovernorConfig, engines: Callable[[], Iterable[str]]) -> Iterator[Finding]:
    """Every contradiction in a config whose single values are valid. `engines` names the metric contracts there are."""
    yield from _timing(config)
    try:
        known = tuple(engines())
    except PluginError as error:
        yield Finding((), f"no metric contracts can be found: {error}", "reinstall inference-governor")
        known = ()
    for name, pool in config.pools.items():
        yield from _pool(config, name, pool, known)
    yield from circles(config)
    yield from shared_gateways(config)
    yield from _actuators(config)
    yield from contested(config)
    yield from check_resources(config)
    yield from _listed(config)
    yield from _twins(config)
    yield from check_budgets(config)
    yield from check_joint(config)
    yield from check_reach(config)
    yield from check_sense(config)


def without_actuator(config: GovernorConfig) -> tuple[Finding, ...]:
    """Levers that would act but have nothing to act with; a mistake in live mode only."""
    return tuple(
        Finding(
            ("pools", name, "levers", lever.value, "actuator"),
            f"is missing, and mode {settings.mode} needs one",
            "add an actuator, or write mode: observe",
        )
        for name, pool in config.pools.items()
        for lever, settings in pool.levers.items()
        if settings.mode in (Mode.AUTO, Mode.PROTECT) and settings.actuator is None
    )


def _actuators(config: GovernorConfig) -> Iterator[Finding]:
    """Who is named must be there, must be able to move that lever in such steps, and must let go of what sheds or
    degrades when every Governor is dead."""
    used = set()
    for name, pool in config.pools.items():
        for lever, settings in pool.levers.items():
            place: Path = ("pools", name, "levers", lever.value)
            plugin = config.actuator(name, lever)
            if plugin is None:
                if settings.actuator is not None:
                    shared = settings.actuator.name
                    mend = nearest(shared, config.actuators) if config.actuators else "describe it under `actuators`"
                    yield Finding(
                        (*place, "actuator"), f"no actuator is called {shared!r}", mend, (("actuators", shared),)
                    )
                continue
            used.add(plugin.name)
            yield from able(place, lever, settings, plugin)
            if lever is Lever.DOWNGRADE:
                yield from consenting(config, name, place, plugin)
    for name in config.actuators.keys() - used:
        yield Finding(("actuators", name), "no lever uses it", "name it as the actuator of a lever, or delete it")


def _timing(config: GovernorConfig) -> Iterator[Finding]:
    interval = format_duration(config.interval)
    if config.deadline >= config.interval:
        yield Finding(
            ("deadline",),
            f"{format_duration(config.deadline)} is not shorter than the interval of {interval}",
            "leave time to decide and act before the next tick",
            (("interval",),),
        )
    rotate, most = format_size(config.ledger.rotate_size), format_size(config.ledger.max_size)
    if config.ledger.rotate_size * 2 > config.ledger.max_size:
        yield Finding(
            ("ledger", "rotate_size"),
            f"{rotate} is more than half of max_size {most}",
            "dropping the oldest file would drop nearly everything; write a smaller rotate_size",
            (("ledger", "max_size"),),
        )


def _pool(config: GovernorConfig, name: str, pool: PoolConfig, engines: tuple[str, ...]) -> Iterator[Finding]:
    at: Path = ("pools", name)
    if engines and pool.engine not in engines:
        yield Finding((*at, "engine"), f"no engine is called {pool.engine!r}", nearest(pool.engine, engines))
    if pool.window < config.interval:
        yield Finding(
            (*at, "window"),
            f"{format_duration(pool.window)} is shorter than the interval of {format_duration(config.interval)}",
            "write at least the interval, better four times the scrape interval",
            (("interval",),),
        )
    yield from check_gateway(at, pool, engines)
    yield from _objectives(config, at, pool)
    yield from promised(at, pool)
    if engines:
        yield from check_zero(at, pool)
    for lever, settings in pool.levers.items():
        yield from check_lever(config, at, lever, settings)
        yield from steering(at, lever, settings.policy, pool.objectives)


def _objectives(config: GovernorConfig, at: Path, pool: PoolConfig) -> Iterator[Finding]:
    budget = format_duration(config.error_budget.window)
    seen: dict[tuple[object, ...], int] = {}
    names: dict[str | None, int] = {}
    for index, objective in enumerate(pool.objectives):
        here = (*at, "objectives", index)
        ways = [w for w in ("percentile", "attainment", "statistic") if getattr(objective, w) is not None]
        if objective.signal is Signal.ERROR_RATIO:
            if ways:
                yield Finding(
                    (*here, ways[0]),
                    "means nothing for error_ratio",
                    "its target alone says what share may fail; remove it",
                )
        elif not ways:
            yield Finding(
                here,
                "does not say how many requests must meet the target",
                "add percentile: p99, attainment: 99% or statistic: mean",
            )
        elif len(ways) > 1:
            yield Finding(here, f"says it twice, by {' and '.join(ways)}", "keep one of them")
        if objective.klass:
            yield from _class(here, at, objective, pool)
        window = objective.window or pool.window
        if window < config.interval and window != pool.window:
            yield Finding(
                (*here, "window"),
                f"{format_duration(window)} is shorter than the interval of {format_duration(config.interval)}",
                "a promise is judged once per tick; write a longer window",
                (("interval",), (*at, "window")),
            )
        if window > config.error_budget.window:
            yield Finding(
                (*here, "window"),
                f"{format_duration(window)} is longer than the error budget's {budget}",
                "write a shorter window or a longer error_budget.window",
                (("error_budget", "window"), (*at, "window")),
            )
        key = (
            objective.signal,
            objective.share if objective.signal is not Signal.ERROR_RATIO else 0,
            objective.klass,
            window,
        )
        if key in seen:
            other = dotted((*at, "objectives", seen[key]))
            yield Finding(
                here,
                f"promises the same as {other}",
                "keep one of the two",
                ((*at, "objectives", seen[key]), (*at, "window")),
            )
        elif objective.name in names:
            other = dotted((*at, "objectives", names[objective.name]))
            yield Finding(
                (*here, "name"),
                f"{objective.name!r} is also the name of {other}",
                "choose another name",
                ((*at, "window"),),
            )
        seen.setdefault(key, index)
        names.setdefault(objective.name, index)


def _class(here: Path, at: Path, objective: ObjectiveConfig, pool: PoolConfig) -> Iterator[Finding]:
    if not pool.class_label:
        yield Finding(
            (*here, "class"),
            "no label tells the class of a request",
            f"write labels: {{class: <label>}} in the pool, naming the label whose values are like {objective.klass!r}",
            ((*at, "labels"), (*at, "gateway")),
        )
    if objective.statistic is not None:
        yield Finding(
            (*here, "statistic"),
            "a mean is not judged per class",
            "write percentile or attainment, or remove class",
            ((*here, "class"),),
        )


def _twins(config: GovernorConfig) -> Iterator[Finding]:
    """Two pools over the same series would count load twice; two over one workload would fight."""
    series: dict[object, str] = {}
    workloads: dict[object, str] = {}
    for name, pool in config.pools.items():
        first = series.setdefault((pool.engine, matchers(pool.selector)), name)
        if first != name:
            yield Finding(
                ("pools", name, "selector"),
                f"selects the same series as pool {first}",
                "add a label that tells the pools apart",
                (("pools", first, "selector"), ("pools", first, "engine"), ("pools", name, "engine")),
            )
        if pool.workload is None:
            continue
        first = workloads.setdefault(pool.workload, name)
        if first != name:
            yield Finding(
                ("pools", name, "workload"),
                f"is the workload of pool {first} too",
                "a workload belongs to one pool",
                (("pools", first, "workload"),),
            )


def _listed(config: GovernorConfig) -> Iterator[Finding]:
    """A source that lists the replicas itself lists those of pools that there are, and of all of them."""
    listed = getattr(config.source.settings, "replicas", None)
    if config.source.kind != "direct" or not isinstance(listed, Mapping):
        return
    at: Path = ("source", "replicas")
    gateways = [gateway_of(name) for name, pool in config.pools.items() if pool.gateway is not None]
    known = (*config.pools, *gateways)
    for name in listed:
        if name not in known:
            yield Finding((*at, name), f"there is no pool {name!r}", nearest(name, known), (("pools", name),))
    for name in known:
        if not listed.get(name):
            what = "page of the gateway" if name in gateways else "replica"
            pool = name.partition("@")[0]
            yield Finding(at, f"lists no {what} of pool {pool}", f"add {name}: [http://host:8000/metrics]")
