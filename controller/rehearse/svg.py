"""Just enough SVG for a report that needs nothing but itself: scales, thinned lines, bands, steps.

Everything is thinned to `COLUMNS` columns before it is drawn, keeping the lowest and the highest value of each, so the
size of a plot does not depend on the length of the recording and no spike is lost.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup, escape

COLUMNS = 450


@dataclass(frozen=True, slots=True)
class Box:
    """Where a plot stands on the page, in SVG units."""

    left: float
    top: float
    width: float
    height: float

    @property
    def bottom(self) -> float:
        return self.top + self.height


@dataclass(frozen=True, slots=True)
class Scale:
    """Values to vertical positions; logarithmic when asked, which `lo` > 0 must then allow."""

    lo: float
    hi: float
    log: bool = False

    def y(self, value: float, box: Box) -> float:
        """Clamped to the box, so that what is above the top is drawn at the top."""
        lo, hi, v = self.lo, self.hi, min(max(value, self.lo), self.hi)
        share = math.log(v / lo) / math.log(hi / lo) if self.log else (v - lo) / (hi - lo)
        return box.bottom - share * box.height

    def ticks(self) -> list[float]:
        """Two to six round values."""
        if self.log:
            decades = range(math.ceil(math.log10(self.lo) - 1e-9), math.floor(math.log10(self.hi) + 1e-9) + 1)
            found = [10.0**d for d in decades]
            return found[:: max(1, math.ceil(len(found) / 4))] if len(found) > 1 else [self.lo, self.hi]
        step = nice((self.hi - self.lo) / 5)
        first = math.ceil(self.lo / step - 1e-9)
        return [i * step for i in range(first, math.floor(self.hi / step + 1e-9) + 1)]


def nice(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten at or above `value` (> 0)."""
    power = 10.0 ** math.floor(math.log10(value))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= value * (1 - 1e-9))


def fit(values: Sequence[float], marks: Sequence[float], *, floor: float | None = 0.0, whole: bool = False) -> Scale:
    """A scale that holds the finite `values` and the `marks` (targets); logarithmic where values dwarf marks."""
    finite = [v for v in values if math.isfinite(v)]
    top = max([*finite, *marks], default=1.0)
    low = min([*finite, *marks], default=0.0)
    if marks and floor == 0.0 and max(marks) > 0 and top > 8 * max(marks):
        positive = [v for v in (*finite, *marks) if v > 0]
        return Scale(max(min(positive), top / 1e5) * 0.8, top * 1.25, log=True)
    base = floor if floor is not None else low
    if top <= base:
        return Scale(base, base + 1)
    if whole:
        return Scale(base, math.ceil(top) + (1 if top >= math.ceil(top) - 0.05 else 0))
    return Scale(base, base + (top - base) * 1.08)


@dataclass(frozen=True, slots=True)
class Axis:
    """Times to horizontal positions. `at` ascending unix seconds; a hole wider than `hole` seconds breaks a line."""

    at: Sequence[float]
    hole: float

    def x(self, tick: int, box: Box) -> float:
        """Of a tick; ticks past the end stand at the right edge."""
        begin, end = self.at[0], self.at[-1]
        moment = self.at[tick] if tick < len(self.at) else end
        return box.left + box.width * ((moment - begin) / (end - begin) if end > begin else 0.5)

    def columns(self) -> list[range]:
        """The ticks of each drawn column."""
        count = len(self.at)
        if count <= 2 * COLUMNS:
            return [range(i, i + 1) for i in range(count)]
        cuts = [round(i * count / COLUMNS) for i in range(COLUMNS + 1)]
        return [range(a, b) for a, b in pairwise(cuts) if b > a]

    def broken(self, before: int, tick: int) -> bool:
        """Whether the recording has a hole between the two ticks."""
        return self.at[tick] - self.at[before] > self.hole * max(1, tick - before)


