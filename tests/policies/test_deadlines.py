"""Deadlines are cut when what is served comes late for its wait, and for no other reason; and return on evidence."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.model import Ask, Lever, PoolReadings, Proposal, Target, TargetState, Tick
from controller.core.ports import Balance, Brief, Estimate, View
from controller.core.reading import Reading, State, ok
from controller.core.setpoints import DEADLINE, OWN
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why
from controller.run.codec import decode, encode
from policies.deadlines import Memory
from policies.gate import Gate
from tests.support.cases import NOW, healthy

TARGET = Target("llm", Lever.ADMISSION, DEADLINE)
PROMISE = (Objective("ttft", Signal.TTFT, 2.0, 0.95, 60.0),)
LAW = Gate(Gate.Config())
BRIEF = Brief(Balance(8.0, 4.0), 4.0)


def pool(ttft: Reading | None, delay: Reading) -> PoolReadings:
    made = healthy(queue_delay=delay)
    return replace(made, latencies={Signal.TTFT: {"p95": ttft}}) if ttft is not None else made


def propose(
    current: float, ttft: Reading | None, delay: Reading, *, at: float = 15.0, state: Gate.State | None = None,
    trusted: bool = True, objectives: tuple[Objective, ...] = PROMISE,
) -> tuple[Proposal, Gate.State]:  # fmt: skip
    view = View(
        Tick(5, NOW + at, 15.0), pool(ttft, delay), {TARGET: TargetState(current)}, {TARGET: OWN[DEADLINE]},
        Estimate(demand=8.0, trusted=trusted, passing=0.5),
    )  # fmt: skip
    (made,), after = LAW.propose(view, objectives, BRIEF, state if state is not None else Gate.State(at=NOW))
    return made, after


def test_a_wait_as_long_as_the_deadlines_is_cut_by_what_it_is_late() -> None:
    """Served waits are in proportion to the deadlines, so the first cut should all but do."""
    made, after = propose(1.0, ok(5.0), ok(4.0))

    assert (made.ask, made.value, made.why) == (Ask.SET, 0.4, Why.LATENCY_HIGH)
    assert made.evidence["late"] == pytest.approx(math.log(2.5))
    assert propose(1.0, ok(500.0), ok(4.0))[0].value == 0.25  # one reading is not believed further than that
    assert propose(0.15, ok(500.0), ok(4.0))[0].value == 0.1
    assert decode(Gate.State, encode(after)) == after


def test_one_queue_is_not_cut_for_twice() -> None:
    """The latencies of the next minute are still those of who waited before the cut."""
    _, after = propose(1.0, ok(5.0), ok(4.0))
    again, after = propose(0.4, ok(5.0), ok(4.0), at=30.0, state=after)
    assert (again.ask, again.value) == (Ask.AT_MOST, 0.4)

    later, _ = propose(0.4, ok(2.5), ok(1.0), at=75.0, state=after)
    assert later.value == pytest.approx(0.3, abs=0.051)


def test_a_wait_that_no_engine_can_see_is_late_all_the_same() -> None:
    """The engine's clock begins when the gateway lets go."""
    assert propose(1.0, ok(0.3), ok(4.0))[0].value == 0.5


def test_first_tokens_that_are_late_while_nobody_waits_cut_nothing() -> None:
    """Long prompts and slow replicas are nobody's wait: refusing more makes none of them quicker."""
    assert propose(0.6, ok(9.0), ok(0.0))[0].value >= 0.6
    assert propose(1.0, ok(9.0), ok(0.2))[0] == propose(1.0, ok(9.0), ok(0.0))[0]


def test_what_comes_back_for_want_of_a_queue_does_not_say_that_latency_is_low() -> None:
    """Whoever read "well below its target" beside a TTFT of four times it looked for the fault elsewhere."""
    for ttft, why in ((9.0, Why.NOBODY_WAITS), (1.9, Why.NOBODY_WAITS), (0.5, Why.LATENCY_LOW)):
        made, _ = propose(0.5, ok(ttft), ok(0.0), at=60.0)
        assert (made.value > 0.5, made.why) == (True, why)


def test_a_cut_begins_where_the_value_stands_and_not_where_its_ramp_is() -> None:
    """A guard holds a raise for a minute; a queue that comes in it is not met by a factor that nobody had."""
    state = Gate.State(at=NOW)
    for at in (15.0, 30.0, 45.0, 60.0):
        _, state = propose(0.4, ok(0.8), ok(0.8), at=at, state=state)
    assert propose(0.4, ok(4.0), ok(4.0), at=75.0, state=state)[0].value <= 0.25


def test_it_comes_back_little_by_little_and_all_the_way() -> None:
    state, value, at = Gate.State(at=NOW, deadline=Memory(0.4, NOW - 600.0)), 0.4, 0.0
    seen = []
    while value < 1.0 and at < 900.0:
        at += 15.0
        made, state = propose(value, ok(0.8), ok(0.8), at=at, state=state)
        assert made.value - value <= 0.05 + 1e-9
        value = made.value
        seen.append(value)
    assert value == 1.0
    assert at == pytest.approx(360.0, abs=30.0)  # 0.1 a minute
    assert propose(1.0, ok(0.8), ok(0.8))[0].why is Why.STEADY


def test_what_is_just_in_time_stays_as_it_is() -> None:
    assert propose(0.4, ok(1.9), ok(1.8))[0].value == 0.4


@pytest.mark.parametrize(
    ("ttft", "delay", "trusted"),
    [
        (Reading(State.STALE, 0.5), ok(0.6), True),
        (Reading(State.MISSING), ok(0.6), True),
        (ok(0.5), Reading(State.MISSING), True),
        (ok(0.5), Reading(State.CENSORED, lo=0.1), True),
        (None, ok(0.6), True),
        (ok(0.5), ok(0.6), False),
    ],
)
def test_without_data_nothing_is_given_back(ttft: Reading | None, delay: Reading, trusted: bool) -> None:
    made, _ = propose(0.4, ttft, delay, trusted=trusted, state=Gate.State(at=NOW - 3600.0))
    assert (made.ask, made.value) == (Ask.AT_MOST, 0.4)


def test_a_queue_of_which_nobody_is_served_is_late() -> None:
    """Its first tokens are none, which reads like none that are late."""
    assert propose(1.0, Reading(State.NO_TRAFFIC), Reading(State.CENSORED, lo=8.0))[0].value == 0.25


def test_a_promise_to_one_class_says_nothing_of_the_pools_latency() -> None:
    one = (Objective("ttft", Signal.TTFT, 2.0, 0.95, 60.0, klass="web"),)
    made, _ = propose(1.0, ok(9.0), ok(9.0), objectives=one)
    assert (made.ask, made.value) == (Ask.AT_MOST, 1.0)


@given(
    current=st.floats(0.1, 1.0), ttft=st.floats(1e-6, 1e6), delay=st.floats(0.0, 1e6), gone=st.floats(-60.0, 1e6)
)  # fmt: skip
def test_it_stays_in_its_bounds_and_rises_by_no_more_than_its_pace(
    current: float, ttft: float, delay: float, gone: float
) -> None:
    made, _ = propose(current, ok(ttft), ok(delay), at=gone)
    assert 0.1 <= made.value <= 1.0
    if made.value > current:
        assert made.value - current <= 0.1 * 2 + 1e-9  # a gap counts for two minutes
