"""Decide: the one place where proposals become a plan. Pure.

Per pool and lever, in the order of the ladder: the policy proposes against what relief is still wanted, proposals are
merged, guards applied, and what the guarded values relieve is taken off what the next lever is asked for. Then what
pools share: the budgets and the fleet-wide guard. Hard bounds come last, so every final value is legal. Every target
gets a decision every tick, also when nothing changes.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from controller.core import group, guards, hindsight, joint, relief
from controller.core.fleet import RELIEVING, FleetHold, hold_releases, share
from controller.core.guards import GuardState
from controller.core.hindsight import Hindsight
from controller.core.merge import Merged, merge
from controller.core.model import Ask, Decision, Lever, Mode, Plan, Proposal, Snapshot, Step, Target, TargetState
from controller.core.ports import Balance, Brief, Estimate, Policy, View
from controller.core.rules import PER_REPLICA, FleetRules, LeverRules, PoolRules, neutral
from controller.core.summary import Shortage, sentence
from controller.core.why import Why

UNREAD = TargetState(accepted=None, error="not read")
FORGET = 900.0  # seconds after which the memory of a member that is gone is dropped
_UNLEARNED, _UNGUARDED, _UNSEEN = Estimate(), GuardState(), Hindsight()


@dataclass(frozen=True, slots=True)
class DecideState:
    """Memory of deciding: policy state by "pool/lever", guard state by target, the holds of the fleet guard on
    replicas and on releases of other levers, and by pool what came of the last actions."""

    policies: Mapping[str, Any] = field(default_factory=dict)
    guards: Mapping[Target, GuardState] = field(default_factory=dict)
    fleet: FleetHold | None = None
    hindsight: Mapping[str, Hindsight] = field(default_factory=dict)
    releases: FleetHold | None = None


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
    levers: dict[Target, LeverRules] = {}
    past: dict[str, Hindsight] = {}
    cases: dict[Target, guards.Case] = {}
    released: dict[str, tuple[float, float]] = {}
    short: list[Shortage] = []
    members = _members(snapshot, rules)
    known = relief.Known(snapshot, estimates)
    for pool in relief.senders_first(rules.pools):
        estimate = estimates.get(pool.pool, _UNLEARNED)
        balance = relief.balance(pool, snapshot, estimate, known)
        left = wanted = relief.wanted(balance)
        taken: list[tuple[Lever, float]] = []
        seen = hindsight.look(pool, snapshot, estimate, balance, state.hindsight.get(pool.pool, _UNSEEN))
        past[pool.pool] = seen
        for lever in pool.levers:
            targets = members.get((pool.pool, lever.lever)) or tuple(t for t in pool.targets if t.lever == lever.lever)
            work = _Rung(pool, lever, targets, snapshot, estimate, balance, seen, ledger_ok)
            key = f"{pool.pool}/{lever.lever}"
            proposals, policy_states[key] = work.propose(policies.get(key), left, policy_states.get(key))
            made: dict[Target, Decision] = {}
            for target in targets:
                guard_state = guards.observe(
                    guard_states.get(target, _UNGUARDED), lever, work.state(target), snapshot.tick.at
                )
                made[target], guard_states[target] = work.decide(target, proposals.get(target, ()), guard_state)
            cases.update(work.cases)
            # Bounds before what is shared, so that what a minimum adds is shared too; and after it: they are last.
            made = {target: _bound(decision, lever) for target, decision in group.keep_in(made, lever).items()}
            if not seen.effect.counts(lever.lever, snapshot.tick.at):
                made = {target: _without_effect(decision, lever) for target, decision in made.items()}
            decisions.update(made)
            levers.update(dict.fromkeys(made, lever))
            stands = {t.member: value for t, d in made.items() if (value := _stands(d)) is not None}
            given = relief.given(lever, stands, pool, estimate, balance)
            if seen.effect.counts(lever.lever, snapshot.tick.at):
                taken.append((lever.lever, min(left, given)))
                left = max(0.0, left - given)
            if lever.lever in RELIEVING:
                back, _ = released.get(pool.pool, (0.0, 0.0))
                if any(d.changed and _moves(d) for d in made.values()):
                    was = {t.member: d.current for t, d in made.items() if d.current is not None}
                    back += relief.given(lever, was, pool, estimate, balance) - given
                released[pool.pool] = (back, balance.carried)
            if lever.lever is Lever.DOWNGRADE:
                known.charge(pool, {t.member: d for t, d in made.items() if _moves(d)}, balance)
        until = snapshot.tick.at + estimate.horizon if balance.arriving > 0 else None
        short.append(Shortage(pool.pool, wanted, tuple(taken), until))
    positions = {target: held.position[1] for target, held in guard_states.items() if held.position is not None}
    facts = _facts(rules, snapshot, estimates, cases)
    shared, hold = share(joint.size(decisions, rules, facts), rules, positions, snapshot.tick.at, state.fleet)
    shared = joint.restrain(shared, rules, facts)
    shared, releases = hold_releases(shared, released, rules, snapshot.tick.at, state.releases)
    final = tuple(
        _finish(d if d is decisions[target] else _bound(d, levers[target]), levers[target], snapshot.tick.at)
        for target, d in sorted(shared.items())
    )
    plan = Plan(snapshot.tick.at, final, sentence(final, short, holding=hold is not None or releases is not None))
    return plan, DecideState(
        policy_states, _remembered(guard_states, decisions, snapshot.tick.at), hold, past, releases
    )


def _facts(
    rules: FleetRules, snapshot: Snapshot, estimates: Mapping[str, Estimate], cases: Mapping[Target, guards.Case]
) -> joint.Facts:
    """What is to be known of pools that are sized together."""
    named = {name for pair in rules.pairs for name in (pair.prefill, pair.decode)}
    named |= {name for group_ in rules.variants for name in group_.cost}
    of = {pool.pool: pool for pool in rules.pools if pool.pool in named}
    owners = {name: snapshot.targets.get(Target(name, Lever.REPLICAS), UNREAD) for name in of}
    lever = {name: pool.of(Target(name, Lever.REPLICAS)) for name, pool in of.items()}
    now = snapshot.tick.at

    def guarded(target: Target, wish: float) -> float:
        case = cases.get(target)
        return guards.run(case, wish)[0] if case is not None else wish

    return joint.Facts(
        serving={
            n: min(o.accepted or 0.0, o.accepted or 0.0 if o.ready is None else o.ready) for n, o in owners.items()
        },
        least={name: one.limits.min for name, one in lever.items()},
        most={name: one.limits.max for name, one in lever.items()},
        rate={name: estimates.get(name, _UNLEARNED).unit_rate for name in of},
        awaited={n: not any(now - p.since >= lever[n].give_up for p in o.pending) for n, o in owners.items()},
        guarded=guarded,
    )


def _without_effect(decision: Decision, lever: LeverRules) -> Decision:
    """Says that nothing came of this lever, where it does something: what it relieves is not counted on."""
    if decision.final is None or decision.final == neutral(lever):
        return decision
    step = Step("effect", decision.final, decision.final, Why.NO_EFFECT)
    return replace(decision, steps=(*decision.steps, step))


def _members(snapshot: Snapshot, rules: FleetRules) -> dict[tuple[str, Lever], tuple[Target, ...]]:
    """Targets of levers whose members come and go, by pool and lever, sorted."""
    if not any(lever.lever in PER_REPLICA for pool in rules.pools for lever in pool.levers):
        return {}
    found: dict[tuple[str, Lever], list[Target]] = {}
    for target in snapshot.targets:
        if target.lever in PER_REPLICA:
            found.setdefault((target.pool, target.lever), []).append(target)
    return {key: tuple(sorted(targets)) for key, targets in found.items()}


def _remembered(
    states: dict[Target, GuardState], decisions: Mapping[Target, Decision], now: float
) -> dict[Target, GuardState]:
    """Without those of members that are gone for good."""
    gone = [
        target for target, held in states.items()
        if target not in decisions and (held.position is None or now - held.position[0] > FORGET)
    ]  # fmt: skip
    for target in gone:
        del states[target]
    return states


def _moves(decision: Decision) -> bool:
    """Whether an actuator gets what was decided, as far as its mode says."""
    return not decision.blocked and decision.mode in (Mode.PROTECT, Mode.AUTO)


def _stands(decision: Decision) -> float | None:
    """The value that will be there after this tick: a lever that only observes relieves nobody."""
    return decision.final if _moves(decision) else decision.current


class _Rung:
    """One lever of one pool at one tick."""

    def __init__(
        self, pool: PoolRules, lever: LeverRules, targets: Sequence[Target], snapshot: Snapshot, estimate: Estimate,
        balance: Balance, seen: Hindsight, ledger_ok: bool,
    ) -> None:  # fmt: skip
        self.pool, self.lever, self.targets = pool, lever, targets
        self.snapshot, self.estimate, self.balance = snapshot, estimate, balance
        self.seen, self.gain = seen, seen.gain(lever.lever)
        self.ledger_ok = ledger_ok
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
        brief = Brief(self.balance, left, self.snapshot.tick.at + self.estimate.horizon, self.gain)
        try:
            proposals, after = policy.propose(
                view, self.pool.objectives, brief, policy.initial() if state is None else state
            )
        except Exception as error:  # noqa: BLE001 - a stranger's law must not stop the other pools; the plan tells
            self.broken = f"{type(error).__name__}: {error}"
            return {}, state
        wanted: dict[Target, list[Proposal]] = {}
        for proposal in proposals:
            if _sane(proposal) and proposal.target in view.targets:
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
            self.pool.window, self.ledger_ok, target.member, self.gain,
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


def _finish(decision: Decision, lever: LeverRules, now: float) -> Decision:
    """Whether it is sent. A value that is not neutral and that its target drops after a time is sent again at every
    tick: when the data is lost, the reason for it is not."""
    renewed = lever.expiry > 0 and decision.final is not None and decision.final != neutral(lever)
    send = (decision.changed or renewed) and _moves(decision)
    until = now + lever.expiry if send and renewed else None
    if (send, until) == (decision.send, decision.until):
        return decision
    d = decision  # made anew by hand: ``replace`` takes three times as long, and there is one for every cap that stands
    return Decision(
        d.target, d.current, d.final, d.why, d.steps, d.evidence, send=send, mode=d.mode, until=until, blocked=d.blocked
    )


def _sane(proposal: Proposal) -> bool:
    """A law that computes nonsense must not reach the merge; config tests find it, production ignores it."""
    return math.isfinite(proposal.value)
