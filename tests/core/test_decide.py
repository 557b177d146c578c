"""One plan per tick: every target answered, budgets kept, a fleet not lowered on one wrong reading."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.decide import DecideState, decide
from controller.core.fleet import FleetHold
from controller.core.model import (
    Ask,
    Decision,
    Lever,
    Mode,
    Outcome,
    Pin,
    Plan,
    Proposal,
    Snapshot,
    Target,
    TargetState,
    Tick,
)
from controller.core.ports import Brief, Estimate, Limits, View
from controller.core.reading import State, ok
from controller.core.rules import Budget, FleetGuard, FleetRules, LeverRules, Pair, PoolRules
from controller.core.slo import Objective
from controller.core.why import Why
from controller.run import codec
from tests.support.cases import NOW, bad, estimate, healthy


@dataclass(frozen=True)
class Nothing:
    """No memory."""


class Wants:
    """A law that wants given values."""

    def __init__(self, wishes: Mapping[str, float], ask: Ask = Ask.SET) -> None:
        self.wishes, self.ask = wishes, ask

    def initial(self) -> Nothing:
        return Nothing()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: Nothing
    ) -> tuple[Sequence[Proposal], Nothing]:
        return [Proposal(t, self.ask, self.wishes[t.pool], "wants", Why.DEMAND) for t in view.targets], state


def rules(pools: Sequence[str], *, mode: Mode = Mode.AUTO, top: float = 50.0, **fleet: object) -> FleetRules:
    lever = LeverRules(Lever.REPLICAS, "wants", "none", mode, Limits(1, top), stabilise=0.0)
    made = tuple(PoolRules(p, (), (lever,), (Target(p, Lever.REPLICAS),)) for p in pools)
    return replace(FleetRules(made), **fleet)  # type: ignore[arg-type]


def plan(
    have: Mapping[str, float],
    want: Mapping[str, float],
    made: FleetRules | None = None,
    state: DecideState | None = None,
    at: float = NOW,
    **owner: object,
) -> tuple[dict[str, Decision], DecideState]:
    """Decide once; decisions by pool."""
    made = made or rules(sorted(have))
    targets = {Target(p, Lever.REPLICAS): TargetState(v, v, **owner) for p, v in have.items()}  # type: ignore[arg-type]
    pools = {p: replace(healthy(), filled_since=NOW - 9e5) for p in have}
    estimates = {p: estimate(0.0, evidence={"serving": v}) for p, v in have.items()}
    policies = {f"{p}/replicas": Wants(want) for p in have}
    snapshot = Snapshot(Tick(9, at, 15.0), pools, targets)
    result, state = decide(snapshot, estimates, made, policies, state or DecideState())
    assert [d.target for d in result.decisions] == sorted(Target(p.pool, Lever.REPLICAS) for p in made.pools)
    return {d.target.pool: d for d in result.decisions}, state


def test_every_target_gets_a_decision_also_when_nothing_changes() -> None:
    decisions, _ = plan({"a": 3.0, "b": 4.0}, {"a": 3.0, "b": 9.0})

    assert decisions["a"].why == Why.DEMAND
    assert not decisions["a"].send
    assert decisions["b"].final == 9.0
    assert decisions["b"].send


def test_the_chain_of_steps_leads_from_the_current_to_the_final_value() -> None:
    decision = plan({"a": 3.0}, {"a": 80.0}, rules(["a"], top=20.0))[0]["a"]

    values = [(s.before, s.after) for s in decision.steps]
    assert values[0][0] == decision.current
    assert values[-1][1] == decision.final == 20.0
    assert all(left[1] == right[0] for left, right in pairwise(values))
    assert decision.why == Why.MAX_BOUND


def test_an_unreadable_target_is_left_alone_and_said_so() -> None:
    made = rules(["a"])
    snapshot = Snapshot(Tick(1, NOW), {"a": healthy()}, {})
    result, _ = decide(snapshot, {}, made, {"a/replicas": Wants({"a": 9.0})}, DecideState())

    assert result.decisions[0].why == Why.UNREADABLE_TARGET
    assert result.decisions[0].final is None
    assert not result.decisions[0].send


@pytest.mark.parametrize(
    ("mode", "sent"),
    [(Mode.OFF, False), (Mode.OBSERVE, False), (Mode.PROTECT, True), (Mode.AUTO, True)],
)
def test_only_protect_and_auto_send(mode: Mode, sent: bool) -> None:
    assert plan({"a": 3.0}, {"a": 9.0}, rules(["a"], mode=mode))[0]["a"].send is sent


def test_observe_decides_what_auto_would_decide() -> None:
    seen = plan({"a": 3.0}, {"a": 9.0}, rules(["a"], mode=Mode.OBSERVE))[0]["a"]

    assert seen.final == 9.0


def test_a_pin_holds_within_the_bounds_until_it_expires() -> None:
    pin = Pin(6.0, NOW + 60.0, "load test")

    assert plan({"a": 3.0}, {"a": 9.0}, pin=pin)[0]["a"].final == 6.0
    assert plan({"a": 3.0}, {"a": 9.0}, pin=pin)[0]["a"].why == Why.PIN
    assert plan({"a": 3.0}, {"a": 9.0}, pin=pin, at=NOW + 61.0)[0]["a"].final == 9.0
    assert plan({"a": 3.0}, {"a": 9.0}, rules(["a"], top=5.0), pin=pin)[0]["a"].final == 5.0


def test_a_shared_budget_is_not_exceeded_and_nobody_is_pushed_below_what_it_has() -> None:
    """dynamo#12428: a rebalance went over the GPU budget and stayed Pending."""
    made = rules(["a", "b", "c"], budgets=(Budget("gpus", 12.0, frozenset("abc")),))
    decisions, _ = plan({"a": 3.0, "b": 3.0, "c": 3.0}, {"a": 9.0, "b": 5.0, "c": 2.0}, made)

    finals = {p: d.final or 0.0 for p, d in decisions.items()}
    assert math.fsum(finals.values()) <= 12.0
    assert finals["c"] == 2.0
    assert finals["a"] >= 3.0
    assert finals["b"] >= 3.0
    assert decisions["a"].why == Why.GROUP_BUDGET


