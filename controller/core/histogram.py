"""Classic histograms as counts: windows that add up, quantiles and attainment with bounds.

A quantile of a histogram is an interval, the bucket it falls in; the interpolated value inside it is a guess. Control
therefore acts on attainment, which is exact when the target is a bucket edge and an interval otherwise. Formulas:
the share of N + E offered requests that met T, where N reached the histogram and E never did (errors, aborts, sheds).
"""

import math
import operator
from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from controller.core.observation import HistogramIncrement
from controller.core.reading import Reading, State, unsupported

# Edges are parsed from text ("10", "10.0", "1e+01"); a target typed by a person is the same edge within this.
_SAME_EDGE = 1e-9


def add(parts: Iterable[HistogramIncrement]) -> HistogramIncrement | None:
    """Sum of increments; None when there are none. Where bucket grids differ (a rolling upgrade, custom buckets on one
    replica) only the edges that all share are kept: summing different grids gives counts that are not cumulative."""
    filled = list(parts)
    if len(filled) > 1:
        filled = [part for part in filled if part.count] or filled[:1]
    if not filled:
        return None
    edges = filled[0].edges
    for part in filled:
        if part.edges is not edges and part.edges != edges:
            return _add_common(filled)
    # Pair by pair, which is the order of a sum over all and takes half of its time.
    total: Iterable[float] = filled[0].cumulative
    for part in filled[1:]:
        total = map(operator.add, total, part.cumulative)
    return HistogramIncrement(
        edges,
        tuple(total),
        sum(part.count for part in filled),
        sum(part.sum for part in filled),
    )


def _add_common(parts: list[HistogramIncrement]) -> HistogramIncrement:
    common = sorted(set[float].intersection(*(set(part.edges) for part in parts)))
    rows = [dict(zip(part.edges, part.cumulative, strict=True)) for part in parts]
    return HistogramIncrement(
        tuple(common),
        tuple(sum(row[edge] for row in rows) for edge in common),
        sum(part.count for part in parts),
        sum(part.sum for part in parts),
    )


def mean(h: HistogramIncrement, source: str = "", window: float | None = None, age: float | None = None) -> Reading:
    """Mean of the samples; the caller has checked that there are some."""
    return Reading(State.OK, h.sum / h.count, None, None, h.count, age, window, source)


def quantile(
    h: HistogramIncrement, q: float, source: str = "", window: float | None = None, age: float | None = None
) -> Reading:
    """The q-quantile (0 < q < 1) with the bounds of its bucket; interpolated linearly inside it, from 0 in the
    first, as Prometheus does. Above the last finite edge there is only a lower bound; in the first bucket the value is
    marked ``below_first``."""
    if not h.edges:
        return unsupported("the engine exposes a mean only, no buckets")
    rank = q * h.count
    i = _first_at_least(h.cumulative, rank)
    if i == len(h.edges):
        return Reading(
            State.SATURATED_TOP, lo=h.edges[-1], count=h.count, age=age, window=window, source=source,
            note=f"above the largest bucket edge, {h.edges[-1]:g} s",
        )  # fmt: skip
    lo, below = (h.edges[i - 1], h.cumulative[i - 1]) if i else (min(0.0, h.edges[0]), 0.0)
    hi, inside = h.edges[i], h.cumulative[i] - below
    value = lo + (hi - lo) * ((rank - below) / inside if inside > 0 else 1.0)
    value = min(max(value, lo), hi)
    state = State.BELOW_FIRST if i == 0 else State.OK
    note = f"below the first bucket edge, {hi:g} s" if i == 0 else ""
    return Reading(state, value, lo, hi, h.count, age, window, source, note)


class Met(NamedTuple):
    """How many samples met a target: at least `lo`, at most `hi`, `value` by linear interpolation."""

    lo: float
    value: float
    hi: float
    below: float | None  # the bucket edges around the target, seconds
    above: float | None

    @property
    def exact(self) -> bool:
        return self.below == self.above


def met(h: HistogramIncrement, target: float) -> Met:
    """Count the samples <= target (seconds)."""
    if not h.edges:
        return Met(0.0, h.count / 2, h.count, None, None)
    i = bisect_left(h.edges, target * (1 - _SAME_EDGE))
    if i < len(h.edges) and math.isclose(h.edges[i], target, rel_tol=_SAME_EDGE):
        exact = h.cumulative[i]
        return Met(exact, exact, exact, h.edges[i], h.edges[i])
    below, lo = (h.edges[i - 1], h.cumulative[i - 1]) if i else (None, 0.0)
    if i == len(h.edges):
        return Met(lo, lo, h.count, below, None)
    above, hi = h.edges[i], h.cumulative[i]
    start = below if below is not None else 0.0
    return Met(lo, lo + (hi - lo) * (target - start) / (above - start), hi, below, above)


def _first_at_least(cumulative: tuple[float, ...], rank: float) -> int:
    # Float sums of increments may sit a hair under an integer rank; without the slack a p99 of 1 sample could fall
    # through to the next bucket.
    return bisect_left(cumulative, rank * (1 - 1e-12))
