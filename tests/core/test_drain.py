"""Drain: who is to go finishes first, and nothing else waits for it. Without it a fall cuts the longest answers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.decide import DecideState, decide
from controller.core.drain import Drain, hold
from controller.core.model import (
    Ask,
    Decision,
    Lever,
    Mode,
    Outcome,
    Pin,
    PoolReadings,
    Proposal,
    Scope,
    Snapshot,
    Target,
    TargetState,
    Tick,
)
from controller.core.ports import Brief, Limits, View
from controller.core.reading import Reading, State
from controller.core.rules import Budget, FleetGuard, FleetRules, LeverRules, PoolRules, Rate
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why
from controller.explain import reason
from controller.run import codec
from controller.run.states import encode_states, restore
from tests.support.cases import NOW, estimate, healthy

TICK, TIME_OUT, LAG = 15.0, 120.0, 5.0  # seconds; LAG is how old the newest sample is at a tick


@dataclass(frozen=True)
class Nothing:
    """No memory."""


class Law:
    """Sets what it is told to; nothing when that is None. Remembers whom it saw."""

    def __init__(self, ask: Ask = Ask.SET) -> None:
        self.value: float | None = None
        self.ask, self.saw = ask, list[str]()

    def initial(self) -> Nothing:
        return Nothing()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: Nothing
    ) -> tuple[Sequence[Proposal], Nothing]:
        self.saw = sorted(t.member for t in view.targets)
        if self.value is None:
            return (), state
        return [Proposal(t, self.ask, self.value, "law", Why.SURPLUS) for t in sorted(view.targets)], state


def rules(drain: float = TIME_OUT, *more: PoolRules, name: str = "llm", **levers: object) -> PoolRules:
    replicas = LeverRules(
        Lever.REPLICAS, "law", "none", limits=Limits(1, 20), stabilise=0.0, drain=drain, rate_down=Rate(0.5, 60.0, True)
    )
    weight = LeverRules(
        Lever.WEIGHT, "law", "none", limits=Limits(0.05, 1.0, 0.01), stabilise=0.0, members=(), group=1.0,
        rate_up=Rate(0.2, 15.0), expiry=300.0,
    )  # fmt: skip
    made = (replace(replicas, **levers), weight)  # type: ignore[arg-type]
    return PoolRules(name, (), made, (Target(name, Lever.REPLICAS),))


@dataclass
class World:
    """A pool whose replicas hold `work` requests each, and what is read of it. Ages are those of the samples."""

    work: dict[str, float]
    pool: PoolRules = field(default_factory=rules)
    weights: dict[str, float] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    blind: bool = False
    age: float = LAG
    state: DecideState = field(default_factory=DecideState)
    now: float = NOW
    number: int = 0
    lowers: bool = True  # whether the cluster does as it is told
    pins: dict[Target, Pin] = field(default_factory=dict)
    outcome: Outcome | None = None
    absent: int = 0
    law: Law = field(default_factory=Law)
    weigher: Law = field(default_factory=Law)

    def __post_init__(self) -> None:
        self.wanted = float(len(self.work))
        self.weights = dict.fromkeys(self.work, 1.0)
        self.weigher.value = 1.0

    def _scope(self, name: str) -> Scope:
        if name in self.unread:
            stale = Reading(State.STALE, age=900.0)
            return Scope({Signal.RUNNING: stale, Signal.QUEUE_DEPTH: stale})
        running, waiting = (Reading(State.OK, value, age=self.age) for value in (self.work[name], 0.0))
        return Scope({Signal.RUNNING: running, Signal.QUEUE_DEPTH: waiting})

    def snapshot(self) -> Snapshot:
        name = self.pool.pool
        readings = replace(healthy(), replicas={one: self._scope(one) for one in self.work}, filled_since=NOW - 1e6)
        pools: dict[str, PoolReadings] = {} if self.blind else {name: readings}
        owner = TargetState(self.wanted, self.wanted - self.absent, last_outcome=self.outcome)
        targets = {Target(name, Lever.REPLICAS): owner}
        targets |= {Target(name, Lever.WEIGHT, one): TargetState(w) for one, w in self.weights.items()}
        targets = {t: replace(s, pin=self.pins.get(t)) for t, s in targets.items()}
        return Snapshot(Tick(9 + self.number, self.now, TICK), pools, targets)

    def decide(self, wish: float | None, drain: float | None = None) -> tuple[dict[Target, Decision], DecideState]:
        self.law.value = wish
        pool = self.pool
        if drain is not None:
            pool = replace(pool, levers=(replace(pool.levers[0], drain=drain), *pool.levers[1:]))
        laws = {f"{pool.pool}/replicas": self.law, f"{pool.pool}/weight": self.weigher}
        known = estimate(0.5, evidence={"serving": self.wanted, "proven_rate": 5.0})
        plan, state = decide(self.snapshot(), {pool.pool: known}, FleetRules((pool,)), laws, self.state)
        return {d.target: d for d in plan.decisions}, state

    def tick(self, wish: float | None) -> Decision:
        """One tick: decided, carried out. What the plan says of the replicas."""
        made, self.state = self.decide(wish)
        fall = made[Target(self.pool.pool, Lever.REPLICAS)]
        for target, decision in made.items():
            if decision.send and decision.final is not None:
                if target.lever is Lever.WEIGHT:
                    self.weights[target.member] = decision.final
                elif self.lowers:
                    self._scale(decision)
        self.weights = {name: self.weights.get(name, 1.0) for name in self.work}
        self.now, self.number = self.now + TICK, self.number + 1
        return fall

    def _scale(self, decision: Decision) -> None:
        self.wanted = decision.final or 0.0
        for name in [*decision.leaving, *sorted(self.work, reverse=True)]:
            if len(self.work) > self.wanted and name in self.work:
                del self.work[name]
                self.unread.discard(name)
        while len(self.work) < self.wanted:
            self.work[f"new-{self.number}-{len(self.work)}"] = 3.0

    @property
    def drain(self) -> Drain:
        return self.state.drains.get(self.pool.pool, Drain())


def four() -> World:
    return World({"a": 9.0, "b": 2.0, "c": 7.0, "d": 0.0})


def test_who_has_least_to_finish_goes_and_the_count_waits_for_it() -> None:
    """The newest pod would go by itself, in the middle of a thousand tokens."""
    world = World({"a": 9.0, "b": 2.0, "c": 7.0, "d": 5.0})

    first = world.tick(3.0)
    assert (first.final, first.why, first.leaving) == (4.0, Why.DRAINING, ())
    assert "b may still hold work" in first.steps[-1].detail
    world.tick(3.0)
    assert world.weights == {"a": 1.0, "b": 0.0, "c": 1.0, "d": 1.0}
    assert world.tick(3.0).final == 4.0  # two requests are still running there
    world.work["b"] = 0.0
    last = world.tick(3.0)

    assert (last.final, last.send, last.leaving) == (3.0, True, ("b",))
    assert reason(last) == "law asked 3 (less capacity is enough); first b"
    assert reason(last._replace(leaving=tuple("bcdef"))).endswith("first b, c, d and 2 more")
    assert sorted(world.work) == ["a", "c", "d"]


def test_a_cool_down_is_spent_on_finishing_and_not_before_it() -> None:
    """A fleet that goes down in six steps would pay for each wait twice."""
    world = World(dict.fromkeys("abcd", 0.0), rules(cooldown_down=60.0))
    while world.tick(3.0).final != 3.0:
        assert world.number < 9
    waits = [world.tick(2.0) for _ in range(3)]
    last = world.tick(2.0)

    assert [(one.final, one.why) for one in waits] == [(3.0, Why.COOLDOWN)] * 3
    assert (last.final, last.leaving, world.number) == (2.0, ("b",), 8)


def test_a_cool_down_takes_no_more_than_may_go_after_it_and_gives_back_who_is_needed() -> None:
    world = World(dict.fromkeys("abcdefgh", 0.0), rules(cooldown_down=60.0, rate_down=Rate(0.25, 60.0, True)))
    while world.tick(7.0).final != 7.0:
        assert world.number < 9
    assert world.tick(1.0).why is Why.COOLDOWN
    world.tick(1.0)
    assert (len(world.drain.victims), sum(world.weights.values())) == (1, 6.0)
    for _ in range(12):
        assert world.tick(7.0).final == 7.0
    assert (world.state.drains, set(world.weights.values())) == ({}, {1.0})


def test_a_sample_from_before_the_traffic_ended_is_no_proof_that_it_is_empty() -> None:
    """It was empty when it was scraped, and got its last request a second later."""
    world = four()
    world.age = 40.0
    finals = [world.tick(3.0).final for _ in range(6)]

    # Chosen, asked, read back as 0 in the third: a sample of 40 s is from after that in the sixth.
    assert finals == [4.0, 4.0, 4.0, 4.0, 4.0, 3.0]


def test_the_time_out_ends_the_wait_for_an_answer_without_end() -> None:
    world = World({"a": 9.0, "b": 2.0, "c": 7.0})
    finals = [world.tick(2.0).final for _ in range(10)]

    assert finals[:8] == [3.0] * 8
    assert finals[8] == 2.0  # 120 s after the first
    assert "b" not in world.work


def test_who_is_not_read_is_not_empty() -> None:
    world = four()
    world.tick(3.0)
    world.unread.add("d")

    assert [world.tick(3.0).final for _ in range(7)] == [4.0] * 7
    assert world.tick(3.0).final == 3.0  # the time-out, for the pool itself may fall

    world = four()
    world.unread.add("d")
    world.tick(3.0)
    assert world.drain.victims == ("b",)  # what it holds may be the most of all


def test_a_lowering_that_is_cancelled_gives_the_weight_back_also_where_the_law_of_weights_is_silent() -> None:
    """Without a pace no law raises a weight, and a replica at 5 % is a replica lost."""
    world = World({"a": 9.0, "b": 2.0, "c": 7.0}, weigher=Law(Ask.AT_MOST))
    for _ in range(3):
        world.tick(2.0)
    assert world.weights["b"] == 0.0
    world.weigher.value = 0.0  # AT_MOST nothing: it knows no better than what stands

    back = []
    for _ in range(8):
        world.weigher.value = 1.0
        assert world.tick(3.0).final == 3.0
        back.append(world.weights["b"])

    assert back[0] == 0.0  # the tick that ends it
    assert back[1:6] == [0.2, 0.4, 0.6, 0.8, 1.0]  # as fast as the lever's own limit allows
    assert world.state.drains == {}


def test_the_law_of_weights_does_not_see_who_drains() -> None:
    """Its silence would be a pace, its lost hits the fault of a move, and its way back a slow start."""
    world = four()
    world.tick(3.0)
    world.tick(3.0)
    assert world.weigher.saw == ["a", "b", "c"]
    assert [world.tick(4.0).final, world.tick(4.0).final] == [4.0, 4.0]
    assert world.weigher.saw == ["a", "b", "c", "d"]


def test_a_raise_is_not_held_and_ends_the_drain() -> None:
    world = four()
    world.tick(3.0)
    world.tick(3.0)

    raised = world.tick(6.0)

    assert (raised.final, raised.leaving) == (6.0, ())
    assert world.state.drains["llm"].victims == ()


def test_what_a_person_pins_is_not_delayed_and_what_a_person_weighs_is_not_taken() -> None:
    world = four()
    world.pins[Target("llm", Lever.REPLICAS)] = Pin(2.0, NOW + 900.0, "night")
    assert world.tick(4.0).final == 2.0

    world = four()
    world.pins[Target("llm", Lever.WEIGHT, "d")] = Pin(1.0, NOW + 900.0, "canary")
    world.tick(3.0)
    assert world.drain.victims == ("b",)


class WithOneOut(World):
    """A breaker holds b out of rotation."""

    def snapshot(self) -> Snapshot:
        made = super().snapshot()
        factors = {Target("llm", Lever.BREAKER, n): TargetState(0.0 if n == "b" else 1.0) for n in self.work}
        return replace(made, targets={**made.targets, **factors})


def test_who_is_out_of_rotation_goes_first() -> None:
    breaker = LeverRules(Lever.BREAKER, "none", "none", limits=Limits(0.0, 1.0, 0.05), members=())
    pool = rules(give_up=30.0)
    pool = replace(pool, levers=(*pool.levers, breaker))
    world = WithOneOut({"a": 0.0, "b": 5.0, "c": 5.0}, pool)
    for _ in range(4):
        world.tick(2.0)
    assert world.drain.victims == ("b",)


def test_the_last_one_that_serves_is_not_drained() -> None:
    """The other one is out of rotation, and its weight is a person's: nobody would be left."""
    fall = Decision(Target("llm", Lever.REPLICAS), 2.0, 1.0, Why.SURPLUS)
    mine, pinned = Target("llm", Lever.WEIGHT, "a"), Target("llm", Lever.WEIGHT, "b")
    out = Target("llm", Lever.BREAKER, "b")
    made = {
        fall.target: fall, mine: Decision(mine, 1.0, 1.0, Why.STEADY), pinned: Decision(pinned, 1.0, 1.0, Why.PIN),
        out: Decision(out, 0.0, 0.0, Why.STUCK_REPLICA),
    }  # fmt: skip

    snapshot = World({"a": 0.0, "b": 5.0}).snapshot()

    assert hold(made, FleetRules((rules(),)), snapshot, {}) == (made, {})


