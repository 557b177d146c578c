"""What is learned at night must not be believed in the morning: the fixed part of a step against the growing one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.tilt import MOST, Tilt

BASE, EACH = 0.022, 0.0018  # seconds of the true step: fixed, and per sequence


def live(fixed: float, grows: float, *batches: tuple[float, int]) -> tuple[float, float]:
    """(predicted over true step at 32 sequences by kappa alone, and with the tilt) after ticks of 15 s at batches that
    swing by a fifth; the model is wrong by these factors."""
    alone, kappa, tilt = 1.0, 1.0, Tilt()
    for batch, ticks in batches:
        for tick in range(ticks):
            n = batch * (1.2 if tick % 2 else 0.8)
            base, each, step = fixed * BASE, grows * EACH * n, BASE + EACH * n
            a, b = tilt.factors()
            alone *= (step / (base + each) / alone) ** 0.08
            kappa *= (step / (a * base + b * each) / kappa) ** 0.08
            tilt = tilt.take(15.0, each / (base + each), step / (base + each))
    a, b = tilt.factors()
    base, each, true = fixed * BASE, grows * EACH * 32, BASE + EACH * 32
    return alone * (base + each) / true, kappa * (a * base + b * each) / true


@pytest.mark.parametrize(("fixed", "grows"), [(1.6, 0.7), (0.6, 1.3), (1.4, 0.8)])
def test_a_wrong_shape_is_bent_on_the_way_into_the_morning(fixed: float, grows: float) -> None:
    alone, bent = live(fixed, grows, (8.0, 240), (14.0, 12), (20.0, 8))

    assert abs(bent - 1) < 0.6 * abs(alone - 1)


@pytest.mark.parametrize("scale", [0.7, 1.0, 1.4])
def test_a_model_that_is_wrong_in_scale_alone_is_not_bent(scale: float) -> None:
    assert live(scale, scale, (8.0, 240), (20.0, 20))[1] == pytest.approx(1.0, abs=0.02)


def test_one_batch_for_ever_says_nothing_of_the_shape() -> None:
    tilt = Tilt()
    for _ in range(500):
        tilt = tilt.take(15.0, 0.5, 1.3)

    assert tilt.factors() == pytest.approx((1.0, 1.0))
    assert Tilt().factors() == (1.0, 1.0)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 20)), min_size=1, max_size=30))
def test_whatever_is_measured_the_tilt_is_bounded(samples: list[tuple[float, float]]) -> None:
    tilt = Tilt()
    for share, ratio in samples:
        tilt = tilt.take(15.0, share, ratio)

    for factor in tilt.factors():
        assert 1 / MOST - 1e-9 <= factor <= MOST + 1e-9
