"""Score: the numbers of one run, from the verdicts on its requests and the cost of its replicas. Pure.

Only what arrived after the warm-up and before the cool-down is scored, and GPU-hours are those of the same time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from controller.simulate import fairness, recovery
from controller.simulate.moves import Moves
from controller.simulate.ports import Event
from controller.simulate.verdicts import DEGRADED, GOOD, MISSED, OPEN, Verdicts

MINUTE = 60.0
SHEDDABLE = "sheddable"  # the class of what may be shed first; all others are critical


@dataclass(frozen=True, slots=True)
class Share:
    """Requests offered, and what became of them; `missed` by reason. Open ones are not among the offered."""

    offered: int
    good: int
    degraded: int
    open: int
    missed: Mapping[str, int]

    @property
    def attainment(self) -> float | None:
        """The share of all that was offered that was good; None when nothing was."""
        return self.good / self.offered if self.offered else None

    @property
    def degraded_share(self) -> float | None:
        return self.degraded / self.offered if self.offered else None


@dataclass(frozen=True, slots=True)
class InEvent:
    """One event: what became of its requests, by class and over all, and when the promises were kept again (seconds
    after its begin; 0 = they were all the time, None = not before the end)."""

    all: Share
    classes: Mapping[str, Share]
    recovered: float | None

    @property
    def critical(self) -> Share:
        """As of the whole score."""
        return critical(self.all, self.classes)


@dataclass(frozen=True, slots=True)
class Score:
    """One run of one contender with one seed. `seconds` is how long the scored part is. `goodput` good requests/s,
    `travel` the sum of the changes of each lever in its unit, `reversals` changes of direction of the replicas.
    `fairness` by tenant that was backlogged: its share of its max-min share. `hit_rate` of prompt tokens; None where
    nothing was served; `tenants` by name, where there are several."""

    seconds: float
    all: Share
    classes: Mapping[str, Share]
    events: Mapping[str, InEvent]
    gpu_hours: float
    bad_minutes: int
    minutes: int
    reversals: int
    travel: Mapping[str, float] = field(default_factory=dict)
    fairness: Mapping[str, float] = field(default_factory=dict)
    hit_rate: float | None = None
    attempts: int = 0
    output_tokens: int = 0
    tenants: Mapping[str, Share] = field(default_factory=dict)

    @property
    def critical(self) -> Share:
        """All classes but the one that may be shed first; `all` itself where there is none of that."""
        return critical(self.all, self.classes)

    @property
    def goodput(self) -> float:
        return self.all.good / self.seconds

    @property
    def reversals_per_hour(self) -> float:
        return self.reversals / self.seconds * 3600

    @property
    def good_per_gpu_hour(self) -> float | None:
        return self.all.good / self.gpu_hours if self.gpu_hours else None


@dataclass(frozen=True, slots=True)
class Span:
    """`begin` and `end` of what is scored, and the `start` of the run, unix seconds. Minutes count from the start."""

    start: float
    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def score(
    verdicts: Verdicts, span: Span, events: Sequence[Event], *, good_minute: float, gpu_hours: float, moves: Moves
) -> Score:
    """The score of a run. `gpu_hours` are those of the span."""
    inside = (verdicts.arrived >= span.begin) & (verdicts.arrived < span.end)
    per_minute = attainment_by_minute(verdicts, span.begin, span.end)
    served = inside & verdicts.served
    prompt = int(verdicts.prompt[served].sum())
    return Score(
        seconds=span.seconds,
        all=share(verdicts, inside),
        classes=_by_class(verdicts, inside),
        events={event.name: _event(verdicts, span, event, good_minute) for event in events},
        gpu_hours=gpu_hours,
        bad_minutes=recovery.bad(per_minute, good_minute),
        minutes=len(per_minute),
        reversals=moves.reversals.get("replicas", 0),
        travel=dict(sorted(moves.travel.items())),
        fairness=fairness.shares(_by_tenant(verdicts, inside, span)),
        hit_rate=int(verdicts.cached[served].sum()) / prompt if prompt else None,
        attempts=int(verdicts.attempts[inside].sum()),
        output_tokens=int(verdicts.output[served].sum()),
        tenants=_of_tenants(verdicts, inside),
    )


def critical(everything: Share, classes: Mapping[str, Share]) -> Share:
    """What became of the requests that may not be shed first; `everything` itself where all may or none."""
    rest = [one for name, one in classes.items() if name != SHEDDABLE]
    return summed(rest) if rest and SHEDDABLE in classes else everything


def summed(shares: Sequence[Share]) -> Share:
    """Several shares as one."""
    reasons = sorted({why for one in shares for why in one.missed})
    missed = {why: sum(one.missed.get(why, 0) for one in shares) for why in reasons}
    return Share(
        sum(one.offered for one in shares), sum(one.good for one in shares), sum(one.degraded for one in shares),
        sum(one.open for one in shares), missed,
    )  # fmt: skip


def share(verdicts: Verdicts, chosen: NDArray[np.bool_]) -> Share:
    """What became of the chosen requests."""
    result = np.bincount(verdicts.result[chosen], minlength=4)
    why = np.bincount(verdicts.why[chosen & (verdicts.result == MISSED)], minlength=len(verdicts.reasons))
    return _counted(result, why, verdicts.reasons)


def _counted(result: NDArray[np.int64], why: NDArray[np.int64], reasons: Sequence[str]) -> Share:
    """From how many requests ended in each result, and how many were missed for each reason."""
    missed = {reason: int(count) for reason, count in zip(reasons, why, strict=True) if count}
    good, degraded, waiting = int(result[GOOD]), int(result[DEGRADED]), int(result[OPEN])
    return Share(good + degraded + int(result[MISSED]), good, degraded, waiting, missed)


def attainment_by_minute(verdicts: Verdicts, begin: float, end: float) -> list[float | None]:
    """Of all that arrived in each minute from `begin` on; None for a minute in which nothing did. The last one may be
    shorter."""
    count = max(1, int(np.ceil((end - begin) / MINUTE)))
    known = (verdicts.result != OPEN) & (verdicts.arrived >= begin) & (verdicts.arrived < end)
    minute = ((verdicts.arrived[known] - begin) // MINUTE).astype(np.int64)
    offered = np.bincount(minute, minlength=count)
    good = np.bincount(minute[verdicts.result[known] == GOOD], minlength=count)
    return [int(g) / int(n) if n else None for g, n in zip(good, offered, strict=True)]


def _by_class(verdicts: Verdicts, chosen: NDArray[np.bool_]) -> dict[str, Share]:
    found = {name: share(verdicts, chosen & (verdicts.klass == number)) for number, name in enumerate(verdicts.classes)}
    return {name: one for name, one in sorted(found.items()) if one.offered or one.open}


def _of_tenants(verdicts: Verdicts, chosen: NDArray[np.bool_]) -> dict[str, Share]:
    """Counted at once: there may be thousands."""
    names, reasons = verdicts.tenants, verdicts.reasons
    tenant, result, why = verdicts.tenant[chosen], verdicts.result[chosen], verdicts.why[chosen]
    lost = result == MISSED
    results = np.bincount(tenant * 4 + result, minlength=len(names) * 4).reshape(len(names), 4)
    whys = np.bincount(tenant[lost] * len(reasons) + why[lost], minlength=len(names) * len(reasons))
    by_reason = whys.reshape(len(names), len(reasons))
    found = {name: _counted(results[i], by_reason[i], reasons) for i, name in enumerate(names)}
    there = {name: one for name, one in sorted(found.items()) if one.offered or one.open}
    return there if len(there) > 1 else {}


def _event(verdicts: Verdicts, span: Span, event: Event, good_minute: float) -> InEvent:
    begin, end = span.start + event.begin, span.start + event.end
    inside = (verdicts.arrived >= begin) & (verdicts.arrived < end)
    after = attainment_by_minute(verdicts, begin, span.end)
    return InEvent(share(verdicts, inside), _by_class(verdicts, inside), recovery.recovered_after(after, good_minute))


def _by_tenant(
    verdicts: Verdicts, chosen: NDArray[np.bool_], span: Span
) -> list[tuple[dict[str, float], dict[str, float]]]:
    """(asked, served) by tenant for each minute of each pool, in cost; only where there are several tenants. What one
    pool serves cannot be divided among those who ask another."""
    if len(verdicts.tenants) < 2:
        return []
    chosen = chosen & (verdicts.result != OPEN)
    pools = np.unique(verdicts.pool)
    return [row for pool in pools for row in _minutes(verdicts, chosen & (verdicts.pool == pool), span)]


def _minutes(
    verdicts: Verdicts, chosen: NDArray[np.bool_], span: Span
) -> list[tuple[dict[str, float], dict[str, float]]]:
    tenants = len(verdicts.tenants)
    minutes = int(np.ceil(span.seconds / MINUTE))
    place = ((verdicts.arrived[chosen] - span.begin) // MINUTE).astype(np.int64) * tenants + verdicts.tenant[chosen]
    cost, given = verdicts.cost[chosen], verdicts.served[chosen]
    asked = np.bincount(place, cost, minlength=minutes * tenants).reshape(minutes, tenants)
    served = np.bincount(place, np.where(given, cost, 0.0), minlength=minutes * tenants).reshape(minutes, tenants)
    return [
        (
            {name: float(a[i]) for i, name in enumerate(verdicts.tenants) if a[i] > 0},
            {name: float(s[i]) for i, name in enumerate(verdicts.tenants) if s[i] > 0},
        )
        for a, s in zip(asked, served, strict=True)
    ]
