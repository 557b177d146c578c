"""Demand at the horizon of a cold start: damped Holt on the log of demand, with a conformal margin.

Last value is the fallback and the yardstick: forecasts are clamped to half and twice of it, because a trend fitted to a
short history is worth less than that. The margin is the quantile of the forecast's own past errors at this horizon,
so it is large where the past was hard to foresee and small where it was not.
"""

import math
from dataclasses import dataclass

LEVEL, TREND, DAMP = 0.6, 0.25, 0.85  # smoothing per step of STEP seconds
STEP = 60.0
KEEP = 60  # errors kept for the margin
MOST = 0.3  # largest margin, in ln: a ramp from nothing leaves errors that say little about tomorrow
CLAMP = 2.0
FLOOR = 1e-6


@dataclass(frozen=True, slots=True)
class ForecastState:
    """`issued` are forecasts not yet due: (due, log value); `errors` log errors of those that came due."""

    at: float | None = None
    level: float = 0.0
    trend: float = 0.0
    issued: tuple[tuple[float, float], ...] = ()
    errors: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Forecast:
    """The point forecast and its upper quantile at the horizon, in the unit of what was given."""

    value: float
    upper: float


def update(state: ForecastState, now: float, value: float, horizon: float, q: float) -> tuple[Forecast, ForecastState]:
    """Take a new value (>= 0) at `now` (unix seconds) and forecast `horizon` seconds ahead; `q` is the quantile of the
    margin, e.g. 0.9. Steps of any length: the smoothing is scaled to the time that really passed."""
    y = math.log(max(value, FLOOR))
    quiet = value <= FLOOR * 2
    due = [f for t, f in state.issued if t <= now]
    errors = (*state.errors, *(y - f for f in due if not quiet))[-KEEP:]
    waiting = tuple((t, f) for t, f in state.issued if t > now)
    if state.at is None or quiet or state.level <= math.log(FLOOR * 2):
        # From nothing there is no trend to follow: start at what is there.
        level, trend = y, 0.0
    else:
        steps = max((now - state.at) / STEP, 1e-3)
        damped = DAMP**steps
        expected = state.level + state.trend * steps
        level = expected + (1 - (1 - LEVEL) ** steps) * (y - expected)
        trend = damped * state.trend + (1 - (1 - TREND) ** steps) * (
            (level - state.level) / steps - state.trend * damped
        )
    ahead = horizon / STEP
    run = DAMP * (1 - DAMP**ahead) / (1 - DAMP)
    point = level + trend * run
    limit = math.log(CLAMP)
    point = min(max(point, y - limit), y + limit)
    margin = min(_quantile(errors, q), MOST) if len(errors) >= 5 else 0.0
    upper = min(max(point, point + margin), y + limit)
    # One a step: more would be forgotten before they are due, and tell the same.
    fresh = not state.issued or now + horizon >= state.issued[-1][0] + STEP - 1e-6
    issued = (*waiting, (now + horizon, point)) if fresh and not quiet else waiting
    return (
        Forecast(0.0 if quiet else math.exp(point), 0.0 if quiet else math.exp(upper)),
        ForecastState(now, level, trend, issued, errors),
    )


def _quantile(values: tuple[float, ...], q: float) -> float:
    """Conformal upper quantile: the ceil((n + 1) q)-th smallest."""
    ranked = sorted(values)
    return ranked[min(len(ranked), math.ceil((len(ranked) + 1) * q)) - 1]
