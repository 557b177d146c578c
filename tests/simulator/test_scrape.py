"""The twin shows what Prometheus would: late, staggered, with holes, and never a series of a pod that is gone."""

import math

import numpy as np
import pytest

from simulator.spec import PrometheusSpec
from simulator.watch.page import Page, labels
from simulator.watch.scrape import Prometheus

UP = labels(job="chat", instance="a", pod="a")
KEYS = (("requests_total", UP),)


def page(value: float) -> Page:
    return Page(KEYS, np.array([value]))


def seen(prometheus: Prometheus, at: float) -> dict[str, float]:
    return {name: value for one in prometheus.pages(at) for name, _, value in one.samples()}


def run(prometheus: Prometheus, seconds: int, *, fails: bool = False) -> list[float]:
    """Scrape target a from its discovery at 0 on; the page says when it was made. Returns the times."""
    times = []
    due = prometheus.discover("a", UP, 0.0)
    while due < seconds:
        times.append(due)
        failed = fails or prometheus.fails("a")
        due = prometheus.scraped("a", None if failed else page(due), due)
    return times


def test_a_query_sees_the_newest_scrape_that_is_old_enough() -> None:
    prometheus = Prometheus(PrometheusSpec(interval=15.0, delay=5.0), seed=1)
    times = run(prometheus, 100)
    assert np.allclose(np.diff(times), 15.0)
    last = times[-1]
    assert seen(prometheus, last + 5.0)["requests_total"] == last
    assert seen(prometheus, last + 4.9)["requests_total"] == times[-2]


def test_targets_are_scraped_each_at_its_own_phase() -> None:
    prometheus = Prometheus(PrometheusSpec(interval=15.0), seed=1)
    phases = {round(prometheus.discover(str(i), UP, 0.0), 6) for i in range(20)}
    assert len(phases) == 20
    assert all(0.0 <= phase < 15.0 for phase in phases)


def test_a_target_found_late_is_scraped_in_its_phase_and_not_in_the_past() -> None:
    prometheus = Prometheus(PrometheusSpec(interval=15.0), seed=1)
    first = prometheus.discover("a", UP, 0.0)
    late = prometheus.discover("a", UP, 1000.0)
    assert 1000.0 <= late < 1015.0
    assert math.isclose((late - first) % 15.0, 0.0, abs_tol=1e-6)


def test_a_failed_scrape_leaves_up_zero_and_no_old_value() -> None:
    prometheus = Prometheus(PrometheusSpec(), seed=1)
    last = run(prometheus, 100)[-1]
    assert seen(prometheus, last + 14.0) == {"up": 1.0, "requests_total": last}
    prometheus.scraped("a", None, last + 15.0)
    assert seen(prometheus, last + 15.0) == {"up": 0.0}


def test_a_pod_that_is_gone_takes_its_series_and_its_up_with_it() -> None:
    prometheus = Prometheus(PrometheusSpec(), seed=1)
    last = run(prometheus, 100)[-1]
    prometheus.forget("a", last + 3.0)
    assert seen(prometheus, last + 2.0)
    assert prometheus.scraped("a", page(0.0), last + 15.0) == math.inf
    assert seen(prometheus, last + 3.0) == {}


def test_an_old_sample_does_not_stand_for_the_present_for_ever() -> None:
    prometheus = Prometheus(PrometheusSpec(lookback=300.0), seed=1)
    last = run(prometheus, 100)[-1]
    assert seen(prometheus, last + 299.0)
    assert seen(prometheus, last + 300.0) == {}


def test_a_prometheus_that_is_down_answers_nothing_and_keeps_nothing() -> None:
    prometheus = Prometheus(PrometheusSpec(), seed=1)
    last = run(prometheus, 100)[-1]
    prometheus.down = True
    prometheus.scraped("a", page(0.0), last + 15.0)
    with pytest.raises(ConnectionError, match="Prometheus does not answer"):
        list(prometheus.pages(last + 20.0))
    prometheus.down = False
    assert seen(prometheus, last + 20.0)["requests_total"] == last


def test_the_share_of_scrapes_that_fail_is_the_one_asked_for() -> None:
    prometheus = Prometheus(PrometheusSpec(interval=1.0, missing=0.1), seed=1)
    prometheus.discover("a", UP, 0.0)
    assert sum(prometheus.fails("a") for _ in range(5000)) == pytest.approx(500, rel=0.15)


def test_late_scrapes_keep_their_order_and_their_pace() -> None:
    prometheus = Prometheus(PrometheusSpec(interval=5.0, jitter=4.0), seed=1)
    times = run(prometheus, 5000)
    assert np.all(np.diff(times) > 0)
    assert len(times) == pytest.approx(1000, abs=1)
