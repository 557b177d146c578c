"""Demand at the horizon of a cold start: the law that did best lately, with a margin that it earned.

Every minute each law of ``forecast_laws`` says what it expects one horizon ahead, as a point and as an upper quantile.
When that time has come, the pinball loss of the quantile is counted: an under-forecast costs q, an over-forecast 1 - q.
The law with the smallest loss lately is asked from then on: a rolling backtest at the horizon that matters.

The margin is conformal: the quantile of the law's own errors at this horizon, young ones first, so that a ramp that is
over is soon forgotten. The level of that quantile adapts (adaptive conformal inference, Gibbs and Candes 2021):

    alpha <- alpha + gamma * (1 - q - miss)

so that about 1 - q of what comes lies above, also while the load changes its habits. What jumped in between counts
for neither: nobody can foresee a flash, a margin for one is paid all day, and limits in the data plane meet it.
Forecasts are clamped to half and twice of what is there, because no law here deserves more trust than that.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

from controller.core.forecast_laws import LAWS, STEP, Laws

KEEP = 60  # errors kept of each law
HALF_LIFE = 7.0  # younger errors that halve the weight of one in the margin
MEMORY = 86_400.0  # seconds over which losses are compared: what happens every morning must be remembered until then
FEW = 5  # errors before which there is no margin by experience
PRIOR = 0.25  # margin until then, ln: of a load that nobody knows yet much may be expected
# Largest margin, ln per root of a second: a ramp that is over, or one from nothing, leaves errors that say little about
# tomorrow. Those of a load that wanders grow with the root of the horizon.
MOST = 0.01
GAMMA = 0.02
BETTER = 0.95  # of the loss of the law in use, below which another one takes over
ENOUGH = 12.0  # forecasts that came due before laws are compared
CLAMP = math.log(2.0)
_FADING = tuple(0.5 ** (age / HALF_LIFE) for age in range(KEEP))  # weights of errors, the youngest first
SIMILAR = 1.34  # horizons within this factor share their errors
FLOOR = 1e-6
DEFAULT = 1  # damped Holt, until the backtest knows better


@dataclass(frozen=True, slots=True)
class Issued:
    """What was said for the time `due` (unix seconds) over `horizon` seconds, by law, in ln; `uppers` is empty while
    margins were the prior. `law` was in use."""

    due: float
    horizon: float
    law: int
    points: tuple[float, ...]
    uppers: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Error:
    """How far the truth at `at` (unix seconds) was above what each law had said, in ln."""

    at: float
    horizon: float
    by_law: tuple[float, ...]


class ForecastState(NamedTuple):
    """`losses` are fading sums of pinball loss and `counts` of forecasts, by law; `alpha` is the adapted share above,
    None before anything came due. `at` is None after silence."""

    at: float | None = None
    laws: Laws = Laws()
    law: int = DEFAULT
    issued: tuple[Issued, ...] = ()
    errors: tuple[Error, ...] = ()
    losses: tuple[float, ...] = (0.0,) * len(LAWS)
    counts: tuple[float, ...] = (0.0,) * len(LAWS)
    alpha: float | None = None


class Forecast(NamedTuple):
    """In the unit that was given: `now` without its noise, the point forecast `value` and its `upper` quantile at the
    horizon. `noise` is the usual relative innovation from one reading to the next; `law` is who made it."""

    value: float
    upper: float
    now: float = 0.0
    noise: float = 0.0
    law: str = LAWS[DEFAULT]


def update(
    state: ForecastState, now: float, value: float, horizon: float, q: float, late: float | None = None
) -> tuple[Forecast, ForecastState]:  # fmt: skip
    """Take a new value (>= 0) at `now` (unix seconds) and forecast `horizon` seconds ahead; `q` is the quantile that is
    wanted, e.g. 0.9; `late` the same measure over a shorter, younger window. Steps of any length."""
    if value <= FLOOR * 2:
        # Silence is nobody's error, and what comes after it has no trend yet.
        waiting = tuple(one for one in state.issued if one.due > now)
        return Forecast(0.0, 0.0, law=LAWS[state.law]), state._replace(at=None, issued=waiting)
    young = math.log(late) if late is not None and late > FLOOR * 2 else None
    laws = state.laws.follow(now, math.log(value), young, fresh=state.at is None)
    state = _judged(state, laws, now, q)
    here = laws.track.flat
    points = tuple(min(max(point, here - CLAMP), here + CLAMP) for point in laws.ahead(now, horizon))
    law = state.law if state.law < len(points) else DEFAULT
    level = q if state.alpha is None else 1 - state.alpha
    margins = [_margin(state.errors, i, horizon, level) for i in range(len(points))]
    uppers = tuple(min(p + m, here + CLAMP) for p, m in zip(points, margins, strict=True))
    issued = state.issued
    # A margin that nobody has earned says nothing of who is right.
    earned = sum([horizon / SIMILAR <= one.horizon <= horizon * SIMILAR for one in state.errors]) >= FEW
    # One a step: more would tell the same.
    if not issued or now + horizon >= issued[-1].due + STEP - 1e-6:
        issued = (*issued, Issued(now + horizon, horizon, law, points, uppers if earned else ()))
    made = Forecast(math.exp(points[law]), math.exp(uppers[law]), math.exp(here), laws.track.noise, LAWS[law])
    after = ForecastState(now, laws, law, issued, state.errors, state.losses, state.counts, state.alpha)
    return made, after


def _judged(state: ForecastState, laws: Laws, now: float, q: float) -> ForecastState:
    """With what came due counted by what the `laws` know now, and the law chosen anew."""
    faded = math.exp(-(now - state.at) / MEMORY) if state.at is not None else 1.0
    losses, counts = [x * faded for x in state.losses], [x * faded for x in state.counts]
    errors, alpha = state.errors, state.alpha
    truth, jumped = laws.track.flat, laws.track.jumped
    for one in state.issued:
        if one.due > now or (jumped is not None and one.due - one.horizon < jumped <= now):
            continue
        errors = (*errors, Error(one.due, one.horizon, tuple(truth - point for point in one.points)))[-KEEP:]
        for i, upper in enumerate(one.uppers):
            losses[i] += max(q * (truth - upper), (q - 1) * (truth - upper))
            counts[i] += 1.0
        if not one.uppers:
            continue
        miss = 1.0 if truth > one.uppers[one.law] else 0.0
        alpha = min(max((1 - q if alpha is None else alpha) + GAMMA * (1 - q - miss), 0.03), 0.5)
    issued = tuple([one for one in state.issued if one.due > now])
    law = _chosen(state.law, losses, counts)
    return ForecastState(state.at, laws, law, issued, errors, tuple(losses), tuple(counts), alpha)


def _chosen(law: int, losses: list[float], counts: list[float]) -> int:
    """The law in use, or one that is clearly better over enough forecasts."""
    means = {i: losses[i] / counts[i] for i in range(len(LAWS)) if counts[i] >= ENOUGH}
    if law not in means:
        return law
    best = min(means, key=lambda i: (means[i], i))
    return best if means[best] < BETTER * means[law] else law


def _margin(errors: tuple[Error, ...], law: int, horizon: float, level: float) -> float:
    """Weighted conformal quantile of a law's errors at about this horizon; never below 0, nor above what ``MOST``
    allows."""
    found = [
        one.by_law[law]
        for one in reversed(errors)
        if law < len(one.by_law) and horizon / SIMILAR <= one.horizon <= horizon * SIMILAR
    ]
    if len(found) < FEW:
        return PRIOR
    mine = sorted(zip(found, _FADING, strict=False))
    most = MOST * math.sqrt(horizon)
    wanted, seen = level * math.fsum(weight for _, weight in mine), 0.0
    for error, weight in mine:
        seen += weight
        if seen >= wanted:
            return min(max(error, 0.0), most)
    return min(max(mine[-1][0], 0.0), most)
