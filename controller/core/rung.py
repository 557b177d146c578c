"""A rung of the ladder: one lever of one pool at one tick. Pure.

Its policy proposes for all its targets; each target's proposals are merged and guarded, and bounded. Every target gets
a decision, also when nothing changes.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from controller.core import guards, relief
from controller.core.guards import GuardState
from controller.core.hindsight import Hindsight
from controller.core.merge import Merged, merge
from controller.core.model import Ask, Decision, Lever, Mode, Proposal, Snapshot, Step, Target, TargetState
from controller.core.ports import Balance, Brief, Estimate, Policy, View
from controller.core.rules import LeverRules, PoolRules, neutral
from controller.core.why import Why

UNREAD = TargetState(accepted=None, error="not read")


class Rung:
    """One lever of one pool at one tick."""

    def __init__(
        self, pool: PoolRules, lever: LeverRules, targets: Sequence[Target], snapshot: Snapshot, estimate: Estimate,
        balance: Balance, seen: Hindsight, ledger_ok: bool, out: int = 0,
    ) -> None:  # fmt: skip
        self.pool, self.lever, self.targets = pool, lever, targets
        self.snapshot, self.estimate, self.balance = snapshot, estimate, balance
        self.seen, self.gain = seen, seen.gain(lever.lever)
        self.ledger_ok, self.out = ledger_ok, out
        self.broken = ""
        self.cases: dict[Target, guards.Case] = {}

    def state(self, target: Target) -> TargetState:
        return self.snapshot.targets.get(target, UNREAD)

    def propose(self, policy: Policy[Any] | None, left: float, state: Any) -> tuple[dict[Target, list[Proposal]], Any]:
        """What the policy wants, by target, and its next state."""
        readings = self.snapshot.pools.get(self.pool.pool)
        if policy is None or readings is None or self.lever.mode == Mode.OFF:
            return {}, state
        view = View(
            self.snapshot.tick, readings, {t: self._without_given_up(t) for t in self.targets},
            dict.fromkeys(self.targets, self.lever.limits), self.estimate, self.pool.tenants, self.pool.classes,
        )  # fmt: skip
        short = relief.wanted(self.balance, self.estimate)
        brief = Brief(self.balance, left, self.snapshot.tick.at + self.estimate.horizon, self.gain, short)
        try:
            proposals, after = policy.propose(
                view, self.pool.objectives, brief, policy.initial() if state is None else state
            )
            sane = [proposal for proposal in proposals if _sane(proposal) and proposal.target in view.targets]
        except Exception as error:  # noqa: BLE001 - a stranger's law must not stop the other pools; the plan tells
            self.broken = f"{type(error).__name__}: {error}"
            return {}, state
        wanted: dict[Target, list[Proposal]] = {}
        for proposal in sane:
            wanted.setdefault(proposal.target, []).append(proposal)
        return wanted, after

    def _without_given_up(self, target: Target) -> TargetState:
        """Capacity that is awaited for too long is not awaited any more, by nobody."""
        owner, now = self.state(target), self.snapshot.tick.at
        if not owner.pending:
            return owner
        young = tuple(p for p in owner.pending if now - p.since < self.lever.give_up)
        return owner if len(young) == len(owner.pending) else replace(owner, pending=young)

    def decide(self, target: Target, proposals: Sequence[Proposal], state: GuardState) -> tuple[Decision, GuardState]:
        now, owner, rules = self.snapshot.tick, self.state(target), self.lever
        if rules.mode == Mode.OFF:
            return Decision(target, owner.accepted, owner.accepted, Why.MODE_OFF, mode=rules.mode), state
        if owner.accepted is None:
            return Decision(target, None, None, Why.UNREADABLE_TARGET, mode=rules.mode), state
        current = owner.accepted
        blocked = guards.blocking(owner)
        if blocked is not None:
            return Decision(target, current, current, blocked[0], mode=rules.mode, blocked=True), state
        if owner.pin is not None and owner.pin.until > now.at:
            proposals = [Proposal(target, Ask.HOLD, owner.pin.value, "pin", Why.PIN)]
        merged = merge(proposals, current, relax_down=rules.relax_down)
        if not proposals:
            merged = Merged(current, "", self._silent())
        wish = current if merged.value is None else merged.value
        case = guards.Case(
            rules, now, self.snapshot.pools.get(self.pool.pool), owner, self.estimate, state, current,
            self.pool.window, self.ledger_ok, target.member, self.gain, self.out,
        )  # fmt: skip
        asked = Step(merged.by, current, wish, merged.why)
        held: tuple[Step, ...] = ()
        value = sought = wish
        if merged.why != Why.PIN:
            safe = self.seen.effect.undone(target, wish, now.at)
            value, held, sought = guards.run(case, safe, undo=safe != wish)
            if safe != wish:
                held = (Step("effect", wish, safe, Why.UNDO), *held)
            if rules.lever is Lever.REPLICAS:
                self.cases[target] = case
        steps = (asked, *held) if wish != current or held else ()
        if self.broken:
            steps = (Step("policy", current, current, Why.POLICY_ERROR, self.broken), *steps)
        decision = Decision(
            target, current, value, merged.why if not held else held[-1].why, steps, merged.evidence,
            mode=rules.mode,
        )  # fmt: skip
        return decision, guards.remember(case, sought)

    def _silent(self) -> Why:
        if self.broken:
            return Why.POLICY_ERROR
        if self.pool.pool not in self.snapshot.pools or self.snapshot.error:
            return Why.MISSING
        return Why.STEADY


def bound(decision: Decision, lever: LeverRules) -> Decision:
    """Hard bounds and quantum. A target that is off, unreadable or blocked is left as it is, and in protect a bound may
    only add."""
    if decision.current is None or decision.final is None or decision.blocked or lever.mode == Mode.OFF:
        return decision
    value, why = guards.bounds(lever.limits, decision.final)
    if lever.mode == Mode.PROTECT and (value < decision.current) == lever.relax_down and value != decision.current:
        value, why = decision.current, Why.MODE_PROTECT
    if value == decision.final or why is None:
        return decision
    step = Step("bounds", decision.final, value, why)
    return replace(decision, final=value, why=why, steps=(*decision.steps, step))


def finish(decision: Decision, lever: LeverRules, now: float) -> Decision:
    """Whether it is sent. A value that is not neutral and that its target drops after a time is sent again at every
    tick: when the data is lost, the reason for it is not."""
    renewed = lever.expiry > 0 and decision.final is not None and decision.final != neutral(lever)
    send = (decision.changed or renewed) and moves(decision)
    until = now + lever.expiry if send and renewed else None
    if (send, until) == (decision.send, decision.until):
        return decision
    d = decision  # made anew by hand: ``replace`` takes three times as long, and there is one for every cap that stands
    return Decision(
        d.target, d.current, d.final, d.why, d.steps, d.evidence, send=send, mode=d.mode, until=until, blocked=d.blocked
    )


def moves(decision: Decision) -> bool:
    """Whether an actuator gets what was decided, as far as its mode says."""
    return not decision.blocked and decision.mode in (Mode.PROTECT, Mode.AUTO)


def stands(decision: Decision) -> float | None:
    """The value that will be there after this tick: a lever that only observes relieves nobody."""
    return decision.final if moves(decision) else decision.current


def without_effect(decision: Decision, lever: LeverRules) -> Decision:
    """Says that nothing came of this lever, where it does something: what it relieves is not counted on."""
    if decision.final is None or decision.final == neutral(lever):
        return decision
    step = Step("effect", decision.final, decision.final, Why.NO_EFFECT)
    return replace(decision, steps=(*decision.steps, step))


def _sane(proposal: Proposal) -> bool:
    """A law that computes nonsense must not reach the merge; config tests find it, production ignores it."""
    return math.isfinite(proposal.value)
