"""Arrivals: the rate and the coefficient of variation that were asked for are the ones that come."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.traffic import chance
from simulator.traffic.arrivals import Arrivals, Gamma, Gaps, Poisson, Rate, Weibull, arrival_times, weibull_shape
from simulator.traffic.chance import Floats
from simulator.traffic.shapes import Diurnal, Flash, Piecewise, Point, Ramp, Sawtooth, Shape, Step


def times(
    law: Arrivals, rate: float, shapes: Sequence[Shape] = (), *, end: float, seed: int = 1, start: float = 0.0
) -> Floats:
    pieces = list(arrival_times(Rate(rate, shapes), Gaps(law, chance.stream(seed, "arrivals")), start, end))
    return np.concatenate(pieces) if pieces else np.empty(0)


@pytest.mark.parametrize("law", [Poisson(), Gamma(cv=0.3), Gamma(cv=2.5), Weibull(cv=0.5), Weibull(cv=2.0)])
def test_a_rate_or_cv_that_is_not_what_was_asked_for_makes_every_conclusion_wrong(law: Arrivals) -> None:
    at = times(law, 50.0, end=4000.0)
    gaps = np.diff(at)
    cv = 1.0 if isinstance(law, Poisson) else law.cv
    n = 50.0 * 4000.0
    assert len(at) == pytest.approx(n, abs=4 * cv * n**0.5)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.05)
    assert (gaps >= 0).all()
    assert at[0] >= 0
    assert at[-1] < 4000


def test_bursty_traffic_that_always_starts_with_a_burst_looks_like_a_flash() -> None:
    counts = [len(times(Gamma(cv=4.0), 2.0, end=10.0, seed=seed)) for seed in range(3000)]
    assert np.mean(counts) == pytest.approx(20.0, abs=4 * float(np.std(counts)) / math.sqrt(3000))


@given(st.floats(0.05, 20.0))
@settings(max_examples=50, deadline=None)
def test_the_weibull_shape_of_a_cv(cv: float) -> None:
    shape = weibull_shape(cv)
    moments = math.lgamma(1 + 2 / shape) - 2 * math.lgamma(1 + 1 / shape)
    assert math.sqrt(math.expm1(moments)) == pytest.approx(cv, rel=1e-6)


def test_a_cv_that_is_lost_while_the_rate_moves() -> None:
    """Back in operational time the gaps have the cv of the law, whatever the rate did."""
    shapes = (Diurnal(period=600.0, peak_at=300.0), Flash(at=500.0, rise=30.0, hold=200.0, fall=30.0, factor=3.0))
    rate = Rate(40.0, shapes)
    at = times(Gamma(cv=2.0), 40.0, shapes, end=3000.0)
    edges, values = rate.cells(0.0, 3000.0)
    gaps = np.diff(np.interp(at, edges, np.concatenate(([0.0], np.cumsum(values * np.diff(edges))))))
    assert gaps.mean() == pytest.approx(1.0, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(2.0, rel=0.05)


def test_a_flash_without_its_area_promises_a_load_that_never_came() -> None:
    flash = Flash(at=100.0, rise=20.0, hold=60.0, fall=40.0, factor=3.0)
    area = 2.0 * (10.0 + 60.0 + 20.0)
    assert Rate(1.0, (flash,)).mean(0.0, 400.0) == pytest.approx(400.0 + area, rel=1e-9)
    counts = [len(times(Gamma(cv=1.5), 5.0, (flash,), end=400.0, seed=seed)) for seed in range(200)]
    assert np.mean(counts) == pytest.approx(5.0 * (400.0 + area), abs=4 * float(np.std(counts)) / math.sqrt(200))


@pytest.mark.parametrize(
    ("shape", "mean"),
    [
        (Step(at=250.0, factor=3.0), 2.5),
        (Step(at=250.0, length=100.0, factor=0.0), 0.9),
        (Ramp(at=200.0, length=400.0, factor=2.0), 1.6),
        (Diurnal(period=500.0, peak_at=100.0, peak=2.0, trough=0.5), 1.25),
        (Sawtooth(period=100.0, low=0.0, high=2.0), 1.0),
        (Sawtooth(period=250.0, low=1.0, high=2.0, rising=1.0), 1.5),
        (Sawtooth(period=250.0, low=1.0, high=2.0, rising=0.0), 1.5),
        (Flash(at=50.0, hold=10.0, factor=6.0, every=100.0), 1.5),
        (Piecewise(points=(Point(at=0.0, factor=0.0), Point(at=500.0, factor=2.0))), 1.5),
        (Piecewise(points=(Point(at=100.0, factor=1.0), Point(at=500.0, factor=2.0)), between="hold"), 1.5),
    ],
)
def test_the_mean_of_each_shape(shape: Shape, mean: float) -> None:
    assert Rate(7.0, (shape,)).mean(0.0, 1000.0) == pytest.approx(7000.0 * mean, rel=1e-6)


def test_shapes_that_do_not_multiply_hide_a_flash_at_night() -> None:
    night = Step(at=0.0, factor=0.5)
    flash = Flash(at=10.0, hold=10.0, factor=4.0)
    values = Rate(10.0, (night, flash)).values(np.array([5.0, 15.0, 25.0]))
    assert values.tolist() == [5.0, 20.0, 5.0]


def test_traffic_that_stops_and_comes_back_is_neither_lost_nor_saved_up() -> None:
    at = times(Poisson(), 20.0, (Step(at=100.0, length=7000.0, factor=0.0),), end=7200.0)
    assert not ((at > 100.0) & (at < 7100.0)).any()
    assert (at < 100.0).sum() == pytest.approx(2000, abs=180)
    assert (at > 7100.0).sum() == pytest.approx(2000, abs=180)
    assert len(times(Poisson(), 20.0, (Step(at=0.0, factor=0.0),), end=50.0)) == 0


@given(
    st.sampled_from([Poisson(), Gamma(cv=3.0), Weibull(cv=1.5)]),
    st.lists(
        st.one_of(
            st.builds(Step, at=st.floats(0, 300), factor=st.floats(0, 4)),
            st.builds(Ramp, at=st.floats(0, 300), length=st.floats(1, 300), factor=st.floats(0, 4)),
            st.builds(
                Flash,
                at=st.floats(0, 300), rise=st.floats(0, 50), hold=st.floats(0, 50), fall=st.floats(0, 50),
                factor=st.floats(0, 5),
            ),
            st.builds(Sawtooth, period=st.floats(5, 300), rising=st.floats(0, 1)),
        ),
        max_size=3,
    ),
    st.integers(0, 1000),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_a_time_out_of_order_or_out_of_range(law: Arrivals, shapes: list[Shape], seed: int) -> None:
    at = times(law, 5.0, shapes, end=333.3, seed=seed)
    assert (np.diff(at) >= 0).all()
    assert ((at >= 0) & (at <= 333.3)).all()
    values = Rate(5.0, shapes).values(at)
    assert np.isfinite(values).all()
