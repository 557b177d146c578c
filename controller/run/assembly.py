"""Assembly: the one composition root. Config and mode in, a wired loop out; the only place that knows the modes."""

import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from controller import registry
from controller.config import GovernorConfig, config_hash, pool_needs
from controller.config.levers import AFFINITY
from controller.config.models import FleetGuardConfig, LeverConfig, PoolConfig
from controller.config.needs import gateway_of
from controller.config.plugins import Plugin
from controller.config.spell import spell
from controller.config.zero_checks import wakes
from controller.core.learned import EstimatorSpec
from controller.core.meter import GatewaySpec, Meter, PoolSpec
from controller.core.model import Lever, Mode, Pin, Target
from controller.core.ports import Actuator, Binding, Finding, Limits, Policy, PoolNeeds, Source
from controller.core.rules import (
    PER_REPLICA,
    Budget,
    FleetGuard,
    FleetRules,
    LeverRules,
    Pair,
    PoolRules,
    Variants,
)  # fmt: skip
from controller.core.setpoints import OWN
from controller.core.sizes import Band
from controller.core.tenancy import ClassRules, TenantRules
from controller.run import originals
from controller.run.ends import DryRun, Watched
from controller.run.ledger import FileLedger, MemoryLedger
from controller.run.loop import ControlLoop, KeyedLedger, Parts
from controller.run.originals import Originals
from controller.run.pins import Pins, file_of
from controller.run.resume import resume


class RunMode(StrEnum):
    """How the ends are wired."""

    LIVE = "live"
    DRY_RUN = "dry_run"
    REPLAY = "replay"
    SIMULATE = "simulate"
    BY_HAND = "by_hand"


_IN_PROCESS = frozenset({RunMode.REPLAY, RunMode.SIMULATE})  # the world is a recording, or simulated


class AssemblyError(Exception):
    """The config is valid, but what it names cannot be built here. The message names the place and the mend."""


def assemble(
    config: GovernorConfig,
    *,
    mode: RunMode,
    source: Source | None = None,
    actuator: Actuator | None = None,
    ledger_path: Path | None = None,
    previous: ControlLoop | None = None,
    fence: Callable[[], bool] = lambda: True,
) -> ControlLoop:
    """A loop ready to tick.

    live: the configured source and actuators. dry_run: the same with writes dropped. replay: `source` (a recording)
    and nothing that reaches out; targets are read off the recording. simulate: `source` and `actuator` are a world in
    this process, which answers. by_hand: as live, for one deed of a person. `ledger_path` overrides the config; in
    replay and simulate no ledger is kept without it. `previous` hands over its windows and memory. Raises
    AssemblyError.
    """
    folder = ledger_path if ledger_path is not None else Path(config.ledger.path)
    needs, before = pool_needs(config), previous.parts.pins if previous is not None else None
    ends = Ends(previous)
    eyes = Watched(source) if source is not None else ends.source(config, needs)
    rules = fleet_rules(config)
    parts = Parts(
        source=eyes,
        meter=Meter(pool_specs(config)),
        estimators={spec.pool: spec for spec in estimator_specs(config)},
        rules=rules,
        policies=policies(config),
        actuators=_actuators(config, rules, mode, actuator or eyes, ends),
        ledger=_ledger(config, mode, ledger_path),
        deadline=config.deadline,
        config_hash=config_hash(config),
        version=own_version(),
        mode=mode.value,
        timer=time.perf_counter,
        config=spell(config),
        pins=Pins(pins(config), None if mode in _IN_PROCESS else file_of(folder), before),
        originals=Originals(
            originals.file_of(folder) if mode is RunMode.LIVE else None,
            previous.parts.originals if previous is not None else None,
        ),
        fence=fence,
        ends=ends.made,
    )
    loop = ControlLoop(parts)
    # Last, for these eyes may be those of the loop in force, which goes on with them when this config is refused.
    eyes.rest = {(pool.pool, lever.lever): lever for pool in rules.pools for lever in pool.levers}
    if previous is not None:
        loop.adopt(previous)
    elif mode not in _IN_PROCESS:
        resume(loop, folder)
    return loop


