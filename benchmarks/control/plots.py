"""The plots of the page: what was asked for and the replicas of a few contenders over time, and the cost against what
was attained. SVG files that need nothing but themselves."""

import math
from collections.abc import Iterator, Mapping, Sequence

from markupsafe import Markup

from benchmarks.control.measures import average, critical, hours, runs
from benchmarks.control.planner import Result
from controller.rehearse.svg import Axis, Box, Scale, element, fit, line, steps
from controller.simulate.jobs import GOVERNOR, NONE, ORACLE, STATIC
from controller.simulate.words import contender

WIDTH, HEIGHT = 760.0, 110.0
LEFT, GAP, HEAD = 46.0, 18.0, 22.0
TICK = 10.0  # seconds between two points of the replicas
COLOURS = ("#1a6fb5", "#d1495b", "#7a7a7a", "#2e8b57")
STYLE = (
    "text{font:11px system-ui,sans-serif;fill:#333}.title{font-weight:600}.grid{stroke:#ddd;stroke-width:1}"
    ".line{fill:none;stroke-width:1.6}.event{fill:#f4ead2}"
)


def timeline(result: Result, peer: str) -> str:
    """Offered load and attainment by minute, and replicas that are paid for, of the first seed."""
    names = [name for name in (GOVERNOR, peer, ORACLE) if name and runs(result, name)]
    firsts = {name: result.runs[name][0] for name in names}
    shown = {name: one for name, one in firsts.items() if one is not None}
    own = shown[GOVERNOR]
    minutes = tuple(60.0 * (i + 0.5) for i in range(len(own.offered)))
    length = 60.0 * len(own.offered)
    at = tuple(TICK * i for i in range(math.ceil(length / TICK) + 1))
    paid = {name: _paid(one.replicas, at) for name, one in shown.items()}
    kept = {name: tuple(math.nan if value is None else value for value in one.attained) for name, one in shown.items()}
    parts: list[Markup] = [element("style", Markup(STYLE))]
    top = HEAD
    for title, lines, times, stepped, ceiling in (
        ("offered, requests/s", {"": own.offered}, minutes, False, None),
        ("replicas paid for", paid, at, True, None),
        ("attained, by minute", kept, minutes, False, 1.0),
    ):
        box = Box(LEFT, top, WIDTH - LEFT - 10, HEIGHT)
        parts += _panel(title, lines, times, box, stepped=stepped, ceiling=ceiling, length=length)
        top += HEIGHT + HEAD + GAP
    for place, name in enumerate(shown):
        parts.append(element("text", contender(name), x=LEFT + 150.0 * place + 14, y=top - 8))
        parts.append(element("rect", x=LEFT + 150.0 * place, y=top - 17, width=10, height=10, fill=COLOURS[place]))
    svg = element(
        "svg", Markup("").join(parts), xmlns="http://www.w3.org/2000/svg", viewBox=f"0 0 {WIDTH:g} {top:g}",
        width=f"{WIDTH:g}",
    )  # fmt: skip
    return str(svg) + "\n"


def _panel(
    title: str, lines: "dict[str, tuple[float, ...]]", times: Sequence[float], box: Box, *, stepped: bool,
    ceiling: float | None, length: float,
) -> Iterator[Markup]:  # fmt: skip
    values = [value for one in lines.values() for value in one]
    scale = Scale(0.0, ceiling) if ceiling is not None else fit(values, [], whole=stepped)
    yield element("text", title, x=LEFT, y=box.top - 7, class_="title")
    for value in scale.ticks():
        y = scale.y(value, box)
        yield element("path", d=f"M{box.left:g} {y:.1f}H{box.left + box.width:g}", class_="grid")
        yield element("text", f"{value:g}", x=2, y=y + 4)
    axis = Axis((0.0, *times[1:-1], length), hole=math.inf)
    for place, (_, one) in reversed(list(enumerate(lines.items()))):
        colour = COLOURS[place] if len(lines) > 1 or stepped else COLOURS[2]
        path = steps(axis, one, scale, box) if stepped else line(axis, one, scale, box)
        yield element("path", d=path, class_="line", stroke=colour)
    size = next((s for s in (300, 600, 900, 1800, 3600) if length / s <= 12), 7200)
    for i in range(int(length // size) + 1):
        x = box.left + box.width * i * size / length
        yield element("text", f"{i * size // 60} min", x=x - 8, y=box.bottom + 13)


def _paid(replicas: Mapping[str, Sequence[tuple[float, int, int]]], at: Sequence[float]) -> tuple[float, ...]:
    """Of all pools together at each time."""
    whole = [0.0] * len(at)
    for rows in replicas.values():
        place, now = 0, 0.0
        for i, moment in enumerate(at):
            while place < len(rows) and rows[place][0] <= moment:
                now = float(rows[place][1])
                place += 1
            whole[i] += now
    return tuple(whole)


def scatter(result: Result) -> str:
    """GPU-hours against the critical requests that were missed: the lower left is better."""
    points = []
    for name in result.runs:
        if name != NONE and (some := runs(result, name)):
            missed, cost = average(some, lambda one: 1 - critical(one)), average(some, hours)
            if missed is not None and cost is not None:
                points.append((name, missed * 100, cost))
    box = Box(LEFT + 20, 20, 420, 220)
    across = fit([missed for _, missed, _ in points], [])
    up = fit([cost for _, _, cost in points], [])
    parts = [element("style", Markup(STYLE))]
    for value in up.ticks():
        y = up.y(value, box)
        parts.append(element("path", d=f"M{box.left:g} {y:.1f}H{box.left + box.width:g}", class_="grid"))
        parts.append(element("text", f"{value:g}", x=30, y=y + 4))
    for value in across.ticks():
        x = box.left + box.width * (value - across.lo) / (across.hi - across.lo)
        parts.append(element("text", f"{value:g} %", x=x - 8, y=box.bottom + 14))
    for name, missed, cost in points:
        x = box.left + box.width * (missed - across.lo) / (across.hi - across.lo)
        colour = COLOURS[0] if name == GOVERNOR else COLOURS[2] if name in (STATIC, ORACLE) else COLOURS[1]
        parts.append(element("circle", cx=x, cy=up.y(cost, box), r=4, fill=colour))
        parts.append(element("text", contender(name), x=x + 7, y=up.y(cost, box) + 4))
    parts.append(element("text", "GPU-hours over critical requests missed", x=LEFT, y=12, class_="title"))
    return str(
        element("svg", Markup("").join(parts), xmlns="http://www.w3.org/2000/svg", viewBox="0 0 620 260", width="620")
    ) + "\n"  # fmt: skip
