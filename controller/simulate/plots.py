"""The plots of a simulation: offered load, replicas, attainment and latency over time, one line a contender."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from controller.core.words import number, percent, quantity
from controller.rehearse.svg import Axis, Box, Scale, element, fit, line, steps
from controller.simulate.crew import Results
from controller.simulate.live import offset
from controller.simulate.ports import Scenario
from controller.simulate.run import Change, Run
from controller.simulate.score import MINUTE
from controller.simulate.words import contender

WIDTH, LEFT, RIGHT = 1000.0, 62.0, 20.0
HEIGHT, HEAD, GAP = 120.0, 26.0, 16.0
_TICK = 5.0  # seconds between two points of the replicas


@dataclass(frozen=True, slots=True)
class Line:
    """One contender's values on an axis; `place` chooses its colour, None is what all contenders meet."""

    name: str
    values: Sequence[float]
    place: int | None


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot before it is drawn. `mark` is a horizontal line and its words."""

    title: str
    unit: str
    lines: tuple[Line, ...]
    at: tuple[float, ...]
    stepped: bool = False
    mark: tuple[float, str] | None = None
    floor: float | None = 0.0
    ceiling: float | None = None


def draw(scenario: Scenario, results: Results) -> Markup:
    """All plots in one SVG, so that one cursor reads them together."""
    parts: list[Markup] = []
    top = 0.0
    for panel in _panels(scenario, results):
        drawn, top = _panel(panel, scenario, top, _changes(results) if panel.stepped else ())
        parts.append(drawn)
    parts.append(_clock(scenario, top - GAP + 4))
    height = top + 14
    return element(
        "svg", Markup("").join(parts), viewBox=f"0 0 {WIDTH:g} {height:g}", class_="pool", role="img",
        data_start="0", data_end=f"{scenario.duration:g}", data_offset="1", data_left=LEFT,
        data_width=WIDTH - LEFT - RIGHT,
    )  # fmt: skip


def _panels(scenario: Scenario, results: Results) -> list[Panel]:
    count = math.ceil(scenario.duration / MINUTE)
    middles = tuple(min((i + 0.5) * MINUTE, scenario.duration) for i in range(count))
    seed = results.seeds[0]
    lines = [(name, results.of(name), place) for place, name in enumerate(results.contenders)]
    some = next((runs for _, runs, _ in lines if runs), [])
    panels = [
        Panel(
            "offered: requests per second, by minute", "1/s",
            (Line("offered", _mean([run.series.offered for run in some]), None),), middles,
        )
    ]  # fmt: skip
    at = tuple(i * _TICK for i in range(math.ceil(scenario.duration / _TICK)))
    for pool in scenario.pools:
        first = [(name, run, place) for name, runs, place in lines for run in runs if run.seed == seed]
        panels.append(
            Panel(
                f"{pool}: replicas that are paid for, seed {seed}", "",
                tuple(Line(name, _paid(run, pool, scenario, at), place) for name, run, place in first), at,
                stepped=True,
            )
        )  # fmt: skip
    panels.append(
        Panel(
            "attained: share of the requests of each minute that kept their promise", "ratio",
            tuple(Line(name, _mean([run.series.attainment for run in runs]), place) for name, runs, place in lines
                  if runs),
            middles, mark=(scenario.good_minute, f"good minute {percent(scenario.good_minute)}"), ceiling=1.0,
        )
    )  # fmt: skip
    promised = [promise.ttft for promise in scenario.promises.values() if promise.ttft is not None]
    panels.append(
        Panel(
            "time to first token, 95th percentile of the answers of each minute", "s",
            tuple(Line(name, _mean([run.series.ttft for run in runs]), place) for name, runs, place in lines if runs),
            middles, mark=(min(promised), f"promised {quantity(min(promised), 's')}") if promised else None,
        )
    )  # fmt: skip
    return panels


def _mean(series: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Over the seeds, minute by minute, of what is known."""
    means = []
    for values in zip(*series, strict=True):
        known = [value for value in values if not math.isnan(value)]
        means.append(math.fsum(known) / len(known) if known else math.nan)
    return tuple(means)


def _paid(run: Run, pool: str, scenario: Scenario, at: Sequence[float]) -> tuple[float, ...]:
    values: list[float] = []
    rows = list(run.series.replicas.get(pool, ()))
    place, now = 0, math.nan
    for moment in at:
        while place < len(rows) and rows[place][0] - scenario.start <= moment:
            now = float(rows[place][1])
            place += 1
        values.append(now)
    return tuple(values)


def _changes(results: Results) -> Sequence[Change]:
    runs = results.of("governor")
    return runs[0].changes if runs else ()


