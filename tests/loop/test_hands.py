"""Actuators that hang, refuse or talk nonsense, and what that may cost the others."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest

from controller.core.model import (
    Applied,
    Decision,
    Lever,
    Mode,
    Outcome,
    Pending,
    Phase,
    Plan,
    Target,
    TargetState,
)
from controller.core.ports import ActuatorError, Limits
from controller.core.rules import Budget, FleetRules, LeverRules, PoolRules
from controller.core.why import Why
from controller.run.crew import WORKERS, Crew
from controller.run.hands import HOLD_BACK, Hands
from controller.run.logs import Edges
from controller.run.loop import ControlLoop, log
from controller.run.readback import believable, expected
from tests.loop.test_failures import Hands as Hand
from tests.loop.test_failures import loop

START = 1_000_000.0
A, B = Target("a", Lever.REPLICAS), Target("b", Lever.REPLICAS)
BUDGET = 0.2  # seconds of real time that a phase may take here


class Stuck(Hand):
    """Hangs in the phases that it is told, until it is released; `begun` tells each call that hangs."""

    def __init__(self, have: Mapping[str, float], *phases: str) -> None:
        super().__init__(have)
        self.phases = set(phases)
        self.begun = threading.Semaphore(0)
        self.released = threading.Event()
        self.reads: list[int] = []

    def _hang(self, phase: str) -> None:
        if phase in self.phases:
            self.begun.release()
            self.released.wait()

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        self.reads.append(len(targets))
        self._hang("read")
        return super().read(targets, now)

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        self._hang("apply")
        return super().apply(decisions, now)


@pytest.fixture
def stuck() -> Iterator[list[Stuck]]:
    """Those that a test made are released at its end."""
    made: list[Stuck] = []
    yield made
    for one in made:
        one.released.set()


def up(target: Target, before: float = 3.0, after: float = 5.0) -> Decision:
    return Decision(target, before, after, Why.DEMAND, send=True)


def test_one_hanging_actuator_stops_every_pool(stuck: list[Stuck]) -> None:
    stuck.append(Stuck({"a": 3.0}, "read"))
    fine = Hand({"b": 3.0})
    made = loop({"a/replicas": stuck[0], "b/replicas": fine}, {"a": 5.0, "b": 5.0}, deadline=BUDGET)
    first = made.tick(START)
    second = made.tick(START + 15)

    assert fine.have["b"] == 5.0
    assert first.plan.decisions[0].why == Why.UNREADABLE_TARGET
    assert "did not answer within 0.2 s" in first.snapshot.targets[A].error
    assert "previous call has not returned" in second.snapshot.targets[A].error
    assert stuck[0].reads == [1], "a call that hangs is not joined by another at every tick"


def test_a_write_that_hangs_is_unknown_and_verified_once_it_has_returned(stuck: list[Stuck]) -> None:
    stuck.append(Stuck({"a": 3.0}, "apply"))
    stuck[0].answers = {"a": Outcome.UNKNOWN}
    fine = Hand({"b": 3.0})
    made = loop({"a/replicas": stuck[0], "b/replicas": fine}, {"a": 5.0, "b": 5.0}, deadline=BUDGET)
    first = made.tick(START)
    assert [a.outcome for a in first.applied] == [Outcome.UNKNOWN, Outcome.DONE]

    made.tick(START + 15)
    assert [call[0] for call in stuck[0].calls] == [], "nothing is asked of it while it is in a call"
    stuck[0].phases.clear()
    stuck[0].released.set()
    while not stuck[0].calls or stuck[0].calls[-1][0] != "verify":
        made.tick(START + 30)
    assert [call[0] for call in stuck[0].calls] == ["apply", "verify"]


def test_a_reload_forgets_that_an_actuator_is_in_a_call(stuck: list[Stuck]) -> None:
    stuck.append(Stuck({"a": 3.0}, "read"))
    hands = {"a/replicas": stuck[0], "b/replicas": Hand({"b": 3.0})}
    old = loop(hands, {"a": 3.0, "b": 3.0}, deadline=BUDGET)
    old.tick(START)
    new = loop(hands, {"a": 3.0, "b": 3.0}, deadline=BUDGET)
    new.adopt(old)
    new.tick(START + 15)

    assert stuck[0].reads == [1]


def test_as_many_hanging_actuators_as_there_are_workers_starve_the_healthy_ones(stuck: list[Stuck]) -> None:
    stuck += [Stuck({}, "read") for _ in range(WORKERS)]
    fine = Hand({})
    crew = Crew(BUDGET)
    calls = [(one, lambda one=one: one.read([], START)) for one in [*stuck, fine]]
    first = crew.call(calls)
    second = crew.call(calls)

    assert [a.begun for a in first] == [True] * WORKERS + [False]
    assert "was not asked" in first[-1].silence
    assert second[-1].value == {}
    assert not any(a.begun for a in second[:-1])


def test_what_was_not_begun_in_time_is_done_later_behind_our_back(stuck: list[Stuck]) -> None:
    """A write that waited for a worker when the budget ran out must never go out."""
    stuck += [Stuck({}, "read") for _ in range(WORKERS)]
    late: list[str] = []
    crew = Crew(BUDGET)
    calls = [(one, lambda one=one: one.read([], START)) for one in stuck]
    crew.call([*calls, (Hand({}), lambda: late.append("sent"))])
    for one in stuck:
        one.released.set()
    crew.call([(one, dict) for one in stuck])

    assert late == []


def test_one_read_per_target_where_one_for_all_would_do() -> None:
    hand = Stuck({"a": 3.0, "b": 3.0})
    loop(hand, {"a": 3.0, "b": 3.0}).tick(START)
    assert hand.reads == [2]

    hand.reads.clear()
    hand.unreadable = {"a"}
    result = loop(hand, {"a": 3.0, "b": 3.0}).tick(START)
    assert hand.reads == [2, 1, 1]
    assert [d.current for d in result.plan.decisions] == [None, 3.0]


def test_a_shutdown_in_the_middle_of_a_tick_still_writes() -> None:
    hand = Hand({"a": 3.0})
    made = loop(hand, {"a": 5.0})
    made.stop()
    result = made.tick(START)

    assert hand.calls == []
    assert result.applied[0].outcome == Outcome.REFUSED
    assert "stopping" in result.applied[0].detail


# --- refusals ----------------------------------------------------------------------------------------------------


def test_a_refused_value_is_sent_again_at_every_tick_all_night() -> None:
    hand = Hand({"a": 3.0})
    hand.answers = {"a": Outcome.REFUSED}
    made = loop(hand, {"a": 5.0})
    ticks = [made.tick(START + 15 * i) for i in range(int(HOLD_BACK / 15) + 1)]

    assert [call[0] for call in hand.calls] == ["apply", "apply"]
    assert ticks[1].applied[0].outcome == Outcome.REFUSED
    assert "tried again at 13:51:40 UTC" in ticks[1].applied[0].detail


def test_another_value_waits_for_the_refusal_of_the_first() -> None:
    hand = Hand({"a": 3.0})
    hand.answers = {"a": Outcome.REFUSED}
    made = loop(hand, {"a": 5.0})
    made.tick(START)
    hand.answers = {}
    applied = made.hands.act(Plan(START + 15, (up(A, 3.0, 4.0),)), START + 15)

    assert [a.outcome for a in applied] == [Outcome.DONE]


def test_a_lost_lease_counts_as_a_refusal_of_the_target() -> None:
    hand, allowed = Hand({"a": 3.0}), [False]
    made = loop(hand, {"a": 5.0}, fence=lambda: allowed[0])
    made.tick(START)
    allowed[0] = True
    made.tick(START + 15)

    assert hand.have["a"] == 5.0


# --- failures ----------------------------------------------------------------------------------------------------


def sent(hand: Hand) -> list[str]:
    return [call[0] for call in hand.calls if call[0] == "apply"]


def ticks_that_send(hand: Hand, made: ControlLoop, number: int, every: float = 15.0) -> list[int]:
    """In which ticks, counted from 0, something was sent."""
    found = []
    for i in range(number):
        before = len(sent(hand))
        made.tick(START + every * i)
        found += [i] * (len(sent(hand)) - before)
    return found


def test_a_target_that_fails_and_fails_is_asked_at_every_tick_until_it_is_dead() -> None:
    hand = Hand({"a": 3.0})
    hand.answers = {"a": Outcome.FAILED}
    made = loop(hand, {"a": 5.0})

    # 1, 2, 4, 8 and 16 ticks later, and then every 5 minutes, which are 20 ticks
    assert ticks_that_send(hand, made, 72) == [0, 1, 3, 7, 15, 31, 51, 71]
    last = made.tick(START + 15 * 72).applied[0]
    assert last.outcome == Outcome.FAILED
    assert "8 failures in a row" in last.detail


def test_slow_ticks_are_made_slower_still() -> None:
    hand = Hand({"a": 3.0})
    hand.answers = {"a": Outcome.FAILED}

    assert ticks_that_send(hand, loop(hand, {"a": 5.0}), 5, every=HOLD_BACK) == [0, 1, 2, 3, 4]


def test_one_failure_long_ago_delays_the_retry_of_the_next() -> None:
    hand = Hand({"a": 3.0})
    hand.answers = {"a": Outcome.FAILED}
    made = loop(hand, {"a": 5.0})
    made.tick(START)
    hand.answers = {}
    made.tick(START + 15)
    hand.answers, hand.have = {"a": Outcome.FAILED}, {"a": 3.0}
    hand.calls.clear()
    for i in range(2, 4):
        made.tick(START + 15 * i)

    assert sent(hand) == ["apply"] * 2


def test_a_failing_target_makes_its_neighbours_wait() -> None:
    hand = Hand({"a": 3.0, "b": 3.0})
    hand.answers = {"a": Outcome.FAILED, "b": Outcome.FAILED}
    made = loop(hand, {"a": 5.0, "b": 5.0})
    for i in range(3):
        made.tick(START + 15 * i)
    hand.answers = {"a": Outcome.FAILED}
    applied = {one.target: one.outcome for one in made.tick(START + 45).applied}
    assert applied == {A: Outcome.FAILED, B: Outcome.DONE}
    hand.calls.clear()
    made.hands.act(Plan(START + 60, (up(A), up(B, 5.0, 6.0))), START + 60)

    assert [call[1] for call in hand.calls] == ["b"]


def test_what_was_down_and_is_back_waits_for_the_end_of_a_back_off() -> None:
    hand = Hand({"a": 3.0})
    hand.answers = {"a": Outcome.FAILED}
    made = loop(hand, {"a": 5.0})
    for i in range(8):
        made.tick(START + 15 * i)
    hand.unreadable = {"a"}
    made.tick(START + 120)
    hand.unreadable, hand.answers = set(), {}

    assert [a.outcome for a in made.tick(START + 135).applied] == [Outcome.DONE]


def test_a_person_who_puts_a_value_back_waits_for_a_back_off() -> None:
    hand = Hand({"a": 3.0})
    hand.answers = {"a": Outcome.FAILED}
    made = loop(hand, {"a": 5.0})
    for i in range(8):
        made.tick(START + 15 * i)
    hand.answers = {}

    assert [a.outcome for a in made.put({A: 4.0}, START + 120)] == [Outcome.DONE]


def test_writes_that_are_lost_and_found_not_to_have_happened_are_repeated_without_a_pause() -> None:
    hand = Hand({"a": 3.0})
    hand.answers, hand.verdicts = {"a": Outcome.UNKNOWN}, {"a": Outcome.FAILED}

    assert ticks_that_send(hand, loop(hand, {"a": 5.0}), 17) == [0, 1, 3, 7, 15]


def test_an_actuator_that_is_busy_counts_as_a_target_that_fails(stuck: list[Stuck]) -> None:
    stuck.append(Stuck({"a": 3.0}, "apply"))
    keys = {"a/replicas": stuck[0], "b/replicas": Hand({"b": 3.0})}
    made = loop(keys, {"a": 5.0, "b": 3.0}, deadline=BUDGET / 10).hands
    told = [made.act(Plan(START + i, (up(A),)), START + i)[0] for i in range(4)]
    assert [one.outcome for one in told] == [Outcome.UNKNOWN, *[Outcome.FAILED] * 3]
    stuck[0].phases.clear()
    stuck[0].released.set()
    while told[-1].outcome is not Outcome.DONE:  # until its call has returned
        assert "in a row" not in told[-1].detail
        told += made.act(Plan(START + 4, (up(A),)), START + 4)


def test_a_reload_forgets_who_was_failing() -> None:
    hand = Hand({"a": 3.0})
    hand.answers = {"a": Outcome.FAILED}
    made = loop(hand, {"a": 5.0})
    for i in range(3):
        made.tick(START + 15 * i)
    after = loop(hand, {"a": 5.0})
    after.adopt(made)
    hand.calls.clear()
    after.tick(START + 45)
    assert sent(hand) == ["apply"]
    after.tick(START + 60)
    assert sent(hand) == ["apply"]


# --- shared budgets ----------------------------------------------------------------------------------------------


def shared(hands: Hand, most: float) -> Hands:
    lever = LeverRules(Lever.REPLICAS, "wants", "hands", Mode.AUTO, Limits(0, 50))
    pools = tuple(PoolRules(t.pool, (), (lever,), (t,)) for t in (A, B))
    rules = FleetRules(pools, (Budget("gpus", most, frozenset({"a", "b"})),))
    keys = {"a/replicas": hands, "b/replicas": hands}
    return Hands(rules, keys, inline=(), budget=1.0, fence=lambda: True, pins={}, edges=Edges(log))


@pytest.mark.parametrize(("most", "b"), [(100.0, 9.0), (11.0, 3.0)])
def test_a_refused_lowering_blocks_the_raises_of_a_budget_that_has_room(most: float, b: float) -> None:
    hand = Hand({"a": 3.0, "b": 3.0})
    hand.answers = {"a": Outcome.REFUSED}
    hands = shared(hand, most)
    hands.act(Plan(START, (up(A, 3.0, 2.0), up(B, 3.0, 9.0))), START)

    assert hand.have == {"a": 3.0, "b": b}


# --- what a target says of itself --------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-5.0, 2.5, 1e30, float("nan"), float("inf")])
def test_an_absurd_read_back_becomes_the_base_of_a_decision(value: float) -> None:
    hand = Hand({"a": value})
    result = loop(hand, {"a": 5.0}).tick(START)

    assert result.plan.decisions[0].why == Why.UNREADABLE_TARGET
    assert "it says that its value is" in result.snapshot.targets[A].error
    assert hand.calls == []


def test_a_weight_may_be_a_fraction_and_an_absurd_ready_count_is_dropped() -> None:
    weight = Target("a", Lever.WEIGHT, "pod-1")
    assert believable(weight, TargetState(0.25)) == TargetState(0.25)

    state = believable(A, TargetState(4.0, -3.0))
    assert (state.accepted, state.ready) == (4.0, None)
    assert "-3 are ready" in state.error


class Assuming(Hand):
    """Cannot tell its value, and so tells the configured initial one until something was accepted."""

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        return {t: replace(s, assumed=True) for t, s in super().read(targets, now).items()}


def test_a_restart_falls_back_to_the_initial_value() -> None:
    """8 replicas, a webhook without read_url, initial 2: a new process made 3 of them in the name of protection."""
    hand = Assuming({"a": 2.0})
    config = {"pools": {"a": {"levers": {"replicas": {"actuator": {"kind": "webhook", "url": "http://a"}}}}}}
    old = loop(hand, {"a": 8.0}, config=config)
    old.tick(START)
    assert old.hands.positions == {A: 8.0}

    new = loop(Assuming({"a": 2.0}), {"a": 9.0}, config=config)
    new.adopt(old)
    result = new.tick(START + 15)
    assert (result.plan.decisions[0].current, result.plan.decisions[0].final) == (8.0, 9.0)


def test_another_actuator_of_which_nothing_tells_where_it_sends_is_believed_to_have_what_the_first_was_sent() -> None:
    old = loop(Assuming({"a": 2.0}), {"a": 8.0})
    old.tick(START)
    other = Assuming({"a": 2.0})
    new = loop(other, {"a": 8.0})
    new.adopt(old)
    new.tick(START + 15)
    assert other.have == {"a": 8.0}


def test_without_any_memory_the_initial_value_counts() -> None:
    assert loop(Assuming({"a": 2.0}), {"a": 3.0}).tick(START).plan.decisions[0].current == 2.0


def test_a_target_that_can_tell_is_not_overruled_by_memory() -> None:
    hand = Hand({"a": 3.0})
    made = loop(hand, {"a": 8.0})
    made.tick(START)
    hand.have["a"] = 4.0

    assert made.tick(START + 15).plan.decisions[0].current == 4.0


def test_capacity_on_its_way_without_a_time_of_arrival() -> None:
    asked = Pending(2, Phase.REQUESTED, since=100.0)
    own = Pending(1, Phase.LOADING, since=100.0, eta=150.0)

    assert [p.eta for p in expected((asked, own), cold_start=180.0)] == [280.0, 150.0]


def test_an_answer_of_another_shape_ends_the_tick() -> None:
    class Odd(Hand):
        def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
            return [TargetState(1.0)]  # type: ignore[return-value]

    result = loop({"a/replicas": Odd({}), "b/replicas": Hand({"b": 3.0})}, {"a": 5.0, "b": 5.0}).tick(START)
    assert result.plan.decisions[0].why == Why.UNREADABLE_TARGET
    assert result.plan.decisions[1].final == 5.0


def test_a_broken_target_in_a_batch_is_named_with_its_own_error() -> None:
    class Half(Hand):
        def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
            if A in targets:
                raise ActuatorError("a/replicas: gone")
            return super().read(targets, now)

    states = loop(Half({"b": 3.0}), {"a": 5.0, "b": 5.0}).tick(START).snapshot.targets
    assert (states[A].error, states[B].accepted) == ("a/replicas: gone", 3.0)
