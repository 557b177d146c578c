"""What a pool says that contradicts itself: capacity that is given up before it can come, promises that no step of the
engine can keep, values that can only do nothing, labels and series that stand for two things at once."""

from collections.abc import Iterator
from itertools import combinations

from controller.config.actuator_checks import MUST_EXPIRE
from controller.config.errors import Finding, Path
from controller.config.fields import matchers
from controller.config.models import GovernorConfig, LeverConfig, ObjectiveConfig, PoolConfig
from controller.config.sign_checks import check_signs
from controller.config.units import format_duration
from controller.core.model import Lever, Mode
from controller.core.setpoints import OWN
from controller.core.signals import INFO, Signal

_STEPS = (Signal.TTFT, Signal.ITL, Signal.TPOT, Signal.E2E)  # none is shorter than one step
_ANSWER = 0.05  # seconds in which some source may just answer
_WAITED = (Signal.TTFT, Signal.ITL, Signal.TPOT, Signal.QUEUE_TIME)
_NOBODY = 3600.0  # seconds that nobody waits for a token
_AT_REST = (Lever.WEIGHT, Lever.TENANT_CAP, Lever.ADMISSION)  # do nothing at their largest value


def check_sense(config: GovernorConfig) -> Iterator[Finding]:
    """Every such contradiction."""
    for name, pool in config.pools.items():
        at: Path = ("pools", name)
        yield from _promises(at, pool)
        yield from _labels(at, pool)
        yield from check_signs(at, pool, config.source.kind)
        for lever, settings in pool.levers.items():
            yield from _ends((*at, "levers", lever.value), lever, settings)
            yield from _does_nothing((*at, "levers", lever.value), lever, settings)
        replicas = pool.levers.get(Lever.REPLICAS)
        # Where it is as usual nobody said how long it takes: the first one will be measured, and may be short.
        usual = pool.cold_start == PoolConfig.model_fields["cold_start"].default
        if replicas is not None and not usual and replicas.give_up <= pool.cold_start:
            yield Finding(
                (*at, "levers", Lever.REPLICAS.value, "give_up"),
                f"{format_duration(replicas.give_up)} is not longer than the cold_start of "
                f"{format_duration(pool.cold_start)}: each replica would be given up before it can serve",
                f"write at least {format_duration(2 * pool.cold_start)}",
                ((*at, "cold_start"),),
            )
        yield from _scaled(config, name, pool)
        yield from _zones_or_replicas(config, name, pool)
    yield from _within(config)
    yield from _late(config)
    if config.deadline < _ANSWER:
        yield Finding(
            ("deadline",), f"no source answers within {format_duration(config.deadline)}",
            f"write at least {format_duration(_ANSWER)}",
        )  # fmt: skip


def doubtful(config: GovernorConfig) -> Iterator[Finding]:
    """What is no contradiction and hardly meant."""
    for name, pool in config.pools.items():
        at: Path = ("pools", name)
        for (_, one), (index, other) in _ordered(pool):
            yield Finding(
                (*at, "objectives", index),
                f"{other.name} is kept whenever {one.name} is, so it promises nothing more",
                "remove it, or write a shorter target",
            )
        yield from _always(at, pool)
        replicas, breaker = pool.levers.get(Lever.REPLICAS), pool.levers.get(Lever.BREAKER)
        if replicas is not None and breaker is not None and breaker.mode is not Mode.OFF and replicas.max == 1:
            yield Finding(
                (*at, "levers", Lever.BREAKER.value),
                "the pool has one replica at most, and the last one is never taken out",
                "raise levers.replicas.max, or remove the breaker",
            )


