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
from controller.config.plugins import Plugin
from controller.config.spell import spell
from controller.config.terms import estimator_specs, fleet_rules, pins, pool_specs
from controller.core.meter import Meter
from controller.core.model import Lever
from controller.core.ports import Actuator, Binding, Finding, PoolNeeds, Source
from controller.core.rules import PER_REPLICA, FleetRules, LeverRules, PoolRules
from controller.run import originals
from controller.run.ends import DryRun, Watched, bare
from controller.run.laws import policies
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
        real = bare(actuator)
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
