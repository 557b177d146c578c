"""Means once a minute are taken for more than they tell."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from controller.core.errors import InputError
from controller.core.interval import Interval
from controller.core.step_model import Profile, Shape, step_time
from simulator.calibrate.recording import calibrate_recording, fit_intervals

TRUE = Profile(a=8e-3, b=25e-6, c=20e-6, d=60e-9, e=2e-9, max_num_seqs=256.0, kv_tokens=300_000.0)
SHAPE = Shape(prompt=300.0, output=400.0)


def interval(minute: int, batch: float, replicas: float = 2.0) -> Interval:
    """One minute of a fleet whose replicas run `batch` sequences each."""
    itl = step_time(TRUE, SHAPE, batch)
    held = batch * (SHAPE.prompt + SHAPE.output / 2 + 8)
    ttft = 1.5 * itl + TRUE.b * SHAPE.prompt + TRUE.e * SHAPE.prompt**2 / 2
    return Interval(
        at=60.0 * minute,
        replicas=replicas,
        finished=replicas * batch / itl / SHAPE.output,
        prompt=SHAPE.prompt,
        output=SHAPE.output,
        itl=itl,
        ttft=ttft,
        waiting=0.0,
        kv_usage=held / (TRUE.kv_tokens or 1.0),
    )


def day(*batches: float) -> list[Interval]:
    """Three minutes of each load."""
    return [interval(3 * i + j, batch) for i, batch in enumerate(batches) for j in range(3)]


WIDE = day(10, 60, 20, 120, 40, 90, 30, 110)


def test_a_wide_range_of_load_tells_fixed_cost_sequence_prefill_and_cache() -> None:
    found = fit_intervals(WIDE)
    assert found.held == ()
    assert found.profile.a == pytest.approx(TRUE.a, rel=0.1)
    for batch in (10, 100, 200):
        told = step_time(found.profile, SHAPE, batch)
        assert told == pytest.approx(step_time(TRUE, SHAPE, batch), rel=0.05)
    assert found.profile.kv_tokens == pytest.approx(TRUE.kv_tokens, rel=0.01)
    assert {error.signal for error in found.errors} == {"itl", "ttft", "kv_usage"}
    assert all(error.typical < 0.1 for error in found.errors)


def test_one_load_tells_one_number_and_the_rest_moves_along() -> None:
    found = fit_intervals(day(20, 21, 20, 21, 20, 21))
    assert found.held == ("sequence",)
    assert found.factors[0] == found.factors[1]
    assert fit_intervals([replace(one, ttft=None) for one in day(20, 21, 20, 21)]).held == ("sequence", "prefill")
    assert step_time(found.profile, SHAPE, 20) == pytest.approx(step_time(TRUE, SHAPE, 20), rel=0.05)
    assert any("record high and low load" in note for note in found.notes)


def test_without_a_time_to_first_token_prefill_moves_along() -> None:
    found = fit_intervals([replace(one, ttft=None) for one in WIDE])
    assert found.held == ("prefill",)
    assert found.factors[1] == found.factors[2]


def spoiled(change: str) -> list[Interval]:
    queue: Sequence[Interval] = [replace(one, waiting=3.0) for one in WIDE]
    full = [replace(one, kv_usage=0.97) for one in WIDE]
    restless = [interval(i, 20.0 if i % 2 else 60.0) for i in range(24)]
    scaling = [interval(i, 20.0, replicas=1.0 + i % 2) for i in range(24)]
    blind = [replace(one, itl=None) for one in WIDE]
    impossible = [interval(i, 300.0) for i in range(24)]  # more sequences than the engine has seats
    return list(
        {
            "queue": queue, "full": full, "restless": restless, "scaling": scaling, "blind": blind,
            "impossible": impossible,
        }[change]
    )  # fmt: skip


@pytest.mark.parametrize("change", ["queue", "full", "restless", "scaling", "blind", "impossible"])
def test_what_is_not_calm_is_not_fitted(change: str) -> None:
    with pytest.raises(InputError, match=r"0 of 24 intervals are calm .* Record a longer and quieter stretch"):
        fit_intervals(spoiled(change))


def test_a_queue_in_the_middle_changes_nothing() -> None:
    crowd = [replace(interval(100 + i, 150.0), waiting=40.0, itl=0.2) for i in range(5)]
    assert fit_intervals([*WIDE[:12], *crowd, *WIDE[12:]]).calm <= fit_intervals(WIDE).calm


def test_the_librarys_limits_stand_where_the_recording_shows_none() -> None:
    found = calibrate_recording([replace(one, kv_usage=None) for one in WIDE], entry="llama-3.1-8b/h100/1/bf16")
    assert found.profile.kv_tokens == 417_710.0
    assert any("the library's" in note for note in found.notes)
    given = fit_intervals(WIDE, kv_tokens=1000, max_num_seqs=128)
    assert (given.profile.kv_tokens, given.profile.max_num_seqs) == (1000.0, 128.0)


def test_the_end_of_one_recording_is_not_the_minute_before_the_next() -> None:
    assert fit_intervals([*WIDE, *WIDE]).calm == 2 * fit_intervals(WIDE).calm
