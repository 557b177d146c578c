"""Quantiles are intervals, attainment at an edge is exact, and grids that differ are not added blindly."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core import histogram
from controller.core.observation import HistogramIncrement
from controller.core.reading import State
from tests.support.world import EDGES, hist

SAMPLES = st.lists(st.floats(0.0, 20.0), min_size=1, max_size=60)


def test_p99_below_the_first_edge_is_marked_and_interpolated_as_prometheus_does() -> None:
    """vLLM's first queue bucket is 0.3 s: histogram_quantile says 0.297 whatever the truth is (vllm#48175)."""
    reading = histogram.quantile(hist(0.001, 0.001, 0.001), 0.99)

    assert reading.state == State.BELOW_FIRST
    assert reading.value == pytest.approx(0.297)
    assert (reading.lo, reading.hi) == (0.0, 0.3)


def test_mass_above_the_last_edge_gives_a_lower_bound_and_no_number() -> None:
    """vllm#15167: the last finite edge was returned as if it were the p99."""
    reading = histogram.quantile(hist(0.1, 50.0, 60.0), 0.99)

    assert reading.state == State.SATURATED_TOP
    assert reading.value is None
    assert reading.lo == 10.0
    assert reading.usable == 10.0


def test_a_source_without_buckets_has_a_mean_and_no_quantile() -> None:
    only_mean = HistogramIncrement((), (), 4.0, 2.0)

    assert histogram.quantile(only_mean, 0.95).state == State.UNSUPPORTED
    assert histogram.mean(only_mean).value == 0.5


@pytest.mark.parametrize("text", ["2.5", "2.50", "25e-1"])
def test_a_target_on_an_edge_is_exact_however_it_is_written(text: str) -> None:
    met = histogram.met(hist(0.1, 2.4, 2.6), float(text))

    assert met.exact
    assert met.lo == met.value == met.hi == 2.0


def test_a_target_between_edges_has_bounds_that_name_the_edges() -> None:
    met = histogram.met(hist(0.4, 1.5, 2.0, 4.0), 2.0)

    assert (met.lo, met.hi) == (1.0, 3.0)
    assert (met.below, met.above) == (1.0, 2.5)
    assert met.lo < met.value < met.hi


def test_targets_outside_the_grid_are_bounded_on_one_side_only() -> None:
    h = hist(0.1, 20.0)

    assert (histogram.met(h, 15.0).lo, histogram.met(h, 15.0).hi) == (1.0, 2.0)
    assert (histogram.met(h, 0.1).lo, histogram.met(h, 0.1).hi) == (0.0, 1.0)


def test_a_rolling_upgrade_with_other_buckets_keeps_only_the_common_edges() -> None:
    """sglang#28717: adding different grids gave negative differences."""
    old = hist(0.4, 3.0, edges=(0.5, 1.0, 5.0))
    new = hist(0.4, 3.0, edges=(0.5, 2.5, 5.0))

    total = histogram.add([old, new])

    assert total is not None
    assert total.edges == (0.5, 5.0)
    assert total.cumulative == (2.0, 4.0)
    assert total.count == 4.0


def test_an_empty_replica_with_another_grid_does_not_coarsen_the_fleet() -> None:
    total = histogram.add([hist(0.4), HistogramIncrement((7.0,), (0.0,), 0.0, 0.0)])

    assert total is not None
    assert total.edges == EDGES


@given(SAMPLES, st.floats(0.01, 0.999))
def test_the_true_quantile_lies_within_the_bounds(samples: list[float], q: float) -> None:
    reading = histogram.quantile(hist(*samples), q)
    truth = sorted(samples)[max(0, math.ceil(q * len(samples)) - 1)]

    assert (reading.lo or 0.0) <= truth + 1e-12
    assert reading.hi is None or truth <= reading.hi


@given(SAMPLES, st.floats(0.01, 20.0))
def test_the_true_attainment_lies_within_the_bounds(samples: list[float], target: float) -> None:
    met = histogram.met(hist(*samples), target)

    assert met.lo <= sum(s <= target for s in samples) <= met.hi
    assert met.lo <= met.value <= met.hi


@given(SAMPLES, SAMPLES)
def test_windows_add_up(first: list[float], second: list[float]) -> None:
    total, whole = histogram.add([hist(*first), hist(*second)]), hist(*first, *second)

    assert total is not None
    assert total.cumulative == whole.cumulative
    assert total.count == whole.count