def test_replicas_that_never_came_are_not_drained_for() -> None:
    """Kubernetes takes those first that are not ready: who serves stays."""
    world = four()
    world.absent = 1
    fall = world.tick(3.0)

    assert (fall.final, world.state.drains) == (3.0, {})


def test_the_victim_keeps_nothing_while_it_is_seen_and_is_not_chosen_again() -> None:
    """Its pod ends for minutes; a router that does not know would send it requests to lose."""
    world = four()
    for _ in range(3):
        world.tick(3.0)
    fall = world.tick(3.0)
    assert fall.leaving == ("d",)
    world.work["d"], world.weights["d"] = 0.0, 0.0  # it still answers scrapes

    for _ in range(7):
        world.tick(3.0)
        assert world.weights["d"] == 0.0
    world.tick(2.0)
    assert world.drain.victims == ("b",)
    for _ in range(8):
        world.tick(3.0)
    assert world.weights["d"] == 1.0  # the cluster took another one


def test_a_lowering_that_failed_is_sent_again_with_the_same_names() -> None:
    world = four()
    world.lowers = False
    falls = [world.tick(3.0) for _ in range(6)]

    assert [fall.leaving for fall in falls[3:]] == [("d",)] * 3
    assert [fall.final for fall in falls[3:]] == [3.0] * 3
    world.unread.add("d")  # the write was lost, and the pod is ending
    assert world.tick(3.0).leaving == ("d",)


