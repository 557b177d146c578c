"""Decide: the one place where proposals become a plan. Pure.

Per pool and lever, in the order of the ladder: the policy proposes against what relief is still wanted, proposals are
merged, guards applied. Then what pools share: the budgets and the fleet-wide guard. Hard bounds come last, so every
final value is legal. Every target gets a decision every tick, also when nothing changes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from controller.core import guards
from controller.core.fleet import FleetHold, share
from controller.core.guards import GuardState
from controller.core.merge import Merged, merge
from controller.core.model import Ask, Decision, Lever, Mode, Plan, Proposal, Snapshot, Step, Target, TargetState
from controller.core.ports import Balance, Brief, Estimate, Policy, View
from controller.core.rules import FleetRules, LeverRules, PoolRules
from controller.core.summary import sentence
from controller.core.why import Why

UNREAD = TargetState(accepted=None, error="not read")
_UNLEARNED, _UNGUARDED = Estimate(), GuardState()


@dataclass(frozen=True, slots=True)
class DecideState:
    """Memory of deciding: policy state by "pool/lever", guard state by target, and the hold of the
    fleet guard."""

    policies: Mapping[str, Any] = field(default_factory=dict)
    guards: Mapping[Target, GuardState] = field(default_factory=dict)
    fleet: FleetHold | None = None


def decide(
    snapshot: Snapshot,
    estimates: Mapping[str, Estimate],
    rules: FleetRules,
    policies: Mapping[str, Policy[Any]],
    state: DecideState,
    *,
    ledger_ok: bool = True,
) -> tuple[Plan, DecideState]:
    """One plan. `policies` by "pool/lever". The same arguments give the same plan, byte for byte."""
    policy_states = dict(state.policies)
    guard_states = dict(state.guards)
    decisions: dict[Target, Decision] = {}
    for pool in sorted(rules.pools, key=lambda p: p.pool):
        estimate = estimates.get(pool.pool, _UNLEARNED)
        left = _wanted(pool, snapshot, estimate)
        for lever in pool.levers:
            work = _Rung(pool, lever, snapshot, estimate, ledger_ok)
            key = f"{pool.pool}/{lever.lever}"
            proposals, policy_states[key] = work.propose(policies.get(key), left, policy_states.get(key))
            for target in work.targets:
                guard_state = guards.observe(
                    guard_states.get(target, _UNGUARDED), lever, work.state(target), snapshot.tick.at
                )
                mine = [p for p in proposals if p.target == target]
                decisions[target], guard_states[target] = work.decide(target, mine, guard_state)
    levers = {target: pool.of(target) for pool in rules.pools for target in pool.targets}
    # Bounds before the shared budgets, so that what a minimum adds is shared too; and after them, because they are
    # last.
    bounded = {target: _bound(decision, levers[target]) for target, decision in decisions.items()}
    known = {target: held.position[1] for target, held in guard_states.items() if held.position is not None}
    shared, hold = share(bounded, rules, known, snapshot.tick.at, state.fleet)
    final = tuple(_finish(shared[target], levers[target]) for target in sorted(shared))
    plan = Plan(snapshot.tick.at, final, sentence(final, holding=hold is not None))
    return plan, DecideState(policy_states, guard_states, hold)


def _wanted(pool: PoolRules, snapshot: Snapshot, estimate: Estimate) -> float:
    """Replica-equivalents of demand that serving capacity does not carry."""
    return max(0.0, (estimate.demand or 0.0) - _serving(pool, snapshot, estimate))


def _serving(pool: PoolRules, snapshot: Snapshot, estimate: Estimate) -> float:
    target = snapshot.targets.get(Target(pool.pool, Lever.REPLICAS), UNREAD)
    return estimate.evidence.get("serving", target.ready or target.accepted or 0.0)


class _Rung:
    """One lever of one pool at one tick."""

    def __init__(
        self, pool: PoolRules, lever: LeverRules, snapshot: Snapshot, estimate: Estimate, ledger_ok: bool
    ) -> None:
        self.pool, self.lever, self.snapshot, self.estimate = pool, lever, snapshot, estimate
        self.ledger_ok = ledger_ok
        self.broken = ""
        self.targets = tuple(sorted(t for t in pool.targets if t.lever == lever.lever))

    def state(self, target: Target) -> TargetState:
        return self.snapshot.targets.get(target, UNREAD)

    def propose(self, policy: Policy[Any] | None, left: float, state: Any) -> tuple[tuple[Proposal, ...], Any]:
        readings = self.snapshot.pools.get(self.pool.pool)
        if policy is None or readings is None or self.lever.mode == Mode.OFF:
            return (), state
        view = View(
            self.snapshot.tick, readings, {t: self._without_given_up(t) for t in self.targets},
            dict.fromkeys(self.targets, self.lever.limits), self.estimate,
        )  # fmt: skip
        serving = _serving(self.pool, self.snapshot, self.estimate)
        accepted = sum(self.state(t).accepted or 0.0 for t in self.targets)
        balance = Balance(
            demand=self.estimate.demand or 0.0,
            carried=serving,
            arriving=max(0.0, accepted - serving),
            ahead=self.estimate.forecast or self.estimate.demand or 0.0,
        )
        brief = Brief(balance, left, self.snapshot.tick.at + self.estimate.horizon)
        try:
            proposals, after = policy.propose(
                view, self.pool.objectives, brief, policy.initial() if state is None else state
            )
        except Exception as error:  # noqa: BLE001 - a stranger's law must not stop the other pools; the plan tells
            self.broken = f"{type(error).__name__}: {error}"
            return (), state
        return tuple(p for p in proposals if _sane(p) and p.target in self.targets), after

    def _without_given_up(self, target: Target) -> TargetState:
        """Capacity that is awaited for too long is not awaited any more, by nobody."""
        owner, now = self.state(target), self.snapshot.tick.at
        young = tuple(p for p in owner.pending if now - p.since < self.lever.give_up)
        return owner if len(young) == len(owner.pending) else replace(owner, pending=young)

    def decide(self, target: Target, proposals: list[Proposal], state: GuardState) -> tuple[Decision, GuardState]:
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
            self.pool.window, self.ledger_ok,
        )  # fmt: skip
        asked = Step(merged.by, current, wish, merged.why)
        held: tuple[Step, ...] = ()
        value = sought = wish
        if merged.why != Why.PIN:
            value, held, sought = guards.run(case, wish)
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


def _bound(decision: Decision, lever: LeverRules) -> Decision:
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


def _finish(decision: Decision, lever: LeverRules) -> Decision:
    """The last word of the bounds, and whether it is sent."""
    decision = _bound(decision, lever)
    send = decision.changed and not decision.blocked and lever.mode in (Mode.PROTECT, Mode.AUTO)
    return decision if send == decision.send else replace(decision, send=send)


def _sane(proposal: Proposal) -> bool:
    """A law that computes nonsense must not reach the merge; config tests find it, production ignores it."""
    return math.isfinite(proposal.value)
