"""Queue delay sees the queue that the histogram cannot see."""

import pytest

from controller.core.facts import Fact
from controller.core.reading import State
from controller.core.signals import Signal
from tests.support.world import Watch, hist

FIRST_TOKENS = Fact.ADMITTED


def test_p99_of_finished_requests_is_blind_while_forty_wait() -> None:
    """It read 0.297 s while 43 requests waited."""
    watch = Watch()
    watch.fill(4, counters={FIRST_TOKENS: 0.0, Fact.FINISHED: 0.0})
    seen = watch.see(
        histograms={Fact.QUEUE_TIME: hist(0.001, 0.002)},
        counters={FIRST_TOKENS: 3.0, Fact.FINISHED: 2.0},
        running=4.0,
        waiting=43.0,
    )

    assert seen.get(Signal.QUEUE_TIME).value == pytest.approx(0.297)
    assert seen.get(Signal.QUEUE_DELAY).value == pytest.approx(43 * 30 / 3)  # 3 left in the last 30 s


def test_the_age_of_the_oldest_is_a_bound_when_nobody_leaves() -> None:
    watch = Watch()
    watch.see(counters={FIRST_TOKENS: 0.0})
    seen = watch.fill(6, counters={FIRST_TOKENS: 0.0}, running=4.0, waiting=5.0)

    delay = seen.get(Signal.QUEUE_DELAY)
    assert delay.state == State.CENSORED
    assert delay.value is None
    assert delay.lo == pytest.approx(75.0)  # waiting since six ticks, five intervals


def test_the_age_bound_forgets_those_who_left() -> None:
    """First come, first served: once five have left, none of the five that waited then can still wait."""
    watch = Watch()
    watch.see(counters={FIRST_TOKENS: 0.0})
    watch.see(counters={FIRST_TOKENS: 0.0}, waiting=5.0)
    watch.see(counters={FIRST_TOKENS: 2.0}, waiting=5.0)
    seen = watch.see(counters={FIRST_TOKENS: 3.0}, waiting=4.0)

    assert seen.get(Signal.QUEUE_DELAY).lo == pytest.approx(15.0)


def test_an_empty_queue_has_no_delay_whatever_the_past_was() -> None:
    watch = Watch()
    watch.see()
    seen = watch.see(histograms={Fact.QUEUE_TIME: hist(9.0)}, counters={Fact.FINISHED: 1.0})

    assert seen.get(Signal.QUEUE_DELAY).value == 0.0


def test_without_a_queue_depth_there_is_no_delay_to_tell() -> None:
    watch = Watch()
    watch.see(waiting=None)
    seen = watch.see(waiting=None, histograms={Fact.QUEUE_TIME: hist(0.1)}, counters={Fact.FINISHED: 1.0})

    assert seen.get(Signal.QUEUE_DELAY).state == State.MISSING


def test_those_who_gave_up_waiting_are_not_the_oldest() -> None:
    watch = Watch()
    watch.see(counters={FIRST_TOKENS: 0.0})
    watch.see(counters={FIRST_TOKENS: 0.0}, waiting=5.0)
    left = {FIRST_TOKENS: 0.0, Fact.ABORTED: 5.0}
    seen = watch.see(counters=left, waiting=5.0)

    assert seen.get(Signal.QUEUE_DELAY).lo == 0.0
