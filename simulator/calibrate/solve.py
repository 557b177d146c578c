"""Least squares over the step-time coefficients where only a simulation can tell what they would give.

The parameters are multiples of a prior, never negative, each drawn towards 1. Errors come weighed: one is as far off as
the model itself may be. An error of the model does not average out over requests that ran side by side, so a log counts
as `WORTH` requests however long it is, against the prior as in the spread of what was found.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.calibrate.log import Floats

# Parameters (multiples of the prior) to weighed errors: one row per kind, one column per request.
Errors = Callable[[Floats], Floats]

WORTH = 10.0  # independent requests
ROUNDS = 12
TRIES = 4  # steps of a round, each shorter than the one before
FAR = 3.0  # errors beyond it pull as if they were there: a few odd requests must not decide


@dataclass(frozen=True, slots=True)
class Solution:
    """`x` the parameters, `spread` one standard deviation of each that the log alone leaves (inf where it tells
    nothing, 0 where the parameter was not free), `cost` the sum of squares with the pull of the prior."""

    x: Floats
    spread: Floats
    cost: float


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be fitted. `free` are the parameters that may move, `nudges` by how much each is moved to see what it
    does (large, for schedules change by whole requests), `anchor` the standard deviation of the prior, `enough` the
    share by which a round must better the sum of squares for another one."""

    errors: Errors
    free: Sequence[int]
    nudges: Floats
    anchor: float
    enough: float = 3e-3

    def cost(self, x: Floats, left: Floats) -> float:
        """Sum of squares, in a straight line beyond `FAR` (Huber), and the pull of the prior."""
        size = np.abs(left)
        near = np.minimum(size, FAR)
        away = (x[list(self.free)] - 1.0) / self.anchor
        pull = float(away @ away)
        return float((near * (2.0 * size - near)).sum() * WORTH / left.shape[1]) + pull

    def slopes(self, x: Floats) -> Floats:
        """Derivatives of the errors, one layer per free parameter, by central differences."""
        layers = []
        for index in self.free:
            up, down = x.copy(), x.copy()
            up[index] += self.nudges[index]
            down[index] = max(0.0, down[index] - self.nudges[index])
            layers.append((self.errors(up) - self.errors(down)) / (up[index] - down[index]))
        return np.array(layers)


def solve(problem: Problem, x: Floats) -> Solution:
    """Fit from `x` on, by Levenberg-Marquardt."""
    free = list(problem.free)
    left = problem.errors(x)
    damping, best = 1e-3, problem.cost(x, left)
    for _ in range(ROUNDS):
        normal, towards = _normal(left, problem.slopes(x))
        normal = normal + np.eye(len(free)) / problem.anchor**2
        towards = towards + (x[free] - 1.0) / problem.anchor**2
        for _ in range(TRIES):
            tried = x.copy()
            tried[free] += _step(normal, towards, x[free], damping)
            new = problem.errors(tried)
            cost = problem.cost(tried, new)
            if cost < best:
                break
            damping *= 10.0
        else:
            break
        gain, best = best - cost, cost
        x, left, damping = tried, new, damping / 10.0
        if gain < problem.enough * best:
            break
    spread = np.zeros(len(x))
    spread[free] = _spread(_normal(left, problem.slopes(x))[0])
    return Solution(x, spread, best)


def _step(normal: Floats, towards: Floats, x: Floats, damping: float) -> Floats:
    """The step that stays at or above 0: what would pass below is set to 0 and the rest is solved anew."""
    step, open_ = np.zeros(len(x)), np.ones(len(x), dtype=bool)
    damped = normal + damping * np.diag(np.diag(normal))
    while open_.any():
        rows, fixed = np.flatnonzero(open_), np.flatnonzero(~open_)
        right = -towards[rows] - damped[np.ix_(rows, fixed)] @ step[fixed]
        step[rows] = np.linalg.lstsq(damped[np.ix_(rows, rows)], right, rcond=None)[0]
        below = open_ & (x + step < 0.0)
        if not below.any():
            break
        step[below] = -x[below]
        open_ &= ~below
    return step


def _normal(left: Floats, slopes: Floats) -> tuple[Floats, Floats]:
    """Normal matrix and gradient, with Huber's weights."""
    trust = np.sqrt(np.minimum(1.0, FAR / np.maximum(np.abs(left), 1e-12)))
    rows = (slopes * trust[None]).reshape(len(slopes), -1)
    scale = WORTH / left.shape[1]
    return rows @ rows.T * scale, rows @ (left * trust).ravel() * scale


def _spread(normal: Floats) -> Floats:
    """One standard deviation per parameter; inf for one that does nothing, or nothing that the others cannot do."""
    size = np.sqrt(np.diag(normal))
    does = size > 1e-9
    spread = np.full(len(normal), np.inf)
    if does.any():
        alike = normal[np.ix_(does, does)] / np.outer(size[does], size[does])
        values, vectors = np.linalg.eigh(alike)
        inverse = (vectors**2) @ (1.0 / np.maximum(values, 1e-9))
        spread[does] = np.sqrt(inverse) / size[does]
    return spread
