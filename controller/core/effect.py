"""Did it help? What an action was to give is compared with what it gave, with the demand that really came in both.

    growth g of the work that waits, d demand, a work admitted, all in replica-equivalents, before (0) and after (1)
    a shed gave       (d1 - a1 - g1) - (d0 - a0 - g0)          what is offered and neither taken in nor queued
    capacity gave     (d1 - g1) - (d0 - g0)                    told by a queue alone: without one nobody misses it

Both are balances of work, so rising demand is in both terms and does not make a lever that works look idle. The
prediction is the relief that the values before and after would give at the demand of now; of replicas, those that came
to serve. Each is a slope over a window of ticks, and what is less than their standard errors is not concluded.

Two absents of one lever in a row: it is passed over for a while, so that the next rung is asked. Work that waits more,
beyond noise and beyond demand: one undo. More replicas are never undone: at worst they cost money, and taking them away
while requests wait is the worst of mistakes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from controller.core.model import Lever, Target
from controller.core.rules import PER_REPLICA, LeverRules

SPAN = 120.0  # seconds looked at before and after an action, at least
FEWEST = 4  # samples of such a window
SEEN = 0.1  # replica-equivalents below which an effect is not looked for
HELPED = 0.5  # share of the prediction that confirms it
IDLE = 0.25  # share of the prediction below which nothing came of it
HARM = 0.1  # growth of waiting work, as a share of what is carried, that is harm
MIXED = 0.25  # share of the prediction that something else may have done
QUEUED = 1.0  # seconds of work per carrying replica that make a queue
PASSED_OVER = 900.0  # seconds for which a lever without effect counts for nothing
STANDS = 600.0  # seconds for which an undo stands
ONCE = 1800.0  # seconds in which one lever of a pool is undone once


Values = Mapping[Lever, Mapping[str, float]]  # of a pool, by lever and member
_NO_VALUES: Values = {}


class Verdict(StrEnum):
    """What came of an action."""

    CONFIRMED = "confirmed"
    ABSENT = "absent"
    INCONCLUSIVE = "inconclusive"
    HARMFUL = "harmful"


class Sample(NamedTuple):
    """A pool at one tick: demand offered, what is carried and what is admitted, replica-equivalents (None = not told);
    `waiting` work in replica-seconds."""

    at: float
    demand: float
    carried: float
    waiting: float
    admitted: float | None = None


class Trend(NamedTuple):
    """A window of samples, in replica-equivalents: mean demand and carried, `growth` of the waiting work, `dealt` the
    demand that did not queue, `shed` what is neither admitted nor queued (None where admissions are not told), and the
    standard errors of the two. `waiting` is the mean and `least` the least work that waited, in replica-seconds."""

    demand: float
    carried: float
    waiting: float
    least: float
    growth: float
    dealt: float
    noise: float
    shed: float | None = None
    shed_noise: float = 0.0

    @property
    def queued(self) -> bool:
        """Whether there was a queue all the time: only then do replicas deal with all they can."""
        return self.least > QUEUED * max(self.carried, 1.0)

    @property
    def grew(self) -> bool:
        return self.growth > 0 and self.waiting > QUEUED * max(self.carried, 1.0)


class Trial(NamedTuple):
    """An action under watch: `since` its first move and `moved` its last, unix seconds; `before` all values of the pool
    before it; `settled` since when it should show."""

    since: float
    moved: float
    before: Values
    trend: Trend
    settled: float | None = None


@dataclass(frozen=True, slots=True)
class Undo:
    """Values before and after what did harm, by member, until when the first stand, and from when on the lever may be
    undone again; unix seconds."""

    values: Mapping[str, tuple[float, float]]
    until: float
    again: float


class PoolEffect(NamedTuple):
    """Memory of one pool: samples of the last window, values at the last move of each lever, trials, absents in a row,
    until when levers are passed over, and undos."""

    samples: tuple[Sample, ...] = ()
    values: Values = _NO_VALUES
    trials: Mapping[Lever, Trial] = {}
    absents: Mapping[Lever, int] = {}
    passed_over: Mapping[Lever, float] = {}
    undos: Mapping[Lever, Undo] = {}

    def counts(self, lever: Lever, at: float) -> bool:
        """Whether the relief of this lever may be counted on."""
        return self.passed_over.get(lever, -math.inf) <= at

    def undone(self, target: Target, wish: float, at: float) -> float:
        """The wish, no further in the direction that did harm than the value before; the other direction is free."""
        held = self.undos.get(target.lever)
        if held is None or at >= held.until or target.member not in held.values:
            return wish
        before, after = held.values[target.member]
        return min(wish, before) if after > before else max(wish, before)


class Seen(NamedTuple):
    """A pool now. `values` as read back; `foreign` levers that somebody else moved; `arrived` whether all replicas that
    were asked for serve; `relief` replica-equivalents that a lever gives with such values, at the demand of now."""

    at: float
    sample: Sample | None
    values: Values
    rules: Mapping[Lever, LeverRules]
    window: float
    relief: Callable[[Lever, Mapping[str, float]], float]
    arrived: bool = True
    foreign: frozenset[Lever] = frozenset()


@dataclass(frozen=True, slots=True)
class Finding:
    """A verdict, and the replica-equivalents behind it."""

    lever: Lever
    verdict: Verdict
    predicted: float
    realised: float


def watch(seen: Seen, state: PoolEffect) -> tuple[PoolEffect, tuple[Finding, ...]]:
    """Take in what is seen, judge what has settled, and watch what moved since the last tick."""
    span = max(SPAN, 2 * seen.window)
    samples = state.samples if seen.sample is None else (*state.samples, seen.sample)
    samples = tuple([s for s in samples if s.at > seen.at - span - 1e-6])
    trials, found = dict[Lever, Trial](), []
    for lever, trial in state.trials.items():
        if lever not in seen.rules:
            continue  # it does not act any more
        kept = _settle(trial, lever, seen)
        finding = _judge(kept, lever, seen, samples, span)
        if finding is None:
            trials[lever] = kept
        else:
            found.append(finding)
    moves = _moves(seen, state)
    for lever in moves:
        if lever in seen.foreign:
            trials.pop(lever, None)
        elif (
            lever in trials
            and trials[lever].settled is None
            and _onward(moves[lever], state, trials[lever], lever, seen)
        ):
            trials[lever] = trials[lever]._replace(moved=seen.at)
        else:
            # What was seen until the last tick is what was before: this tick's reading may have the action in it.
            before = trend([s for s in state.samples if s.at > seen.at - span - 1e-6])
            trials.pop(lever, None)
            if before is not None:
                trials[lever] = Trial(seen.at, seen.at, state.values, before)
    values = {one: v if one in moves else state.values.get(one, v) for one, v in seen.values.items()}
    after = PoolEffect(samples, values, trials, state.absents, state.passed_over, state.undos)
    return _conclude(after, found, seen, state.trials), tuple(found)


def trend(samples: Sequence[Sample]) -> Trend | None:
    """Means and rates of a window, None when there are too few samples. Rates are slopes of what has added up: there a
    burst that the queue shows a tick before the demand is a bend, not two jumps."""
    if len(samples) < FEWEST:
        return None
    at = [s.at for s in samples]
    demand, carried, waiting = (_mean([getattr(s, n) for s in samples]) for n in ("demand", "carried", "waiting"))
    came = _added(at, [s.demand for s in samples])
    dealt, noise = _slope(at, [c - s.waiting for c, s in zip(came, samples, strict=True)])
    shed, shed_noise = None, 0.0
    if all(s.admitted is not None for s in samples):
        went = _added(at, [s.admitted or 0.0 for s in samples])
        shed, shed_noise = _slope(at, [c - w - s.waiting for c, w, s in zip(came, went, samples, strict=True)])
    growth, _ = _slope(at, [s.waiting for s in samples])
    return Trend(demand, carried, waiting, min(s.waiting for s in samples), growth, dealt, noise, shed, shed_noise)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _added(at: Sequence[float], rates: Sequence[float]) -> list[float]:
    """What has come by each time, from none at the first; a rate is that of the time until its sample."""
    total, out = 0.0, [0.0]
    for (start, end), rate in zip(pairwise(at), rates[1:], strict=True):
        total += rate * (end - start)
        out.append(total)
    return out


def _slope(at: Sequence[float], values: Sequence[float]) -> tuple[float, float]:
    """Least squares: the slope and its standard error."""
    middle, mean = _mean(at), _mean(values)
    spread = math.fsum((t - middle) ** 2 for t in at)
    slope = math.fsum((t - middle) * (v - mean) for t, v in zip(at, values, strict=True)) / spread
    rest = math.fsum((v - mean - slope * (t - middle)) ** 2 for t, v in zip(at, values, strict=True))
    return slope, math.sqrt(rest / (len(at) - 2) / spread)


def verdict(lever: Lever, predicted: float, before: Trend, after: Trend) -> tuple[Verdict, float]:
    """What came of an action that was to give `predicted` replica-equivalents (negative: to give them back), and what
    it gave."""
    moved = after.demand - before.demand
    balance, jitter = after.dealt - before.dealt, math.hypot(before.noise, after.noise)
    realised, noise = balance, jitter
    blind = lever is Lever.REPLICAS or before.shed is None or after.shed is None
    if not blind:
        realised, noise = (after.shed or 0.0) - (before.shed or 0.0), math.hypot(before.shed_noise, after.shed_noise)
    elsewhere = 0.0 if lever is Lever.REPLICAS else after.carried - before.carried
    allowed = MIXED * max(abs(predicted), SEEN)
    if abs(elsewhere) > allowed:
        return Verdict.INCONCLUSIVE, realised
    # What the queue would have grown by, with the demand that really came. It does not shrink below nothing: less that
    # is dealt with, because less comes, is no harm.
    foreseen = before.growth + moved
    harm = -balance if after.queued else -balance + min(0.0, foreseen)
    if after.grew and harm - 3 * jitter > HARM * max(after.carried, 1.0):
        return Verdict.HARMFUL, realised
    if predicted < SEEN or abs(moved) > predicted:
        return Verdict.INCONCLUSIVE, realised
    if blind and not after.queued:
        # The queue drained: it helped, unless less was asked. Where nobody waited before, nothing can be told.
        gone = before.queued and moved > -MIXED * predicted
        return (Verdict.CONFIRMED if gone else Verdict.INCONCLUSIVE), realised
    if blind and not before.queued:
        return Verdict.INCONCLUSIVE, realised
    if realised >= HELPED * predicted:
        return Verdict.CONFIRMED, realised
    if realised + 2 * noise < IDLE * predicted:
        return Verdict.ABSENT, realised
    return Verdict.INCONCLUSIVE, realised


def _settle(trial: Trial, lever: Lever, seen: Seen) -> Trial:
    if trial.settled is not None:
        return trial
    rules = seen.rules[lever]
    if lever is Lever.REPLICAS:
        # The window of a reading must pass too, else it still holds the time before.
        return trial._replace(settled=seen.at + seen.window) if seen.arrived else trial
    rest = max(rules.settle, seen.window)
    return trial._replace(settled=trial.moved + rest) if seen.at >= trial.moved + rest - 1e-6 else trial


def _judge(trial: Trial, lever: Lever, seen: Seen, samples: Sequence[Sample], span: float) -> Finding | None:
    """The verdict on a trial, None while it is too early."""
    if trial.settled is None:
        if seen.at - trial.moved < seen.rules[lever].give_up:
            return None
        return _never_came(trial, lever, seen)
    if seen.at < trial.settled + span - 1e-6:
        return None
    after = trend([s for s in samples if s.at > trial.settled - 1e-6])
    if after is None:
        return Finding(lever, Verdict.INCONCLUSIVE, 0.0, 0.0)
    predicted = _predicted(trial, lever, seen, after)
    others = math.fsum(
        abs(_relieved(one, seen.values, seen) - _relieved(one, trial.before, seen))
        for one in sorted(seen.rules) if one is not lever and one not in PER_REPLICA and one is not Lever.REPLICAS
    )  # fmt: skip
    told, realised = verdict(lever, predicted, trial.trend, after)
    mixed = others > MIXED * max(abs(predicted), SEEN)
    return Finding(lever, Verdict.INCONCLUSIVE if mixed else told, predicted, realised)


def _never_came(trial: Trial, lever: Lever, seen: Seen) -> Finding:
    """Capacity that was asked for and given up: no quota, no image, never ready."""
    now = seen.values.get(lever, {})
    before = trial.before.get(lever, {})
    asked = math.fsum(v - before.get(member, v) for member, v in sorted(now.items()))
    carried = seen.sample.carried if seen.sample is not None else None
    if carried is None or asked <= 0:
        return Finding(lever, Verdict.INCONCLUSIVE, max(0.0, asked), 0.0)
    came = carried - trial.trend.carried
    told = Verdict.ABSENT if came < IDLE * asked else Verdict.INCONCLUSIVE
    return Finding(lever, told, asked, came)


def _predicted(trial: Trial, lever: Lever, seen: Seen, after: Trend) -> float:
    if lever is Lever.REPLICAS:
        return after.carried - trial.trend.carried
    return _relieved(lever, seen.values, seen) - _relieved(lever, trial.before, seen)


def _relieved(lever: Lever, values: Values, seen: Seen) -> float:
    return seen.relief(lever, values.get(lever, {}))


def _moves(seen: Seen, state: PoolEffect) -> dict[Lever, float]:
    """Levers that moved since their last move, and by what. Caps follow their tenants at every tick; a move is what
    changes the relief by as much as can be looked for, all at once or little by little. Levers of single replicas give
    no relief; what they do shows in what is carried."""
    out = {}
    for lever, now in seen.values.items():
        before = state.values.get(lever)
        if before is not None and before != now:
            moved = _way(lever, before, now, seen)
            if moved and (lever is Lever.REPLICAS or abs(moved) >= SEEN):
                out[lever] = moved
    return out


def _way(lever: Lever, before: Mapping[str, float], after: Mapping[str, float], seen: Seen) -> float:
    """By how much a lever moved in the protective direction: replicas, or relief at the demand of now."""
    if lever is Lever.REPLICAS:
        return math.fsum(after.values()) - math.fsum(before.values())
    return seen.relief(lever, after) - seen.relief(lever, before)


def _onward(moved: float, state: PoolEffect, trial: Trial, lever: Lever, seen: Seen) -> bool:
    """Whether the lever goes on in the direction in which the trial began: then it is one action."""
    return moved * _way(lever, trial.before.get(lever, {}), state.values.get(lever, {}), seen) >= 0


def _conclude(
    state: PoolEffect, found: Sequence[Finding], seen: Seen, trials: Mapping[Lever, Trial]
) -> PoolEffect:  # fmt: skip
    if not found and not state.passed_over and not state.undos:
        return state  # nearly always
    absents, passed, undos = dict(state.absents), dict(state.passed_over), dict(state.undos)
    for finding in found:
        lever = finding.lever
        if finding.verdict is Verdict.CONFIRMED:
            absents.pop(lever, None)
            passed.pop(lever, None)
        elif finding.verdict is Verdict.ABSENT:
            absents[lever] = absents.get(lever, 0) + 1
            if absents[lever] >= 2:
                passed[lever] = seen.at + PASSED_OVER
                del absents[lever]
        elif finding.verdict is Verdict.HARMFUL and (lever not in undos or undos[lever].again <= seen.at):
            values = _undoing(trials[lever], lever, seen)
            if values:
                undos[lever] = Undo(values, seen.at + STANDS, seen.at + ONCE)
    return state._replace(
        absents=absents,
        passed_over={lever: until for lever, until in passed.items() if until > seen.at},
        undos={lever: held for lever, held in undos.items() if held.again > seen.at},
    )


def _undoing(trial: Trial, lever: Lever, seen: Seen) -> dict[str, tuple[float, float]]:
    """The values that the action changed, as they were and are; of replicas only those that were taken away."""
    now = seen.values.get(lever, {})
    return {
        member: (v, now[member]) for member, v in sorted(trial.before.get(lever, {}).items())
        if member in now and now[member] != v and (lever is not Lever.REPLICAS or v > now[member])
    }  # fmt: skip
