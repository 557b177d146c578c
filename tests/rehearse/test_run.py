"""When a rehearsal ticks: too seldom hides, too often invents, and a hole must be lived through."""

from itertools import pairwise

import pytest

from controller.core.errors import InputError
from controller.rehearse.run import tick_times


def test_dense_frames_are_seen_at_the_slots_of_the_interval() -> None:
    times, step = tick_times([100.0 + i for i in range(61)], 15.0)
    assert times == [100.0, 115.0, 130.0, 145.0, 160.0]
    assert step == 15.0


def test_sparse_frames_are_not_looked_at_between_themselves_and_called_stale() -> None:
    frames = [0.0, 60.0, 121.0, 180.0]
    assert tick_times(frames, 15.0) == (frames, 60.0)


def test_jitter_of_scrapes_does_not_switch_to_frames() -> None:
    frames = [15.0 * i + (0.2 if i % 2 else 0.0) for i in range(20)]
    times, step = tick_times(frames, 15.0)
    assert step == 15.0
    assert {b - a for a, b in pairwise(times)} == {15.0}


def test_a_hole_is_ticked_through_because_blindness_is_part_of_the_rehearsal() -> None:
    dense, _ = tick_times([0.0, 15.0, 30.0, 600.0], 15.0)
    assert len(dense) == 41
    sparse, _ = tick_times([0.0, 60.0, 120.0, 420.0, 480.0], 15.0)
    assert sparse == [0.0, 60.0, 120.0, 180.0, 240.0, 300.0, 360.0, 420.0, 480.0]


def test_one_frame_is_one_tick() -> None:
    assert tick_times([5.0], 15.0) == ([5.0], 15.0)


def test_an_empty_recording_says_what_can_be_done() -> None:
    with pytest.raises(InputError, match="holds no frame"):
        tick_times([], 15.0)


def test_a_clock_gone_wrong_does_not_tick_for_days() -> None:
    with pytest.raises(InputError, match="nothing was recorded between"):
        tick_times([0.0, 1.0, 2.0, 1.8e9], 1.0)
    with pytest.raises(InputError, match="ticks"):
        tick_times([0.0, 1.0, 2.0, 3.0, 1.5e6, 3e6], 1.0)
