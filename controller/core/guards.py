"""Guards: what stands between a wish and a value that is sent. Fixed order; each leaves a step only when it changed
something; each relaxing move needs evidence, no protecting move does.

    not due -> evidence (stale, missing, waiting, N-1) -> stabilise -> damped -> in flight -> out of rotation ->
    promises -> cooldown -> rate -> group -> bounds

A guard that asks for evidence sees relaxing wishes alone. The group guards need all targets of a lever or of the tick
and are applied by ``decide`` before the hard bounds, which come last so that the final value is always legal.
"""

import math
from collections.abc import Callable
from functools import lru_cache

from controller.core.case import Case, Common
from controller.core.guard_state import GuardState, Pairs, since
from controller.core.model import Lever, Mode, Outcome, Step, TargetState
from controller.core.ports import Limits
from controller.core.signals import Signal
from controller.core.step_model import KV_FILL
from controller.core.why import Why
from controller.core.words import clock

Guard = Callable[[Case, float], tuple[float, Why, str]]
# Looked up by name of the module: a member of an enum takes ten times as long, and these are asked of every target.
_CAPACITY, _PROTECT = Lever.REPLICAS, Mode.PROTECT
KEEP = Why.STEADY
READINGS = 12  # that are needed at least to give up a whole surplus of capacity by parts
_tuple = tuple.__new__  # past the one of named tuples, which takes twice as long


def run(
    case: Case, wish: float, *, by: str = "guard", undo: bool = False
) -> tuple[float, tuple[Step, ...], float]:  # fmt: skip
    """Apply all guards but group and bounds to the wish, or those that an undo passes. Also returns what was sought:
    the wish after the doubts about it and before its timing, which is what stabilising remembers."""
    if wish == case.current:
        return wish, (), wish  # no guard has anything to say about what stays; most targets of most ticks do
    value, steps, relaxing = wish, [], case.relaxing(wish)
    # A doubt holds for its moment. What stabilising remembers is what would have been safe: else a request that waits
    # at one scrape in a hundred would keep a large pool up all night.
    sought = consolidation(case, wish)[0] if relaxing and case.common.rules.lever is _CAPACITY else wish
    for guard in _which(case, relaxing=relaxing, undo=undo):
        after, why, detail = guard(case, value)
        if after != value:
            steps.append(_tuple(Step, (by, value, after, why, detail)))
            value = after
            if value == case.current:
                break
    return value, tuple(steps), sought


def _which(case: Case, *, relaxing: bool, undo: bool) -> tuple[Guard, ...]:
    """Who is asked. What was judged on a window of evidence does not wait for one more."""
    if not relaxing:
        return _PACE
    if undo:
        return _UNDO
    common, rules = case.common, case.common.rules
    if rules.lever is _CAPACITY:
        return _REPLICAS
    return _others(rules.every > 0, rules.mode is _PROTECT, rules.stabilise > 0, common.gain < 1.0)


def bounds(limits: Limits, value: float, *, up: bool = False) -> tuple[float, Why | None]:
    """Round to the quantum, or `up` to it, then clamp; the bounds win because they are multiples of the quantum or
    meant as they are. Breakers are rounded up: a probe that a coarse target makes nothing of, or a ramp that never
    quite arrives, would keep a replica out for ever."""
    least, most, quantum = limits.min, limits.max, limits.quantum
    if least <= value <= most and quantum == 1.0 and value % 1.0 == 0.0:
        return value, None  # caps, gates and replicas, tens of thousands a tick
    rounded = _rounded(value, quantum, up) if quantum > 0 else value
    clamped = rounded if least <= rounded <= most else min(max(rounded, least), most)
    if clamped > rounded:
        return clamped, Why.MIN_BOUND
    if clamped < rounded:
        return clamped, Why.MAX_BOUND
    return clamped, Why.QUANTUM if rounded != value else None


@lru_cache(maxsize=4096)
def _rounded(value: float, quantum: float, up: bool) -> float:
    """A multiple of the quantum. Weights and breakers are the same few shares of 1 all over a fleet."""
    steps = value / quantum
    whole = (math.ceil(steps - 1e-9) if up else round(steps)) * quantum
    return round(whole, 12)  # 95 times 0.01 is not 0.95, and would be another value than the one asked for


# --- the guards --------------------------------------------------------------------------------------------------


def blocking(target: TargetState) -> tuple[Why, str] | None:
    """Why nothing at all may move the target, bounds and pins included: a write of ours of unknown outcome must be
    verified first, and somebody else's value is not fought. The actuator knows who wrote it, and how long to keep
    off."""
    if target.last_outcome is not None and target.last_outcome == Outcome.UNKNOWN:
        return Why.OUTCOME_UNKNOWN, ""
    if target.foreign_writer:
        return Why.FOREIGN_WRITER, target.foreign_writer
    return None


