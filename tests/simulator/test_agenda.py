"""Virtual time never goes back, and what is due at the same moment happens in the order in which it was put down."""

import math
from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from simulator.agenda import Agenda, Wake


def run(agenda: Agenda) -> None:
    while agenda.next_at < math.inf:
        agenda.turn()


def test_equal_times_keep_their_order_and_the_past_is_now() -> None:
    agenda = Agenda(10.0)
    seen: list[tuple[str, float]] = []

    def note(name: str, now: float) -> None:
        seen.append((name, now))

    for name, time in (("b", 12.0), ("c", 12.0), ("a", 5.0), ("never", math.inf)):
        agenda.at(time, partial(note, name))
    run(agenda)
    assert seen == [("a", 10.0), ("b", 12.0), ("c", 12.0)]


@given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=20))
def test_a_wake_calls_at_the_earliest_time_that_was_planned_and_not_again_for_the_rest(times: list[float]) -> None:
    agenda = Agenda(0.0)
    calls: list[float] = []
    wake = Wake(agenda, calls.append)
    for time in times:
        wake.plan(time)
    run(agenda)
    assert calls == [min(times)]


@given(st.lists(st.floats(0.1, 5.0), min_size=1, max_size=10), st.floats(0.0, 3.0))
def test_a_wake_that_is_planned_anew_in_its_call_misses_nothing(gaps: list[float], early: float) -> None:
    agenda, left = Agenda(0.0), list(gaps)
    calls: list[float] = []

    def call(now: float) -> None:
        calls.append(now)
        if left:
            wake.plan(now + left.pop())

    wake = Wake(agenda, call)
    wake.plan(early + 1.0)
    agenda.at(early, lambda _: wake.plan(early + 0.5))
    run(agenda)
    assert len(calls) == len(gaps) + 1
    assert calls == sorted(calls)