def _panel(panel: Panel, scenario: Scenario, top: float, changes: Sequence[Change]) -> tuple[Markup, float]:
    box = Box(LEFT, top + HEAD, WIDTH - LEFT - RIGHT, HEIGHT)
    values = [value for one in panel.lines for value in one.values]
    scale = fit(values, [panel.mark[0]] if panel.mark else [], floor=panel.floor, whole=panel.stepped)
    if panel.ceiling is not None:
        scale = Scale(panel.floor or 0.0, panel.ceiling)
    axis = Axis((0.0, *panel.at[1:-1], scenario.duration), hole=math.inf)
    parts = [_frame(panel, scenario, box, scale)]
    draw_line: Callable[..., str] = steps if panel.stepped else line
    # The first contender is the one that this is about, so it is drawn last, over the others.
    parts += [
        element(
            "path", d=draw_line(axis, one.values, scale, box), class_=f"line {_colour(one.place)}",
            data_name=contender(one.name), data_unit=panel.unit, data_lo=f"{scale.lo:g}", data_hi=f"{scale.hi:g}",
            data_log=int(scale.log), data_top=box.top, data_bottom=box.bottom, data_step=1 if panel.stepped else "",
        )
        for one in reversed(panel.lines)
    ]  # fmt: skip
    if panel.mark:
        y = scale.y(panel.mark[0], box)
        parts.append(element("path", d=f"M{box.left:g} {y:.1f}H{box.left + box.width:g}", class_="target"))
        below = y - box.top < 14
        label = element(
            "text", panel.mark[1], x=box.left + box.width - 4, y=y + (11 if below else -4), class_="target-label"
        )
        parts.append(label)
    parts += [_mark(change, scenario, scale, box) for change in changes if panel.title.startswith(_pool(change))]
    return element("g", Markup("").join(parts)), box.bottom + GAP


def _colour(place: int | None) -> str:
    return "all" if place is None else f"k{place % 7}"


def _pool(change: Change) -> str:
    return change.target.partition("/")[0] + ":"


def _mark(change: Change, scenario: Scenario, scale: Scale, box: Box) -> Markup:
    """A triangle where the controller moved the replicas, with the reason on hover."""
    x = box.left + box.width * (change.at - scenario.start) / scenario.duration
    up = change.after > change.before
    y = scale.y(change.after, box) + (-4 if up else 4)
    shape = f"M{x - 4:.1f} {y:.1f}h8l-4 {-7 if up else 7}z"
    text = f"{offset(change.at - scenario.start)} {number(change.before)} → {number(change.after)}: {change.why}"
    return element("path", element("title", text), d=shape, class_="mark up" if up else "mark down")


def _frame(panel: Panel, scenario: Scenario, box: Box, scale: Scale) -> Markup:
    title = panel.title + (" (logarithmic)" if scale.log else "")
    parts = [element("text", title, x=0, y=box.top - 8, class_="title")]
    for begin, end, kind in _shades(scenario):
        x = box.left + box.width * begin / scenario.duration
        width = box.width * (end - begin) / scenario.duration
        parts.append(element("rect", x=x, y=box.top, width=width, height=box.height, class_=kind))
    for value in scale.ticks():
        y = scale.y(value, box)
        words = number(value) if panel.stepped else quantity(value, panel.unit)
        parts.append(element("path", d=f"M{box.left:g} {y:.1f}H{box.left + box.width:g}", class_="grid"))
        parts.append(element("text", words, x=box.left - 6, y=y + 3.5, class_="y"))
    marks = "".join(f"M{x:.1f} {box.top:g}V{box.bottom:g}" for x, _ in _times(scenario, box))
    parts.append(element("path", d=marks, class_="grid"))
    return Markup("").join(parts)


def _shades(scenario: Scenario) -> list[tuple[float, float, str]]:
    """(begin, end, class) of events, and of what is not scored."""
    shades = [(event.begin, event.end, "event") for event in scenario.events]
    if scenario.warm_up:
        shades.append((0.0, scenario.warm_up, "unscored"))
    if scenario.cool_down:
        shades.append((scenario.duration - scenario.cool_down, scenario.duration, "unscored"))
    return shades


def _times(scenario: Scenario, box: Box) -> list[tuple[float, str]]:
    sizes = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
    size = next((size for size in sizes if scenario.duration / size <= 12), sizes[-1])
    count = int(scenario.duration // size) + 1
    return [(box.left + box.width * i * size / scenario.duration, offset(i * size)) for i in range(count)]


def _clock(scenario: Scenario, top: float) -> Markup:
    box = Box(LEFT, top, WIDTH - LEFT - RIGHT, 0)
    return Markup("").join(element("text", label, x=x, y=top + 8, class_="x") for x, label in _times(scenario, box))