@pytest.mark.parametrize("mode", [Mode.OBSERVE, Mode.PROTECT])
def test_who_does_not_lower_takes_no_weight(mode: Mode) -> None:
    pool = rules()
    world = World({"a": 1.0, "b": 2.0}, replace(pool, levers=(replace(pool.levers[0], mode=mode), pool.levers[1])))
    for _ in range(4):
        world.tick(1.0)

    assert world.weights == {"a": 1.0, "b": 1.0}


def test_an_outage_in_the_middle_waits_and_then_gives_up_and_lowers_nothing() -> None:
    world = four()
    world.work["d"] = 1.0
    world.tick(3.0)
    world.tick(3.0)
    world.blind = True
    finals = [world.tick(3.0).final for _ in range(12)]

    assert finals == [4.0] * 12
    assert world.weights["d"] == 0.0  # nothing is given back either while nothing is read
    assert world.state.drains.get("llm", Drain()).victims == ()


def test_one_scrape_that_is_missed_does_not_begin_it_anew() -> None:
    world = four()
    world.work["d"] = 1.0
    finals = []
    for tick in range(9):
        world.blind = tick in (2, 5)
        finals.append(world.tick(3.0).final)

    assert finals == [4.0] * 8 + [3.0]  # 120 s after the first


def test_those_that_leave_do_not_count_as_held_back() -> None:
    """A fifth of five may be held back: of two that go, one would keep its traffic to the end."""
    pool = rules()
    pool = replace(pool, levers=(pool.levers[0], replace(pool.levers[1], group=0.2)))
    world = World(dict.fromkeys("abcde", 0.0), pool)
    world.tick(3.0)
    world.tick(3.0)
    assert [name for name, weight in world.weights.items() if weight == 0.0] == ["a", "b"]