def _always(at: Path, pool: PoolConfig) -> Iterator[Finding]:
    """Bounds that keep a lever from ever coming to rest."""
    replicas, less = pool.levers.get(Lever.REPLICAS), pool.levers.get(Lever.DOWNGRADE)
    spare = getattr(replicas.policy.settings, "spare", 0) if replicas is not None else 0
    if replicas is not None and replicas.min == 0 and isinstance(spare, (int, float)) and spare > 0:
        yield Finding(
            (*at, "levers", Lever.REPLICAS.value, "policy", "spare"),
            f"keeps {spare:g} when nobody asks for anything, so the pool never goes to zero",
            "write spare: 0, or min: 1",
        )
    floors = getattr(replicas.policy.settings, "floors", ()) if replicas is not None else ()
    for index, floor in enumerate(floors if isinstance(floors, (tuple, list)) else ()):
        wanted = getattr(floor, "replicas", None)
        if replicas is not None and isinstance(wanted, (int, float)) and wanted <= replicas.min:
            yield Finding(
                (*at, "levers", Lever.REPLICAS.value, "policy", "floors", index),
                f"{wanted:g} replicas are there at all times, by min {replicas.min:g}",
                "write more, or remove it",
            )
    if less is not None and less.mode is not Mode.OFF and less.min > 0:
        yield Finding(
            (*at, "levers", Lever.DOWNGRADE.value, "min"),
            f"{less.min:.0%} of those that consent get the smaller model also while all goes well",
            "write min: 0, unless you mean it",
        )


def _promises(at: Path, pool: PoolConfig) -> Iterator[Finding]:
    for index, one in enumerate(pool.objectives):
        if one.signal in _WAITED and one.target > _NOBODY:
            yield Finding(
                (*at, "objectives", index, "target"),
                f"{format_duration(one.target)} of {one.signal} is longer than anybody waits",
                f"write at most {format_duration(_NOBODY)}",
            )
    profile = pool.profile
    if profile is None:
        return
    if pool.max_num_seqs is not None:
        yield Finding(
            (*at, "max_num_seqs"), "the profile says how large a batch is", "write it into the profile alone",
            ((*at, "profile"),),
        )  # fmt: skip
    if not (profile.base or profile.sequence or profile.host) or not (profile.base or profile.prefill_token):
        yield Finding(
            (*at, "profile"), "a step that takes no time is served without end, and nothing would ever be too much",
            "write what was measured, or leave the profile out",
        )  # fmt: skip
    least = round(max(profile.base + profile.sequence, profile.host), 9)
    for index, one in enumerate(pool.objectives):
        if one.signal in _STEPS and one.target <= least:
            yield Finding(
                (*at, "objectives", index, "target"),
                f"{format_duration(one.target)} is not longer than a step of the engine with one request, which by its "
                f"profile takes {format_duration(least)}",
                "write a longer target, or mend the profile",
                ((*at, "profile"),),
            )


def _ordered(pool: PoolConfig) -> Iterator[tuple[tuple[int, ObjectiveConfig], tuple[int, ObjectiveConfig]]]:
    """Two promises to the same requests of which the first implies the second."""
    for one in enumerate(pool.objectives):
        for other in enumerate(pool.objectives):
            (i, strict), (j, loose) = one, other
            same = strict.signal is loose.signal or (strict.signal is Signal.E2E and loose.signal is Signal.TTFT)
            if i == j or not same or (strict.klass, strict.window) != (loose.klass, loose.window):
                continue
            if not (INFO[strict.signal].latency and strict.share is not None and loose.share is not None):
                continue
            if strict.share >= loose.share and strict.target <= loose.target:
                yield one, other


def _labels(at: Path, pool: PoolConfig) -> Iterator[Finding]:
    labels = pool.labels
    told = [(key, label) for key, label in (
        ("replica", labels.replica), ("tenant", labels.tenant), ("class", labels.klass), ("zone", labels.zone),
        ("version", labels.version),
    ) if label]  # fmt: skip
    for (first, label), (second, other) in combinations(told, 2):
        if label == other:
            yield Finding(
                (*at, "labels", second),
                f"{label} cannot tell the {second} and the {first}",
                f"write the label that tells the {second}, or leave the key out",
                ((*at, "labels", first),),
            )


def _ends(at: Path, lever: Lever, settings: LeverConfig) -> Iterator[Finding]:
    """A value that never ends, where nobody said that this is meant."""
    acts = settings.mode in (Mode.AUTO, Mode.PROTECT)
    if lever in MUST_EXPIRE and acts and not settings.expiry and not settings.fail_static:
        yield Finding(
            (*at, "expiry"),
            f"0s never ends, so {lever} would stay as it is when every Governor is dead",
            "leave the key out, or write fail_static: true beside it to accept that",
            ((*at, "fail_static"), (*at, "mode")),
        )


