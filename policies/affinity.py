"""Affinity: how much the router's affinity counts against load.

    n_i       running + waiting of each replica, as they are and smoothed over `smooth`: uneven is what both say
    uneven    max n / mean n > bound for `dwell`,  the fullest at `busy` operating points, the others below `room`
    uneven    affinity - step, at most once per `settle`
    even      affinity + rise  after `calm` in which max n / mean n < ease, if the hit rate is lower than it was at 1;
              after `rest` if it is not; twice as long after each rise that was followed by unevenness, at most 16 times

A prefix that half of all requests share queues at its home while other replicas idle. A little less affinity spreads
it, for a few points of cache hits. Only skew is met so: where all have as much as they can do the cache is part of
the capacity, and less affinity would make the pool shorter. That is judged by what the others have: by the model alone
a pool is short while one replica's queue grows and five idle. Where the others are busy and do not queue, spreading
more is sometimes better and sometimes loses what was in time; nothing that is seen beforehand tells which. The mean is
over what serves (`Balance.carried`), so that a replica which a breaker holds out makes no unevenness of its own. Two
replicas that differ by a few requests are even, whatever their ratio, so the fullest must have work that it cannot do
well.

Back it comes slowly and little by little, because what spread the load may still be there: the back-off keeps it from
being tried for ever. Without a loss of hits there is little to come back for. Where the replicas' load is not told, or
not of all of them, nothing relaxes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from controller.core.elapsed import GAP, elapsed
from controller.core.estimate import READS
from controller.core.model import Ask, Lever, Proposal, Target
from controller.core.params import Unit, param
from controller.core.ports import Brief, View
from controller.core.reading import State
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why

AFFINITY = "affinity"  # the set-point
CACHE_TIME = 300.0  # seconds over which the hit rate is averaged
LOST = 0.01  # of the hit rate, that is a loss whatever its noise
NOISE = 2.0  # mean deviations of the hit rate that are no loss
RELAPSES = 4  # doublings of the wait, at most
FORGOTTEN = 4.0  # waits without unevenness after which one relapse is forgotten


class Affinity:
    """The set-point `affinity` of the router of one pool."""

    levers = (Lever.ROUTING,)
    reads = READS | {Signal.PREFIX_HIT_RATE}

    @dataclass(frozen=True, slots=True)
    class Config:
        """Parameters of the affinity policy."""

        bound: float = param("work of the fullest replica over the mean above which affinity is lowered", 1.5, gt=1)
        ease: float = param("and below which the replicas are even", 1.3, ge=1)
        busy: float = param(
            "work that the fullest must have, in operating points of a replica", 0.8, unit=Unit.RATIO, ge=0, le=5
        )
        room: float = param(
            "mean work of the others, in the same, from which on the pool is short", 0.6, unit=Unit.RATIO, gt=0, le=5
        )
        slack: float = param("the same where that point is not known: requests above the mean", 8.0, ge=0)
        step: float = param("how far affinity is lowered at once", 0.1, gt=0, le=1)
        rise: float = param("how far it comes back at once", 0.05, gt=0, le=1)
        smooth: float = param("smoothing of each replica's work", 30.0, unit=Unit.DURATION, ge=0)
        dwell: float = param(
            "how long they are uneven before affinity is lowered: one look is no skew", 15.0, unit=Unit.DURATION, ge=0
        )
        settle: float = param("least time between two lowerings", 45.0, unit=Unit.DURATION, ge=0)
        calm: float = param("how long replicas are even before it comes back", 300.0, unit=Unit.DURATION, gt=0)
        rest: float = param("the same while no cache hits are lost", 3600.0, unit=Unit.DURATION, gt=0)

    @dataclass(frozen=True, slots=True)
    class State:
        """Smoothed work of each replica; `at` the last tick and the `value` then; since when the replicas are `even` or
        `uneven`, None while they are not; when the value last `fell` and `rose`; how many rises were followed by
        unevenness; the mean of the hit rate, its mean deviation, and what it was at `full` affinity. Unix seconds."""

        work: Mapping[str, float] = field(default_factory=dict)
        at: float | None = None
        value: float | None = None
        even: float | None = None
        uneven: float | None = None
        fell: float | None = None
        rose: float | None = None
        relapses: int = 0
        hit: float | None = None
        noise: float = 0.0
        full: float | None = None

    def __init__(self, config: "Affinity.Config") -> None:
        if config.ease >= config.bound:
            raise ValueError(
                f"ease: must be below bound ({config.ease:g} >= {config.bound:g}); leave a gap between them"
            )
        self.config = config

    def initial(self) -> "Affinity.State":
        return self.State()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "Affinity.State"
    ) -> tuple[Sequence[Proposal], "Affinity.State"]:
        """SET where the replicas' work is known; AT_MOST the current value where it is not, or not well enough to
        relax."""
        target = next((one for one in sorted(view.targets) if one.member == AFFINITY), None)
        current = None if target is None else view.targets[target].accepted
        if target is None or current is None or not math.isfinite(current):
            return (), state
        if state.at is not None and view.tick.at - state.at > GAP:
            state = replace(state, even=None, uneven=None)  # nobody looked
        state, seen, known = self._learn(view, self._moved(view.tick.at, current, state))
        if known is None:
            state = replace(state, even=None, uneven=None)
            return (Proposal(target, Ask.AT_MOST, current, "affinity", Why.MISSING),), state
        most, mean, rest = _spread(state.work, brief.balance.carried)
        ratio = most / mean if mean > 0 else 1.0
        evidence = {"imbalance": ratio, "fullest": most}
        if state.full is not None and state.hit is not None:
            evidence = {**evidence, "hit_rate": state.hit, "hit_rate_at_full": state.full}
        latest, usual, _ = _spread(seen, brief.balance.carried)
        hurts = self._hurts(view, most, mean)
        # What was uneven a moment ago and is not now needs nothing any more.
        still = self._hurts(view, latest, usual) and latest > self.config.bound * usual
        if hurts and still and ratio > self.config.bound:
            since = view.tick.at if state.uneven is None else state.uneven
            holds = view.estimate.unit_sequences
            short: Why | None = Why.SHORTFALL if brief.short > 0 else None
            if holds is not None and holds > 0:
                short = Why.OTHERS_BUSY if rest >= self.config.room * holds else None
            state = replace(state, even=None, uneven=since)
            return self._lower(view, target, current, state, evidence, short=short)
        state = replace(state, uneven=None)
        if hurts and ratio >= self.config.ease:
            state = replace(state, even=None)
        elif state.even is None:
            state = replace(state, even=view.tick.at)
        return (self._raise(view, target, current, state, evidence, known=known),), state

    def _lower(
        self, view: View, target: Target, current: float, state: "Affinity.State", evidence: Mapping[str, float], *,
        short: Why | None,
    ) -> tuple[Sequence[Proposal], "Affinity.State"]:  # fmt: skip
        now, limits = view.tick.at, view.limits[target]
        if state.rose is not None and now - state.rose <= self._wait(state, lost=True):
            state = replace(state, rose=None, relapses=min(RELAPSES, state.relapses + 1))
        ask, value, why = Ask.AT_MOST, current, Why.UNEVEN
        if short is not None:
            why = short
        elif self._due(now, state):
            ask, value = Ask.SET, max(current - max(self.config.step, limits.quantum), limits.min)
        return (Proposal(target, ask, _whole(value, limits.quantum), "affinity", why, evidence),), state

    def _due(self, now: float, state: "Affinity.State") -> bool:
        """Whether the skew has lasted, and what was done last can have worked."""
        if state.uneven is None or now - state.uneven < self.config.dwell - 1e-6:
            return False
        return state.fell is None or now - state.fell >= self.config.settle - 1e-6

    def _raise(
        self, view: View, target: Target, current: float, state: "Affinity.State", evidence: Mapping[str, float], *,
        known: bool,
    ) -> Proposal:  # fmt: skip
        """`known` whether the work of every replica is known well, and the hit rate where there is one."""
        limits, wait = view.limits[target], self._wait(state, lost=self._lost(state))
        if current >= limits.max or state.even is None or view.tick.at - state.even < wait - 1e-6:
            return Proposal(target, Ask.SET, current, "affinity", Why.STEADY, evidence)
        if not known or not view.estimate.trusted:
            return Proposal(target, Ask.AT_MOST, current, "affinity", Why.UNDERFILLED, evidence)
        wish = min(current + max(self.config.rise, limits.quantum), limits.max)
        return Proposal(target, Ask.SET, _whole(wish, limits.quantum), "affinity", Why.EVEN, evidence)

    def _moved(self, now: float, current: float, state: "Affinity.State") -> "Affinity.State":
        """What became of the last proposal, as far as the value tells: whoever moved it."""
        if state.value is not None and current < state.value:
            state = replace(state, fell=now)
        elif state.value is not None and current > state.value:
            state = replace(state, rose=now, even=None)
        elif state.rose is not None and now - state.rose > FORGOTTEN * self._wait(state, lost=True):
            state = replace(state, rose=None, relapses=max(0, state.relapses - 1))
        return replace(state, value=current)

    def _hurts(self, view: View, most: float, mean: float) -> bool:
        """Whether the fullest replica has work that it cannot do well."""
        holds = view.estimate.unit_sequences
        if holds is None or not holds > 0:
            return most - mean >= self.config.slack
        return most >= self.config.busy * holds

    def _wait(self, state: "Affinity.State", *, lost: bool) -> float:
        """How long the replicas have to be even."""
        return (self.config.calm if lost else self.config.rest) * 2.0**state.relapses

    def _lost(self, state: "Affinity.State") -> bool:
        """Whether cache hits are fewer than at 1; where nothing tells, they may be."""
        if state.hit is None or state.full is None:
            return True
        return state.hit < state.full - max(LOST, NOISE * state.noise)

    def _learn(
        self, view: View, state: "Affinity.State"
    ) -> tuple["Affinity.State", Mapping[str, float], bool | None]:  # fmt: skip
        """The work of each replica and the hit rate, smoothed; that work as it is; and whether all is known well, None
        where the work of less than half of the replicas is known."""
        now = view.tick.at
        gone = elapsed(state.at, now)
        work, seen, whole = dict[str, float](), dict[str, float](), True
        for name, scope in sorted(view.pool.replicas.items()):
            running, waiting = scope.get(Signal.RUNNING), scope.get(Signal.QUEUE_DEPTH)
            if running.usable is None:
                whole = False
                continue
            whole = whole and running.trusted and (waiting.trusted or waiting.state is State.UNSUPPORTED)
            seen[name] = running.usable + (waiting.usable or 0.0)
            work[name] = _towards(state.work.get(name), seen[name], gone, self.config.smooth)
        hit, noise, full = state.hit, state.noise, state.full
        reading = view.pool.get(Signal.PREFIX_HIT_RATE)
        if reading.trusted and reading.value is not None:
            off = 0.0 if hit is None else abs(reading.value - hit)
            hit, noise = _towards(hit, reading.value, gone, CACHE_TIME), _towards(noise, off, gone, CACHE_TIME)
            caches = state.rose is None or now - state.rose > 2 * CACHE_TIME  # after a rise they fill first
            full = hit if caches and (state.value or 0.0) >= 1.0 else full
        elif hit is not None and reading.state is not State.NO_TRAFFIC:
            whole = False  # it was told, and is not now
        known = None if not work or 2 * len(work) < len(view.pool.replicas) else whole
        return replace(state, work=work, at=now, hit=hit, noise=noise, full=full), seen, known


def _spread(work: Mapping[str, float], carried: float) -> tuple[float, float, float]:
    """The most of one replica, the mean over those that serve, and that over the others of them."""
    serving = min(float(len(work)), max(carried, 1.0)) if carried > 0 else float(len(work))
    most, total = max(work.values(), default=0.0), math.fsum(work.values())
    return most, total / max(serving, 1.0), (total - most) / max(serving - 1.0, 1.0)


def _towards(before: float | None, value: float, gone: float, time: float) -> float:
    """An exponential mean over `time` seconds, of which `gone` passed; the value itself at first."""
    if before is None or time <= 0:
        return value
    return before + gone / (time + gone) * (value - before)


def _whole(value: float, quantum: float) -> float:
    return round(round(value / quantum) * quantum, 12) if quantum > 0 else value