def test_a_fleet_already_over_its_budget_is_not_cut_but_may_not_grow() -> None:
    made = rules(["a", "b"], budgets=(Budget("gpus", 4.0, frozenset("ab")),))

    assert [d.final for d in plan({"a": 4.0, "b": 4.0}, {"a": 9.0, "b": 4.0}, made)[0].values()] == [4.0, 4.0]


def test_one_wrong_reading_does_not_lower_the_whole_fleet() -> None:
    """keda#3065: a Prometheus incident sent everything to its minimum at peak."""
    have = {f"pool-{i}": 10.0 for i in range(10)}
    want = {p: (2.0 if i < 6 else 10.0) for i, p in enumerate(have)}

    decisions, state = plan(have, want)

    assert [d.final for d in decisions.values()] == [10.0] * 10
    assert state.fleet is not None
    assert state.fleet.since == NOW
    assert decisions["pool-0"].why == Why.FLEET_GUARD


def test_a_fleet_that_really_is_quiet_is_lowered_in_steps_after_the_hold() -> None:
    have = {f"pool-{i}": 10.0 for i in range(10)}
    want = dict.fromkeys(have, 9.0)
    _, state = plan(have, want)

    decisions, _ = plan(have, want, state=state, at=NOW + 301.0)

    assert sum(d.final == 9.0 for d in decisions.values()) == 2


def test_the_fleet_guard_does_not_lock_a_small_fleet() -> None:
    decisions, _ = plan({"a": 4.0, "b": 4.0}, {"a": 3.0, "b": 3.0})

    assert [d.final for d in decisions.values()] == [3.0, 3.0]


def test_raising_is_never_held_by_the_fleet_guard() -> None:
    have = {f"pool-{i}": 10.0 for i in range(5)}
    want = {p: (20.0 if i == 0 else 9.0) for i, p in enumerate(have)}

    assert plan(have, want)[0]["pool-0"].final == 20.0


def test_a_law_that_computes_nan_is_ignored() -> None:
    assert plan({"a": 3.0}, {"a": math.nan})[0]["a"].final == 3.0


def test_a_pool_without_data_keeps_everything_and_does_not_stop_the_others() -> None:
    """aibrix#1032: one broken pod blocked the whole reconcile."""
    made = rules(["a", "b"])
    targets = {Target(p, Lever.REPLICAS): TargetState(3.0, 3.0) for p in "ab"}
    snapshot = Snapshot(Tick(9, NOW, 15.0), {"b": healthy()}, targets, error="")
    policies = {"a/replicas": Wants({"a": 1.0}), "b/replicas": Wants({"b": 7.0})}
    result, _ = decide(snapshot, {"b": estimate()}, made, policies, DecideState())

    assert [d.final for d in result.decisions] == [3.0, 7.0]
    assert result.decisions[0].why == Why.MISSING


