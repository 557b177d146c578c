"""Decide: the one place where proposals become a plan. Pure.

Per pool and lever, in the order of the ladder: the policy proposes against what relief is still wanted, proposals are
merged, guards applied, and what the guarded values relieve is taken off what the next lever is asked for. Then what
pools share: the budgets and the fleet-wide guard. Hard bounds come last, so every final value is legal. Every target
gets a decision every tick, also when nothing changes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import groupby
from operator import attrgetter
from typing import Any

from controller.core import drain, guards, hindsight, joint, own, relief
from controller.core.below import after, rest, sendable
from controller.core.beyond import beyond
from controller.core.case import Case
from controller.core.drain import Drain
from controller.core.fleet import RELIEVING, FleetHold, budgets, hold_releases, share
from controller.core.guard_state import GuardState
from controller.core.hindsight import Hindsight
from controller.core.model import Decision, Lever, Pending, Phase, Plan, Snapshot, Target, TargetState
from controller.core.movable import UNREAD, moves, stands
from controller.core.own import Own
from controller.core.ports import Balance, Estimate, Policy
from controller.core.rules import PER_REPLICA, FleetRules, LeverRules, PoolRules
from controller.core.rung import Rung, bound, finish
from controller.core.summary import Shortage, sentence
from controller.core.why import Why
from controller.core.worse import Worse
from controller.core.wrong import wrong

# Looked up by name of the module: a member of an enum takes ten times as long, and each rung asks for these.
_REPLICAS, _WEIGHT, _CAP, _DOWNGRADE = Lever.REPLICAS, Lever.WEIGHT, Lever.TENANT_CAP, Lever.DOWNGRADE
FORGET = 900.0  # seconds after which the memory of a member that is gone is dropped
LATE, UNPLACED = 1.5, 0.5  # times the usual cold start, after which capacity is late (with no node yet: sooner)
_UNLEARNED, _UNSEEN = Estimate(), Hindsight()


@dataclass(frozen=True, slots=True)
class DecideState:
    """Memory of deciding: policy state by "pool/lever", guard state by target, the holds of the fleet guard on
    replicas and on releases of other levers, and by pool what came of the last actions, which replicas drain, and how
    many its workload had of late."""

    policies: Mapping[str, Any] = field(default_factory=dict)
    guards: Mapping[Target, GuardState] = field(default_factory=dict)
    fleet: FleetHold | None = None
    hindsight: Mapping[str, Hindsight] = field(default_factory=dict)
    releases: FleetHold | None = None
    drains: Mapping[str, Drain] = field(default_factory=dict)
    own: Mapping[str, Own] = field(default_factory=dict)


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
    turn = _Turn(snapshot, estimates, rules, policies, state, ledger_ok)
    for pool in rules.senders_first:
        turn.ladder(pool)
    return turn.plan()


class _Turn:
    """One tick: pool by pool down their ladders, then what pools share."""

    def __init__(
        self, snapshot: Snapshot, estimates: Mapping[str, Estimate], rules: FleetRules,
        policies: Mapping[str, Policy[Any]], state: DecideState, ledger_ok: bool,
    ) -> None:  # fmt: skip
        self._snapshot, self._estimates, self._rules = snapshot, estimates, rules
        self._policies, self._before, self._ledger_ok = policies, state, ledger_ok
        self._policy_states, self._guard_states = dict(state.policies), dict(state.guards)
        self._hindsight: dict[str, Hindsight] = {}
        self._own: dict[str, Own] = {}
        self._known = relief.Known(snapshot, estimates, beyond(rules, policies))
        self._members = _members(snapshot, rules)
        self._made: dict[str, dict[Lever, dict[Target, Decision]]] = {}
        self._levers: dict[tuple[str, Lever], LeverRules] = {}
        self._cases: dict[Target, Case] = {}
        self._released: dict[str, tuple[float, float]] = {}
        self._short: list[Shortage] = []

    def ladder(self, pool: PoolRules) -> None:
        """All levers of one pool: each is asked for what the ones before it have not relieved."""
        snapshot, now = self._snapshot, self._snapshot.tick.at
        estimate = self._estimates.get(pool.pool, _UNLEARNED)
        balance = relief.balance(pool, snapshot, estimate, self._known)
        left = wanted = relief.wanted(balance, estimate)
        seen = hindsight.look(pool, snapshot, estimate, balance, self._before.hindsight.get(pool.pool, _UNSEEN))
        self._hindsight[pool.pool] = seen
        taken: list[tuple[Lever, float]] = []
        here = relief.Here()
        for lever in pool.levers:
            targets = self._members.get((pool.pool, lever.lever)) or pool.of_lever(lever.lever)
            out = self._out(pool) if lever.lever is _REPLICAS else 0
            held = self._before.drains.get(pool.pool) if lever.lever is _WEIGHT else None
            # A share is one of what comes to it: who is capped is not there to be sent.
            there = here.of(balance) if lever.lever is _DOWNGRADE else balance
            rung = Rung(pool, lever, targets, snapshot, estimate, there, seen, self._ledger_ok, out, held)
            further = lever.lever is _CAP and left > 0
            below = self._below(pool, estimate, balance, here, seen) if further else 0.0
            made = self._step(rung, left, wanted, below)
            net = 0.0
            if lever.lever in RELIEVING:
                values = {t.member: value for t, d in made.items() if (value := stands(d)) is not None}
                whole = here.whole
                net = relief.given(lever, values, pool, estimate, balance, here)
                self._note_release(pool, lever, made, values, estimate, balance, net if whole else None)
            if left > 0 and seen.effect.counts(lever.lever, now):
                taken.append((lever.lever, min(left, net)))
                left = rest(left, net, lever, estimate)
            if lever.lever is _DOWNGRADE:
                self._known.charge(pool, {t.member: d for t, d in made.items() if moves(d)}, there)
        until = now + estimate.horizon if balance.arriving > 0 else None
        self._short.append(Shortage(pool.pool, wanted, tuple(taken), until))

    def _below(
        self, pool: PoolRules, estimate: Estimate, balance: Balance, here: relief.Here, seen: Hindsight
    ) -> float:  # fmt: skip
        """What a downgrade further down than the caps can take, as far as something comes of it."""
        rung = after(pool, _CAP, _DOWNGRADE)
        if rung is None or not seen.effect.counts(rung.lever, self._snapshot.tick.at):
            return 0.0
        follows = getattr(self._policies.get(f"{pool.pool}/{rung.lever}"), "absolute", False)
        return sendable(rung, pool, self._snapshot, estimate, balance, here, follows=follows)

    def _note_release(
        self, pool: PoolRules, lever: LeverRules, made: Mapping[Target, Decision], values: Mapping[str, float],
        estimate: Estimate, balance: Balance, gives: float | None,
    ) -> None:  # fmt: skip
        """How much more work a lever lets in after this tick than before it. What it `gives` with the values after it
        is known where nothing was taken of the pool before."""
        back, _ = self._released.get(pool.pool, (0.0, 0.0))
        if any(d.final != d.current and d.changed and moves(d) for d in made.values()):
            was = {t.member: d.current for t, d in made.items() if d.current is not None}
            back += relief.given(lever, was, pool, estimate, balance)
            back -= relief.given(lever, values, pool, estimate, balance) if gives is None else gives
        self._released[pool.pool] = (back, balance.carried)

    def _step(self, rung: Rung, left: float, short: float, below: float) -> dict[Target, Decision]:
        """One lever: propose and decide."""
        pool, lever = rung.pool.pool, rung.lever.lever
        key = f"{pool}/{lever}"
        proposals, self._policy_states[key] = rung.propose(
            self._policies.get(key), left, short, self._policy_states.get(key), below
        )
        of_replicas = lever in PER_REPLICA and rung.lever.by == "replica"
        staying = self._staying(pool, len(rung.owners)) if of_replicas else None
        made = rung.decide(proposals, self._guard_states, staying)
        self._cases.update(rung.cases)
        self._made.setdefault(pool, {})[lever], self._levers[pool, lever] = made, rung.lever
        return made

    def _staying(self, pool: str, seen: int) -> float | None:
        """How many replicas there will be where a rung above, or who owns them, takes some away; those of other
        workloads that are seen beside them stay."""
        target = Target(pool, _REPLICAS)
        decided, accepted = self._above(pool, _REPLICAS).get(target), self._accepted(target)
        before = self._before.own.get(pool)
        made = own.had(accepted, self._snapshot.tick.at, before) if accepted is not None else before
        if made is not None:
            self._own[pool] = made
        has = stands(decided) if decided is not None else accepted
        return own.staying(seen, has, made) if has is not None else None

    def _accepted(self, target: Target) -> float | None:
        return self._snapshot.targets.get(target, UNREAD).accepted

    def _out(self, pool: PoolRules) -> int:
        """How many replicas a breaker holds out of rotation, those included that a rung above has just taken out."""
        if not pool.has_breaker:
            return 0
        now = [value for d in self._above(pool.pool, Lever.BREAKER).values() if (value := stands(d)) is not None]
        return sum(value < relief.OUT for value in now) if now else self._known.held_out(pool.pool)

    def _above(self, pool: str, lever: Lever) -> Mapping[Target, Decision]:
        """What a rung above decided; nothing where it comes later, or there is none."""
        return self._made.get(pool, {}).get(lever, {})

    def plan(self) -> tuple[Plan, DecideState]:
        """What pools share, the last word of the bounds, and what is remembered."""
        rules, before, now = self._rules, self._before, self._snapshot.tick.at
        decided = self._decided()
        facts = _facts(rules, self._snapshot, self._estimates, self._cases, self._policies, decided)
        known = self._positions() if rules.budgets else {}
        shared, hold = share(joint.size(decided, rules, facts), rules, known, now, before.fleet)
        shared = joint.within(shared, rules, facts, known)
        shared, releases = hold_releases(shared, self._released, rules, now, before.releases)
        shared.update({t: bound(d, self._rules_of(t)) for t, d in _other(shared, decided)})
        shared, drains = self._drained(shared, known)
        shared.update({t: finish(d, self._rules_of(t), now) for t, d in _other(shared, decided)})
        final = tuple(shared.values())
        holding = hold is not None or releases is not None
        stranded = drain.stranded(drains, rules)
        told = sentence(
            final, self._short, self._wrong(), holding=holding, stranded=stranded, states=self._snapshot.targets
        )
        plan = Plan(now, final, told)
        kept = _remembered(self._guard_states, decided, now)
        return plan, DecideState(self._policy_states, kept, hold, self._hindsight, releases, drains, self._own)

    def _wrong(self) -> list[str]:
        """What is to be told of versions and replicas, whether a lever is moved for it or not."""
        worse = [one.told(pool) for pool, several in sorted(self._worse().items()) for one in several]
        return [*worse, *wrong(self._rules, self._snapshot.pools)]

    def _worse(self) -> dict[str, tuple[Worse, ...]]:
        """Versions that are worse than the rest of their pools, or that a breaker holds out for it."""
        told: dict[str, tuple[Worse, ...]] = {}
        for rules in self._rules.pools:
            pool, estimate = rules.pool, self._estimates.get(rules.pool, _UNLEARNED)
            known = {one.version: one for one in (estimate.worse, *estimate.also_worse) if one is not None}
            readings = self._snapshot.pools.get(pool)
            told_apart = readings.versions if readings is not None else {}
            for made in self._above(pool, Lever.BREAKER).values() if told_apart else ():
                version = told_apart.get(made.target.member, "")
                if made.why is Why.WORSE_VERSION and version and version not in known:
                    known[version] = Worse(version, slow=made.evidence.get("slowness", 0.0))
            if known:
                told[pool] = tuple(known.values())
        return told

    def _drained(
        self, shared: dict[Target, Decision], known: Mapping[Target, float]
    ) -> tuple[dict[Target, Decision], dict[str, Drain]]:
        """Within the budgets, also with what a minimum adds: who pays is not asked twice. A fall that waits for its
        replicas makes no room; where a raise needs it, nobody is waited for."""
        rules, snapshot, before = self._rules, self._snapshot, self._before.drains
        wished = budgets(shared, rules, known)
        if not rules.draining and not before:
            return wished, {}
        held, drains = drain.hold(wished, rules, snapshot, before)
        within = budgets(held, rules, known)
        short = {t.pool for t, d in within.items() if t.lever is _REPLICAS and d.final != held[t].final}
        if short:
            hurried = {pool for one in rules.budgets if not short.isdisjoint(one.pools) for pool in one.pools}
            held, drains = drain.hold(wished, rules, snapshot, before, hurried)
            within = budgets(held, rules, known)
        return within, drains

    def _rules_of(self, target: Target) -> LeverRules:
        return self._levers[target.pool, target.lever]

    def _decided(self) -> dict[Target, Decision]:
        """All decisions, sorted by target; those of one rung are."""
        decided: dict[Target, Decision] = {}
        for _, levers in sorted(self._made.items()):
            for _, made in sorted(levers.items()):
                decided.update(made)
        return decided

    def _positions(self) -> dict[Target, float]:
        """Where targets were when they could be read last."""
        return {t: held.position[1] for t, held in self._guard_states.items() if held.position is not None}


def _other(
    shared: Mapping[Target, Decision], own: Mapping[Target, Decision]
) -> list[tuple[Target, Decision]]:  # fmt: skip
    """Decisions that are no longer those of their own pools. Both are of the same targets in the same order."""
    if shared is own:
        return []  # nearly always
    pairs = zip(shared.items(), own.values(), strict=True)
    return [(target, now) for (target, now), before in pairs if now is not before]


def _facts(
    rules: FleetRules, snapshot: Snapshot, estimates: Mapping[str, Estimate], cases: Mapping[Target, Case],
    policies: Mapping[str, Policy[Any]], decided: Mapping[Target, Decision],
) -> joint.Facts:  # fmt: skip
    """What is to be known of pools that are sized together."""
    named = {name for pair in rules.pairs for name in (pair.prefill, pair.decode)}
    named |= {name for group_ in rules.variants for name in group_.cost}
    of = {pool.pool: pool for pool in rules.pools if pool.pool in named}
    owners = {name: snapshot.targets.get(Target(name, _REPLICAS), UNREAD) for name in of}
    lever = {name: pool.of(Target(name, _REPLICAS)) for name, pool in of.items()}
    now = snapshot.tick.at

    def guarded(target: Target, wish: float) -> float:
        case = cases.get(target)
        return guards.run(case, wish)[0] if case is not None else wish

    def awaited(name: str, owner: TargetState) -> bool:
        gave_up = name in told and told[name].why is Why.CAPACITY_UNAVAILABLE
        return not gave_up and not any(now - p.since >= lever[name].give_up for p in owner.pending)

    def late(name: str, one: Pending) -> bool:
        times = UNPLACED if one.phase in (Phase.REQUESTED, Phase.PENDING) else LATE
        return now - one.since > times * estimates.get(name, _UNLEARNED).horizon

    told = {name: decided[t] for name in of if (t := Target(name, _REPLICAS)) in decided}
    return joint.Facts(
        serving={
            n: min(o.accepted or 0.0, o.accepted or 0.0 if o.ready is None else o.ready) for n, o in owners.items()
        },
        least={name: one.limits.min for name, one in lever.items()},
        most={name: one.limits.max for name, one in lever.items()},
        rate={name: estimates.get(name, _UNLEARNED).unit_rate for name in of},
        awaited={name: awaited(name, owner) for name, owner in owners.items()},
        guarded=guarded,
        absolute=frozenset(n for n in of if getattr(policies.get(f"{n}/replicas"), "absolute", False)),
        late=frozenset(n for n, o in owners.items() if any(late(n, p) for p in o.pending)),
        burning=frozenset(n for n in of if estimates.get(n, _UNLEARNED).burning),
    )


def _members(snapshot: Snapshot, rules: FleetRules) -> dict[tuple[str, Lever], tuple[Target, ...]]:
    """Targets of levers whose members come and go, by pool and lever, sorted."""
    if not rules.replica_by_replica:
        return {}
    found: dict[tuple[str, Lever], list[Target]] = {}
    for (pool, lever), targets in groupby(snapshot.targets, attrgetter("pool", "lever")):
        if lever in PER_REPLICA:
            found.setdefault((pool, lever), []).extend(targets)
    return {key: tuple(sorted(targets)) for key, targets in found.items()}


def _remembered(
    states: dict[Target, GuardState], decisions: Mapping[Target, Decision], now: float
) -> dict[Target, GuardState]:
    """Without those of members that are gone for good. All that was decided on is remembered."""
    if len(states) == len(decisions):
        return states
    gone = [
        target for target, held in states.items()
        if target not in decisions and (held.position is None or now - held.position[0] > FORGET)
    ]  # fmt: skip
    for target in gone:
        del states[target]
    return states
