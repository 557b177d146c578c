"""The runs of a study: every contender with every seed, and what each needs to know of the others."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from controller.simulate import search
from controller.simulate.load import Study
from controller.simulate.pilots import Alone, Governor, Nobody, Pilot, Scheduled
from controller.simulate.ports import Scenario, World
from controller.simulate.run import Hopeless, Run, Watch, drive
from controller.simulate.score import SHEDDABLE
from controller.simulate.verdicts import DEGRADED, MISSED, judge

GOVERNOR, NONE, STATIC, ORACLE = "governor", "none", "static", "oracle"
SEARCHES = (STATIC, ORACLE)
LOOKS = 25


@dataclass(frozen=True, slots=True)
class Task:
    """One contender with one seed. `mark` is what a search must reach, None for all others; `ledger` a folder that
    the controller's ledger is kept in, "" for none."""

    contender: str
    seed: int
    mark: search.Mark | None = None
    ledger: str = ""


def contenders(study: Study) -> tuple[str, ...]:
    """In the order of the scoreboard."""
    against = study.scenario.against
    chosen = [(NONE, against.none), (STATIC, against.static), *((peer, True) for peer in study.peers)]
    return (GOVERNOR, *(name for name, wanted in [*chosen, (ORACLE, against.oracle)] if wanted))


def do(study: Study, task: Task, watch: Watch = Watch()) -> Run | None:  # noqa: B008 - frozen
    """Do it. None when a search finds no fleet that attains as much."""
    scenario, config = study.scenario, study.config

    def run(world: World, pilot: Pilot, settings: Mapping[str, float] | None = None, look: Watch = watch) -> Run:
        return drive(
            scenario, world, pilot,
            contender=task.contender, seed=task.seed, interval=config.interval, watch=look, settings=settings,
        )  # fmt: skip

    if (mark := task.mark) is not None:

        def attempt(fleet: search.Fleet, settings: Mapping[str, float]) -> Run | None:
            world = scenario.world(task.seed, fleet.start)
            look = replace(watch, hopeless=hopeless(scenario, world, mark))
            try:
                return run(world, Scheduled(world, fleet.schedules), settings, look)
            except Hopeless:
                return None

        needs = scenario.needs(task.seed)
        if task.contender == STATIC:
            return search.static(mark, needs, attempt)
        return search.oracle(mark, needs, scenario.start, attempt)
    world = scenario.world(task.seed)
    if task.contender == GOVERNOR:
        return run(world, Governor(world, config, Path(task.ledger) if task.ledger else None))
    if task.contender == NONE:
        return run(world, Nobody(world))
    return run(world, Alone(world, config, study.peers[task.contender]))


def hopeless(scenario: Scenario, world: World, mark: search.Mark) -> Callable[[float], bool]:
    """Whether more requests have been lost than may be, looked at ``LOOKS`` times in a run. Asked at the world's own
    time: what is missed then stays missed, so nothing is given up that would have attained as much."""
    begin, end = scenario.start + scenario.warm_up, scenario.start + scenario.duration - scenario.cool_down
    every = scenario.duration / LOOKS
    due = begin

    def asked(at: float) -> bool:
        nonlocal due
        if at < due:
            return False
        due = at + every
        verdicts = judge(world.jobs(), scenario.promises, at)
        inside = (verdicts.arrived >= begin) & (verdicts.arrived < end)
        lost = inside & ((verdicts.result == MISSED) | (verdicts.result == DEGRADED))
        if mark.critical is not None and SHEDDABLE in verdicts.classes:
            critical = lost & (verdicts.klass != verdicts.classes.index(SHEDDABLE))
            if int(critical.sum()) > mark.critical.lost:
                return True
        return int(lost.sum()) > mark.lost

    return asked