def test_a_law_that_raises_stops_nobody_and_the_plan_says_what_happened() -> None:
    class Broken(Wants):
        def propose(self, *_: object) -> tuple[Sequence[Proposal], Nothing]:
            raise ZeroDivisionError("a stranger's arithmetic")

    made = rules(["a", "b"])
    targets = {Target(p, Lever.REPLICAS): TargetState(3.0, 3.0) for p in "ab"}
    snapshot = Snapshot(Tick(9, NOW, 15.0), {"a": healthy(), "b": healthy()}, targets)
    policies = {"a/replicas": Broken({}), "b/replicas": Wants({"b": 7.0})}
    result, _ = decide(snapshot, {}, made, policies, DecideState())

    assert [d.final for d in result.decisions] == [3.0, 7.0]
    assert result.decisions[0].why == Why.POLICY_ERROR
    assert "ZeroDivisionError" in result.decisions[0].steps[0].detail


@pytest.mark.parametrize(("writer", "outcome"), [("kubectl", None), ("", Outcome.UNKNOWN)])
@pytest.mark.parametrize("pin", [None, Pin(9.0, NOW + 60.0, "load test")])
def test_neither_bounds_nor_a_pin_move_what_is_not_ours_to_move(
    writer: str, outcome: Outcome | None, pin: Pin | None
) -> None:
    """A foreign value above the maximum, or a write still unverified, was overwritten by the bounds."""
    top = rules(["a"], top=12.0)
    decision = plan({"a": 20.0}, {"a": 5.0}, top, pin=pin, foreign_writer=writer, last_outcome=outcome)[0]["a"]

    assert decision.final == 20.0
    assert not decision.send


def test_in_protect_a_bound_adds_and_never_takes_away() -> None:
    protect = rules(["a"], mode=Mode.PROTECT, top=12.0)

    assert plan({"a": 20.0}, {"a": 20.0}, protect)[0]["a"].final == 20.0
    assert plan({"a": 0.0}, {"a": 0.0}, protect)[0]["a"].final == 1.0


def _fleet_of(modes: Mapping[str, Mode], **fleet: object) -> FleetRules:
    made = tuple(
        PoolRules(
            p,
            (),
            (LeverRules(Lever.REPLICAS, "w", "n", mode, Limits(1, 50), stabilise=0.0),),
            (Target(p, Lever.REPLICAS),),
        )
        for p, mode in modes.items()
    )
    return replace(FleetRules(made), **fleet)  # type: ignore[arg-type]


def test_a_pool_that_only_observes_frees_no_room_and_takes_none() -> None:
    """a would like to shrink and will not; b may not live on that. a would like to grow and will not; b is not cut."""
    made = _fleet_of({"a": Mode.OBSERVE, "b": Mode.AUTO}, budgets=(Budget("gpus", 20.0, frozenset("ab")),))

    assert plan({"a": 10.0, "b": 10.0}, {"a": 2.0, "b": 18.0}, made)[0]["b"].final == 10.0
    assert plan({"a": 5.0, "b": 5.0}, {"a": 15.0, "b": 10.0}, made)[0]["b"].final == 10.0


def test_an_unreadable_pool_counts_in_the_budget_where_it_was_last_seen() -> None:
    made = rules(["a", "b"], budgets=(Budget("gpus", 20.0, frozenset("ab")),))
    _, state = plan({"a": 10.0, "b": 10.0}, {"a": 10.0, "b": 10.0}, made)
    targets = {Target("b", Lever.REPLICAS): TargetState(10.0, 10.0)}
    snapshot = Snapshot(Tick(9, NOW, 15.0), {"a": healthy(), "b": healthy()}, targets)
    laws = {"b/replicas": Wants({"b": 18.0})}
    seen, _ = decide(snapshot, {"b": estimate()}, made, laws, state)
    never, _ = decide(snapshot, {"b": estimate()}, made, laws, DecideState())

    assert seen.decisions[1].final == 10.0
    assert never.decisions[1].final == 10.0, "never seen: it may be at its maximum"


