"""Slots are where a tick belongs, whenever it comes; and none is lost or counted twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.run.slots import Missed, Slots

intervals = st.integers(1, 3_600_000).map(lambda ms: ms / 1000)
moments = st.floats(1e9, 4e9, allow_nan=False)


@given(intervals, moments)
def test_a_slot_contains_its_moment(interval: float, now: float) -> None:
    slots = Slots(interval)
    assert slots.at(now) <= now + 1e-6, "no slot from the future, but for the rounding of a microsecond"
    assert now < slots.after(now) + 1e-6
    assert slots.after(now) == pytest.approx(slots.at(now) + interval, abs=1e-6)


@given(intervals, moments)
def test_a_slot_belongs_to_itself_in_floating_point(interval: float, now: float) -> None:
    """0.3 // 0.1 is 2.0: with floats the tick of a slot would be given the one before it, twice."""
    slots = Slots(interval)
    assert slots.at(slots.after(now)) == slots.after(now)
    assert slots.at(slots.at(now)) == slots.at(now)


def test_a_missed_slot_is_counted_once_whoever_notices() -> None:
    missed = Missed(Slots(15))
    assert missed.ran(0) == 0
    assert missed.skipped(15) == 1
    assert missed.skipped(15) == 0
    assert missed.ran(60) == 2  # 30 and 45, which nobody had noticed (the process was stopped)
    assert missed.ran(75) == 0


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1))
def test_ran_plus_missed_is_every_slot(course: list[tuple[int, bool]]) -> None:
    missed = Missed(Slots(15))
    slot, served, counted = 0, 1, missed.ran(0)
    for gap, runs in course:
        slot += 15 * (gap + 1)
        counted += missed.ran(slot) if runs else missed.skipped(slot)
        served += runs
    assert served + counted == slot // 15 + 1


def test_a_clock_that_steps_back_gives_no_negative_count() -> None:
    missed = Missed(Slots(15))
    missed.ran(3600)
    assert missed.ran(0) == 0
    assert missed.ran(3615) == 0
