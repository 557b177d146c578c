"""A task done: the twin, its pilot, and what is kept of the run.

Searches try fleets on the same twin; each try is kept by itself, also one that was given up on, because the next
version of Governor asks for another attainment and the tries are the same.
"""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.control.cache import Cache, outcome
from benchmarks.control.cases import Case, placed
from benchmarks.control.floor import least
from benchmarks.control.task import Counted, Outcome, Task, Within, digest, document, key
from controller.core.model import Lever
from controller.core.rules import RELAX_DOWN
from controller.simulate import search
from controller.simulate.jobs import GOVERNOR, NONE, STATIC, hopeless
from controller.simulate.load import Origin, Study
from controller.simulate.pilots import Alone, Governor, Nobody, Pilot, Scheduled
from controller.simulate.ports import World
from controller.simulate.run import Hopeless, Run, Series, Watch, drive
from controller.simulate.score import SHEDDABLE, Score, Share, share
from controller.simulate.search import Fleet, Mark
from controller.simulate.verdicts import Verdicts, judge

KEPT_BREAKS = 400


def do(case: Case, task: Task, cache: Cache, watch: Watch = Watch()) -> Outcome | None:  # noqa: B008 - frozen
    """The outcome of a task, from the cache or run now; None when a search finds nothing that attains as much."""
    name = key(case, task)
    known, found = cache.get(case.name, name)
    if known:
        return found
    study = opened(case, task)
    if task.mark is None:
        found = _once(case, study, task, watch)
    else:
        found = _Search(case, study, task, task.mark, cache, watch).found()
    cache.put(case.name, name, found)
    return found


def opened(case: Case, task: Task) -> Study:
    """The study of a task. Raises ConfigError."""
    return Origin(json.dumps(placed(document(case, task))), case.name, ".").load()


def _once(case: Case, study: Study, task: Task, watch: Watch) -> Outcome:
    world = study.scenario.world(task.seed)
    pilot: Pilot
    if task.contender == GOVERNOR:
        pilot = Governor(world, study.config)
    elif task.contender == NONE:
        pilot = Nobody(world)
    else:
        pilot = Alone(world, study.config, study.peers[task.contender])
    begin = time.process_time()
    run = _driven(study, task, world, pilot, {}, watch)
    return kept(case, study, run, world, time.process_time() - begin)


def _driven(study: Study, task: Task, world: World, pilot: Pilot, settings: Mapping[str, float], watch: Watch) -> Run:
    return drive(
        study.scenario, world, pilot, contender=task.contender, seed=task.seed, interval=study.config.interval,
        watch=watch, settings=settings,
    )  # fmt: skip


class _Search:
    """The tries of one search."""

    def __init__(self, case: Case, study: Study, task: Task, mark: Mark, cache: Cache, watch: Watch) -> None:
        self._case, self._study, self._task, self._mark = case, study, task, mark
        self._cache, self._watch = cache, watch
        self._base = key(case, replace(task, mark=None))
        self._outcomes: list[tuple[Run, Outcome]] = []
        self._cpu = 0.0

    def found(self) -> Outcome | None:
        """The outcome of the cheapest that reaches the mark."""
        scenario = self._study.scenario
        scaled = {name for name, pool in self._study.config.pools.items() if pool.levers}
        needs = {pool: need for pool, need in scenario.needs(self._task.seed).items() if pool in scaled}
        if self._task.contender == STATIC:
            best = search.static(self._mark, needs, self._attempt)
        else:
            best = search.oracle(self._mark, needs, scenario.start, self._attempt)
        if best is None:
            return None
        chosen = next(one for run, one in self._outcomes if run is best)
        return replace(chosen, cpu=self._cpu)

    def _attempt(self, fleet: Fleet, settings: Mapping[str, float]) -> Run | None:
        name = digest({"try": self._base, "settings": dict(settings)})
        known, data = self._cache.read(self._case.name, name)
        if not known or ("lost" in data and not self._in_vain(data)):
            data = self._try(fleet, settings)
            self._cache.write(self._case.name, name, data)
        if "lost" in data:
            return None
        one = outcome(data)
        run = Run(self._task.contender, self._task.seed, _score(one), _NOTHING, settings=settings)
        self._outcomes.append((run, one))
        return run

    def _in_vain(self, data: Mapping[str, int]) -> bool:
        """Whether a fleet that was given up on for another mark has lost too much for this one as well."""
        rest = self._mark.critical
        return self._mark.lost <= data["lost"] and (rest is None or rest.lost <= data["critical"])

    def _try(self, fleet: Fleet, settings: Mapping[str, float]) -> dict[str, Any]:
        scenario, mark = self._study.scenario, self._mark
        world = scenario.world(self._task.seed, {**scenario.pools, **fleet.start})
        watch = replace(self._watch, hopeless=hopeless(scenario, world, mark))
        pilot = Scheduled(world, fleet.schedules)
        begin = time.process_time()
        try:
            run = _driven(self._study, self._task, world, pilot, settings, watch)
        except Hopeless:
            self._cpu += time.process_time() - begin
            return {"lost": mark.lost, "critical": mark.lost if mark.critical is None else mark.critical.lost}
        took = time.process_time() - begin
        self._cpu += took
        return asdict(kept(self._case, self._study, run, world, took))