def test_pools_that_only_observe_do_not_use_up_what_the_fleet_guard_lets_go() -> None:
    modes = {f"o{i}": Mode.OBSERVE for i in range(4)} | {f"a{i}": Mode.AUTO for i in range(6)}
    made, have = _fleet_of(modes), dict.fromkeys(modes, 6.0)
    want = {p: 1.0 if p.startswith("o") else 5.0 for p in modes}
    _, state = plan(have, want, made)
    decisions, _ = plan(have, want, made, state=state, at=NOW + 301.0)

    assert sum(d.send for d in decisions.values()) == 2


def test_slow_levers_that_fall_on_some_ticks_only_get_through_the_hold() -> None:
    have, made = dict.fromkeys("abcde", 10.0), rules("abcde")
    _, state = plan(have, dict.fromkeys(have, 5.0), made)
    for tick in range(1, 20):
        _, state = plan(have, dict.fromkeys(have, 10.0), made, state=state, at=NOW + 15.0 * tick)
    decisions, _ = plan(have, dict.fromkeys(have, 5.0), made, state=state, at=NOW + 315.0)

    assert sum(d.final == 5.0 for d in decisions.values()) == 1


def test_what_is_let_go_after_the_hold_is_a_share_of_the_gpus_too() -> None:
    have = {"big": 40.0, **{f"p{i}": 2.0 for i in range(9)}}
    made = rules(sorted(have))
    want = {p: v / 2 for p, v in have.items()}
    _, state = plan(have, want, made)
    decisions, after = plan(have, want, made, state=state, at=NOW + 301.0)

    assert decisions["big"].final == 40.0
    assert sum(d.changed for d in decisions.values()) == 2
    again, _ = plan(have, want, made, state=after, at=NOW + 316.0)
    assert not any(d.changed for d in again.values()), "a share per hold, not per tick"


def test_a_thousand_pools_share_a_budget_in_no_time() -> None:
    have = {f"p{i:04d}": 8.0 for i in range(1000)}
    made = rules(sorted(have), budgets=(Budget("gpus", 12_000.0, frozenset(have)),))
    decisions, _ = plan(have, dict.fromkeys(have, 16.0), made)

    assert math.fsum(d.final or 0.0 for d in decisions.values()) == 12_000.0


# --- invariants over random worlds ---------------------------------------------------------------------------------

POOLS = ("a", "b", "c", "d")


@dataclass(frozen=True)
class World:
    """Four pools in any condition."""

    have: tuple[float, ...]
    want: tuple[float, ...]
    states: tuple[State, ...]
    waiting: tuple[float, ...]
    ask: Ask
    mode: Mode
    budget: float


WORLD = st.builds(
    World,
    st.tuples(*[st.integers(0, 30).map(float)] * 4),
    st.tuples(*[st.floats(-5, 200)] * 4),
    st.tuples(*[st.sampled_from(list(State))] * 4),
    st.tuples(*[st.sampled_from([0.0, 4.0])] * 4),
    st.sampled_from([Ask.SET, Ask.AT_LEAST, Ask.AT_MOST]),
    st.sampled_from(list(Mode)),
    st.integers(10, 80).map(float),
)


def decide_world(world: World) -> tuple[Plan, bytes]:
    have = dict(zip(POOLS, world.have, strict=True))
    want = dict(zip(POOLS, world.want, strict=True))
    lever = LeverRules(Lever.REPLICAS, "w", "n", world.mode, Limits(1, 25), stabilise=60.0)
    made = FleetRules(
        tuple(PoolRules(p, (), (lever,), (Target(p, Lever.REPLICAS),)) for p in POOLS),
        (Budget("gpus", world.budget, frozenset(POOLS)),),
        FleetGuard(),
    )
    pools = {
        p: replace(healthy(offered_rate=bad(state), queue_depth=ok(waiting)), filled_since=NOW - 9e5)
        for p, state, waiting in zip(POOLS, world.states, world.waiting, strict=True)
    }
    targets = {Target(p, Lever.REPLICAS): TargetState(v, v) for p, v in have.items()}
    laws = {f"{p}/replicas": Wants(want, world.ask) for p in POOLS}
    estimates = {p: Estimate(evidence={"serving": v}) for p, v in have.items()}
    result, state = decide(Snapshot(Tick(9, NOW, 15.0), pools, targets), estimates, made, laws, DecideState())
    return result, repr((codec.encode(result), state)).encode()