def test_the_fleet_guard_does_not_count_a_fall_twice() -> None:
    """Held 300 s by the guard in the middle of its drain, the pool would give up, and begin again, for ever."""
    pools = tuple(rules(name=f"p{n}") for n in range(4))
    worlds = [World({f"p{n}-{m}": 0.0 for m in range(4)}, pool) for n, pool in enumerate(pools)]
    laws: dict[str, Law] = {}
    for n in range(4):
        laws[f"p{n}/replicas"], laws[f"p{n}/weight"] = worlds[n].law, worlds[n].weigher
    guard = FleetGuard(share=0.2, hold=300.0, min_pools=3)
    state, seen = DecideState(), list[float]()
    for tick in range(8):
        for n, world in enumerate(worlds):
            world.law.value, world.now = 3.0 if n == 0 or tick >= 2 else 4.0, NOW + TICK * tick
        shots = [world.snapshot() for world in worlds]
        whole = Snapshot(
            shots[0].tick, {p: r for s in shots for p, r in s.pools.items()},
            {t: o for s in shots for t, o in s.targets.items()},
        )  # fmt: skip
        plan, state = decide(whole, {}, FleetRules(pools, guard=guard), laws, state)
        for decision in plan.decisions:
            if decision.target.lever is Lever.WEIGHT and decision.final is not None:
                worlds[int(decision.target.pool[1])].weights[decision.target.member] = decision.final
        seen.append(next(d.final or 0.0 for d in plan.decisions if d.target == Target("p0", Lever.REPLICAS)))

    assert seen[:3] == [4.0, 4.0, 4.0]
    assert seen[3] == 3.0


