"""A rung of the ladder: one lever of one pool at one tick. Pure.

Its policy proposes for all its targets; each target's proposals are merged and guarded, and bounded. Every target gets
a decision, also when nothing changes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from controller.core import drain, group, guards, operating, unavailable
from controller.core.case import Case, Common
from controller.core.drain import Drain
from controller.core.guard_state import GuardState, changes, observe
from controller.core.hindsight import Hindsight
from controller.core.merge import Merged, alone, merge
from controller.core.model import (
    Ask,
    Decision,
    Lever,
    Mode,
    PoolReadings,
    Proposal,
    Snapshot,
    Step,
    Target,
    TargetState,
)
from controller.core.movable import ACTING, UNREAD, moves
from controller.core.ports import Balance, Brief, Estimate, Policy, View
from controller.core.rules import PER_REPLICA, LeverRules, PoolRules, neutral
from controller.core.signals import Signal
from controller.core.telling import UNTIL
from controller.core.why import Why

# Looked up by name of the module: a member of an enum takes ten times as long, and these are asked of every target.
_OFF, _PROTECT, _BREAKER = Mode.OFF, Mode.PROTECT, Lever.BREAKER
_REPLICAS, _ADMISSION, _PIN, _UNAVAILABLE = Lever.REPLICAS, Lever.ADMISSION, Why.PIN, Why.CAPACITY_UNAVAILABLE
_UNGUARDED = GuardState()
_Steps = tuple[Step, ...]
_NO_STEPS: _Steps = ()
_BOUNDS = (Ask.AT_LEAST, Ask.AT_MOST)
_isfinite = math.isfinite
_tuple = tuple.__new__  # past the one of named tuples, which takes two to three times as long


class Rung:
    """One lever of one pool at one tick."""

    def __init__(
        self, pool: PoolRules, lever: LeverRules, targets: Sequence[Target], snapshot: Snapshot, estimate: Estimate,
        balance: Balance, seen: Hindsight, ledger_ok: bool, out: int = 0, held: Drain | None = None,
    ) -> None:  # fmt: skip
        readings = snapshot.pools.get(pool.pool)
        lever = _woken(lever, readings)
        self.pool, self.lever = pool, lever
        self.owners = {target: snapshot.targets.get(target, UNREAD) for target in targets}
        self.snapshot, self.estimate, self.balance, self._now = snapshot, estimate, balance, snapshot.tick.at
        self.seen, self.broken, self._drain = seen, "", held
        gain = seen.gain(lever.lever)
        self.common = Common(lever, snapshot.tick, readings, estimate, pool.window, ledger_ok, gain, out)
        self.cases: dict[Target, Case] = {}
        self._off, self._per_replica = lever.mode is _OFF, lever.lever in PER_REPLICA
        self._capacity, self._undone = lever.lever is _REPLICAS, lever.lever in seen.effect.undos
        self._admits = lever.lever is _ADMISSION
        # Whether also what stays is looked at: capacity that is short, and values that an undo takes back.
        self._looks = self._capacity or self._undone
        self._calm = not (self._off or self._looks or lever.own)
        # Of the last one that stayed: its value, what was remembered and asked, and what came of it.
        self._legal: float | None = None
        self._alike: tuple[GuardState, float, bool] | None = None
        self._memory = _UNGUARDED
        self._sent: tuple[bool, float | None] = False, None

    def propose(
        self, policy: Policy[Any] | None, left: float, short: float, state: Any, below: float = 0.0
    ) -> tuple[dict[Target, tuple[Proposal, ...]], Any]:
        """What the policy wants, by target, and its next state. `left` is the relief that is still wanted of the whole
        that is `short`; `below` what rungs further down can take of it."""
        readings = self.common.pool
        if policy is None or readings is None or self._off:
            return {}, state
        limits, own = dict.fromkeys(self.owners, self.lever.limits), self.lever.own
        if own:
            limits.update({t: own[t.member] for t in self.owners if t.member in own})
        view = View(
            self.snapshot.tick, readings, self._in_view(), limits, self.estimate, self.pool.tenants,
            self.pool.classes, self.pool.acting, self._drain.idle if self._drain is not None else frozenset(),
            self.lever.climb,
        )  # fmt: skip
        brief = Brief(self.balance, left, self._now + self.estimate.horizon, self.common.gain, short, below)
        try:
            proposals, after = policy.propose(
                view, self.pool.objectives, brief, policy.initial() if state is None else state
            )
            wanted: dict[Target, tuple[Proposal, ...]] = {}
            mine = self.owners
            for one in proposals:
                # A law that computes nonsense must not reach the merge; config tests find it, production ignores it.
                target = one.target
                if _isfinite(one.value) and target in mine:
                    wanted[target] = (*wanted[target], one) if target in wanted else (one,)
        except Exception as error:  # noqa: BLE001 - a stranger's law must not stop the other pools; the plan tells
            self.broken = f"{type(error).__name__}: {error}"
            return {}, state
        return wanted, after

    def _in_view(self) -> Mapping[Target, TargetState]:
        """What the law sees: no replica that drains, whose silence tells nothing, and no capacity that is awaited for
        too long."""
        if self._drain is not None and (idle := self._drain.idle):
            return {target: owner for target, owner in self.owners.items() if target.member not in idle}
        if not self._capacity:
            return self.owners
        now, changed = self._now, dict[Target, TargetState]()
        for target, owner in self.owners.items():
            if owner.pending:
                young = tuple(p for p in owner.pending if now - p.since < self.lever.give_up)
                if len(young) < len(owner.pending):
                    changed[target] = replace(owner, pending=young)
        return {**self.owners, **changed} if changed else self.owners

    def decide(
        self, wanted: Mapping[Target, Sequence[Proposal]], states: dict[Target, GuardState], staying: float | None
    ) -> dict[Target, Decision]:
        """A decision on every target: proposals merged, guarded and bounded. `states` are taken on to the next tick;
        `staying` is how many replicas there will be. Bounds come before what is shared, so that what a minimum adds is
        shared too."""
        made: dict[Target, Decision] = {}
        if self._drain is not None:
            wanted = drain.ask(self._drain, self.owners, wanted)
        at_rest, calm = True, self._calm
        for target, owner in self.owners.items():
            asked, before = wanted.get(target, ()), states.get(target, _UNGUARDED)
            if calm and self._stays(owner, asked):
                made[target], states[target] = self._kept(target, asked[0], before)
            else:
                made[target], states[target] = self._one(target, owner, asked, before)
                at_rest = False
        lever, now = self.lever, self._now
        if self._per_replica and not at_rest:  # else all are in rotation
            kept = group.keep_in(made, lever, staying, self.common.pool.versions if self.common.pool else {})
            kept = group.one_in({target: bound(decision, lever) for target, decision in kept.items()}, lever)
            made = {target: finish(decision, lever, now) for target, decision in kept.items()}
        if not self.seen.effect.counts(lever.lever, now):
            made = {target: without_effect(decision, lever) for target, decision in made.items()}
        return made

    def _stays(self, owner: TargetState, asked: Sequence[Proposal]) -> bool:
        """Whether a target stays where it is by nobody's hand but the law's, at a value that its bounds leave alone. Of
        weights and breakers only at rest: all else is a matter of all of them."""
        value = owner.accepted
        if len(asked) != 1 or value is None or asked[0].value != value:
            return False
        if self._per_replica and value != self.lever.rest:
            return False
        if owner.pin is not None or guards.blocking(owner) is not None:
            return False
        if value != self._legal and guards.bounds(self.lever.limits, value)[0] == value:
            self._legal = value
        return value == self._legal

    def _kept(self, target: Target, asked: Proposal, before: GuardState) -> tuple[Decision, GuardState]:
        """What comes of a target that stays: most of most fleets do, and for these ``_one`` comes to nothing else."""
        _, ask, value, _, why, evidence = asked
        lever, now, doubts = self.lever, self._now, ask in _BOUNDS
        if self._alike != (before, value, doubts):  # those that always were where they are share one memory
            moved = changes(before, lever.memory, value, now)
            self._memory = guards.remembered(self.common, before, moved, value, None if doubts else value)
            self._alike, self._sent = (before, value, doubts), _sending(lever, value, value, now)
        send, until = self._sent
        told = dict(evidence)  # a copy, as in a merge
        made = (target, value, value, why, _NO_STEPS, told, send, lever.mode, until, False, ())
        return _tuple(Decision, made), self._memory

    def _one(
        self, target: Target, owner: TargetState, proposals: Sequence[Proposal], before: GuardState
    ) -> tuple[Decision, GuardState]:
        common, rules, current, now = self.common, self.lever, owner.accepted, self._now
        if rules.own and target.member in rules.own:
            rules = rules.of_member(target.member)
            common = replace(common, rules=rules)
        blocked = guards.blocking(owner)
        if self._off or current is None or blocked is not None:
            return self._left(target, current, blocked), observe(before, rules, owner, now)
        if owner.pin is not None and owner.pin.until > now:
            proposals = [Proposal(target, Ask.HOLD, owner.pin.value, "pin", _PIN, {UNTIL: owner.pin.until})]
        if len(proposals) == 1:
            merged = alone(proposals[0], current)  # nearly always
        elif proposals:
            merged = merge(proposals, current, relax_down=rules.relax_down)
        else:
            merged = Merged(current, "", self._silent(), {})
        value, _, why, evidence = merged
        if value is None:
            value = current
        moved, steps = changes(before, rules.memory, current, now), _NO_STEPS
        doubts = value == current and _only_bounds(proposals)
        if value == current and not self._looks:
            after = guards.remembered(common, before, moved, current, None if doubts else value)
        else:
            case = _tuple(Case, (common, owner, before, moved, current, target.member))
            value, steps, sought = self._guarded(target, case, merged, value)
            if steps:
                why = steps[-1].why
            sought_for = None if doubts else sought
            if self._capacity:
                after = guards.remember(case, sought_for)
            else:
                after = guards.remembered(common, before, moved, current, sought_for)
        if self.broken:
            steps = (Step("policy", current, current, Why.POLICY_ERROR, self.broken), *steps)
        send, until = False, None
        if not self._per_replica:  # what they share comes before the bounds
            value, why, steps = _bounded(rules, current, value, why, steps)
            send, until = _sending(rules, current, value, now)
        made = _tuple(Decision, (target, current, value, why, steps, evidence, send, rules.mode, until, False, ()))
        return made, after

    def _left(self, target: Target, current: float | None, blocked: tuple[Why, str] | None) -> Decision:
        """Nothing may move it."""
        if self._off:
            return Decision(target, current, current, Why.MODE_OFF, mode=self.lever.mode)
        if current is None or blocked is None:
            return Decision(target, None, None, Why.UNREADABLE_TARGET, mode=self.lever.mode)
        return Decision(target, current, current, blocked[0], mode=self.lever.mode, blocked=True)

    def _guarded(self, target: Target, case: Case, merged: Merged, wish: float) -> tuple[float, _Steps, float]:
        """The value, what made it so if anything did, and what was sought."""
        lost = merged.why is _UNAVAILABLE
        detail = unavailable.words(self.owners[target], merged.evidence, self._now) if lost else ""
        asked = (_tuple(Step, (merged.by, case.current, wish, merged.why, detail)),)
        if merged.why == _PIN:
            return wish, asked if wish != case.current else (), wish
        if self._capacity:
            self.cases[target] = case
        safe = self.seen.effect.undone(target, wish, self._now) if self._undone else wish
        kept = self._at_work(target, case.current, safe) if self._admits else safe
        value, held, sought = guards.run(case, kept, undo=safe != wish)
        if kept != safe:
            held = (Step("guard", safe, kept, Why.OPERATING_POINT), *held)
        if safe != wish:
            held = (Step("effect", wish, safe, Why.UNDO), *held)
        return value, (*asked, *held) if wish != case.current or held or detail else (), sought

    def _at_work(self, target: Target, current: float, wish: float) -> float:
        """The wish, of a cap on requests in flight no lower than what keeps its replicas at work."""
        if wish >= current or target.member != operating.CONCURRENCY:
            return wish
        floor = operating.least(self.common.pool, self.pool.objectives, self.estimate)
        return wish if floor is None else max(wish, min(current, floor))

    def _silent(self) -> Why:
        if self.broken:
            return Why.POLICY_ERROR
        if self.common.pool is None or self.snapshot.error:
            return Why.MISSING
        return Why.STEADY


def _woken(lever: LeverRules, readings: PoolReadings | None) -> LeverRules:
    """The rules with a least of one replica, where nothing would tell demand at zero, or where somebody asks. The
    config refuses most of the former; what a gateway of this version really tells is seen here. The latter no law need
    see: one that waits for its threshold would leave those who ask a little to be refused for good."""
    if lever.lever is not _REPLICAS or lever.limits.min >= 1:
        return lever
    deaf = lever.unwoken or (readings is not None and readings.unheard)
    asked = readings is not None and any(readings.get(one).usable for one in (Signal.OFFERED_RATE, Signal.QUEUE_DEPTH))
    if not deaf and not asked:
        return lever
    return replace(lever, limits=replace(lever.limits, min=1.0), floor=Why.NOTHING_WAKES if deaf else Why.DEMAND)


def bound(decision: Decision, lever: LeverRules) -> Decision:
    """Hard bounds and quantum. A target that is off, unreadable or blocked is left as it is."""
    if decision.current is None or decision.final is None or decision.blocked or lever.mode is _OFF:
        return decision
    if decision.final == 0 and drain.asked(decision):
        return decision  # the least of a weight is for those that take part
    if lever.own:
        lever = lever.of_member(decision.target.member)
    final, why, steps = _bounded(lever, decision.current, decision.final, decision.why, decision.steps)
    return decision if final == decision.final else decision._replace(final=final, why=why, steps=steps)


def finish(decision: Decision, lever: LeverRules, now: float) -> Decision:
    """Whether it is sent, and until when it holds."""
    if decision.current is None or decision.final is None or not moves(decision):
        return decision
    if lever.own:
        lever = lever.of_member(decision.target.member)
    send, until = _sending(lever, decision.current, decision.final, now)
    if send == decision.send and until == decision.until:
        return decision
    return decision._replace(send=send, until=until)


def _bounded(
    lever: LeverRules, current: float, final: float, why: Why, steps: _Steps
) -> tuple[float, Why, _Steps]:  # fmt: skip
    """Hard bounds and quantum. In protect a bound may only add: one that would take away is told, and then why not."""
    value, cause = guards.bounds(lever.limits, final, up=lever.lever is _BREAKER)
    if value == final and lever.mode is not _PROTECT:
        return final, why, steps  # nearly always
    if lever.mode is _PROTECT and (value < current) == lever.relax_down and value != current:
        if value != final and cause is not None:
            steps, final = (*steps, Step("bounds", final, value, cause)), value
        value, cause = current, Why.MODE_PROTECT
    elif cause is Why.MIN_BOUND and lever.floor is not None:
        cause = lever.floor
    if value == final or cause is None:
        return final, why, steps
    return value, cause, (*steps, Step("bounds", final, value, cause))


def _sending(lever: LeverRules, current: float, final: float, now: float) -> tuple[bool, float | None]:
    """Whether it is sent, as far as the mode says, and when it expires. A value that is not neutral and that its target
    drops after a time is sent again at every tick: when the data is lost, the reason for it is not."""
    if lever.mode not in ACTING:
        return False, None
    expiry = lever.expiry
    if expiry > 0 and final != lever.rest:
        return True, now + expiry
    return final != current, None


def without_effect(decision: Decision, lever: LeverRules) -> Decision:
    """Says that nothing came of this lever, where it does something: what it relieves is not counted on."""
    if decision.final is None or decision.final == neutral(lever, decision.target.member):
        return decision
    step = Step("effect", decision.final, decision.final, Why.NO_EFFECT)
    return decision._replace(steps=(*decision.steps, step))


def _only_bounds(proposals: Sequence[Proposal]) -> bool:
    """Whether somebody says how far the value may go, and nobody where it should be."""
    for one in proposals:
        if one.ask not in _BOUNDS:
            return False
    return bool(proposals)
