"""Searches: the fewest GPU-hours with which a fleet attains at least as much, on the same twin and seed.

Two families are searched, and each bound holds within its family.

* Static: a constant number of replicas, from the first second on. Pools of several are kept in the proportion of their
  peak needs.
* Oracle: a clairvoyant schedule. What is needed is known from the arrivals (`Need`); times a margin, rounded up, per
  ``SLOT``. A replica is asked for `lead` seconds before it is needed, and kept where it would be needed again before
  another could have come. The margin is found by bisection.

More replicas may in a single case attain less, by chance or by a colder prefix cache, so bisection may miss a cheaper
member of its family by its last step.

What must be reached is the attainment over all that was offered, and that over what may not be shed first: fleets of
equal attainment must not differ in whom they let wait.

The requests are the same for all, but not those that are still open when the clock stops. Who leaves more of them open
than the other did must not gain by it: what is open beyond as many counts as missed.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from controller.simulate.pilots import Schedule
from controller.simulate.ports import Need
from controller.simulate.run import Run
from controller.simulate.score import Score, Share

SLOT = 30.0  # seconds
_CLOSE = 0.03  # relative width of the margin at which bisection ends
_FIRST, _MOST = 1.0, 8.0
_LEAST = 0.25


@dataclass(frozen=True, slots=True)
class Fleet:
    """Replicas at the start, by pool, and what they become."""

    start: Mapping[str, int]
    schedules: tuple[Schedule, ...] = ()


@dataclass(frozen=True, slots=True)
class Mark:
    """What must be reached: of the same requests, no more than `lost` that were not good, and as many as `open` may be
    left open for nothing. `critical` is the same for those that may not be shed first; None where all are alike."""

    lost: int
    open: int
    critical: "Mark | None" = None

    @classmethod
    def of(cls, share: Share) -> "Mark":
        """What was reached by who had this share."""
        return cls(share.offered - share.good, share.open)

    @classmethod
    def set_by(cls, score: Score) -> "Mark":
        """What was reached by who had this score, in all and in the critical part."""
        mark = cls.of(score.all)
        return mark if score.critical is score.all else replace(mark, critical=cls.of(score.critical))

    def met(self, score: Score) -> bool:
        """Whether this score is at least as much in both."""
        critical = self.critical is None or self.critical.reached(score.critical)
        return critical and self.reached(score.all)

    def reached(self, share: Share) -> bool:
        """Whether this is at least as much. Its attainment is no lower then, nor is it when of each the same number of
        open requests turns out good and the rest is missed."""
        return share.offered - share.good + max(0, share.open - self.open) <= self.lost


# None when the fleet was given up on because it could not attain as much any more.
Try = Callable[[Fleet, Mapping[str, float]], Run | None]


def static(mark: Mark, needs: Mapping[str, Need], attempt: Try) -> Run | None:
    """The cheapest constant fleet that reaches the mark; None when there is none."""
    peaks = {pool: max(need.replicas, default=0.0) for pool, need in needs.items()}
    largest = max(peaks.values(), default=0.0) or 1.0

    def run(count: int) -> Run | None:
        start = {pool: max(1, math.ceil(count * peak / largest - 1e-9)) for pool, peak in peaks.items()}
        return attempt(Fleet(start), {f"replicas of {pool}": float(n) for pool, n in start.items()})

    high, last = max(1, math.ceil(largest)), math.ceil(_MOST * largest) + 1
    tried = {high: run(high)}
    while not _reaches(tried[high], mark):
        if high >= last:
            return None
        high = min(last, max(high + 1, math.ceil(1.5 * high)))
        tried[high] = run(high)
    low = max((n for n, one in tried.items() if not _reaches(one, mark)), default=0)
    while high - low > 1:
        middle = (low + high) // 2
        tried[middle] = run(middle)
        if _reaches(tried[middle], mark):
            high = middle
        else:
            low = middle
    return _cheapest(tried.values(), mark)


def oracle(mark: Mark, needs: Mapping[str, Need], start: float, attempt: Try) -> Run | None:
    """The cheapest clairvoyant schedule that reaches the mark; None when there is none. `start` is when the run begins,
    unix seconds."""

    def run(margin: float) -> Run | None:
        fleets = {pool: plan(need, margin) for pool, need in needs.items()}
        schedules = tuple(
            Schedule(pool, tuple((start + at, count) for at, count in steps)) for pool, steps in fleets.items()
        )
        begin = {pool: steps[0][1] for pool, steps in fleets.items()}
        return attempt(Fleet(begin, schedules), {"margin": margin})

    high = _FIRST
    tried = {high: run(high)}
    while not _reaches(tried[high], mark):
        if high >= _MOST:
            return None
        high *= math.sqrt(2)
        tried[high] = run(high)
    low = max((m for m, one in tried.items() if not _reaches(one, mark)), default=_LEAST)
    while high / low > 1 + _CLOSE:
        middle = math.sqrt(low * high)
        tried[middle] = run(middle)
        if _reaches(tried[middle], mark):
            high = middle
        else:
            low = middle
    return _cheapest(tried.values(), mark)


def plan(need: Need, margin: float) -> tuple[tuple[float, int], ...]:
    """(seconds after the start, replicas wanted from then on) of a clairvoyant who knows the need."""
    per_slot = max(1, round(SLOT / need.step))
    slots = math.ceil(len(need.replicas) / per_slot)
    serving = [
        max(1, math.ceil(margin * max(need.replicas[i * per_slot : (i + 1) * per_slot]) - 1e-9)) for i in range(slots)
    ]
    ahead = math.ceil(need.lead / SLOT)
    wanted = [max(serving[i : i + ahead + 1]) for i in range(slots)]
    return tuple(
        (i * per_slot * need.step, count) for i, count in enumerate(wanted) if i == 0 or count != wanted[i - 1]
    )


def _reaches(run: Run | None, mark: Mark) -> bool:
    return run is not None and mark.met(run.score)


def _cheapest(runs: Iterable[Run | None], mark: Mark) -> Run:
    good = [one for one in runs if one is not None and _reaches(one, mark)]
    return min(good, key=lambda one: one.score.gpu_hours)