_NOTHING = Series((), (), (), (), {})


def _score(one: Outcome) -> Score:
    """As much of a score as a search asks for."""
    whole = _share(one.all)
    classes = {} if one.critical == one.all else {"": _share(one.critical), SHEDDABLE: Share(0, 0, 0, 0, {})}
    return Score(one.seconds, whole, classes, {}, one.gpu_hours, 0, 0, 0)


def _share(one: Counted) -> Share:
    return Share(one.offered, one.good, one.degraded, one.open, one.missed)


# --- what is kept ----------------------------------------------------------------------------------------------------


def kept(case: Case, study: Study, run: Run, world: World, cpu: float) -> Outcome:
    """The numbers of a run that the page needs."""
    scenario, score = study.scenario, run.score
    start, end = scenario.start, scenario.start + scenario.duration
    verdicts = judge(world.jobs(), scenario.promises, end)
    inside = (verdicts.arrived >= start + scenario.warm_up) & (verdicts.arrived < end - scenario.cool_down)
    events = {
        name: Within(Counted.of(one.all), Counted.of(one.critical), one.recovered) for name, one in score.events.items()
    }
    during = {
        event.name: (verdicts.arrived >= start + event.begin) & (verdicts.arrived < start + event.end)
        for event in scenario.events
    }
    rows = {
        pool: tuple((at - start, paid, ready) for at, paid, ready in some) for pool, some in run.series.replicas.items()
    }
    return Outcome(
        seconds=score.seconds,
        all=Counted.of(score.all),
        critical=Counted.of(score.critical),
        events=events,
        gpu_hours=score.gpu_hours,
        bad_minutes=score.bad_minutes,
        reversals_per_hour=score.reversals_per_hour,
        fairness=dict(score.fairness),
        hit_rate=score.hit_rate,
        tenants=_tenants(verdicts, inside),
        tenants_in={name: _tenants(verdicts, chosen) for name, chosen in during.items()},
        replicas=rows,
        offered=tuple(round(one, 3) for one in run.series.offered),
        attained=tuple(None if math.isnan(one) else round(one, 4) for one in run.series.attainment),
        breaks=_breaks(world, start),
        relaxed=_relaxed(world, start),
        settings=dict(run.settings),
        floor=_floor(case, study, run, rows) if case.floor else None,
        cpu=cpu,
    )


def _tenants(verdicts: Verdicts, chosen: NDArray[np.bool_]) -> dict[str, Counted]:
    """What became of each tenant's requests; nothing where there is but one."""
    if len(verdicts.tenants) < 2:
        return {}
    found = {
        name: Counted.of(share(verdicts, chosen & (verdicts.tenant == number)))
        for number, name in enumerate(verdicts.tenants)
    }
    return {name: one for name, one in sorted(found.items()) if one.offered}


def _breaks(world: World, start: float) -> tuple[tuple[float, str, float, float], ...]:
    moves = [
        (round(move.at - start, 3), move.target.member, move.before, move.after)
        for move in world.moves()
        if move.target.lever is Lever.BREAKER
    ]
    return tuple(moves[:KEPT_BREAKS])


def _relaxed(world: World, start: float) -> tuple[tuple[float, str, float, float], ...]:
    """Weights apart, which have no such direction: what one replica gets another one loses."""
    return tuple(
        (round(move.at - start, 3), str(move.target.lever), move.before, move.after)
        for move in world.moves()
        if move.target.lever is not Lever.WEIGHT
        and move.after != move.before
        and (move.after < move.before) == RELAX_DOWN[move.target.lever]
    )


def _floor(case: Case, study: Study, run: Run, rows: Mapping[str, Sequence[tuple[float, int, int]]]) -> float | None:
    """See ``floor.least``; of the pool with traffic, with the replicas that were ready when the event began."""
    event = next(one for one in study.scenario.events if one.name == case.floor)
    needs = study.scenario.needs(run.seed)
    (pool, need), *_ = needs.items()
    ready = max([ready for at, _, ready in rows[pool] if at <= event.begin][-1:], default=0)
    return least(need, event.begin, event.end, ready, case.cold_start)
