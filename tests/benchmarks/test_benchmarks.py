"""The benchmarks run, and measure what they say; how fast it is, is for `make bench` on a quiet machine."""

import pytest

from benchmarks import page
from benchmarks.__main__ import ticks
from benchmarks.day import Rehearsal, rehearse
from benchmarks.fleet import Fleet, Shape, config
from controller.config import loads, pool_needs
from controller.core.facts import Fact
from sources.frames import Frame, Layout
from sources.increments import Increments
from tests.support.prometheus import needs_prometheus


@pytest.fixture(scope="module")
def day(tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    return rehearse(tmp_path_factory.mktemp("day"), Shape(2, 2, per_replica=False), hours=0.1)


def test_a_rehearsal_without_a_ledger_or_a_report_is_half_a_rehearsal(day: Rehearsal) -> None:
    assert day.ticks == 24
    assert day.wall > 0
    assert min(day.recording, day.ledger, day.report) > 1000


@needs_prometheus
def test_a_page_of_numbers_that_nobody_measured(day: Rehearsal) -> None:
    measured = list(ticks(Shape(2, 2), rules=(False, True), count=2))
    assert [one.rules for one in measured] == [False, True]
    for one in measured:
        assert len(one.rows) == 2
        for row in one.rows:
            assert row.wall >= row.phases["observe"] > 0
            assert row.bare_wall > 0
            assert row.queries > 10
            assert min(row.answer_bytes, row.ledger_bytes) > 0
            assert row.peak > 10_000_000
    written = page.text(measured, day)
    for heading in ("## Method", "## One tick", "## A day in rehearsal", "## The ledger"):
        assert heading in written
    assert "2 pools of 2, rules" in written


def test_a_fleet_that_lacks_what_the_config_needs_costs_less_than_a_real_one() -> None:
    shape = Shape(3, 2)
    fleet, layout = Fleet(shape, 1.79e9), Layout()
    increments = Increments(pool_needs(loads(config(shape))))
    for key in fleet.keys:
        layout.number(key)
    seen = []
    for at in (1.79e9 + 15, 1.79e9 + 30):
        fleet.advance(at)
        increments.feed(Frame(at, layout, fleet.values))
        seen.append(increments.take(at))
    for pool in seen[-1].pools.values():
        assert not pool.failed
        assert len(pool.replicas) == 2
        assert {Fact.TTFT, Fact.ITL, Fact.QUEUE_TIME} <= pool.histograms.keys()
        assert {Fact.RESPONSES, Fact.ERRORS, Fact.FINISHED} <= pool.counters.keys()
        assert {Fact.READY_REPLICAS, Fact.WANTED_REPLICAS, Fact.KV_USAGE} <= pool.gauges.keys()
        assert pool.histograms[Fact.TTFT].count > 0


def test_a_missed_goal_must_not_look_like_a_kept_one() -> None:
    assert page.judged(61.0, 60.0, "61 s") == "61 s **(missed)**"
    assert page.judged(60.0, 60.0, "60 s") == "60 s"
