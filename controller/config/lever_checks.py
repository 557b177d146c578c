"""Contradictions of levers: what a lever needs that the pool does not have, bounds that mean nothing for it, promises
to tenants that no fleet could keep, and receiving pools that send back."""

from collections.abc import Iterator

from controller.config.drain_checks import TICKS, drains
from controller.config.errors import Finding, Path
from controller.config.levers import DEFAULTS, ONE_VERSION, SETPOINTS
from controller.config.models import GovernorConfig, LeverConfig, PoolConfig
from controller.config.report import nearest
from controller.config.setpoint_checks import BY_STEPS, set_points
from controller.config.units import format_duration
from controller.config.version_checks import check_versions
from controller.core.model import Lever, Mode
from controller.core.operating import CONCURRENCY, GROWS_WITH_BATCH, GROWS_WITH_WAIT, OF_THE_BATCH
from controller.core.rest import NO_LIMIT
from controller.core.rules import PER_REPLICA
from controller.core.setpoints import OWN

# Tokens/s, cached ones included, that one GPU could serve at the very most; with a profile, ten times its own prefill.
_PER_GPU = 1e6
_CACHED = 10.0


def check_lever(config: GovernorConfig, pool_at: Path, lever: Lever, settings: LeverConfig) -> Iterator[Finding]:
    """Every contradiction of one lever of the pool at `pool_at`."""
    pool = config.pools[str(pool_at[1])]
    at: Path = (*pool_at, "levers", lever.value)
    yield from _bounds(at, lever, settings)
    yield from _means_nothing(at, lever, settings)
    yield from _driver(at, lever, settings)
    yield from _never_back(at, lever, settings)
    if lever is Lever.ADMISSION:
        yield from set_points(at, pool, settings)
        if CONCURRENCY in settings.setpoints and settings.policy.kind in BY_STEPS:
            yield from _spirals(at, pool, settings)
    if settings.expiry and settings.expiry < TICKS * config.interval:
        yield Finding(
            (*at, "expiry"),
            f"{format_duration(settings.expiry)} could run out between two ticks of {format_duration(config.interval)}",
            f"write at least {format_duration(TICKS * config.interval)}",
            (("interval",),),
        )
    if lever is Lever.REPLICAS and settings.drain:
        yield from drains(config, pool_at, pool, settings)
    if lever is Lever.TENANT_CAP:
        yield from _caps(pool_at, pool, settings)
    if lever is Lever.DOWNGRADE:
        yield from _receivers(config, pool_at, pool, settings)
    if lever is Lever.WEIGHT:
        yield from _zones(pool_at, pool, settings)
    if lever is Lever.ROUTING and settings.policy.kind == "affinity" and not pool.labels.replica:
        yield Finding(
            (*at, "policy", "kind"),
            "nothing tells which replica has more work than the others",
            "write labels: {replica: pod}",
            ((*pool_at, "labels", "replica"),),
        )
    if lever is Lever.BREAKER and settings.version_group != ONE_VERSION and not pool.labels.version:
        yield Finding(
            (*at, "version_group"),
            "no label tells the versions apart",
            "write labels: {version: <label>} in the pool, for example pod_template_hash",
            ((*pool_at, "labels"),),
        )
    yield from check_versions(at, lever, pool, settings)
    if lever in PER_REPLICA and not pool.labels.replica:
        yield Finding(
            at, "no label tells the replicas apart", "write labels: {replica: pod}", ((*pool_at, "labels", "replica"),)
        )


def _zones(pool_at: Path, pool: PoolConfig, settings: LeverConfig) -> Iterator[Finding]:
    if settings.by == "zone" and not pool.labels.zone:
        yield Finding(
            (*pool_at, "levers", Lever.WEIGHT.value, "by"),
            "no label tells the zones apart",
            "write labels: {zone: <label>} in the pool: of a region, a cluster or a GPU type",
            ((*pool_at, "labels"),),
        )


