"""Whether two plants put the same contenders in the same order. Pure.

Two contenders whose means are closer than ``CLOSE`` on a plant have no order there: with a few seeds that is chance.
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import fmean

from benchmarks.second_plant.run import Outcome


class Measure(StrEnum):
    """What contenders are put in order by."""

    ATTAINED = "attainment"
    COST = "replica-seconds"


CLOSE: Mapping[Measure, float] = {Measure.ATTAINED: 0.02, Measure.COST: 0.03}  # points; a share of the larger


@dataclass(frozen=True, slots=True)
class Pair:
    """Two contenders, and who is ahead on each plant: 1 the first, -1 the second, 0 neither."""

    first: str
    second: str
    dynamo: int
    twin: int

    @property
    def swapped(self) -> bool:
        """Whether the plants contradict each other."""
        return self.dynamo * self.twin < 0

    @property
    def agreed(self) -> bool:
        """Whether both plants say the same, also that neither is ahead."""
        return self.dynamo == self.twin


def mean(outcomes: Sequence[Outcome], plant: str, case: str, contender: str, measure: Measure) -> float:
    """Over the seeds. Raises ValueError when there is no such run."""
    chosen = [one for one in outcomes if (one.plant, one.case, one.contender) == (plant, case, contender)]
    if not chosen:
        raise ValueError(f"no run of {contender} in {case} on {plant}")
    if measure is Measure.COST:
        return fmean(one.replica_seconds for one in chosen)
    return fmean(one.attained for one in chosen)


def order(values: Mapping[str, float], measure: Measure) -> list[str]:
    """The best first: most attained, or least cost."""
    sign = -1 if measure is Measure.ATTAINED else 1
    return sorted(values, key=lambda name: (sign * values[name], name))


def pairs(dynamo: Mapping[str, float], twin: Mapping[str, float], measure: Measure) -> list[Pair]:
    """Every two contenders, compared on both plants."""
    return [
        Pair(first, second, ahead(dynamo, first, second, measure), ahead(twin, first, second, measure))
        for first, second in itertools.combinations(dynamo, 2)
    ]


def ahead(values: Mapping[str, float], first: str, second: str, measure: Measure) -> int:
    """Who of two is: 1 the first, -1 the second, 0 neither."""
    one, other = values[first], values[second]
    near = CLOSE[measure] * (max(one, other) if measure is Measure.COST else 1.0)
    if abs(one - other) < near:
        return 0
    return 1 if (one > other) == (measure is Measure.ATTAINED) else -1
