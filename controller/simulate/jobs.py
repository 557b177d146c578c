"""The runs of a study: every contender with every seed, and what each needs to know of the others."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from controller.simulate import search
from controller.simulate.load import Study
from controller.simulate.pilots import Alone, Governor, Nobody, Pilot, Scheduled
from controller.simulate.ports import World
from controller.simulate.run import Run, Watch, drive

GOVERNOR, NONE, STATIC, ORACLE = "governor", "none", "static", "oracle"
SEARCHES = (STATIC, ORACLE)


@dataclass(frozen=True, slots=True)
class Task:
    """One contender with one seed. `wanted` is the attainment that a search must reach, `ledger` a folder that the
    controller's ledger is kept in, "" for none."""

    contender: str
    seed: int
    wanted: float | None = None
    ledger: str = ""


def contenders(study: Study) -> tuple[str, ...]:
    """In the order of the scoreboard."""
    against = study.scenario.against
    chosen = [(NONE, against.none), (STATIC, against.static), *((peer, True) for peer in study.peers)]
    return (GOVERNOR, *(name for name, wanted in [*chosen, (ORACLE, against.oracle)] if wanted))


def do(study: Study, task: Task, watch: Watch | None = None) -> Run | None:
    """Do it. None when a search finds no fleet that attains as much."""
    scenario, config = study.scenario, study.config

    def run(world: World, pilot: Pilot, settings: Mapping[str, float] | None = None) -> Run:
        return drive(
            scenario, world, pilot,
            contender=task.contender, seed=task.seed, interval=config.interval, watch=watch, settings=settings,
        )  # fmt: skip

    def attempt(fleet: search.Fleet, settings: Mapping[str, float]) -> Run:
        world = scenario.world(task.seed, fleet.start)
        return run(world, Scheduled(world, fleet.schedules), settings)

    if task.contender in SEARCHES:
        needs = scenario.needs(task.seed)
        wanted = task.wanted or 0.0
        if task.contender == STATIC:
            return search.static(wanted, needs, attempt)
        return search.oracle(wanted, needs, scenario.start, attempt)
    world = scenario.world(task.seed)
    if task.contender == GOVERNOR:
        return run(world, Governor(world, config, Path(task.ledger) if task.ledger else None))
    if task.contender == NONE:
        return run(world, Nobody(world))
    return run(world, Alone(world, config, study.peers[task.contender]))