def line(axis: Axis, values: Sequence[float], scale: Scale, box: Box) -> str:
    """Path data of a line through the finite values; unknown ones leave a gap."""
    parts: list[str] = []
    last: int | None = None
    for ticks in axis.columns():
        known = [i for i in ticks if math.isfinite(values[i])]
        if not known:
            last = None
            continue
        for i in sorted({min(known, key=values.__getitem__), max(known, key=values.__getitem__)}):
            pen = "M" if last is None or axis.broken(last, i) else "L"
            parts.append(f"{pen}{axis.x(i, box):.1f} {scale.y(values[i], box):.1f}")
            last = i
    # A lone point would draw nothing: give it the length of a round cap.
    return "".join(f"{p}h.1" if p[0] == "M" == q[0] else p for p, q in pairwise([*parts, "M"]))


def band(axis: Axis, bounds: Sequence[tuple[float, float]], scale: Scale, box: Box) -> str:
    """Path data of the area between bounds. Where only the lower one is known it reaches to the top: it is at least
    that much; where only the upper one is known, to the bottom."""
    pieces: list[list[tuple[float, float, float]]] = [[]]
    last: int | None = None
    for ticks in axis.columns():
        known = [i for i in ticks if any(map(math.isfinite, bounds[i]))]
        if not known or (last is not None and axis.broken(last, known[0])):
            pieces.append([])
        last = known[-1] if known else None
        if known:
            low = min(bounds[i][0] for i in known)
            high = max(bounds[i][1] for i in known)
            pieces[-1].append((axis.x(known[0], box), scale.y(low, box), scale.y(high, box)))
    return "".join(_area(piece) for piece in pieces if len(piece) > 1)


def _area(piece: list[tuple[float, float, float]]) -> str:
    upper = "L".join(f"{x:.1f} {high:.1f}" for x, _, high in piece)
    lower = "L".join(f"{x:.1f} {low:.1f}" for x, low, _ in reversed(piece))
    return f"M{upper}L{lower}Z"


def steps(axis: Axis, values: Sequence[float], scale: Scale, box: Box) -> str:
    """Path data of a value that holds until the next one."""
    parts: list[str] = []
    before: float | None = None
    last = 0
    for ticks in axis.columns():
        for i in _extremes(ticks, values):
            value = values[i]
            if not math.isfinite(value):
                if before is not None:
                    parts.append(f"H{axis.x(i, box):.1f}")
                before = None
                continue
            if before is None:
                parts.append(f"M{axis.x(i, box):.1f} {scale.y(value, box):.1f}")
            elif value != before:
                parts.append(f"H{axis.x(i, box):.1f}V{scale.y(value, box):.1f}")
            before, last = value, i
    if before is not None:
        parts.append(f"H{max(axis.x(len(values) - 1, box), axis.x(last, box) + 0.1):.1f}")
    return "".join(parts)


def _extremes(ticks: range, values: Sequence[float]) -> list[int]:
    if len(ticks) == 1:
        return [ticks[0]]
    known = [i for i in ticks if math.isfinite(values[i])]
    if not known:
        return [ticks[0]]
    # The last one keeps the level that the next column starts from.
    return sorted({min(known, key=values.__getitem__), max(known, key=values.__getitem__), known[-1]})


def spans(axis: Axis, classes: Sequence[int], box: Box) -> Iterator[tuple[int, float, float]]:
    """(class, x, width) of the stretches of equal class; 0 is not drawn. Of classes in one column the highest wins."""
    previous, start = 0, box.left
    for ticks in axis.columns():
        now = max(classes[i] for i in ticks)
        if now != previous:
            x = axis.x(ticks[0], box)
            if previous:
                yield previous, start, max(x - start, 1.0)
            previous, start = now, x
    if previous:
        yield previous, start, max(box.left + box.width - start, 1.0)


def element(name: str, body: str | Markup = "", **attributes: object) -> Markup:
    """One element, escaped; `class_` and `stroke_width` become `class` and `stroke-width`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_short(value))}"' for key, value in attributes.items()
    )
    return Markup(f"<{name}{written}>{escape(body)}</{name}>") if body else Markup(f"<{name}{written}/>")  # noqa: S704


def _short(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
