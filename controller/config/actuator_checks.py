"""What a lever and the actuator that carries it out must agree on."""

from collections.abc import Iterator, Mapping

from controller.config.errors import Finding, Path
from controller.config.models import GovernorConfig, LeverConfig
from controller.config.plugins import Plugin
from controller.core.model import Lever, Mode
from controller.core.ports import Capability
from controller.core.rules import PER_REPLICA
from controller.core.setpoints import OWN

# What these levers leave behind when every Governor is dead refuses, degrades or takes out replicas for good, unless
# the target lets go of it by itself.
MUST_EXPIRE = frozenset({Lever.BREAKER, Lever.TENANT_CAP, Lever.ADMISSION, Lever.DOWNGRADE})


def able(place: Path, lever: Lever, settings: LeverConfig, plugin: Plugin) -> Iterator[Finding]:
    """Why this actuator cannot carry out this lever as it is configured; `place` is the lever's path."""
    who = (*place, "actuator")
    try:
        can: Mapping[Lever, Capability] = plugin.cls.describe(plugin.settings)
    except Exception as error:  # noqa: BLE001 - a stranger's mistake is told with its place, as any other
        yield Finding(
            who, f"{plugin.kind} cannot say what it moves: {type(error).__name__}: {error}", "update or replace it"
        )
        return
    one = can.get(lever)
    if one is None:
        moves = ", ".join(sorted(can)) or "nothing"
        mend = f"it moves {moves}; choose another, see `governor actuators`"
        yield Finding(who, f"{plugin.kind} cannot move {lever}", mend)
        return
    yield from _steps(place, lever, settings, plugin, one)
    yield from _setpoints(place, lever, settings, plugin, one)
    if lever is Lever.DOWNGRADE and settings.prompt is not None and not one.sizes:
        yield Finding(
            (*place, "prompt"),
            f"{plugin.kind} sends requests elsewhere whatever the size of their prompts",
            "remove it, or choose an actuator whose gateway picks by size: redis, file or webhook with one of yours",
            (who,),
        )
    if settings.drain and not one.chooses:
        yield Finding(
            (*place, "drain"),
            f"{plugin.kind} cannot choose who goes here, and would end others than those that have finished",
            "remove it; a Deployment can, through kind: kubernetes",
            (who,),
        )
    if lever is Lever.WEIGHT and settings.by == "zone" and not one.zones:
        yield Finding(
            who,
            f"{plugin.kind} weighs single replicas, none of which is called as a zone is, so that every write would be "
            "refused",
            "write by: replica, or name an actuator that knows groups: haproxy (servers), file or webhook",
            ((*place, "by"),),
        )
    if lever in PER_REPLICA and plugin.kind == "file" and not _knows_rest(plugin):
        yield Finding(
            (*who, "initial"),
            "nothing tells what stands for a replica that comes later: the file has no key of it, and none is written",
            "write initial: 1",
            ((*who, "output"),),
        )
    acts = settings.mode in (Mode.AUTO, Mode.PROTECT)
    if lever in MUST_EXPIRE and acts and not one.expiry and not settings.fail_static:
        yield Finding(
            who,
            f"{plugin.kind} cannot drop a value by itself, so {lever} would stay as it is when every Governor is dead",
            "write fail_static: true beside it to accept that, or choose an actuator whose target enforces expiry",
        )


def _knows_rest(plugin: Plugin) -> bool:
    """Whether a file actuator knows a value for a key that is not there."""
    return getattr(plugin.settings, "initial", None) is not None or bool(getattr(plugin.settings, "output", ""))


def consenting(config: GovernorConfig, pool: str, place: Path, plugin: Plugin) -> Iterator[Finding]:
    """Where LiteLLM is told a second time who consents to a smaller model, it must be those that consent in the pool;
    where it is not, it is told those."""
    own = getattr(plugin.settings, "pools", {}).get(pool)
    if plugin.kind != "litellm" or own is None or not (own.tenants or own.classes):
        return
    at: Path = ("actuators", plugin.name) if plugin.name else (*place, "actuator")
    body = config.pools[pool]
    for key, rules in (("tenants", body.tenants), ("classes", body.classes)):
        agreed = {name for name, one in rules.items() if one.consents}
        named = set(getattr(own, key))
        if "*" in named or not named:  # a kind that is not told is not asked
            named = set(rules)
        mend = f"write {key}: [{', '.join(sorted(agreed))}], those that consent there, or neither tenants nor classes"
        uses = (("pools", pool, key), (*place, "actuator"))
        if agreed and (wrong := sorted(named - agreed)):
            what = f"would send {', '.join(wrong)} to a smaller model, without consent in pool {pool}"
            yield Finding((*at, "pools", pool, key), what, mend, uses)
        elif missing := sorted(agreed - named):
            what = f"leaves out {', '.join(missing)}, with consent in pool {pool}: more would be counted on than goes"
            yield Finding((*at, "pools", pool, key), what, mend, uses)