def not_due(case: Case, value: float) -> tuple[float, Why, str]:
    """A slow lever decides at its own pace; protection does not wait for it."""
    common, due = case.common, case.state.due
    if common.rules.every and common.tick.at < due - 1e-6:
        return case.current, Why.NOT_DUE, f"until {clock(due)} UTC"
    return value, KEEP, ""


def protect_only(case: Case, value: float) -> tuple[float, Why, str]:
    """A lever that may only protect does not relax."""
    return (case.current, Why.MODE_PROTECT, "") if case.common.rules.mode == _PROTECT else (value, KEEP, "")


def evidence(case: Case, value: float) -> tuple[float, Why, str]:
    """No relaxing on data that is missing, old, partial or not yet a full window, nor while work waits."""
    doubt = case.doubt()
    return (value, KEEP, "") if doubt is None else (case.current, *doubt)


def consolidation(case: Case, value: float) -> tuple[float, Why, str]:
    """Lowering capacity must be safe with what remains: the load ahead fits into what replicas have shown they can
    serve, and the KV in use fits into what is left. What is out of rotation serves nobody."""
    common = case.common
    if common.rules.lever is not _CAPACITY or common.pool is None:
        return value, KEEP, ""
    estimate, kv = common.estimate, common.pool.get(Signal.KV_USAGE).value
    unit, shown = estimate.unit_rate, estimate.evidence.get("proven_rate")
    caution = unit / shown if unit is not None and shown else 1.0
    ahead = max((estimate.demand or 0.0), estimate.forecast or 0.0) * (1 + estimate.margin) * caution
    used = (kv or 0.0) * estimate.evidence.get("serving", case.current) / KV_FILL
    need, quantum = max(ahead, used) + common.out, common.rules.limits.quantum
    left = value
    if need > value:
        left = value + math.ceil((need - value) / quantum - 1e-9) * quantum if quantum > 0 else need
    return min(left, case.current), Why.UNSAFE_WITHOUT_ONE, f"the load ahead needs {need:.2f}"


def stabilise(case: Case, value: float) -> tuple[float, Why, str]:
    """Follow the most protective wish of the recent past, but never past the current value: stabilising must not turn a
    relaxation into its opposite. Of capacity, which is paid for while it is kept, a wish fades with its age."""
    common = case.common
    if common.rules.stabilise <= 0:
        return value, KEEP, ""
    wishes = since(case.state.wishes, common.stable_since)
    recent = _faded(common, value, wishes) if common.rules.lever is _CAPACITY else [wish for _, wish in wishes]
    if not recent:
        return value, KEEP, ""
    recent.append(value)
    after = min(case.current, max(recent)) if common.rules.relax_down else max(case.current, min(recent))
    if after == value:
        return value, KEEP, ""
    over, usual = common.rules.stabilise / common.gain, common.rules.stabilise
    longer = f", and not over {usual:.0f} s, because it was swinging by itself" if common.gain < 1.0 else ""
    return after, Why.STABILISE, f"over {over:.0f} s{longer}"


def _faded(common: Common, value: float, wishes: Pairs) -> list[float]:
    """What is left of each wish above `value`, in whole quanta. Whoever lets go and must ask again pays for a cold
    start, whoever keeps pays for the replica, and nobody knows which: the ski-rental problem, whose best answer is to
    give up the share (e^x - 1) / (e - 1) until x of the time in which both cost the same (Karlin et al. 1990). Of a
    large surplus it pays 1.58 times what a clairvoyant would, keeping all until the end 2 times. Where ticks are far
    apart it fades more slowly, so that no single reading gives up more than a twentieth."""
    hold = max(common.rules.stabilise / common.gain, READINGS * (common.tick.since_last or 0.0))
    quantum = common.rules.limits.quantum or 1.0
    left = []
    for at, wish in wishes:
        gone = min(max((common.tick.at - at) / hold, 0.0), 1.0)
        kept = max(wish - value, 0.0) * (1 - math.expm1(gone) / math.expm1(1.0))
        left.append(value + math.ceil(kept / quantum - 0.5) * quantum)
    return left


def damped(case: Case, value: float) -> tuple[float, Why, str]:
    """A lever that swings by itself relaxes by a part of the way, and by one quantum at least: what is left of a small
    step must not be lost."""
    gain = case.common.gain
    if gain >= 1.0:
        return value, KEEP, ""
    quantum, way = case.common.rules.limits.quantum, abs(value - case.current)
    part = way * gain
    if quantum > 0:
        part = min(way, max(quantum, math.floor(part / quantum + 1e-9) * quantum))
    return case.current + math.copysign(part, value - case.current), Why.DAMPED, f"by {gain:.0%} of the way"


def in_flight(case: Case, value: float) -> tuple[float, Why, str]:
    """Capacity on its way forbids lowering until it has come or is given up."""
    now, rules, target = case.common.tick.at, case.common.rules, case.target
    if target.pending and (waiting := [p for p in target.pending if now - p.since < rules.give_up]):
        return case.current, Why.PENDING_CAPACITY, ", ".join(f"{p.count} {p.phase}" for p in waiting)
    changed = target.last_change
    if changed is not None and now - changed < rules.settle - 1e-6:
        return case.current, Why.IN_FLIGHT, f"until {clock(changed + rules.settle)} UTC"
    return value, KEEP, ""


