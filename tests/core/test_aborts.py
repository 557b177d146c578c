"""Requests whose client went away, where the engine does not count them."""

import pytest

from controller.core.facts import Fact
from controller.core.model import PoolReadings
from controller.core.reading import State
from controller.core.signals import Signal
from tests.support.world import Watch

BLIND = {Fact.ABORTED: "not counted", Fact.RESPONSES: "no HTTP layer"}


def see(*in_flight: float, finished: float = 0.0) -> PoolReadings:
    """The last of ticks with so many requests in flight at each, after one that gives no increments."""
    watch = Watch()
    seen = watch.see(unsupported=BLIND)
    for running in in_flight:
        seen = watch.see(running=running, counters={Fact.FINISHED: finished}, unsupported=BLIND)
    return seen


@pytest.mark.parametrize("in_flight", [(0, 0, 0), (0, 1, 1), (0, 2, 5)])
def test_before_the_first_response_nobody_left_is_a_known_zero(in_flight: tuple[float, ...]) -> None:
    """vLLM's series of responses is born with the first one; before it, aborts are 0 and not unsupported."""
    aborts = see(*in_flight).get(Signal.ABORTS)

    assert aborts.state in (State.OK, State.UNDERFILLED)
    assert aborts.value == 0.0


@pytest.mark.parametrize(("in_flight", "finished"), [((0, 5, 4), 0.0), ((3, 3, 3), 2.0)])
def test_without_a_count_of_responses_a_busy_engine_does_not_claim_that_nobody_left(
    in_flight: tuple[float, ...], finished: float
) -> None:
    assert see(*in_flight, finished=finished).get(Signal.ABORTS).state == State.UNSUPPORTED


def test_sixteen_who_left_at_once_are_not_zero_aborts() -> None:
    assert see(16, 16, 0).get(Signal.ABORTS).value is None
