"""What was offered to a recorded fleet: completions alone say that demand falls while a queue builds."""

from dataclasses import replace

import pytest

from controller.core.errors import InputError
from controller.core.interval import Interval
from controller.simulate.demand import demand

QUIET = Interval(at=0.0, replicas=1.0, finished=10.0, prompt=200.0, output=400.0, itl=0.02)


def interval(minute: int, finished: float | None = 10.0, **changes: float | None) -> Interval:
    return replace(QUIET, at=60.0 * minute, finished=finished, **changes)


def rates(*intervals: Interval, kv_tokens: float | None = None) -> list[float]:
    return [part.rate for part in demand(intervals, kv_tokens)]


def test_a_queue_that_grows_was_offered() -> None:
    assert rates(interval(0, waiting=0.0), interval(1, waiting=120.0)) == [12.0]
    assert rates(interval(0, waiting=600.0), interval(1, waiting=0.0)) == [0.0]
    assert rates(interval(0, running=0.0), interval(1, running=60.0)) == [11.0]


def test_a_batch_that_nobody_counts_is_in_the_kv_cache() -> None:
    before, after = interval(0, kv_usage=0.1), interval(1, kv_usage=0.5)
    assert rates(before, after, kv_tokens=60_000.0) == [pytest.approx(11.0)]  # 60 sequences of 400 tokens came
    assert rates(before, after) == [10.0]
    (part,) = demand([before, after], 60_000.0, spread=1.0)
    assert part.rate == pytest.approx(10 + 24_000 / 600 / 60)  # of 600, for long answers are more of the batch


def test_the_short_answers_of_a_ramp_are_not_what_was_asked() -> None:
    ramp = [interval(0), interval(1), interval(2, 10.0, output=200.0), interval(3, 10.0, output=600.0), interval(4)]
    assert [part.output for part in demand(ramp)] == [400.0] * 4
    far = [interval(minute, output=100.0 if minute < 50 else 500.0) for minute in range(100)]
    found = demand(far)
    assert (found[0].output, found[-1].output) == (100.0, 500.0)


def test_a_mean_between_two_levels_is_a_step() -> None:
    found = demand([interval(0), interval(1, 10.0), interval(2, 25.0), interval(3, 30.0), interval(4, 30.0)])
    assert [(part.begin, part.end, part.rate) for part in found] == [
        (0, 60, 10), (60, 75, 10), (75, 120, 30), (120, 180, 30), (180, 240, 30),
    ]  # fmt: skip


def test_a_time_of_which_nothing_is_known_is_said_to_be_assumed() -> None:
    found = demand([interval(0), interval(1), interval(2, None, prompt=None, output=None), interval(3)])
    assert [(part.rate, part.assumed) for part in found] == [(10.0, False), (10.0, True), (10.0, False)]


def test_a_recording_without_lengths_is_refused() -> None:
    with pytest.raises(InputError, match="does not tell what was asked"):
        demand([interval(0, output=None), interval(1, output=None)])
    with pytest.raises(InputError, match="does not tell"):
        demand([interval(0)])