def out_of_rotation(case: Case, value: float) -> tuple[float, Why, str]:
    """No lowering while replicas are out of rotation, until they are given up: nobody knows which one would be taken
    away, and with a healthy one less the rest may be too few, also for the cap on those that are out."""
    now, out = case.common.tick.at, case.common.out
    begun = now if case.state.out_since is None else case.state.out_since
    if out and now - begun < case.common.rules.give_up:
        return case.current, Why.REPLICAS_OUT, f"{out} out"
    return value, KEEP, ""


def promises(case: Case, value: float) -> tuple[float, Why, str]:
    """No lowering while the error budget burns: whatever the model of the fleet says, broken promises are measured."""
    return (case.current, Why.BUDGET_BURN, "") if case.common.estimate.burning else (value, KEEP, "")


def cooldown(case: Case, value: float) -> tuple[float, Why, str]:
    """Time since the last change in either direction, per direction of the new one."""
    if not case.changes:
        return value, KEEP, ""
    rules = case.common.rules
    need = rules.cooldown_up if value > case.current else rules.cooldown_down
    gone = case.common.tick.at - case.changes[-1][0]
    if gone < need - 1e-6:
        return case.current, Why.COOLDOWN, f"until {clock(case.changes[-1][0] + need)} UTC"
    return value, KEEP, ""


def rate(case: Case, value: float) -> tuple[float, Why, str]:
    """Over any period the sum of changes in one direction stays within its limit, however late or early ticks come."""
    rules, up = case.common.rules, value > case.current
    limit = rules.rate_up if up else rules.rate_down
    if limit is None:
        return value, KEEP, ""
    used, base = 0.0, case.current
    if case.changes:
        start = case.common.tick.at - limit.period + 1e-6
        recent = [delta for at, delta in case.changes if at >= start and (delta > 0) == up]
        used, base = math.fsum(abs(delta) for delta in recent), case.current - math.fsum(recent)
    quantum = rules.limits.quantum
    room = max(0.0, limit.allowance(max(base, 0.0), quantum) - used)
    if quantum > 0:
        room = math.floor(room / quantum + 1e-9) * quantum
    after = min(value, case.current + room) if up else max(value, case.current - room)
    if after == value:
        return value, KEEP, ""
    return after, Why.RATE, f"{limit.amount:.0%}" if limit.relative else f"{limit.amount:g}"


_PACE: tuple[Guard, ...] = (cooldown, rate)
_REPLICAS: tuple[Guard, ...] = (
    not_due, protect_only, evidence, consolidation, stabilise, damped, in_flight, out_of_rotation, promises,
    *_PACE,
)  # fmt: skip
_UNDO: tuple[Guard, ...] = (protect_only, evidence, *_PACE)


@lru_cache
def _others(slow: bool, protects: bool, stabilises: bool, swings: bool) -> tuple[Guard, ...]:
    """Those of all other levers, as far as they have anything to say under such rules."""
    asked = ((not_due, slow), (protect_only, protects), (evidence, True), (stabilise, stabilises), (damped, swings))
    return (*(guard for guard, speaks in asked if speaks), in_flight, *_PACE)


def remember(case: Case, sought: float | None) -> GuardState:
    """Next state after deciding: what was sought (None: only a bound was asked for), when a slow lever is due again,
    and of capacity since when some is missing or out."""
    common, before, at = case.common, case.state, case.common.tick.at
    short = (before.short_since or at) if case.short() is not None else None
    out = (before.out_since or at) if common.out else None
    return remembered(common, before, case.changes, case.current, sought, short, out)


def remembered(
    common: Common, before: GuardState, changes: Pairs, value: float, sought: float | None,
    short: float | None = None, out: float | None = None,
) -> GuardState:  # fmt: skip
    """The same of a target that needs no case: nothing of it moves."""
    at, every = common.tick.at, common.rules.every
    wishes, _, _, due, _, _ = before
    if every and at >= due - 1e-6:
        due = at + every
    now = (at, value)
    wish = now if sought is None or sought == value else (at, sought)
    if len(wishes) == 1 and wishes[0][1] == wish[1]:
        return _tuple(GuardState, ((wish,), changes, now, due, short, out))  # nearly always
    wishes = since(wishes, common.stable_since)
    # Who is in doubt asks for no less than there is, and that is no wish: one partial scrape in three minutes would
    # keep a pool at its size for good. A doubt as long as the memory begins it anew.
    if sought is not None or all(one == value for _, one in wishes):
        if wishes and wishes[-1][1] == wish[1]:
            wishes = wishes[:-1]
        wishes = (*wishes, wish)
    return _tuple(GuardState, (wishes, changes, now, due, short, out))
