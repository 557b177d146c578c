"""What the parts of a scenario must agree on. Looked at once each part is valid by itself."""

from collections.abc import Iterator

from controller.config import GovernorConfig, terms
from controller.config.errors import Finding, Path
from controller.config.report import nearest
from controller.config.units import format_duration
from controller.core.model import Lever, Mode, Target
from controller.core.sizes import Band
from controller.simulate.ports import Scenario
from controller.simulate.verdicts import DEFAULT

ENGINES = ("vllm", "gaie")  # whose metrics the twin shows: those of its engines, and those of its gateway
Mistake = tuple[Path, str, str]


def check(scenario: Scenario, config: GovernorConfig, file: str = "") -> Iterator[Mistake]:
    """Every contradiction. `file` is where the config is from, "" when it stands in the scenario itself."""
    yield from _config(scenario, config, file)
    yield from _promises(scenario)
    yield from _events(scenario)
    yield from ((path, mistake, mend) for path, mistake, mend in scenario.contradictions())


def _config(scenario: Scenario, config: GovernorConfig, file: str) -> Iterator[Mistake]:
    scaled = any(Lever.REPLICAS in pool.levers for pool in config.pools.values())
    for name, pool in config.pools.items():
        place: Path = ("governor",) if file else ("governor", "pools", name)
        about = f"pool {name} of {file}: " if file else ""
        if name not in scenario.pools:
            yield place, f"{about}is not a pool of the fleet", nearest(name, scenario.pools)
            continue
        if pool.engine not in ENGINES:
            where = place if file else (*place, "engine")
            known = " and ".join(ENGINES)
            yield where, f"{about}the twin shows the metrics of {known}, not of {pool.engine}", f"write {ENGINES[0]}"
        if scenario.against.peers and (pool.levers or not scaled) and Lever.REPLICAS not in pool.levers:
            yield place, f"{about}has no lever replicas, which the peers need for their bounds", "add it"
    if not any(pool.levers for pool in config.pools.values()):
        yield ("governor",), "has no lever, so there is nothing to simulate", "add pools.NAME.levers.replicas"


def _promises(scenario: Scenario) -> Iterator[Mistake]:
    classes = scenario.classes
    for name in scenario.promises:
        if name != DEFAULT and name not in classes:
            named = [one for one in classes if one]
            yield ("promises", name), "no request of the traffic is of this class", nearest(name, [*named, DEFAULT])
    if DEFAULT not in scenario.promises:
        for name in classes:
            if name not in scenario.promises:
                whose = f"class {name}" if name else "requests without a class"
                yield ("promises",), f"nothing is promised to {whose}", f"add {name or DEFAULT}: {{ttft: ...}}"


def _events(scenario: Scenario) -> Iterator[Mistake]:
    begin, end = scenario.warm_up, scenario.duration - scenario.cool_down
    seen: set[str] = set()
    for number, event in enumerate(scenario.events):
        place: Path = ("events", number)
        if event.name in seen:
            yield (*place, "name"), f"{event.name!r} is there twice", "give each a name of its own"
        seen.add(event.name)
        scored = f"scored is {format_duration(begin)} to {format_duration(end)}"
        if event.begin < begin:
            yield (*place, "begin"), "lies in the part that is not scored", f"{scored}; begin later"
        if event.end > end:
            yield (*place, "end"), "lies in the part that is not scored", f"{scored}; end earlier"


def idle(config: GovernorConfig) -> Iterator[Finding]:
    """Levers that will not move because of their mode: no mistake, but seldom what a simulation is for."""
    for name, pool in config.pools.items():
        for lever, settings in pool.levers.items():
            if settings.mode in (Mode.OFF, Mode.OBSERVE):
                at: Path = ("pools", name, "levers", lever.value)
                yield Finding(at, f"mode {settings.mode} moves nothing", "write mode: auto to see it act")


def misfits(scenario: Scenario, config: GovernorConfig) -> Iterator[str]:
    """Sentences on levers that the gateways of the fleet have not, or take for something else. Said once, since the
    run would say it at every tick, or not at all."""
    bands = {spec.pool: spec.band or Band() for spec in terms.estimator_specs(config)}
    for rules in terms.fleet_rules(config).pools:
        levers = [one for one in rules.levers if one.mode is not Mode.OFF and one.lever is not Lever.REPLICAS]
        targets = [Target(rules.pool, one.lever, member) for one in levers for member in one.members]
        yield from scenario.misfits(rules, targets, bands[rules.pool])
