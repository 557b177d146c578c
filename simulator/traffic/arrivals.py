"""Arrival times: a renewal process of unit rate, stretched by the rate of the moment.

Gaps are gamma or Weibull with the wanted coefficient of variation. The process runs in operational time, in which its
rate is 1; real time is where the integral of the rate has grown by as much (time-rescaling). So the coefficient of
variation holds at whatever rate, and a flash gets exactly its area on average. The first gap is drawn from the
equilibrium law, as if the process had run for ever, so that bursty traffic does not start with a burst.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from controller.core.params import param
from simulator.traffic.chance import Floats
from simulator.traffic.shapes import Shape, product

CHUNK = 4096  # arrivals drawn at once
MOST_CV = 50.0
CELL = 1.0  # the rate is taken as constant over so many seconds at most, between corners
STRETCH = 3600.0  # seconds of the rate's integral made at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisson:
    """Independent clients: exponential gaps."""

    kind: Literal["poisson"] = param("the process", "poisson")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gamma:
    """Gamma gaps: a cv above 1 gives bursts, below 1 regular arrivals."""

    kind: Literal["gamma"] = param("the process", "gamma")
    cv: float = param("standard deviation of the gaps over their mean", 2.0, ge=0.05, le=MOST_CV)


@dataclass(frozen=True, slots=True, kw_only=True)
class Weibull:
    """Weibull gaps: longer silences than gamma at the same cv."""

    kind: Literal["weibull"] = param("the process", "weibull")
    cv: float = param("standard deviation of the gaps over their mean", 2.0, ge=0.05, le=MOST_CV)


Arrivals = Poisson | Gamma | Weibull


class Gaps:
    """Gaps of mean 1, drawn from `rng` one after the other."""

    def __init__(self, law: Arrivals, rng: np.random.Generator) -> None:
        self._law = law
        self._rng = rng
        self._shape = 1.0
        if isinstance(law, Gamma):
            self._shape = law.cv**-2
        elif isinstance(law, Weibull):
            self._shape = weibull_shape(law.cv)

    def first(self) -> float:
        """From an arbitrary moment to the next arrival: a uniform share of a gap that is drawn by its length."""
        share = self._rng.random()
        if isinstance(self._law, Gamma):
            return float(share * self._rng.standard_gamma(self._shape + 1) / self._shape)
        if isinstance(self._law, Weibull):
            power = self._rng.standard_gamma(1 + 1 / self._shape)
            return float(share * power ** (1 / self._shape) / math.gamma(1 + 1 / self._shape))
        return float(self._rng.standard_exponential())

    def take(self, count: int) -> Floats:
        if isinstance(self._law, Gamma):
            return self._rng.standard_gamma(self._shape, count) / self._shape
        if isinstance(self._law, Weibull):
            return self._rng.weibull(self._shape, count) / math.gamma(1 + 1 / self._shape)
        return self._rng.standard_exponential(count)


def weibull_shape(cv: float) -> float:
    """The shape of the Weibull law with this coefficient of variation, by bisection in its logarithm."""
    low, high = math.log(0.05), math.log(50.0)
    target = math.log1p(cv * cv)
    for _ in range(80):
        middle = (low + high) / 2
        shape = math.exp(middle)
        # cv falls as the shape grows: 1 + cv^2 = G(1 + 2/k) / G(1 + 1/k)^2
        if math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape) > target:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)


class Rate:
    """A rate over time, requests/s, with its integral and the inverse of that."""

    def __init__(self, base: float, shapes: Sequence[Shape]) -> None:
        self._base = base
        self._shapes = tuple(shapes)

    def values(self, at: Floats) -> Floats:
        return self._base * product(self._shapes, at)

    def cells(self, start: float, end: float) -> tuple[Floats, Floats]:
        """Edges of cells that no corner lies within, and the rate in the middle of each."""
        grid = np.linspace(start, end, max(2, math.ceil((end - start) / CELL) + 1))
        corners = [t for shape in self._shapes for t in shape.corners(end) if start < t < end]
        edges = np.union1d(grid, np.array(corners, dtype=float))
        return edges, self.values((edges[1:] + edges[:-1]) / 2)

    def mean(self, start: float, end: float) -> float:
        """Expected arrivals between two times."""
        edges, values = self.cells(start, end)
        return float(np.dot(values, np.diff(edges)))


def arrival_times(rate: Rate, gaps: Gaps, start: float, end: float, chunk: int = CHUNK) -> Iterator[Floats]:
    """The arrivals from `start` to `end`, in order, a piece of at most `chunk` at a time."""
    grown = 0.0  # integral of the rate up to the beginning of this stretch
    waiting = np.cumsum(np.concatenate(([gaps.first()], gaps.take(chunk - 1))))  # in operational time, not yet placed
    last = 0.0
    at = start
    while at < end:
        until = min(end, at + STRETCH)
        edges, values = rate.cells(at, until)
        integral = np.concatenate(([grown], grown + np.cumsum(values * np.diff(edges))))
        grown = float(integral[-1])
        while True:
            inside = int(np.searchsorted(waiting, grown, side="right"))
            if inside:
                now, waiting = waiting[:inside], waiting[inside:]
                cell = np.clip(np.searchsorted(integral, now, side="left") - 1, 0, len(values) - 1)
                times = edges[cell] + (now - integral[cell]) / values[cell]
                yield np.minimum(times, edges[cell + 1])
                last = float(now[-1])
            if len(waiting):
                break
            waiting = last + np.cumsum(gaps.take(chunk))
        at = until
