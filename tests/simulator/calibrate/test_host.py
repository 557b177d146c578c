"""A wall of tokens per second that is not seen, or seen where there is none."""

from dataclasses import replace

import numpy as np
import pytest

from controller.core.interval import Interval
from controller.core.step_model import Profile, Shape, step_time
from simulator.calibrate.host import find_host
from simulator.calibrate.recording import fit_intervals

TRUE = Profile(a=8e-3, b=20e-6, c=15e-6, d=40e-9, e=0.0, max_num_seqs=1024.0, kv_tokens=400_000.0, host=90e-6)
SHAPE = Shape(prompt=240.0, output=450.0)
LOADS = (20, 60, 100, 140, 250, 320, 400, 480)


def interval(minute: int, batch: float, profile: Profile) -> Interval:
    itl = step_time(profile, SHAPE, batch)
    held = batch * (SHAPE.prompt + SHAPE.output / 2 + 8)
    return Interval(
        at=60.0 * minute, replicas=1.0, finished=batch / itl / SHAPE.output, prompt=SHAPE.prompt, output=SHAPE.output,
        itl=itl, ttft=1.5 * itl + profile.b * SHAPE.prompt, waiting=0.0, kv_usage=held / (profile.kv_tokens or 1.0),
    )  # fmt: skip


def day(profile: Profile, loads: tuple[int, ...] = LOADS) -> list[Interval]:
    return [interval(3 * index + j, batch, profile) for index, batch in enumerate(loads) for j in range(3)]


def test_tokens_per_second_that_stand_still_while_itl_grows_are_a_wall() -> None:
    found = fit_intervals(day(TRUE), max_num_seqs=1024)
    assert found.profile.host == pytest.approx(TRUE.host, rel=0.03)
    assert any("tokens per second at most" in note for note in found.notes)


@pytest.mark.parametrize(
    ("profile", "loads"),
    [
        pytest.param(replace(TRUE, host=0.0), LOADS, id="no wall"),
        pytest.param(TRUE, (20, 40, 60, 80, 100, 120, 130, 140), id="never came near"),
    ],
)
def test_a_recording_without_a_wall_gets_none(profile: Profile, loads: tuple[int, ...]) -> None:
    found = fit_intervals(day(profile, loads), max_num_seqs=1024)
    assert found.profile.host == 0.0
    assert not any("at most" in note for note in found.notes)


def test_a_ramp_is_no_wall() -> None:
    """In a ramp completions lag behind, and tokens per second seem to stand still."""
    rate = np.concatenate([np.linspace(1000, 8000, 12), np.full(8, 8000.0)])
    itl = np.concatenate([np.linspace(9e-3, 13e-3, 12), np.linspace(14e-3, 40e-3, 8)])
    gauge = rate * itl * np.concatenate([np.ones(12), np.full(8, 2.5)])
    assert find_host(itl, rate, gauge).seconds == 0.0
    assert find_host(itl, rate, rate * itl).seconds == pytest.approx(1 / 8000)


def test_too_few_intervals_tell_nothing() -> None:
    assert find_host(np.full(3, 0.01), np.full(3, 1000.0), np.full(3, np.nan)).seconds == 0.0
