"""One run: one contender, one seed, from the first second to the last, and what is kept of it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from controller.core.model import Decision
from controller.explain import reason
from controller.simulate.moves import summed
from controller.simulate.pilots import Pilot
from controller.simulate.ports import Scenario, World
from controller.simulate.score import MINUTE, Score, Span, attainment_by_minute, score
from controller.simulate.verdicts import DEGRADED, GOOD, OPEN, Verdicts, judge

KEPT = 2000  # changes kept for the report; more are counted
_MIN_SAMPLES = 3  # answers of a minute from which a percentile is drawn


@dataclass(frozen=True, slots=True)
class Change:
    """A decision that was carried out: when (unix seconds), what, from where to where, and why in words."""

    at: float
    target: str
    before: float
    after: float
    why: str


@dataclass(frozen=True, slots=True)
class Series:
    """What happened over time. Per minute of arrivals, NaN where there was nothing: `offered` requests/s, `attainment`,
    `degraded` and `ttft` (95th percentile, seconds). `replicas` by pool: (unix seconds, paid for, ready)."""

    offered: tuple[float, ...]
    attainment: tuple[float, ...]
    degraded: tuple[float, ...]
    ttft: tuple[float, ...]
    replicas: Mapping[str, tuple[tuple[float, int, int], ...]]


@dataclass(frozen=True, slots=True)
class Run:
    """A finished run. `changes` are at most ``KEPT``, `changed` is how many there were; `settings` say what else is to
    be known of the contender, such as the number of replicas of a static fleet."""

    contender: str
    seed: int
    score: Score
    series: Series
    changes: tuple[Change, ...] = ()
    changed: int = 0
    settings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Frame:
    """A look at a run on its way. `at` seconds after the start; `replicas` by pool: wanted, ready, on their way;
    `attained` of all scored requests so far, `recent` of those of the last two minutes, None where there were none."""

    contender: str
    seed: int
    at: float
    of: float
    replicas: Mapping[str, tuple[int, int, int]]
    waiting: int
    attained: float | None
    recent: float | None
    changes: tuple[Change, ...]


class Cancelled(Exception):
    """The run was told to stop."""


class Hopeless(Exception):
    """The run cannot reach any more what it must."""


@dataclass(frozen=True, slots=True)
class Watch:
    """What a run does besides running: `look` takes frames, whenever `due` says that it is time and at the end; `stop`
    says that nobody wants the result any more, `hopeless` that it cannot become what is wanted (asked with the time,
    unix seconds). Each frame costs a judgement of all jobs so far."""

    look: Callable[[Frame], None] | None = None
    due: Callable[[], bool] = lambda: False
    stop: Callable[[], bool] = lambda: False
    hopeless: Callable[[float], bool] = lambda _: False


def drive(
    scenario: Scenario,
    world: World,
    pilot: Pilot,
    *,
    contender: str,
    seed: int,
    interval: float,
    watch: Watch | None = None,
    settings: Mapping[str, float] | None = None,
) -> Run:
    """Run to the end. `interval` seconds from tick to tick. Raises Cancelled, Hopeless, and what the pilot raises."""
    watch = watch or Watch()
    start, end = scenario.start, scenario.start + scenario.duration
    kept: list[Change] = []
    fresh: list[Change] = []
    changed = 0
    try:
        for number in range(math.ceil(scenario.duration / interval)):
            if watch.stop():
                raise Cancelled
            at = start + number * interval
            done = [_change(one, at) for one in pilot.tick(at).decisions if one.send and one.changed]
            changed += len(done)
            kept += done[: max(0, KEPT - len(kept))]
            fresh += done
            world.advance(at)  # for looks: what is judged at a time must have come to it
            if watch.hopeless(at):
                raise Hopeless
            if watch.look is not None and watch.due():
                watch.look(_frame(scenario, world, contender, seed, at, tuple(fresh)))
                fresh = []
        world.advance(end)
        if watch.look is not None:
            watch.look(_frame(scenario, world, contender, seed, end, tuple(fresh)))
    finally:
        pilot.close()
    verdicts = judge(world.jobs(), scenario.promises, end)
    span = Span(start, start + scenario.warm_up, end - scenario.cool_down)
    result = score(
        verdicts, span, scenario.events,
        good_minute=scenario.good_minute,
        gpu_hours=world.gpu_seconds(span.begin, span.end) / 3600,
        moves=summed(world.moves(), span.begin, span.end),
    )  # fmt: skip
    return Run(contender, seed, result, _series(scenario, world, verdicts), tuple(kept), changed, dict(settings or {}))


def _change(decision: Decision, at: float) -> Change:
    return Change(at, str(decision.target), decision.current or 0.0, decision.final or 0.0, reason(decision))


def _frame(
    scenario: Scenario, world: World, contender: str, seed: int, at: float, changes: tuple[Change, ...]
) -> Frame:
    verdicts = judge(world.jobs(), scenario.promises, at)
    known = verdicts.result != OPEN
    scored = known & (verdicts.arrived >= scenario.start + scenario.warm_up)
    recent = known & (verdicts.arrived >= at - 2 * MINUTE)
    return Frame(
        contender, seed, at - scenario.start, scenario.duration, world.replicas(), world.waiting(),
        _good(verdicts, scored), _good(verdicts, recent), changes,
    )  # fmt: skip


def _good(verdicts: Verdicts, chosen: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> float | None:
    total = int(chosen.sum())
    return int((verdicts.result[chosen] == GOOD).sum()) / total if total else None


def _series(scenario: Scenario, world: World, verdicts: Verdicts) -> Series:
    begin, end = scenario.start, scenario.start + scenario.duration
    count = math.ceil(scenario.duration / MINUTE)
    minute = ((verdicts.arrived - begin) // MINUTE).astype(np.int64)
    known = verdicts.result != OPEN
    arrived = np.bincount(minute, minlength=count)[:count]
    offered = np.bincount(minute[known], minlength=count)[:count]
    degraded = np.bincount(minute[verdicts.result == DEGRADED], minlength=count)[:count]
    attained = attainment_by_minute(verdicts, begin, end)
    return Series(
        tuple(float(n) / MINUTE for n in arrived),
        tuple(math.nan if one is None else one for one in attained),
        tuple(int(d) / int(n) if n else math.nan for d, n in zip(degraded, offered, strict=True)),
        tuple(_p95(verdicts, minute, i) for i in range(count)),
        {pool: tuple(world.history(pool)) for pool in scenario.pools},
    )


def _p95(verdicts: Verdicts, minute: "np.ndarray[tuple[int], np.dtype[np.int64]]", index: int) -> float:
    first, last = np.searchsorted(minute, [index, index + 1])  # arrivals are in order
    ttft = verdicts.ttft[first:last]
    ttft = ttft[~np.isnan(ttft)]
    return float(np.quantile(ttft, 0.95)) if len(ttft) >= _MIN_SAMPLES else math.nan