def test_a_raise_that_needs_the_room_in_a_budget_is_not_kept_waiting() -> None:
    """One pool drowns while another one says goodbye to its last request."""
    rich, poor = rules(name="rich"), rules(name="poor")
    a, b = World({f"a{n}": 3.0 for n in range(4)}, rich), World({f"b{n}": 3.0 for n in range(4)}, poor)

    def both(room: float, wish: float) -> tuple[dict[str, Decision], DecideState]:
        a.law.value, b.law.value = 3.0, wish
        one, two = a.snapshot(), b.snapshot()
        whole = Snapshot(one.tick, {**one.pools, **two.pools}, {**one.targets, **two.targets})
        laws = {"rich/replicas": a.law, "rich/weight": a.weigher, "poor/replicas": b.law, "poor/weight": b.weigher}
        budget = Budget("gpus", room, frozenset({"rich", "poor"}))
        plan, state = decide(
            whole, {"rich": estimate(0.5), "poor": estimate(0.5)}, FleetRules((rich, poor), (budget,)), laws,
            DecideState(),
        )  # fmt: skip
        return {d.target.pool: d for d in plan.decisions if d.target.lever is Lever.REPLICAS}, state

    made, state = both(8.0, 5.0)
    assert (made["rich"].final, made["rich"].leaving, made["poor"].final) == (3.0, ("a0",), 5.0)
    made, state = both(9.0, 5.0)  # room enough for both
    assert (made["rich"].final, made["poor"].final) == (4.0, 5.0)
    assert state.drains["rich"].victims == ("a0",)


