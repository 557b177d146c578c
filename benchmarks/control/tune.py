"""The tuning rule: each peer gets, for each case, the value that does it most good at equal attainment. Pure.

On training seeds that nothing is scored on, Governor sets the mark. Of the values with which the peer attains at least
as much, of the critical and of all that was offered, the one with the fewest GPU-hours is chosen; where none does, the
one that comes nearest in whichever of both it is farther off.

Not every value is tried on every seed: on the first seed every third value of the grid, then the neighbours of the best
one until it has none that is better, then the best two on the other seeds. What is chosen has been tried on all.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.control.task import Outcome

FINALISTS = 2
COARSE = 3  # of so many values one is tried first


@dataclass(frozen=True, slots=True)
class Trial:
    """One value on some seeds: what was attained over all of them, and GPU-hours in all."""

    value: float
    critical: float
    all: float
    gpu_hours: float


def pooled(value: float, outcomes: Sequence[Outcome]) -> Trial:
    """Several seeds as one: requests and hours add up."""
    return Trial(
        value,
        sum(one.critical.good for one in outcomes) / max(1, sum(one.critical.offered for one in outcomes)),
        sum(one.all.good for one in outcomes) / max(1, sum(one.all.offered for one in outcomes)),
        sum(one.gpu_hours for one in outcomes),
    )


def gap(trial: Trial, mark: Trial) -> float:
    """How far it is from the mark where it is farther off; 0 when it reaches it."""
    return max(0.0, mark.critical - trial.critical, mark.all - trial.all)


def ranked(trials: Sequence[Trial], mark: Trial) -> list[Trial]:
    """The best first: who reaches the mark by cost, then the others by how far they are off."""
    return sorted(
        trials, key=lambda one: (away := gap(one, mark), one.gpu_hours if away <= 0 else 0.0, one.value)
    )  # fmt: skip


def wanted(
    grid: Sequence[float],
    seeds: Sequence[int],
    mine: Mapping[int, Outcome],
    tried: Mapping[tuple[float, int], Outcome],
) -> tuple[list[tuple[float, int]], float | None]:
    """((value, seed) to be tried next, the chosen value when nothing is left to try). `mine` are Governor's outcomes by
    seed, `tried` the peer's so far."""
    if any(seed not in mine for seed in seeds):
        return [], None
    first, others = seeds[0], seeds[1:]
    coarse = [(value, first) for value in grid[1::COARSE] or grid]
    if missing := [one for one in coarse if one not in tried]:
        return missing, None
    mark = pooled(0.0, [mine[first]])
    rough = {value: pooled(value, [one]) for (value, seed), one in tried.items() if seed == first}
    best = ranked([rough[value] for value in grid if value in rough], mark)[0]
    place = list(grid).index(best.value)
    near = [grid[i] for i in (place - 1, place + 1) if 0 <= i < len(grid)]
    if missing := [(value, first) for value in near if value not in rough]:
        return missing, None
    finer = [between(best.value, value) for value in near if _misses_by_thrift(rough[value], best, mark)]
    if missing := [(value, first) for value in finer if value not in rough]:
        return missing, None
    finalists = ranked(list(rough.values()), mark)[:FINALISTS]
    if missing := [(one.value, seed) for one in finalists for seed in others if (one.value, seed) not in tried]:
        return missing, None
    mark = pooled(0.0, [mine[seed] for seed in seeds])
    final = ranked([pooled(one.value, [tried[one.value, seed] for seed in seeds]) for one in finalists], mark)
    return [], final[0].value


def between(one: float, other: float) -> float:
    """The geometric mean, to three digits."""
    return float(f"{math.sqrt(one * other):.3g}")


def _misses_by_thrift(neighbour: Trial, best: Trial, mark: Trial) -> bool:
    return gap(best, mark) <= 0 < gap(neighbour, mark) and neighbour.gpu_hours < best.gpu_hours
