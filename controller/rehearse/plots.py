"""The plots of one pool: its signals against their targets, recorded and proposed replicas, and every decision."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from controller.core.model import Decision, Lever, Target
from controller.core.reading import State
from controller.core.signals import INFO, Signal
from controller.core.slo import Objective
from controller.core.words import clock, number, percent, quantity
from controller.explain import ASKED, IDLE, held_by, movement, reason
from controller.rehearse.members import FEW, by_lever, limited, movers, short_name, spread
from controller.rehearse.svg import Axis, Box, Scale, band, element, fit, line, spans, steps
from controller.rehearse.trace import STATES, Column, Key, PoolTrace, TargetTrace

WIDTH, LEFT, RIGHT = 1000.0, 62.0, 12.0
HEIGHT, HEAD, STRIP, GAP = 92.0, 24.0, 5.0, 12.0
COLUMNS_OF_LANE = 300
COLOURS = 3  # members of one lever that have a line of their own
MARKS = 240  # drawn decisions per target; each column of the page keeps its last one

# The strip under each plot; a column that mixes states shows the one that matters most.
_CLASS: dict[State, int] = {
    State.OK: 0, State.BELOW_FIRST: 0, State.NO_TRAFFIC: 1, State.UNDERFILLED: 2, State.PARTIAL: 3, State.CENSORED: 4,
    State.SATURATED_TOP: 5, State.UNSUPPORTED: 6, State.STALE: 7, State.MISSING: 8,
}  # fmt: skip
STRIP_NAMES: tuple[str, ...] = (
    "", "no traffic", "window not full", "partial", "censored: work in flight", "above the top bucket", "not exposed",
    "stale", "no data",
)  # fmt: skip
# Of the other signals lo and hi are the spread over replicas, which says nothing about the pool's own value.
_BOUNDED = frozenset({Signal.QUEUE_DELAY, Signal.ERROR_RATIO, Signal.QUEUED_TOKENS, Signal.REMAINING_TOKENS})
_BY_INDEX = tuple(_CLASS[state] for state in STATES)


@dataclass(frozen=True, slots=True)
class Curve:
    """One line of a plot."""

    name: str
    column: Column
    colour: int


@dataclass(frozen=True, slots=True)
class Panel:
    """One plot before it is drawn. `floor` is the least value of the axis, None to fit it."""

    title: str
    unit: str
    curves: tuple[Curve, ...]
    marks: tuple[tuple[float, str], ...] = ()
    floor: float | None = 0.0
    bounds: bool = True


def draw_pool(pool: PoolTrace, at: Sequence[float], step: float) -> tuple[Markup, list[str]]:
    """The SVG of a pool, and the names of the signals that the recording does not hold."""
    axis = Axis(at, hole=2.5 * step)
    parts: list[Markup] = []
    top = 0.0
    for lever, targets in by_lever(pool.targets):
        if len(targets) > FEW:
            drawn, top = _members(lever, targets, pool.targets, axis, top)
            parts.append(drawn)
            continue
        for target in targets:
            drawn, top = _target(target, pool.targets[target], axis, top)
            parts.append(drawn)
    if parts:
        parts.append(_time_axis(axis, top - 4))
        top += 10
    absent: list[str] = []
    for panel in _panels(pool):
        curves = tuple(curve for curve in panel.curves if _seen(curve.column))
        absent += [curve.name for curve in panel.curves if curve not in curves]
        if curves:
            drawn, top = _panel(panel, curves, axis, top)
            parts.append(drawn)
    parts.append(_time_axis(axis, top))
    height = top + 26
    body = Markup("").join(parts)
    svg = element(
        "svg", body, viewBox=f"0 0 {WIDTH:g} {height:g}", class_="pool", role="img",
        data_start=f"{at[0]:.3f}", data_end=f"{at[-1]:.3f}", data_left=LEFT, data_width=WIDTH - LEFT - RIGHT,
    )  # fmt: skip
    return svg, absent


def sparkline(lane: TargetTrace, at: Sequence[float], step: float) -> Markup:
    """Recorded and proposed values, small, for the index."""
    box, axis = Box(1, 2, 158, 26), Axis(at, hole=2.5 * step)
    scale = fit([*lane.recorded, *lane.proposed], (), whole=True)
    body = element("path", d=steps(axis, lane.recorded, scale, box), class_="recorded thin") + element(
        "path", d=steps(axis, lane.proposed, scale, box), class_="proposed thin"
    )
    return element("svg", body, viewBox="0 0 160 30", class_="spark", aria_hidden="true")


def _panels(pool: PoolTrace) -> list[Panel]:
    panels: list[Panel] = []
    told: set[Key] = set()
    for key, column in pool.columns.items():
        if key in told:
            continue
        if key.objective:
            panels.append(_attainment(pool, key, column))
            continue
        info = INFO[Signal(key.signal)]
        # The curve is the pool's, so a promise for one class has no mark on it.
        same = (o for o in pool.objectives if o.signal == key.signal and _stat(o) == key.stat)
        marks = tuple(_mark(o) for o in same if not o.klass)
        curves = [Curve(str(key), column, 1)]
        title = f"{str(key).replace('_', ' ')}: {info.meaning}"
        if key.signal == Signal.OFFERED_RATE and (done := Key(Signal.FINISHED_RATE.value)) in pool.columns:
            curves.append(Curve("finished_rate", pool.columns[done], 2))
            told.add(done)
            title = "requests per second: offered and finished"
        panels.append(Panel(title, info.unit, tuple(curves), marks, bounds=bool(key.stat) or key.signal in _BOUNDED))
    return panels


def _attainment(pool: PoolTrace, key: Key, column: Column) -> Panel:
    objective = next(o for o in pool.objectives if o.name == key.objective)
    info = INFO[objective.signal]
    kept = (
        f"with {objective.signal.value} within {quantity(objective.target, info.unit)}"
        if info.latency
        else "not failed"
    )
    marks = () if objective.share is None else ((objective.share, f"promised {percent(objective.share)}"),)
    lowest = min((low for low, _ in column.bounds() if math.isfinite(low)), default=0.9)
    floor = max(0.0, min(lowest, objective.share or 1.0) - 0.02)
    whose = f"requests of class {objective.klass}" if objective.klass else "requests"
    title = f"attainment: share of {whose} {kept}"
    return Panel(title, "ratio", (Curve(str(key), column, 3),), marks, floor=floor)


def _stat(objective: Objective) -> str:
    return objective.stat if INFO[objective.signal].latency else ""


def _mark(objective: Objective) -> tuple[float, str]:
    return objective.target, f"target {quantity(objective.target, INFO[objective.signal].unit)}"


def _seen(column: Column) -> bool:
    return any(math.isfinite(v) for v in column.value) or any(math.isfinite(v) for v in column.lo)


def _panel(panel: Panel, curves: tuple[Curve, ...], axis: Axis, top: float) -> tuple[Markup, float]:
    box = Box(LEFT, top + HEAD, WIDTH - LEFT - RIGHT, HEIGHT)
    values = [v for curve in curves for v in (*curve.column.value, *curve.column.lo)]
    # Upper bounds may reach far above anything measured; they are drawn to the top of the box instead of stretching it.
    scale = fit(values, [mark for mark, _ in panel.marks], floor=panel.floor)
    if panel.unit == "ratio" and panel.floor:
        scale = Scale(panel.floor, 1.0)
    classes = bytes(_BY_INDEX[i] for i in curves[0].column.state)
    parts = [_frame(panel.title, box, scale, lambda v: quantity(v, panel.unit), axis)]
    if len(curves) > 1:
        parts += [
            element("text", f"— {curve.name.removesuffix('_rate')}", x=box.left + box.width - 90 * i, y=box.top - 8,
                    class_=f"key c{curve.colour}")
            for i, curve in enumerate(reversed(curves))
        ]  # fmt: skip
    parts += [
        element("rect", x=x, y=box.top, width=width, height=box.height, class_=f"tint s{kind}")
        for kind, x, width in spans(axis, classes, box)
        if kind >= 6
    ]
    for curve in curves:
        if panel.bounds:
            area = band(axis, list(curve.column.bounds()), scale, box)
            parts.append(element("path", d=area, class_=f"band c{curve.colour}"))
        parts.append(
            element(
                "path", d=line(axis, curve.column.value, scale, box), class_=f"line c{curve.colour}",
                data_name=curve.name.replace("_", " "), data_unit=panel.unit, data_lo=f"{scale.lo:g}",
                data_hi=f"{scale.hi:g}",
                data_log=int(scale.log), data_top=box.top, data_bottom=box.bottom,
            )
        )  # fmt: skip
    for mark, label in panel.marks:
        y = scale.y(mark, box)
        parts.append(element("path", d=f"M{box.left:g} {y:.1f}H{box.left + box.width:g}", class_="target"))
        below = y - box.top < 14
        parts.append(
            element("text", label, x=box.left + box.width - 4, y=y + (11 if below else -4), class_="target-label")
        )
    parts += [
        element("rect", element("title", STRIP_NAMES[kind]), x=x, y=box.bottom + 1, width=width, height=STRIP,
                class_=f"strip s{kind}")
        for kind, x, width in spans(axis, classes, box)
    ]  # fmt: skip
    return element("g", Markup("").join(parts)), box.bottom + STRIP + GAP


def _target(target: Target, lane: TargetTrace, axis: Axis, top: float) -> tuple[Markup, float]:
    box = Box(LEFT, top + HEAD, WIDTH - LEFT - RIGHT, HEIGHT + 22)
    recorded, proposed = limited(lane.recorded), limited(lane.proposed)
    scale = fit([*recorded, *lane.ready, *proposed], (), whole=target.lever is Lever.REPLICAS)
    parts = [_frame(f"{short_name(target)}: recorded and proposed", box, scale, number, axis)]
    rows: list[tuple[str, Sequence[float]]] = [("recorded", recorded), ("proposed", proposed)]
    if not all(map(_same, lane.ready, lane.recorded)):
        rows.insert(0, ("ready", lane.ready))
    for label, values in rows:
        parts.append(
            element(
                "path", d=steps(axis, values, scale, box), class_=label, data_name=label, data_unit="", data_step=1,
                data_lo=f"{scale.lo:g}", data_hi=f"{scale.hi:g}", data_log=0, data_top=box.top, data_bottom=box.bottom,
            )
        )  # fmt: skip
    parts += _markers(lane, axis, scale, box)
    parts += _lane(lane, axis, Box(box.left, box.bottom + 3, box.width, 11))
    return element("g", Markup("").join(parts)), box.bottom + 14 + GAP


def _members(
    lever: Lever, targets: Sequence[Target], lanes: Mapping[Target, TargetTrace], axis: Axis, top: float
) -> tuple[Markup, float]:
    """All members of a lever in one plot: the band that holds their proposals, and by name those that moved most."""
    box = Box(LEFT, top + HEAD, WIDTH - LEFT - RIGHT, HEIGHT + 22)
    ends = spread(lanes[target] for target in targets)
    scale = fit([value for pair in ends for value in pair], ())
    named = movers(lanes, targets, COLOURS)
    parts = [
        _frame(f"{lever}: proposed for {len(targets)} members", box, scale, number, axis),
        element("path", d=band(axis, ends, scale, box), class_="band c1"),
    ]
    for colour, target in enumerate(named, start=1):
        parts.append(
            element(
                "path", d=steps(axis, limited(lanes[target].proposed), scale, box), class_=f"line c{colour}",
                data_name=target.member, data_unit="", data_step=1, data_lo=f"{scale.lo:g}", data_hi=f"{scale.hi:g}",
                data_log=0, data_top=box.top, data_bottom=box.bottom,
            )
        )  # fmt: skip
        parts.append(
            element("text", f"— {target.member[:32]}", x=box.left + box.width - 230 * (len(named) - colour),
                    y=box.top - 8, class_=f"key c{colour}")
        )  # fmt: skip
    return element("g", Markup("").join(parts)), box.bottom + GAP


def _same(a: float, b: float) -> bool:
    return a == b or math.isnan(a)


def _markers(lane: TargetTrace, axis: Axis, scale: Scale, box: Box) -> list[Markup]:
    """Triangles where the proposal moved, with the reason on hover."""
    kept: dict[int, tuple[int, float, Decision]] = {}
    for change in lane.changes():
        kept[round(axis.x(change[0], box) / WIDTH * MARKS)] = change
    marks: list[Markup] = []
    for tick, was, decision in kept.values():
        final = decision.final if decision.final is not None else was
        x, y = axis.x(tick, box), scale.y(final, box)
        up = final > was
        y += -4 if up else 4
        shape = f"M{x - 4:.1f} {y:.1f}h8l-4 {-7 if up else 7}z"
        told = f"{clock(axis.at[tick])} {number(was)} → {number(final)}: {reason(decision)}"
        marks.append(element("path", element("title", told), d=shape, class_="mark up" if up else "mark down"))
    return marks


def _lane(lane: TargetTrace, axis: Axis, box: Box) -> list[Markup]:
    """The strip that says at every moment why the value is what it is."""
    drawn: list[Markup] = []
    ends = [tick for tick, _ in lane.runs[1:]] + [len(axis.at)]
    pending: tuple[float, float, Decision] | None = None
    for (tick, decision), end in zip(lane.runs, ends, strict=True):
        begin, until = axis.x(tick, box), axis.x(end, box) if end < len(axis.at) else box.left + box.width
        # Runs narrower than the eye are gathered under the weightiest decision among them.
        if pending is not None and until - pending[0] < WIDTH / COLUMNS_OF_LANE:
            heavier = decision if _weight(decision) >= _weight(pending[2]) else pending[2]
            pending = (pending[0], until, heavier)
            continue
        if pending is not None:
            drawn.append(_stretch(pending, box))
        pending = (begin, until, decision)
    if pending is not None:
        drawn.append(_stretch(pending, box))
    return drawn


def _stretch(run: tuple[float, float, Decision], box: Box) -> Markup:
    begin, until, decision = run
    kind = ("steady", "asked", "held")[_weight(decision)]
    told = f"{movement(decision)}: {reason(decision)}"
    return element("rect", element("title", told), x=begin, y=box.top, width=max(until - begin, 0.8), height=box.height,
                   class_=f"why {kind}")  # fmt: skip


def _weight(decision: Decision) -> int:
    if held_by(decision) is not None:
        return 2
    return 1 if decision.why in ASKED - IDLE else 0


def _frame(title: str, box: Box, scale: Scale, words: Callable[[float], str], axis: Axis) -> Markup:
    parts = [element("text", title + (" (logarithmic)" if scale.log else ""), x=0, y=box.top - 8, class_="title")]
    for value in scale.ticks():
        y = scale.y(value, box)
        parts.append(element("path", d=f"M{box.left:g} {y:.1f}H{box.left + box.width:g}", class_="grid"))
        parts.append(element("text", words(value), x=box.left - 6, y=y + 3.5, class_="y"))
    lines = "".join(f"M{x:.1f} {box.top:g}V{box.bottom:g}" for x, _ in _times(axis, box))
    parts.append(element("path", d=lines, class_="grid"))
    return Markup("").join(parts)


def _times(axis: Axis, box: Box) -> list[tuple[float, str]]:
    begin, end = axis.at[0], axis.at[-1]
    length = end - begin
    sizes = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
    size = next((s for s in sizes if length / s <= 9), 86400 * math.ceil(length / 86400 / 9) or 86400)
    first = math.ceil(begin / size) * size
    moments = [first + i * size for i in range(int((end - first) // size) + 1)] if length > 0 else [begin]
    return [(box.left + box.width * ((m - begin) / length if length else 0.5), _time(m, size)) for m in moments]


def _time(moment: float, size: int) -> str:
    if size >= 86400:
        return clock(moment, date=True)[5:10]
    return clock(moment)[: 8 if size < 60 else 5]


def _time_axis(axis: Axis, top: float) -> Markup:
    box = Box(LEFT, top, WIDTH - LEFT - RIGHT, 0)
    return Markup("").join(element("text", label, x=x, y=top + 6, class_="x") for x, label in _times(axis, box))