@settings(max_examples=200)
@given(WORLD)
def test_invariants_hold_in_any_world(world: World) -> None:
    result, _ = decide_world(world)
    sent = world.mode in (Mode.PROTECT, Mode.AUTO)
    total = math.fsum(d.final or 0.0 for d in result.decisions)
    for i, decision in enumerate(result.decisions):
        final, current = decision.final, decision.current
        assert final is not None
        assert final == round(final), "quantum"
        if world.mode not in (Mode.OFF, Mode.PROTECT):
            # A raised minimum is no way around a budget: who is below it gets there as far as there is room.
            spent = sent and final >= world.have[i] and total + 1 > world.budget
            assert (1.0 if not spent else 0.0) <= final <= 25.0, "hard bounds"
        if world.mode == Mode.PROTECT:
            assert final >= world.have[i], "protect never takes away"
        if decision.steps:
            assert decision.steps[0].before == current, "the chain begins at the current value"
            assert decision.steps[-1].after == final, "and ends at the final one"
        else:
            assert final == current, "no change without a reason"
        doubtful = world.states[i] not in (State.OK, State.NO_TRAFFIC, State.BELOW_FIRST) or world.waiting[i] > 0
        if doubtful and world.mode != Mode.OFF:
            assert final >= min(world.have[i], 25.0), "doubtful data never lowers"
        if world.mode in (Mode.OFF, Mode.OBSERVE):
            assert not decision.send, "observe and off never send"
    if sent:
        assert total <= max(world.budget, math.fsum(world.have)) + 1e-9, "a budget is never exceeded by what is added"


@settings(max_examples=50)
@given(WORLD)
def test_the_same_world_gives_the_same_plan_byte_for_byte(world: World) -> None:
    assert decide_world(world)[1] == decide_world(world)[1]


# --- what pools share, after every step ----------------------------------------------------------------------------

FOUR = ("decode", "prefill", "x", "y")


def four(top: float, least: Mapping[str, float], *, hold: float = 0.0) -> FleetRules:
    """A pair and two others under one budget, with minima of their own."""
    made = []
    for pool in FOUR:
        lever = LeverRules(Lever.REPLICAS, "wants", "none", limits=Limits(least.get(pool, 1.0), 50.0), stabilise=0.0)
        made.append(PoolRules(pool, (), (lever,), (Target(pool, Lever.REPLICAS),)))
    return FleetRules(
        tuple(made), (Budget("gpus", top, frozenset(FOUR)),), FleetGuard(0.2, hold, 2),
        (Pair("llama", "prefill", "decode", 0.4, 0.6),),
    )  # fmt: skip


def test_a_minimum_that_was_raised_is_no_way_around_the_budget() -> None:
    made, _ = plan(
        {"prefill": 1.0, "decode": 2.0, "x": 20.0, "y": 2.0}, {"prefill": 1.0, "decode": 2.0, "x": 25.0, "y": 2.0},
        four(27.0, {"y": 8.0}),
    )  # fmt: skip

    assert math.fsum(d.final or 0.0 for d in made.values()) <= 27.0
    assert made["y"].final == 4.0, "who is below its minimum comes first"
    assert made["x"].final == 20.0


@settings(max_examples=300)
@given(
    have=st.tuples(*[st.integers(0, 12).map(float)] * 4),
    want=st.tuples(*[st.integers(0, 20).map(float)] * 4),
    least=st.tuples(*[st.integers(0, 6).map(float)] * 4),
    top=st.integers(4, 50).map(float),
    held=st.booleans(),
)
def test_a_budget_holds_after_every_step_whatever_pairs_minima_and_the_fleet_guard_do(
    have: tuple[float, ...], want: tuple[float, ...], least: tuple[float, ...], top: float, held: bool
) -> None:
    now, asked, minima = (dict(zip(FOUR, values, strict=True)) for values in (have, want, least))
    guard = DecideState(fleet=FleetHold(0.0, 0.0, NOW + 900.0)) if held else None
    made, _ = plan(now, asked, four(top, minima), guard)

    total = math.fsum(have)
    for pool in sorted(FOUR, key=lambda p: (made[p].final or 0.0) > now[p]):
        moved = (made[pool].final or 0.0) - now[pool]
        total += moved
        assert moved <= 0 or total <= top + 1e-6
        assert [s.after for s in made[pool].steps][-1:] in ([], [made[pool].final])