def promised(at: Path, pool: PoolConfig) -> Iterator[Finding]:
    """What is said of tenants, classes and versions."""
    if pool.labels.version and not pool.labels.replica:
        yield Finding(
            (*at, "labels", "version"),
            "a version is told by what its replicas do, and no label tells those apart",
            "write replica: pod beside it",
            ((*at, "labels", "replica"),),
        )
    if pool.tenants and not pool.tenant_label:
        mend = "write labels: {tenant: <label>} in the pool"
        yield Finding(
            (*at, "tenants"), "no label tells the tenant of a request", mend, ((*at, "labels"), (*at, "gateway"))
        )
    if pool.classes and not pool.class_label:
        mend = "write labels: {class: <label>} in the pool"
        yield Finding(
            (*at, "classes"), "no label tells the class of a request", mend, ((*at, "labels"), (*at, "gateway"))
        )
    for index, objective in enumerate(pool.objectives):
        if pool.classes and objective.klass and objective.klass not in pool.classes:
            yield Finding(
                (*at, "objectives", index, "class"),
                f"no class is called {objective.klass!r}",
                nearest(objective.klass, pool.classes),
                ((*at, "classes"),),
            )
    promises = sum(tenant.guarantee for tenant in pool.tenants.values())
    replicas = pool.levers.get(Lever.REPLICAS)
    if promises and replicas is not None:
        each = _PER_GPU * max(1, pool.gpus_per_replica)
        if pool.profile is not None and pool.profile.prefill_token > 0:
            each = _CACHED / pool.profile.prefill_token
        if promises > replicas.max * each:
            yield Finding(
                (*at, "tenants"),
                f"the guarantees add up to {_amount(promises)} tokens/s, and {replicas.max:g} replicas serve at most "
                f"{_amount(replicas.max * each)}",
                "lower the guarantees; they are tokens per second, not per minute",
                ((*at, "levers", "replicas", "max"), (*at, "profile"), (*at, "gpus_per_replica")),
            )


def _amount(tokens: float) -> str:
    """A number of three hundred digits is no message."""
    return f"{tokens:,.0f}" if tokens < 1e15 else f"{tokens:.3g}"


def circles(config: GovernorConfig) -> Iterator[Finding]:
    """Pools that would send each other the same requests."""
    sends = {
        name: tuple(pool.levers[Lever.DOWNGRADE].receivers) if Lever.DOWNGRADE in pool.levers else ()
        for name, pool in config.pools.items()
    }
    told: set[frozenset[str]] = set()
    for name in sends:
        way = _back(sends, name)
        if way is None or frozenset(way) in told:
            continue
        told.add(frozenset(way))
        yield Finding(
            ("pools", name, "levers", Lever.DOWNGRADE.value, "receivers"),
            f"lead back to {name}: {' -> '.join((*way, name))}",
            "a pool that receives must not send to where the requests came from; remove one",
            tuple(("pools", one, "levers", Lever.DOWNGRADE.value, "receivers") for one in way[1:]),
        )


def _back(sends: dict[str, tuple[str, ...]], start: str) -> tuple[str, ...] | None:
    """The way from a pool over others back to itself, None when there is none."""
    ways: list[tuple[str, ...]] = [(start,)]
    seen = {start}
    while ways:
        way = ways.pop(0)
        for after in sends.get(way[-1], ()):
            if after == start and len(way) > 1:
                return way
            if after not in seen:
                seen.add(after)
                ways.append((*way, after))
    return None


