"""Sets of Governor's levers, and what one more of them costs. Pure.

Six levers make 186 steps from a set to the next larger one, and single seeds differ by more than a step may cost: by
chance alone the dearest looks too dear. So what costs too much on the seeds that are scored is run on further ones,
and judged by all of them.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.control.task import Outcome

EVENT = "flash"
MOST = 0.005  # of critical attainment that one more lever may cost
Levers = tuple[str, ...]
Subsets = Mapping[Levers, Sequence[Outcome]]


class Step(NamedTuple):
    """From a set of levers to one that has one more."""

    less: Levers
    more: Levers

    def __str__(self) -> str:
        (added,) = set(self.more) - set(self.less)
        return f"{added} to {', '.join(sorted(self.less))}"


def gains(theirs: Sequence[Outcome], ours: Sequence[Outcome]) -> tuple[float, float]:
    """How many more of the critical requests were answered in time by ours, in the flash and in all, 0..1; by consent
    also with a smaller model."""
    (there, all_there), (here, all_here) = _kept(theirs), _kept(ours)
    return here - there, all_here - all_there


def costs(subsets: Subsets) -> dict[Step, float]:
    """What each step costs, in the flash or in all, whichever is more; negative where it gains in both."""
    return {
        Step(less, more): -min(gains(subsets[less], subsets[more]))
        for less in subsets
        for more in subsets
        if set(less) < set(more) and len(more) == len(less) + 1
    }


def dear(subsets: Subsets) -> list[Step]:
    """The steps that cost more than they may."""
    return [step for step, cost in costs(subsets).items() if cost > MOST]


def inside(one: Outcome) -> float | None:
    """Of the critical requests in the flash, those that were answered in time, 0..1; None where there was none."""
    return one.events[EVENT].critical.kept if EVENT in one.events else None


def whole(one: Outcome) -> float:
    """The same of all critical requests."""
    return one.critical.kept


def _kept(outcomes: Sequence[Outcome]) -> tuple[float, float]:
    return _mean([kept for one in outcomes if (kept := inside(one)) is not None]), _mean(
        [whole(one) for one in outcomes]
    )


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values) if values else 0.0
