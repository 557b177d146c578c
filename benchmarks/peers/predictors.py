"""What the Dynamo planner forecasts the next interval with: the last value, an ARIMA, or a Kalman filter.

Written after the behaviour of ai-dynamo/dynamo `components/src/dynamo/planner/core/load/predictors.py` (at 260b6ae9).
Zeros before the first traffic are skipped. The Kalman filter holds a level and a trend (F = [[1, 1], [0, 1]], the level
is measured); its covariance begins at 1000. The ARIMA has five points before it says more than the last value. Its
order is fixed at (1, 1, 0) here, by least squares on the differences, where the planner lets pmdarima choose one;
Prophet is left out.
"""

import math
from dataclasses import dataclass, field, replace
from itertools import pairwise

CONSTANT, ARIMA, KALMAN = "constant", "arima", "kalman"
KINDS = (CONSTANT, ARIMA, KALMAN)
KEPT = 50  # values
FEW = 5  # values below which the ARIMA says the last one


@dataclass(frozen=True, slots=True)
class Filter:
    """A local linear trend, one step ahead of its last value: `level`, `trend`, and their covariance."""

    level: float
    trend: float = 0.0
    p00: float = 1000.0
    p01: float = 0.0
    p11: float = 1000.0


@dataclass(frozen=True, slots=True)
class Noise:
    """Variances of the filter: of the level, of the trend and of what is measured."""

    level: float = 1.0
    trend: float = 0.1
    measure: float = 10.0


@dataclass(frozen=True, slots=True)
class Series:
    """Values of past intervals, newest last, and the filter over them."""

    values: tuple[float, ...] = ()
    kalman: Filter | None = None


def add(series: Series, value: float, noise: Noise) -> Series:
    """One more interval."""
    if not series.values and value == 0:
        return series
    kept = (*series.values, value)[-KEPT:]
    now = Filter(value) if series.kalman is None else _update(series.kalman, value, noise)
    return replace(series, values=kept, kalman=_ahead(now, noise))


def predict(series: Series, kind: str) -> float:
    """The next interval; 0 where nothing was seen."""
    if not series.values:
        return 0.0
    if kind == KALMAN and series.kalman is not None:
        return series.kalman.level
    if kind == ARIMA and len(series.values) >= FEW:
        return _arima(series.values)
    return series.values[-1]


def _ahead(f: Filter, noise: Noise) -> Filter:
    """One step of time: P = F P F' + Q."""
    return Filter(
        f.level + f.trend,
        f.trend,
        f.p00 + 2 * f.p01 + f.p11 + noise.level,
        f.p01 + f.p11,
        f.p11 + noise.trend,
    )


def _update(f: Filter, value: float, noise: Noise) -> Filter:
    """One measurement of the level."""
    weight = f.p00 + noise.measure
    k0, k1 = f.p00 / weight, f.p01 / weight
    missed = value - f.level
    return Filter(
        f.level + k0 * missed,
        f.trend + k1 * missed,
        (1 - k0) * f.p00,
        (1 - k0) * f.p01,
        f.p11 - k1 * f.p01,
    )


def _arima(values: tuple[float, ...]) -> float:
    """ARIMA(1, 1, 0): the last difference goes on in part."""
    steps = [b - a for a, b in pairwise(values)]
    power = math.fsum(step * step for step in steps[:-1])
    if power <= 0:
        return values[-1]
    phi = math.fsum(a * b for a, b in pairwise(steps)) / power
    return max(0.0, values[-1] + min(max(phi, -0.99), 0.99) * steps[-1])


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is forecast of a pool: requests of one interval, mean tokens of prompt and answer, share of hits."""

    requests: Series = field(default_factory=Series)
    prompt: Series = field(default_factory=Series)
    output: Series = field(default_factory=Series)
    hits: Series = field(default_factory=Series)