def _bounds(at: Path, lever: Lever, settings: LeverConfig) -> Iterator[Finding]:
    facts = DEFAULTS[lever]
    if settings.min > settings.max:
        yield Finding(
            (*at, "min"), f"{settings.min:g} is above max {settings.max:g}", "lower min or raise max", ((*at, "max"),)
        )
    # Which member it would be for nobody can say, so neither whose bounds it breaks.
    pin = settings.pin if lever is Lever.REPLICAS else None
    if pin is not None and not settings.min <= pin.value <= settings.max:
        yield Finding(
            (*at, "pin", "value"),
            f"{pin.value:g} is outside min {settings.min:g} and max {settings.max:g}",
            "bounds hold for pins too; change one of them",
            ((*at, "min"), (*at, "max")),
        )
    if settings.pin is not None and lever is not Lever.REPLICAS:
        yield Finding(
            (*at, "pin"),
            f"{lever} has a value for each of its members, and this does not say which",
            f"remove it, and pin one of them with `governor pin {at[1]}/{lever}/MEMBER`",
        )
    values: dict[Path, float] = {("min",): settings.min, ("max",): settings.max}
    if lever is Lever.REPLICAS:
        values[("quantum",)] = settings.quantum
    if pin is not None:
        values["pin", "value"] = pin.value
    for key, value in values.items():
        if lever is Lever.REPLICAS and value != int(value):
            yield Finding(
                (*at, *key),
                f"{value:g} is not a whole number of replicas",
                f"write {int(value)} or {int(value) + 1}",
            )
        elif key != ("quantum",) and not on_quantum(value, settings.quantum):
            low = int(value / settings.quantum) * settings.quantum
            yield Finding(
                (*at, *key),
                f"{value:g} is not a multiple of the quantum {settings.quantum:g}",
                f"write {low:g} or {low + settings.quantum:g}",
                ((*at, "quantum"),),
            )
    if lever is Lever.REPLICAS and settings.max < 1:
        yield Finding(
            (*at, "max"), "0 replicas serve nothing", "write at least 1, or mode: off to leave the pool alone"
        )
    elif settings.max > facts.ceiling:
        mend = f"write at most {facts.ceiling:g}"
        yield Finding((*at, "max"), f"{settings.max:g} is beyond all sense for {lever} ({facts.unit})", mend)
    if lever is Lever.WEIGHT and settings.min < settings.quantum:
        yield Finding(
            (*at, "min"),
            "a weight of 0 takes the replica out of rotation, which is for the breaker",
            f"write at least {settings.quantum:g}",
            ((*at, "quantum"),),
        )
    if lever in PER_REPLICA and settings.max < 1:
        yield Finding((*at, "max"), f"{settings.max:g} never gives a replica its full share", "write 1")


def _never_back(at: Path, lever: Lever, settings: LeverConfig) -> Iterator[Finding]:
    """A slow start goes down and up again, and in protect nothing goes up."""
    start = getattr(settings.policy.settings, "slow_start", 0.0)
    if lever is Lever.WEIGHT and settings.mode is Mode.PROTECT and start > 0:
        yield Finding(
            (*at, "policy", "slow_start"),
            "would begin each new replica with a small weight, and protect never raises one",
            "write slow_start: 0s, or mode: auto",
            ((*at, "mode"),),
        )


def _spirals(at: Path, pool: PoolConfig, settings: LeverConfig) -> Iterator[Finding]:
    """A cap on requests in flight that is driven by what the cap itself makes worse."""
    law, here = settings.policy.settings, (*at, "policy")
    signal, rises = getattr(law, "signal", ""), getattr(law, "raise_when_high", None)
    mend = "write signal: itl, or policy: {kind: gate}"
    if not signal:
        if not any(one.signal in OF_THE_BATCH and not one.klass for one in pool.objectives):
            yield Finding(
                (*here, "kind"),
                f"{settings.policy.kind} has nothing to hold {CONCURRENCY} at: no promise is on itl or tpot, and what "
                "grows with the wait before the cap would drive it down for good",
                "add an objective on itl, or write signal and target, or policy: {kind: gate}",
                ((*at[:-2], "objectives"),),
            )
        signal = "itl"
    if signal in GROWS_WITH_WAIT and not rises:
        yield Finding(
            (*here, "signal"),
            f"{signal} has the wait before this cap in it: a lower {CONCURRENCY} makes it worse, which lowers it again",
            mend,
            ((*at, "setpoints"),),
        )
    if signal in GROWS_WITH_BATCH and rises:
        yield Finding(
            (*here, "raise_when_high"),
            f"a higher {CONCURRENCY} makes {signal} higher, which raises it again",
            "remove it",
            ((*here, "signal"),),
        )


def on_quantum(value: float, quantum: float) -> bool:
    """Whether a value is a multiple of the quantum, as nearly as floats can tell."""
    units = value / quantum
    return abs(units - round(units)) <= 1e-9 * max(1.0, abs(units))


