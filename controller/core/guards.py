"""Guards: what stands between a wish and a value that is sent. Fixed order; each leaves a step only when it changed
something; each relaxing move needs evidence, no protecting move does.

    not due -> evidence (stale, missing, waiting, N-1) -> stabilise -> damped -> in flight -> out of rotation ->
    promises -> cooldown -> rate -> group -> bounds

Work that waits, safety at N-1, capacity on its way, replicas that are out and broken promises speak about replicas
alone: a cap must be able to rise while requests wait behind it. The group guards need all targets of a lever or of the
tick and are applied by ``decide`` before the hard bounds, which come last so that the final value is always legal.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from controller.core.model import Lever, Mode, Outcome, PoolReadings, Step, TargetState, Tick
from controller.core.ports import Estimate, Limits
from controller.core.reading import State
from controller.core.rules import PER_REPLICA, LeverRules
from controller.core.signals import Signal
from controller.core.step_model import KV_FILL
from controller.core.why import Why


@dataclass(frozen=True, slots=True)
class GuardState:
    """Memory of one target. `wishes` are what was sought (unix seconds, value), for stabilising; `changes` how the
    value as read back moved (unix seconds, delta), for cooldowns and rates; `position` that value and when it was
    read; `due` the next time this
    lever decides; `short_since` since when fewer replicas are seen than serve; `out_since` since when some are out of
    rotation.

    Changes come from read-back, not from what was sent: so a rehearsal, whose world does not answer, does not count
    its own imagination, and a write by somebody else counts like ours.
    """

    wishes: tuple[tuple[float, float], ...] = ()
    changes: tuple[tuple[float, float], ...] = ()
    position: tuple[float, float] | None = None
    due: float = 0.0
    short_since: float | None = None
    out_since: float | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """What a guard looks at. `member` names the replica or tenant whose value it is; `gain` is below 1 after the lever
    was seen to swing by itself; `out` is how many replicas of the pool a breaker holds out of rotation."""

    rules: LeverRules
    tick: Tick
    pool: PoolReadings | None
    target: TargetState
    estimate: Estimate
    state: GuardState
    current: float
    window: float
    ledger_ok: bool = True
    member: str = ""
    gain: float = 1.0
    out: int = 0

    def relaxing(self, value: float) -> bool:
        return value < self.current if self.rules.relax_down else value > self.current


Guard = Callable[[Case, float], tuple[float, Why, str]]
KEEP = Why.STEADY


def run(
    case: Case, wish: float, *, by: str = "guard", undo: bool = False
) -> tuple[float, tuple[Step, ...], float]:  # fmt: skip
    """Apply all guards but group and bounds to the wish, or those that an undo passes. Also returns what was sought:
    the wish after the doubts about it and before its timing, which is what stabilising remembers."""
    if wish == case.current:
        return wish, (), wish  # no guard has anything to say about what stays; most targets of most ticks do
    value, steps = wish, []
    # A doubt holds for its moment. What stabilising remembers is what would have been safe: else a request that waits
    # at one scrape in a hundred would keep a large pool up all night.
    sought, _, _ = consolidation(case, wish)
    for guard in _UNDO if undo else _REPLICAS if case.rules.lever is Lever.REPLICAS else _OTHERS:
        after, why, detail = guard(case, value)
        if after != value:
            steps.append(Step(by, value, after, why, detail))
            value = after
    return value, tuple(steps), sought


def bounds(limits: Limits, value: float) -> tuple[float, Why | None]:
    """Round to the quantum, then clamp; the bounds win because they are multiples of the quantum or meant as they
    are."""
    rounded = round(value / limits.quantum) * limits.quantum if limits.quantum > 0 else value
    clamped = min(max(rounded, limits.min), limits.max)
    if clamped > rounded:
        return clamped, Why.MIN_BOUND
    if clamped < rounded:
        return clamped, Why.MAX_BOUND
    return clamped, Why.QUANTUM if rounded != value else None


# --- the guards --------------------------------------------------------------------------------------------------


def blocking(target: TargetState) -> tuple[Why, str] | None:
    """Why nothing at all may move the target, bounds and pins included: a write of ours of unknown outcome must be
    verified first, and somebody else's value is not fought. The actuator knows who wrote it, and how long to keep
    off."""
    if target.last_outcome == Outcome.UNKNOWN:
        return Why.OUTCOME_UNKNOWN, ""
    if target.foreign_writer:
        return Why.FOREIGN_WRITER, target.foreign_writer
    return None


def not_due(case: Case, value: float) -> tuple[float, Why, str]:
    """A slow lever decides at its own pace; protection does not wait for it."""
    if case.rules.every and case.tick.at < case.state.due - 1e-6 and case.relaxing(value):
        return case.current, Why.NOT_DUE, f"due in {case.state.due - case.tick.at:.0f} s"
    return value, KEEP, ""


def protect_only(case: Case, value: float) -> tuple[float, Why, str]:
    if case.rules.mode == Mode.PROTECT and case.relaxing(value):
        return case.current, Why.MODE_PROTECT, ""
    return value, KEEP, ""


def evidence(case: Case, value: float) -> tuple[float, Why, str]:
    """No relaxing on data that is missing, old, partial or not yet a full window, nor while work waits."""
    if not case.relaxing(value):
        return value, KEEP, ""
    doubt = _doubt(case) if case.rules.lever is Lever.REPLICAS else _doubt_of_others(case)
    if doubt is not None:
        return case.current, *doubt
    return value, KEEP, ""


def _doubt(case: Case) -> tuple[Why, str] | None:
    if not case.ledger_ok:
        return Why.LEDGER_FULL, ""
    pool = case.pool
    if pool is None or not pool.signals:
        return Why.MISSING, "no reading of this pool"
    depth = pool.get(Signal.QUEUE_DEPTH)
    if depth.value is not None and depth.value > 0 and not _passing(case, pool):
        return Why.WORK_WAITING, f"{depth.value:g} requests wait"
    stuck = pool.get(Signal.STUCK)
    if stuck.value is not None and stuck.value > 0:
        return Why.STUCK_ENGINE, f"{stuck.value:g} stuck"
    # An engine that cannot count requests is judged by the work it holds, else its pool could never shrink.
    countable = pool.get(Signal.OFFERED_RATE).state != State.UNSUPPORTED
    for signal in (Signal.OFFERED_RATE if countable else Signal.RUNNING, Signal.QUEUE_DEPTH):
        reading = pool.get(signal)
        if reading.state == State.UNDERFILLED:
            return (Why.BOOT if case.tick.number < 2 else Why.UNDERFILLED), f"{signal}: {reading.note}"
        if not reading.trusted:
            return _AS_WHY.get(reading.state, Why.MISSING), f"{signal}: {reading.state}" + _note(reading.note)
    # A cache that was seen and is not seen now may be full. One that this engine never tells is no news.
    cache = pool.get(Signal.KV_USAGE)
    if case.estimate.cache_told and not cache.trusted and cache.state != State.UNSUPPORTED:
        return _AS_WHY.get(cache.state, Why.MISSING), f"{Signal.KV_USAGE}: {cache.state}" + _note(cache.note)
    if pool.partial:
        return Why.PARTIAL, pool.partial
    short = _short(case)
    if short is not None:
        since = case.tick.at if case.state.short_since is None else case.state.short_since
        if case.tick.at - since < case.rules.give_up:
            return Why.PARTIAL, short
    need = max(case.window, case.rules.stabilise)
    if pool.filled_since is None or case.tick.at - pool.filled_since < need - 1e-6:
        seen = 0.0 if pool.filled_since is None else case.tick.at - pool.filled_since
        return Why.BOOT, f"{seen:.0f} of {need:.0f} s of unbroken data"
    return None


def _doubt_of_others(case: Case) -> tuple[Why, str] | None:
    """The same for levers that are not capacity: what is offered must be known, and of a replica what it does."""
    if not case.ledger_ok:
        return Why.LEDGER_FULL, ""
    pool = case.pool
    if pool is None or not pool.signals:
        return Why.MISSING, "no reading of this pool"
    if case.rules.lever in PER_REPLICA:
        scope = pool.replicas.get(case.member)
        reading = scope.get(Signal.RUNNING) if scope is not None else None
        if reading is None or not reading.trusted:
            state = State.MISSING if reading is None else reading.state
            return _AS_WHY.get(state, Why.MISSING), f"{Signal.RUNNING} of {case.member}: {state}"
    else:
        reading = pool.get(Signal.OFFERED_RATE)
        if not reading.trusted and reading.state is not State.UNSUPPORTED:
            return _AS_WHY.get(reading.state, Why.MISSING), f"{Signal.OFFERED_RATE}: {reading.state}" + _note(
                reading.note
            )
        if pool.partial:
            return Why.PARTIAL, pool.partial
    if pool.filled_since is None or case.tick.at - pool.filled_since < case.window - 1e-6:
        seen = 0.0 if pool.filled_since is None else case.tick.at - pool.filled_since
        return Why.BOOT, f"{seen:.0f} of {case.window:.0f} s of unbroken data"
    return None


def _passing(case: Case, pool: PoolReadings) -> bool:
    """Whether those that wait are between two steps of an engine. In a large pool somebody is at every scrape, and a
    lowering that waits for a scrape at which nobody is would never come. A delay that is not told is no short one."""
    delay = pool.get(Signal.QUEUE_DELAY)
    return delay.trusted and delay.value is not None and delay.value < case.estimate.passing


def _short(case: Case) -> str | None:
    """Fewer replicas in the metrics than serve: what the others hold is not in any sum. Not for ever, because a job
    that scrapes half of a pool would keep it from shrinking for good."""
    seen = case.estimate.evidence.get("serving")
    there = case.target.ready if case.target.ready is not None else case.current
    if case.rules.lever is not Lever.REPLICAS or seen is None or seen >= there:
        return None
    return f"{seen:g} of {there:g} replicas are seen"


_AS_WHY = {
    State.STALE: Why.STALE, State.PARTIAL: Why.PARTIAL, State.UNDERFILLED: Why.UNDERFILLED,
    State.UNSUPPORTED: Why.UNSUPPORTED,
}  # fmt: skip


def consolidation(case: Case, value: float) -> tuple[float, Why, str]:
    """Lowering capacity must be safe with what remains: the load ahead fits into what replicas have shown they can
    serve, and the KV in use fits into what is left. What is out of rotation serves nobody."""
    if case.rules.lever is not Lever.REPLICAS or not case.relaxing(value) or case.pool is None:
        return value, KEEP, ""
    estimate, kv = case.estimate, case.pool.get(Signal.KV_USAGE).value
    unit, shown = estimate.unit_rate, estimate.evidence.get("proven_rate")
    caution = unit / shown if unit is not None and shown else 1.0
    ahead = max((estimate.demand or 0.0), estimate.forecast or 0.0) * (1 + estimate.margin) * caution
    used = (kv or 0.0) * estimate.evidence.get("serving", case.current) / KV_FILL
    need, quantum = max(ahead, used) + case.out, case.rules.limits.quantum
    left = value
    if need > value:
        left = value + math.ceil((need - value) / quantum - 1e-9) * quantum if quantum > 0 else need
    return min(left, case.current), Why.UNSAFE_WITHOUT_ONE, f"the load ahead needs {need:.2f}"


def stabilise(case: Case, value: float) -> tuple[float, Why, str]:
    """Follow the most protective wish of the recent past, but never past the current value: stabilising must not turn a
    relaxation into its opposite. A lever that swings by itself looks back further."""
    if not case.relaxing(value) or case.rules.stabilise <= 0:
        return value, KEEP, ""
    start = case.tick.at - case.rules.stabilise / case.gain - 1e-6
    recent = [wish for at, wish in case.state.wishes if at >= start]
    detail = f"over {case.rules.stabilise / case.gain:.0f} s"
    if case.rules.relax_down:
        return min(case.current, max([value, *recent])), Why.STABILISE, detail
    return max(case.current, min([value, *recent])), Why.STABILISE, detail


def damped(case: Case, value: float) -> tuple[float, Why, str]:
    """A lever that swings by itself relaxes by a part of the way, and by one quantum at least: what is left of a small
    step must not be lost."""
    if case.gain >= 1.0 or not case.relaxing(value):
        return value, KEEP, ""
    quantum, way = case.rules.limits.quantum, abs(value - case.current)
    part = way * case.gain
    if quantum > 0:
        part = min(way, max(quantum, math.floor(part / quantum + 1e-9) * quantum))
    return case.current + math.copysign(part, value - case.current), Why.DAMPED, f"by {case.gain:.0%} of the way"


def in_flight(case: Case, value: float) -> tuple[float, Why, str]:
    """Capacity on its way forbids lowering until it has come or is given up."""
    if not case.relaxing(value):
        return value, KEEP, ""
    waiting = [p for p in case.target.pending if case.tick.at - p.since < case.rules.give_up]
    if waiting:
        detail = ", ".join(f"{p.count} {p.phase}" for p in waiting)
        return case.current, Why.PENDING_CAPACITY, detail
    changed = case.target.last_change
    if changed is not None and case.tick.at - changed < case.rules.settle - 1e-6:
        return case.current, Why.IN_FLIGHT, f"settles in {case.rules.settle - (case.tick.at - changed):.0f} s"
    return value, KEEP, ""


def out_of_rotation(case: Case, value: float) -> tuple[float, Why, str]:
    """No lowering while replicas are out of rotation, until they are given up: nobody knows which one would be taken
    away, and with a healthy one less the rest may be too few, also for the cap on those that are out."""
    if not case.out or not case.relaxing(value):
        return value, KEEP, ""
    since = case.tick.at if case.state.out_since is None else case.state.out_since
    if case.tick.at - since < case.rules.give_up:
        return case.current, Why.REPLICAS_OUT, f"{case.out} out"
    return value, KEEP, ""


def promises(case: Case, value: float) -> tuple[float, Why, str]:
    """No lowering while the error budget burns: whatever the model of the fleet says, broken promises are measured."""
    if case.estimate.burning and case.relaxing(value):
        return case.current, Why.BUDGET_BURN, ""
    return value, KEEP, ""


def cooldown(case: Case, value: float) -> tuple[float, Why, str]:
    """Time since the last change in either direction, per direction of the new one."""
    if value == case.current or not case.state.changes:
        return value, KEEP, ""
    need = case.rules.cooldown_up if value > case.current else case.rules.cooldown_down
    gone = case.tick.at - case.state.changes[-1][0]
    if gone < need - 1e-6:
        return case.current, Why.COOLDOWN, f"{need - gone:.0f} s left"
    return value, KEEP, ""


def rate(case: Case, value: float) -> tuple[float, Why, str]:
    """Over any period the sum of changes in one direction stays within its limit, however late or early ticks come."""
    up = value > case.current
    limit = case.rules.rate_up if up else case.rules.rate_down
    if value == case.current or limit is None:
        return value, KEEP, ""
    start = case.tick.at - limit.period + 1e-6
    recent = [delta for at, delta in case.state.changes if at >= start and (delta > 0) == up]
    used = math.fsum(abs(delta) for delta in recent)
    base = case.current - math.fsum(recent)
    room = max(0.0, limit.allowance(max(base, 0.0), case.rules.limits.quantum) - used)
    quantum = case.rules.limits.quantum
    if quantum > 0:
        room = math.floor(room / quantum + 1e-9) * quantum
    after = min(value, case.current + room) if up else max(value, case.current - room)
    return after, Why.RATE, f"{limit.amount:.0%}" if limit.relative else f"{limit.amount:g}"


_REPLICAS: tuple[Guard, ...] = (
    not_due, protect_only, evidence, consolidation, stabilise, damped, in_flight, out_of_rotation, promises, cooldown,
    rate,
)  # fmt: skip
_OTHERS: tuple[Guard, ...] = (not_due, protect_only, evidence, stabilise, damped, in_flight, cooldown, rate)
# What an undo passes: it was judged on a window of evidence, so it does not wait for one more.
_UNDO: tuple[Guard, ...] = (protect_only, evidence, cooldown, rate)


def observe(state: GuardState, rules: LeverRules, target: TargetState, at: float) -> GuardState:
    """Take the value as read back into memory, before deciding."""
    changes = state.changes
    if changes:
        periods = [r.period for r in (rules.rate_up, rules.rate_down) if r is not None]
        keep = max([rules.cooldown_up, rules.cooldown_down, *periods])
        changes = tuple((t, d) for t, d in changes if t > at - keep)
    position = state.position
    if target.accepted is not None:
        if position is not None and target.accepted != position[1]:
            # What we sent went out right after the last reading; a foreign change may be later, so this is the
            # earliest it can have been.
            changes = (*changes, (position[0], target.accepted - position[1]))
        position = (at, target.accepted)
    return GuardState(state.wishes, changes, position, state.due, state.short_since, state.out_since)


def remember(case: Case, sought: float) -> GuardState:
    """Next state after deciding: what was sought, and when a slow lever is due again."""
    at, rules = case.tick.at, case.rules
    start = at - rules.stabilise / case.gain - 1e-6
    wishes = [wish for wish in case.state.wishes if wish[0] >= start]
    due = at + rules.every if rules.every and at >= case.state.due - 1e-6 else case.state.due
    short = (case.state.short_since or at) if _short(case) is not None else None
    out = (case.state.out_since or at) if case.out else None
    return GuardState((*wishes, (at, sought)), case.state.changes, case.state.position, due, short, out)


def _note(note: str) -> str:
    return f" ({note})" if note else ""