def contested(config: GovernorConfig) -> Iterator[Finding]:
    """Pools whose replicas are one workload for their actuators, whatever they say of it themselves: each would take
    the other's count for a stranger's."""
    owners: dict[object, str] = {}
    for name, pool in config.pools.items():
        if Lever.REPLICAS not in pool.levers:
            continue
        plugin = config.actuator(name, Lever.REPLICAS)
        if plugin is None or not hasattr(plugin.settings, "workload_kind"):
            continue
        one = plugin.settings
        own = (plugin.kind, *(getattr(one, key, "") for key in ("kubeconfig", "context", "namespace", "workload_kind")))
        workload = getattr(one, "name", "") or name
        first = owners.setdefault((*own, workload), name)
        if first != name:
            here, there = (("pools", pool_, "levers", Lever.REPLICAS.value, "actuator") for pool_ in (name, first))
            yield Finding(
                here, f"scales {workload}, which pool {first} scales too", "a workload belongs to one pool", (there,)
            )


def _setpoints(
    place: Path, lever: Lever, settings: LeverConfig, plugin: Plugin, one: Capability
) -> Iterator[Finding]:  # fmt: skip
    """Set-points that the target does not have, or not finely enough."""
    for name in settings.setpoints if lever is Lever.ADMISSION else ():
        if name in OWN and one.setpoints is not None and name not in one.setpoints:
            yield Finding(
                (*place, "setpoints"),
                f"{plugin.kind} has no {name}",
                f"remove it; it has {', '.join(one.setpoints)}. `redis`, `file` and `webhook` take it for your gateway",
                ((*place, "actuator"),),
            )
        elif name in OWN and one.quantum > 0 and not _whole(OWN[name].quantum / one.quantum):
            yield Finding(
                (*_of(place, plugin), "quantum"),
                f"{one.quantum:g} is too coarse for {name}, which moves by {OWN[name].quantum:g}",
                f"write quantum: {OWN[name].quantum:g}",
                ((*place, "setpoints"),),
            )
            return
    rest = {OWN[name].max if name in OWN else settings.max for name in settings.setpoints}
    initial = getattr(plugin.settings, "initial", None)
    alone = plugin.kind == "webhook" and not getattr(plugin.settings, "read_url", "")  # nothing else tells what stands
    if lever is Lever.ADMISSION and alone and initial is not None and len(rest) > 1:
        yield Finding(
            (*_of(place, plugin), "initial"),
            f"{initial:g} would stand for {', '.join(settings.setpoints)} alike, not counted in the same unit",
            "write read_url, which tells each of them",
            ((*place, "setpoints"),),
        )


def _of(place: Path, plugin: Plugin) -> Path:
    """Where the parameters of an actuator stand: under its name, or in the lever at `place`."""
    return ("actuators", plugin.name) if plugin.name else (*place, "actuator")


def _steps(
    place: Path, lever: Lever, settings: LeverConfig, plugin: Plugin, one: Capability
) -> Iterator[Finding]:  # fmt: skip
    steps = settings.quantum / one.quantum if one.quantum > 0 else 1.0  # 0 takes every value
    if not _whole(steps) and lever is not Lever.REPLICAS and hasattr(plugin.settings, "quantum"):
        if lever is Lever.ADMISSION and OWN.keys() & set(settings.setpoints):
            return  # told of those, whose steps are the finest
        # The step of the actuator is a mere number of the config; a share that moves by wholes is off or all there is.
        yield Finding(
            (*_of(place, plugin), "quantum"),
            f"{one.quantum:g} is too coarse for {lever}, which moves by {settings.quantum:g}",
            f"write quantum: {settings.quantum:g}",
            ((*place, "quantum"), (*place, "actuator")),
        )
    elif not _whole(steps):
        yield Finding(
            (*place, "quantum"),
            f"{settings.quantum:g} is not a multiple of {one.quantum:g}, the smallest step of {plugin.kind}",
            f"write quantum: {one.quantum:g}",
            ((*place, "actuator"),),
        )
    if settings.min < one.low:
        yield Finding(
            (*place, "min"),
            f"{settings.min:g} is below {one.low:g}, the least that {plugin.kind} takes",
            f"write min: {one.low:g}",
            ((*place, "actuator"),),
        )
    if settings.max > one.high:
        yield Finding(
            (*place, "max"),
            f"{settings.max:.12g} is above {one.high:.12g}, the most that {plugin.kind} takes",
            f"write max: {one.high:.12g}",
            ((*place, "actuator"),),
        )


def _whole(steps: float) -> bool:
    return abs(steps - round(steps)) <= 1e-6 and round(steps) != 0