def _means_nothing(at: Path, lever: Lever, settings: LeverConfig) -> Iterator[Finding]:
    """Keys that were written for a lever that does not have them."""
    for key, owners, written in (
        ("receivers", (Lever.DOWNGRADE,), bool(settings.receivers)),
        ("setpoints", (Lever.ADMISSION,), settings.setpoints != SETPOINTS),
        ("prompt", (Lever.DOWNGRADE,), settings.prompt is not None),
        ("group", tuple(sorted(PER_REPLICA)), settings.group != DEFAULTS[lever].group),
        ("version_group", (Lever.BREAKER,), settings.version_group != ONE_VERSION),
        ("by", (Lever.WEIGHT,), settings.by != "replica"),
        ("drain", (Lever.REPLICAS,), settings.drain > 0),
        ("expiry", tuple(one for one in Lever if one is not Lever.REPLICAS), settings.expiry > 0),
    ):
        if written and lever not in owners:
            yield Finding((*at, key), f"means nothing for {lever}", f"it is for {', '.join(owners)}; remove it")


def _driver(at: Path, lever: Lever, settings: LeverConfig) -> Iterator[Finding]:
    if not settings.policy.kind:
        return
    drives = tuple(getattr(settings.policy.cls, "levers", ()))
    if drives and lever not in drives:
        yield Finding(
            (*at, "policy", "kind"),
            f"{settings.policy.kind} cannot drive {lever}",
            f"it drives {', '.join(sorted(drives))}; choose another policy",
        )
    elif settings.policy.kind in BY_STEPS and settings.max == NO_LIMIT and not OWN.keys() & set(settings.setpoints):
        yield Finding(
            (*at, "max"),
            f"{settings.policy.kind} moves {lever} from where it stands, and nothing leads down from no limit",
            "write the largest value that makes sense, in " + DEFAULTS[lever].unit
            if len(settings.setpoints) < 2 or lever is not Lever.ADMISSION
            else f"name one set-point, as in setpoints: [{CONCURRENCY}], and write the largest value that makes sense "
            "for it",
            ((*at, "policy"),),
        )


def _caps(pool_at: Path, pool: PoolConfig, settings: LeverConfig) -> Iterator[Finding]:
    at: Path = (*pool_at, "levers", Lever.TENANT_CAP.value)
    if not pool.tenants:
        yield Finding(
            at, "there are no tenants to cap", "write tenants: {name: {guarantee: 1000}} in the pool",
            ((*pool_at, "tenants"),),
        )  # fmt: skip
    for name, tenant in pool.tenants.items():
        if tenant.guarantee > settings.max:
            yield Finding(
                (*pool_at, "tenants", name, "guarantee"),
                f"{tenant.guarantee:g} is above the largest cap, {settings.max:g}",
                f"raise levers.{Lever.TENANT_CAP}.max or lower the guarantee",
                ((*at, "max"),),
            )


def _receivers(config: GovernorConfig, pool_at: Path, pool: PoolConfig, settings: LeverConfig) -> Iterator[Finding]:
    at: Path = (*pool_at, "levers", Lever.DOWNGRADE.value)
    here: Path = (*at, "receivers")
    own = str(pool_at[1])
    band = settings.prompt
    if band is not None and band.min is None and band.max is None:
        yield Finding((*at, "prompt"), "says no size", "write max: 4000, or min, or remove it")
    if band is not None and band.min is not None and band.max is not None and band.min > band.max:
        yield Finding((*at, "prompt", "min"), f"{band.min} is above max {band.max}", "lower min or raise max")
    if not settings.receivers:
        yield Finding(at, "no pool receives the requests", "write receivers: [pool]")
    for index, name in enumerate(settings.receivers):
        if name == own:
            yield Finding((*here, index), "is the pool itself", "name another pool")
        elif name not in config.pools:
            others = [one for one in config.pools if one != own]
            mend = nearest(name, others) if others else "describe the pool under pools"
            yield Finding((*here, index), f"there is no pool {name!r}", mend, (("pools", name),))
        elif name in settings.receivers[:index]:
            yield Finding((*here, index), f"{name!r} is listed twice", "remove one")
    for key, agreed in (
        ("tenants", [one.consents for one in pool.tenants.values()]),
        ("classes", [one.consents for one in pool.classes.values()]),
    ):
        if agreed and not any(agreed):
            yield Finding(
                at, f"none of the {key} consents", f"write consents: true for those of {key} that may be downgraded",
                ((*pool_at, key),),
            )  # fmt: skip
    if not (pool.tenants or pool.classes):
        yield Finding(
            at, "nobody consents to a smaller model", "write tenants or classes with consents: true in the pool",
            ((*pool_at, "tenants"), (*pool_at, "classes")),
        )  # fmt: skip
