"""Scoreboard: the rows and columns, once, for the terminal, the JSON and the report."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller.simulate.crew import Results
from controller.simulate.jobs import ORACLE, STATIC
from controller.simulate.ports import Scenario
from controller.simulate.run import Run
from controller.simulate.score import Share
from controller.simulate.spread import Spread

Value = Callable[[Run], float | None]


@dataclass(frozen=True, slots=True)
class Measure:
    """One number of a run. `unit` is ratio, s, h, 1/s, 1/h or empty; `better` whether more is, None when neither."""

    key: str
    title: str
    unit: str
    value: Value
    better: bool | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One contender: its measures over the seeds, in the order of the board's; `note` is what else to know of it."""

    contender: str
    cells: tuple[Spread | None, ...]
    values: tuple[tuple[float | None, ...], ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Board:
    """The scoreboard. `oracle` is the controller's GPU-hours over the oracle's of equal attainment."""

    measures: tuple[Measure, ...]
    rows: tuple[Row, ...]
    oracle: Spread | None
    seeds: tuple[int, ...]
    open: int  # requests without an ending that broke no promise yet, of all runs together


def board(scenario: Scenario, results: Results) -> Board:
    """Everything that is said of the runs."""
    chosen = tuple(measures(scenario, [run for name in results.contenders for run in results.of(name)]))
    waiting = sum(run.score.all.open for name in results.contenders for run in results.of(name))
    return Board(chosen, _over(chosen, results), _over_oracle(results), results.seeds, waiting)


def tenants(results: Results) -> tuple[str, ...]:
    """The tenants that sent requests, those first that attained least with the controller; none unless there are
    several."""
    names = {name for one in results.contenders for run in results.of(one) for name in run.score.tenants}
    attained = {name: Spread.of([_of_tenant(name)(run) for run in results.of("governor")]) for name in names}
    rank = {name: math.inf if one is None else one.mean for name, one in attained.items()}
    return tuple(sorted(names, key=lambda name: (rank[name], name)))


def by_tenant(results: Results, names: Sequence[str]) -> Board:
    """What each of these tenants attained, in this order."""
    chosen = tuple(Measure(name, name or "(none)", "ratio", _of_tenant(name), better=True) for name in names)
    rows = [Row(row.contender, row.cells, row.values) for row in _over(chosen, results)]
    return Board(chosen, tuple(rows), None, results.seeds, 0)


def _over(chosen: Sequence[Measure], results: Results) -> tuple[Row, ...]:
    """The measures of each contender over the seeds."""
    rows = []
    for name in results.contenders:
        runs = results.runs[name]
        values = tuple(tuple(None if run is None else measure.value(run) for run in runs) for measure in chosen)
        rows.append(Row(name, tuple(Spread.of(one) for one in values), values, _note(name, runs)))
    return tuple(rows)


def measures(scenario: Scenario, runs: Sequence[Run]) -> Iterable[Measure]:
    """The columns that these runs have."""
    yield Measure("attained", "attained", "ratio", lambda run: run.score.all.attainment, better=True)
    if any(run.score.all.degraded for run in runs):
        yield Measure("degraded", "degraded", "ratio", lambda run: run.score.all.degraded_share, better=False)
    classes = sorted({name for run in runs for name in run.score.classes})
    if len(classes) > 1:
        for name in classes:
            yield Measure(f"attained.{name}", f"attained, {name or 'no class'}", "ratio", _of_class(name), better=True)
    for event in scenario.events:
        yield Measure(f"in.{event.name}", f"in {event.name}", "ratio", _in_event(event.name), better=True)
        for name in classes if len(classes) > 1 else []:
            title = f"in {event.name}, {name or 'no class'}"
            yield Measure(f"in.{event.name}.{name}", title, "ratio", _in_event(event.name, name), better=True)
        title = f"recovered from {event.name}"
        yield Measure(f"recovered.{event.name}", title, "s", _recovered(event.name), better=False)
    yield Measure("gpu_hours", "GPU-hours", "", lambda run: run.score.gpu_hours, better=False)
    yield Measure("goodput", "goodput", "1/s", lambda run: run.score.goodput, better=True)
    yield Measure("good_per_gpu_hour", "good/GPU-h", "", lambda run: run.score.good_per_gpu_hour, better=True)
    yield Measure("bad_minutes", "bad minutes", "", lambda run: float(run.score.bad_minutes), better=False)
    yield Measure("reversals_per_hour", "reversals", "1/h", lambda run: run.score.reversals_per_hour, better=False)
    for lever in sorted({lever for run in runs for lever in run.score.travel}):
        yield Measure(f"travel.{lever}", f"travel of {lever}", "", _travel(lever), better=False)
    if any(run.score.hit_rate for run in runs):
        yield Measure("hit_rate", "hit rate", "ratio", lambda run: run.score.hit_rate, better=True)
    if any(run.score.fairness for run in runs):
        yield Measure("fairness", "least share", "ratio", _least_fair, better=True)


def missed(share: Share) -> Mapping[str, int]:
    """Reasons, the most frequent first."""
    return dict(sorted(share.missed.items(), key=lambda item: (-item[1], item[0])))


def _of_class(name: str) -> Value:
    return lambda run: one.attainment if (one := run.score.classes.get(name)) is not None else None


def _of_tenant(name: str) -> Value:
    return lambda run: one.attainment if (one := run.score.tenants.get(name)) is not None else None


def _in_event(event: str, klass: str | None = None) -> Value:
    def value(run: Run) -> float | None:
        there = run.score.events[event]
        share = there.all if klass is None else there.classes.get(klass)
        return None if share is None else share.attainment

    return value


def _recovered(event: str) -> Value:
    """Never is infinite: a mean over seeds would otherwise flatter a contender by leaving its worst ones out."""

    def value(run: Run) -> float:
        after = run.score.events[event].recovered
        return math.inf if after is None else after

    return value


def _travel(lever: str) -> Value:
    return lambda run: run.score.travel.get(lever, 0.0)


def _least_fair(run: Run) -> float | None:
    return min(run.score.fairness.values(), default=None)


def _over_oracle(results: Results) -> Spread | None:
    pairs = zip(results.runs["governor"], results.runs.get(ORACLE, ()), strict=False)
    return Spread.of(
        [mine.score.gpu_hours / best.score.gpu_hours for mine, best in pairs if mine is not None and best is not None]
    )


def _note(name: str, runs: Sequence[Run | None]) -> str:
    if name not in (STATIC, ORACLE):
        return ""
    if None in runs:
        found = len([run for run in runs if run is not None])
        return f"none attains as much with {len(runs) - found} of {len(runs)} seeds"
    if name == STATIC:
        counts = [int(sum(run.settings.values())) for run in runs if run is not None]
        return f"{min(counts)} replicas" if min(counts) == max(counts) else f"{min(counts)} to {max(counts)} replicas"
    return ""