def diagnosing(actuators: Mapping[str, Actuator]) -> list[tuple[str, Callable[[float], Sequence[Finding]]]]:
    """The diagnoses that these actuators offer, each once, with the first place that it is at."""
    found: dict[int, tuple[str, Callable[[float], Sequence[Finding]]]] = {}
    for place, actuator in actuators.items():
        real = actuator.real if isinstance(actuator, DryRun) else actuator
        diagnose = getattr(real, "diagnose", None)
        if diagnose is not None:
            found.setdefault(id(real), (place, diagnose))
    return list(found.values())


def own_version() -> str:
    """The version of the installed distribution."""
    try:
        return version(registry.DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"


def policies(config: GovernorConfig) -> dict[str, Policy[Any]]:
    """The configured policies by "pool/lever"."""
    return {
        f"{pool}/{lever}": settings.policy.cls(settings.policy.settings)
        for pool, body in config.pools.items()
        for lever, settings in body.levers.items()
    }


def pool_specs(config: GovernorConfig) -> tuple[PoolSpec, ...]:
    """What the meter must know. A sample older than two control windows says nothing about now."""
    return tuple(
        PoolSpec(
            name,
            pool.window,
            pool.to_objectives(),
            stale_after=max(2 * config.interval, pool.window),
            class_label=pool.class_label,
            gateway=_gateway_spec(name, pool),
            singles=bool(pool.labels.version)
            or any(lever in pool.levers and pool.levers[lever].mode is not Mode.OFF for lever in PER_REPLICA),
            tenants=tuple(sorted(pool.tenants)),
            classes=tuple(sorted(pool.classes)),
        )
        for name, pool in config.pools.items()
    )


def _gateway_spec(name: str, pool: PoolConfig) -> GatewaySpec | None:
    if pool.gateway is None:
        return None
    labels = pool.gateway.labels
    return GatewaySpec(gateway_of(name), tenants=bool(labels.tenant), classes=bool(labels.klass))


def estimator_specs(config: GovernorConfig) -> tuple[EstimatorSpec, ...]:
    """What the estimators must know. A decision is late by a tick and by half of the window it looks at."""
    return tuple(
        EstimatorSpec(
            name,
            pool.to_objectives(),
            pool.profile.to_profile() if pool.profile is not None else None,
            cold_start=pool.cold_start,
            budget_period=config.error_budget.window,
            give_up=max((lever.give_up for lever in pool.levers.values()), default=900.0),
            lead=config.interval + pool.window / 2,
            band=_band(pool),
        )
        for name, pool in config.pools.items()
    )


def _band(pool: PoolConfig) -> Band | None:
    """The prompts that may be downgraded, None where their size does not matter."""
    lever = pool.levers.get(Lever.DOWNGRADE)
    if lever is None or lever.prompt is None:
        return None
    return Band(
        float(lever.prompt.min or 0),
        None if lever.prompt.max is None else float(lever.prompt.max),
        frozenset(name for name, one in pool.tenants.items() if one.consents) if pool.tenants else None,
        frozenset(name for name, one in pool.classes.items() if one.consents) if pool.classes else None,
    )


def fleet_rules(config: GovernorConfig) -> FleetRules:
    """The config's limits in core terms."""
    pools = tuple(_pool_rules(config, name, pool) for name, pool in config.pools.items())
    every = frozenset(config.pools)
    budgets = tuple(
        Budget(name, float(b.max), every if b.pools == "all" else frozenset(b.pools), dict(b.priority))
        for name, b in config.budgets.items()
    )
    pairs = tuple(Pair(name, p.prefill, p.decode, *p.ratio) for name, p in config.pairs.items())
    variants = tuple(Variants(name, dict(v.cost)) for name, v in config.variants.items())
    return FleetRules(pools, budgets, _guard(config.fleet_guard), pairs, variants)


def _guard(guard: FleetGuardConfig) -> FleetGuard:
    return FleetGuard(share=guard.share, hold=guard.hold, min_pools=guard.min_pools)


def pins(config: GovernorConfig) -> Mapping[Target, Pin]:
    """Pins written into the config."""
    return {
        Target(name, lever): Pin(float(settings.pin.value), settings.pin.until.timestamp(), settings.pin.reason)
        for name, pool in config.pools.items()
        for lever, settings in pool.levers.items()
        if settings.pin is not None
    }


def _pool_rules(config: GovernorConfig, name: str, pool: PoolConfig) -> PoolRules:
    levers = tuple(
        _lever_rules(lever, settings, pool, config.actuator(name, lever)) for lever, settings in pool.levers.items()
    )
    return PoolRules(
        pool=name,
        objectives=pool.to_objectives(),
        levers=levers,
        targets=tuple(Target(name, rules.lever, member) for rules in levers for member in rules.members),
        weight=float(pool.gpus_per_replica),
        window=pool.window,
        tenants={name: TenantRules(t.guarantee, t.weight, t.consents) for name, t in pool.tenants.items()},
        classes={name: ClassRules(c.rank, c.sheddable, c.consents) for name, c in pool.classes.items()},
    )


def members(lever: Lever, settings: LeverConfig, pool: PoolConfig) -> tuple[str, ...]:
    """The members of a lever that are known beforehand; none where they are the replicas that are seen."""
    if lever in PER_REPLICA:
        return ()
    if lever is Lever.TENANT_CAP:
        return tuple(sorted(pool.tenants))
    if lever is Lever.ADMISSION:
        return settings.setpoints
    if lever is Lever.ROUTING:
        return (AFFINITY,)
    return settings.receivers if lever is Lever.DOWNGRADE else ("",)


def _lever_rules(lever: Lever, settings: LeverConfig, pool: PoolConfig, plugin: Plugin | None) -> LeverRules:
    return LeverRules(
        lever=lever,
        policy=settings.policy.kind,
        actuator=(settings.actuator.name or settings.actuator.kind) if settings.actuator else "",
        mode=settings.mode,
        limits=Limits(float(settings.min), float(settings.max), float(settings.quantum)),
        cooldown_up=settings.cooldown.up,
        cooldown_down=settings.cooldown.down,
        rate_up=settings.rate.up,
        rate_down=settings.rate.down,
        stabilise=settings.stabilise,
        every=settings.every,
        settle=max(settings.settle, _slowness(lever, plugin)),
        give_up=settings.give_up,
        by=settings.by,
        members=members(lever, settings, pool),
        expiry=settings.expiry,
        group=settings.group,
        version_group=settings.version_group if lever is Lever.BREAKER and pool.labels.version else 0.0,
        unwoken=lever is Lever.REPLICAS and settings.min < 1 and not wakes(pool),
        own=OWN if lever is Lever.ADMISSION else {},
        drain=settings.drain,
    )


def _slowness(lever: Lever, plugin: Plugin | None) -> float:
    """Seconds until a value can show in the target, by the actuator's own word: nothing shows in metrics before."""
    can = plugin.cls.describe(plugin.settings).get(lever) if plugin is not None else None
    return can.settle if can is not None else 0.0


def _actuators(
    config: GovernorConfig, rules: FleetRules, mode: RunMode, world: Actuator, ends: "Ends"
) -> dict[str, Actuator]:
    """By "pool/lever". Without an actuator, and in replay, the target is read off the metrics and nothing is written; a
    simulated world takes the writes of all."""
    out: dict[str, Actuator] = {f"{pool.pool}/{lever.lever}": world for pool in rules.pools for lever in pool.levers}
    built: dict[str, Actuator] = {}
    for key, where, plugin, binding in _wanted(config, rules) if mode not in _IN_PROCESS else ():
        if where not in built:
            dry = mode is RunMode.DRY_RUN
            real = ends.actuator(where, plugin, replace(binding, dry=dry))
            built[where] = DryRun(real) if dry else real
        out[key] = built[where]
    return out


def _wanted(config: GovernorConfig, rules: FleetRules) -> Iterator[tuple[str, str, Plugin, Binding]]:
    """Of every lever with an actuator "pool/lever", where the file describes the actuator, the plug-in, and what it is
    bound to."""
    for pool in rules.pools:
        for lever in pool.levers:
            plugin = config.actuator(pool.pool, lever.lever)
            if plugin is not None:
                key = f"{pool.pool}/{lever.lever}"
                where = f"actuators.{plugin.name}" if plugin.name else f"pools.{key}"
                binding = _binding(config, rules, plugin.name) if plugin.name else _bound(config, [(pool, lever)])
                if getattr(plugin.cls, "asks_consent", False):
                    binding = replace(binding, consents=_consents(rules, binding))
                yield key, where, plugin, binding


def _binding(config: GovernorConfig, rules: FleetRules, name: str) -> Binding:
    """All that share the actuator of this name."""
    return _bound(
        config,
        [
            (pool, lever)
            for pool in rules.pools
            for lever in pool.levers
            if (plugin := config.actuator(pool.pool, lever.lever)) is not None and plugin.name == name
        ],
    )


def _bound(config: GovernorConfig, levers: Sequence[tuple[PoolRules, LeverRules]]) -> Binding:
    """Sorted, so that an actuator is kept over a reload that only moves lines of the file."""
    return Binding(
        tuple(sorted(target for pool, lever in levers for target in pool.targets if target.lever == lever.lever)),
        config.identity,
        scopes=tuple(sorted((pool.pool, lever.lever) for pool, lever in levers if lever.lever in PER_REPLICA)),
    )


def _consents(rules: FleetRules, binding: Binding) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    """Who consents to a smaller model, in the pools that send requests to one. Where nobody is told apart, nothing."""
    sending = {target.pool for target in binding.targets if target.lever is Lever.DOWNGRADE}
    return tuple(
        (pool.pool, kind, tuple(sorted(who)))
        for pool in rules.pools
        if pool.pool in sending
        for kind, told, who in (
            ("tenants", pool.tenants, pool.consenting_tenants),
            ("classes", pool.classes, pool.consenting_classes),
        )
        if told
    )


def refused(config: GovernorConfig) -> list[str]:
    """What actuators themselves find wrong with their part of a valid config, before anything runs. Constructors open
    nothing; one that fails for another reason, such as a library that is not installed here, may do where it runs."""
    ends, found = Ends(None), dict[str, None]()
    for _, where, plugin, binding in _wanted(config, fleet_rules(config)):
        try:
            ends.actuator(where, plugin, binding)
        except AssemblyError as error:
            if isinstance(error.__cause__, ValueError):
                found[str(error)] = None
    return list(found)


class Ends:
    """Sources and actuators of a loop. Those of a previous loop whose configuration did not change are kept over a
    reload, with their connections and what they remember: a source that begins anew knows no increments, and
    an actuator that begins anew has forgotten which values are its own."""

    def __init__(self, previous: ControlLoop | None) -> None:
        self._old: Mapping[Hashable, Any] = previous.parts.ends if previous is not None else {}
        self.made: dict[Hashable, Any] = {}

    def source(self, config: GovernorConfig, needs: tuple[PoolNeeds, ...]) -> Watched:
        # Where an objective's target lies changes nothing of what is read.
        key = ("source", repr(config.source), repr([replace(need, edges={}) for need in needs]))
        if key not in self._old:
            self.made[key] = Watched(config.source.cls(config.source.settings, needs))
        else:
            self.made[key] = self._old[key]
        watched: Watched = self.made[key]
        return watched

    def actuator(self, where: str, plugin: Plugin, binding: Binding) -> Actuator:
        key = (where, repr(plugin), binding)
        if key not in self._old:
            try:
                self.made[key] = plugin.cls(plugin.settings, binding)
            except Exception as error:  # whatever a plug-in's constructor raises is told with its place
                raise AssemblyError(f"{where}: the actuator {plugin.kind} cannot be built: {error}") from error
        else:
            self.made[key] = self._old[key]
        actuator: Actuator = self.made[key]
        return actuator


def _ledger(config: GovernorConfig, mode: RunMode, path: Path | None) -> KeyedLedger:
    if path is None and mode in _IN_PROCESS:
        return MemoryLedger()
    where = path if path is not None else Path(config.ledger.path)
    # What moves nothing outside this process leaves nothing to verify after a crash.
    behind = mode in _IN_PROCESS
    return FileLedger(where, max_size=config.ledger.max_size, rotate_size=config.ledger.rotate_size, behind=behind)