def test_what_is_remembered_survives_the_ledger_and_one_of_before_is_read() -> None:
    held = Drain(5.0, ("b", "a"), {"b": 4.0}, 3.0, {"x": 9.0}, {"b": 1.0, "a": 0.3})
    states = json.loads(json.dumps(encode_states(DecideState(drains={"llm": held}), {})))
    assert restore(states, {})[0].drains == {"llm": held}
    del states["drains"]
    assert restore(states, {})[0].drains == {}
    named = Decision(Target("llm", Lever.REPLICAS), 4.0, 3.0, Why.SURPLUS, leaving=("b",))
    assert codec.decode(Decision, codec.encode(named)) == named


def test_a_config_that_no_longer_drains_gives_back_what_was_taken() -> None:
    world = World({"a": 9.0, "b": 2.0, "c": 7.0}, weigher=Law(Ask.AT_MOST))
    for _ in range(3):
        world.tick(2.0)
    assert world.weights["b"] == 0.0
    world.pool = rules(drain=0.0)
    for _ in range(8):
        world.tick(3.0)
    assert (world.weights["b"], world.state.drains) == (1.0, {})


moments = st.tuples(
    st.sampled_from([2.0, 3.0, 3.0, 3.0, 4.0, 6.0, None]),  # the wish
    st.sampled_from(["", "", "", "unread", "blind", "stuck write"]),
    st.dictionaries(st.sampled_from("abcd"), st.integers(0, 2), max_size=4),  # what is in flight from now on
)


@settings(deadline=None, max_examples=60)
@given(st.lists(moments, min_size=4, max_size=30), st.sampled_from([0.0, 60.0]))
def test_nobody_is_lowered_early_no_raise_is_held_and_no_weight_is_lost(
    story: Sequence[tuple[float | None, str, Mapping[str, int]]], cooldown: float
) -> None:
    """Whatever is wished, read and done: whoever goes was seen empty after its traffic ended, or its time was out."""
    world = World({"a": 9.0, "b": 2.0, "c": 7.0, "d": 0.0}, rules(cooldown_down=cooldown))
    chosen: dict[str, float] = {}
    zero: dict[str, float] = {}
    for wish, trouble, work in story:
        world.work.update({name: float(n) for name, n in work.items() if name in world.work})
        world.blind = trouble == "blind"
        world.unread = {"a", "d"} & set(world.work) if trouble == "unread" else set()
        world.outcome = Outcome.UNKNOWN if trouble == "stuck write" else None
        zero = {n: zero.get(n, world.now) for n, w in world.weights.items() if w == 0.0}
        plain = world.decide(wish, drain=0.0)[0][Target("llm", Lever.REPLICAS)]
        before, count, now = dict(world.work), world.wanted, world.now
        unread, blind = set(world.unread), world.blind
        made = world.tick(wish)
        chosen = {n: chosen.get(n, now) for n in (*world.drain.victims, *made.leaving)}
        final, without = made.final or 0.0, plain.final or 0.0

        assert final >= without
        if without >= count:
            assert final == without
        if final < count:
            assert not blind
            assert len(made.leaving) >= count - final
            for name in made.leaving:
                empty = name in zero and name not in unread and before[name] == 0 and now - LAG >= zero[name]
                assert empty or now - chosen[name] >= TIME_OUT or world.drain.goal is not None
        assert any(w > 0 for w in world.weights.values())

    world.blind, world.outcome = False, None
    world.unread.clear()
    for _ in range(20):
        world.tick(world.wanted)
    assert world.state.drains == {}
    assert set(world.weights.values()) == {1.0}