def _does_nothing(at: Path, lever: Lever, settings: LeverConfig) -> Iterator[Finding]:
    both = ((*at, "min"), (*at, "max"))
    if settings.mode is Mode.OFF or (lever is Lever.ADMISSION and OWN.keys() >= set(settings.setpoints)):
        return  # the latter have bounds of their own, and those of the lever are refused
    if settings.min == settings.max and (lever in _AT_REST or (lever is Lever.DOWNGRADE and not settings.max)):
        low = "min" if lever is not Lever.DOWNGRADE else "max"
        yield Finding(
            (*at, low), f"{lever} can only be {settings.max:g}, at which it does nothing",
            "change one of the bounds, or write mode: off", both,
        )  # fmt: skip
    if lever is Lever.DOWNGRADE and settings.min * len(settings.receivers) > 1:
        yield Finding(
            (*at, "min"),
            f"{settings.min:g} for each of {len(settings.receivers)} receivers is more than all of the requests",
            f"write at most {1 / len(settings.receivers):.2g}",
            ((*at, "receivers"),),
        )


def _scaled(config: GovernorConfig, name: str, pool: PoolConfig) -> Iterator[Finding]:
    """The workload whose replicas are counted and the one that is scaled."""
    if pool.workload is None or Lever.REPLICAS not in pool.levers:
        return
    plugin = config.actuator(name, Lever.REPLICAS)
    own = plugin.settings if plugin is not None else None
    if getattr(own, "workload_kind", None) != pool.workload.kind:
        return
    scaled = (getattr(own, "namespace", ""), getattr(own, "name", "") or name)
    counted = (pool.workload.namespace, pool.workload.name)
    if scaled != counted:
        yield Finding(
            ("pools", name, "workload"),
            f"counts the replicas of {'/'.join(counted)}, and the actuator scales {'/'.join(scaled)}",
            "write the same one in both",
            (("pools", name, "levers", Lever.REPLICAS.value, "actuator"),),
        )


def _zones_or_replicas(config: GovernorConfig, name: str, pool: PoolConfig) -> Iterator[Finding]:
    """Servers of one backend are zones or replicas, and never both."""
    weight, breaker = pool.levers.get(Lever.WEIGHT), pool.levers.get(Lever.BREAKER)
    if weight is None or breaker is None or weight.by != "zone":
        return
    plugin = config.actuator(name, Lever.WEIGHT)
    if plugin is not None and plugin.kind == "haproxy" and plugin == config.actuator(name, Lever.BREAKER):
        yield Finding(
            ("pools", name, "levers", Lever.BREAKER.value),
            "takes out replicas, and to its actuator the servers of this pool are zones, by the weights beside it",
            "move the breaker to the pools of the zones",
            (("pools", name, "levers", Lever.WEIGHT.value),),
        )


def _within(config: GovernorConfig) -> Iterator[Finding]:
    """Series of one pool that are all among those of another: both would be sized for them."""
    sized = {
        name: (pool.engine, set(matchers(pool.selector)))
        for name, pool in config.pools.items()
        if (lever := pool.levers.get(Lever.REPLICAS)) is not None and lever.mode is not Mode.OFF
    }
    for name, (engine, asked) in sized.items():
        inside = [one for one, (other, more) in sized.items() if other == engine and asked < more]
        if inside:
            yield Finding(
                ("pools", name, "selector"),
                f"selects all series of pool {inside[0]} too, so that both would be sized for its load",
                "add a label that leaves them out",
                (("pools", inside[0], "selector"), ("pools", name, "engine"), ("pools", inside[0], "engine")),
            )


def _late(config: GovernorConfig) -> Iterator[Finding]:
    """Parameters called `delay` mean in every source what they mean in Prometheus'."""
    delay = getattr(config.source.settings, "delay", None)
    shortest = min(pool.window for pool in config.pools.values())
    if isinstance(delay, (int, float)) and delay >= shortest:
        yield Finding(
            ("source", "delay"),
            f"{format_duration(delay)} is not shorter than the shortest window of a pool, {format_duration(shortest)}: "
            "what is decided on would be over",
            "write a little more than a scrape takes",
            tuple(("pools", name, "window") for name in config.pools),
        )
