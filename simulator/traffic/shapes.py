"""Rate shapes: how a stream's rate moves over time, as a factor on its base rate. Several shapes multiply.

Times are seconds from the start of the traffic. `corners` are the times at which a shape may bend or jump; between two
corners it is smooth, so that a rate can be integrated without stepping over an edge.
"""

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from controller.core.params import Unit, param
from simulator.traffic.chance import Floats

_EDGE = 1e-9  # shorter than this is a jump
MOST = 1e6  # the largest factor that may be written


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The rate jumps, for a while or for good."""

    kind: Literal["step"] = param("the shape", "step")
    at: float = param("when it jumps", unit=Unit.DURATION, ge=0)
    length: float | None = param("how long it stays; for good when not given", None, unit=Unit.DURATION, gt=0)
    factor: float = param("what the rate is multiplied by; 0 stops the traffic", ge=0, le=MOST)

    def values(self, at: Floats) -> Floats:
        until = math.inf if self.length is None else self.at + self.length
        return np.where((at >= self.at) & (at < until), self.factor, 1.0)

    def corners(self, end: float) -> list[float]:
        return [self.at] if self.length is None else [self.at, self.at + self.length]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """The rate climbs or falls in a straight line and stays there."""

    kind: Literal["ramp"] = param("the shape", "ramp")
    at: float = param("when it begins", 0.0, unit=Unit.DURATION, ge=0)
    length: float = param("how long it takes", unit=Unit.DURATION, gt=0)
    start: float = param("the factor before it", 1.0, ge=0, le=MOST)
    factor: float = param("the factor after it", ge=0, le=MOST)

    def values(self, at: Floats) -> Floats:
        return np.interp(at, [self.at, self.at + self.length], [self.start, self.factor])

    def corners(self, end: float) -> list[float]:
        return [self.at, self.at + self.length]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flash:
    """A flash crowd: up within `rise`, there for `hold`, back within `fall`. Its area over the base rate is
    (factor - 1) x (rise / 2 + hold + fall / 2)."""

    kind: Literal["flash"] = param("the shape", "flash")
    at: float = param("when the rise begins", unit=Unit.DURATION, ge=0)
    rise: float = param("from the base rate to the top", 0.0, unit=Unit.DURATION, ge=0)
    hold: float = param("at the top", unit=Unit.DURATION, ge=0)
    fall: float = param("back to the base rate", 0.0, unit=Unit.DURATION, ge=0)
    factor: float = param("what the rate is multiplied by at the top", ge=0, le=MOST)
    every: float | None = param("it comes again after this; once when not given", None, unit=Unit.DURATION, ge=1)

    def __post_init__(self) -> None:
        if self.every is not None and self.every < self._length:
            raise ValueError("every: the next flash begins before this one is over; write rise + hold + fall or more")

    @property
    def _length(self) -> float:
        return self.rise + self.hold + self.fall

    def values(self, at: Floats) -> Floats:
        since = at - self.at
        if self.every is not None:
            since = np.where(since >= 0, since % self.every, since)
        up = np.clip(since / self.rise, 0, 1) if self.rise > _EDGE else (since >= 0).astype(float)
        left = self._length - since
        down = np.clip(left / self.fall, 0, 1) if self.fall > _EDGE else (left > 0).astype(float)
        return np.asarray(1.0 + (self.factor - 1.0) * np.minimum(up, down))

    def corners(self, end: float) -> list[float]:
        first = [self.at, self.at + self.rise, self.at + self.rise + self.hold, self.at + self._length]
        return [t for base in _repeats(self.at, self.every, end) for t in (x - self.at + base for x in first)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Diurnal:
    """A day: a cosine between `trough` and `peak`."""

    kind: Literal["diurnal"] = param("the shape", "diurnal")
    period: float = param("length of the day", 86400.0, unit=Unit.DURATION, ge=10)
    peak_at: float = param("when the peak comes", 43200.0, unit=Unit.DURATION, ge=0)
    peak: float = param("the factor at the peak", 1.6, ge=0, le=MOST)
    trough: float = param("the factor half a day from the peak", 0.4, ge=0, le=MOST)

    def values(self, at: Floats) -> Floats:
        wave = np.cos(2 * np.pi * (at - self.peak_at) / self.period)
        return 0.5 * (self.peak + self.trough) + 0.5 * (self.peak - self.trough) * wave

    def corners(self, end: float) -> list[float]:
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class Sawtooth:
    """From `low` to `high` and back, again and again."""

    kind: Literal["sawtooth"] = param("the shape", "sawtooth")
    period: float = param("from one low to the next", unit=Unit.DURATION, ge=1)
    low: float = param("the lowest factor", 0.5, ge=0, le=MOST)
    high: float = param("the highest factor", 1.5, ge=0, le=MOST)
    rising: float = param(
        "share of the period in which it climbs; 100% falls back at once", 0.5, unit=Unit.RATIO, ge=0, le=1
    )

    def values(self, at: Floats) -> Floats:
        phase = (at % self.period) / self.period
        up = phase / self.rising if self.rising > _EDGE else np.ones_like(phase)
        down = (1 - phase) / (1 - self.rising) if self.rising < 1 - _EDGE else np.ones_like(phase)
        return self.low + (self.high - self.low) * np.minimum(up, down)

    def corners(self, end: float) -> list[float]:
        top = self.rising * self.period
        return [t for base in _repeats(0.0, self.period, end) for t in (base, base + top)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of a piecewise shape."""

    at: float = param("when", unit=Unit.DURATION, ge=0)
    factor: float = param("what the rate is multiplied by then", ge=0, le=MOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piecewise:
    """Straight lines, or steps, through the points; level before the first and after the last."""

    kind: Literal["piecewise"] = param("the shape", "piecewise")
    points: tuple[Point, ...] = param("in order of time")
    between: Literal["line", "hold"] = param("a straight line to the next point, or the last one held", "line")

    def __post_init__(self) -> None:
        times = [point.at for point in self.points]
        if not times:
            raise ValueError("points: there are none; write at least {at: 0s, factor: 1}")
        if any(later <= earlier for earlier, later in itertools.pairwise(times)):
            raise ValueError("points: they are not in order of time; sort them by at, each later than the one before")

    def values(self, at: Floats) -> Floats:
        times = np.array([point.at for point in self.points])
        factors = np.array([point.factor for point in self.points])
        if self.between == "line":
            return np.asarray(np.interp(at, times, factors))
        return factors[np.clip(np.searchsorted(times, at, side="right") - 1, 0, None)]

    def corners(self, end: float) -> list[float]:
        return [point.at for point in self.points]


Shape = Step | Ramp | Flash | Diurnal | Sawtooth | Piecewise


def _repeats(first: float, every: float | None, end: float) -> Iterable[float]:
    yield first
    count = 1
    while every is not None and first + count * every < end:
        yield first + count * every
        count += 1


def product(shapes: Iterable[Shape], at: Floats) -> Floats:
    """The factor of all shapes together."""
    factor = np.ones_like(at)
    for shape in shapes:
        factor = factor * shape.values(at)
    return factor
