"""A replica's life takes the time that it takes, and what can go wrong in it goes wrong as in Kubernetes."""

import random

import pytest

from controller.core.model import Phase
from simulator.cluster.life import Life, Stage, draw
from simulator.spec import LifeSpec, LogNormal

SPEC = LifeSpec(provision=40.0, pull=20.0, load=60.0, warm=30.0)


def born(spec: LifeSpec = SPEC) -> Life:
    life = Life(spec, random.Random(1), 1000.0)
    life.place(1000.0)
    return life


def until(life: Life, now: float, **how: bool) -> Stage:
    while life.advance(now, **how):
        pass
    return life.stage


def serving() -> Life:
    life = born()
    assert until(life, 1150.0) is Stage.READY
    return life


def test_stages_come_in_their_order_and_at_their_times() -> None:
    life = born()
    seen = [(life.stage, life.since)]
    for now in range(1000, 1200):
        while life.advance(float(now)):
            seen.append((life.stage, life.since))
    assert seen == [
        (Stage.PROVISIONING, 1000.0),
        (Stage.PULLING, 1040.0),
        (Stage.LOADING, 1060.0),
        (Stage.WARMING, 1120.0),
        (Stage.READY, 1150.0),
    ]
    assert (life.started_at, life.ready_since, life.restarts) == (1060.0, 1150.0, 0)


def test_a_replica_without_a_node_waits_for_ever() -> None:
    life = Life(SPEC, random.Random(1), 0.0)
    assert until(life, 1e9) is Stage.REQUESTED
    assert life.phase is Phase.PENDING


def test_the_controller_is_not_told_more_than_kubernetes_knows() -> None:
    life = born()
    told: dict[Stage, Phase | None] = {}
    for now in range(1000, 1200):
        until(life, float(now))
        told.setdefault(life.stage, life.phase)
    assert told == {
        Stage.PROVISIONING: Phase.PENDING,
        Stage.PULLING: Phase.PULLING,
        Stage.LOADING: Phase.LOADING,
        Stage.WARMING: Phase.LOADING,
        Stage.READY: None,
    }


def test_a_crash_loop_waits_longer_each_time_and_is_forgiven_after_a_long_run() -> None:
    life = serving()
    waits, now = [], 1200.0
    for _ in range(8):
        assert life.crash(now, "Error")
        waits.append(life.until - now)
        assert life.stage is Stage.BACKOFF
        now = life.until + 90.0
        assert until(life, now) is Stage.READY
    assert waits == [0.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    assert life.restarts == 8
    life.crash(now + 700.0, "Error")
    assert life.until == now + 700.0


def test_a_crashed_replica_loads_and_warms_again_but_pulls_nothing() -> None:
    life = serving()
    life.crash(2000.0, "OOMKilled")
    assert (life.reason, life.phase, life.unready_since, life.ready_since) == ("OOMKilled", Phase.LOADING, 2000.0, None)
    assert until(life, 2089.9) is Stage.WARMING
    assert until(life, 2090.0) is Stage.READY
    assert life.started_at == 2000.0


def test_a_process_that_is_not_there_cannot_crash() -> None:
    life = born()
    assert not life.crash(1010.0, "Error")
    assert life.stage is Stage.PROVISIONING


def test_an_image_that_cannot_be_pulled_is_tried_again_later_and_later() -> None:
    life = born()
    tries = [now for now in range(1040, 1400) if life.advance(float(now), pull_fails=True)]
    assert tries == [1040, 1060, 1070, 1090, 1130, 1210, 1370]
    assert life.stage is Stage.PULLING
    assert until(life, 2000.0) is Stage.READY


@pytest.mark.parametrize("stage_at", [1010.0, 1050.0, 1100.0, 1140.0])
def test_what_does_not_serve_yet_is_ended_at_once(stage_at: float) -> None:
    life = born()
    until(life, stage_at)
    life.end(stage_at, 300.0)
    assert life.stage is Stage.GONE


def test_a_drain_ends_with_the_last_request_or_with_its_time() -> None:
    early, late = serving(), serving()
    early.end(2000.0, 300.0)
    late.end(2000.0, 300.0)
    assert {early.stage, late.stage} == {Stage.DRAINING}
    early.drained(2010.0)
    assert until(early, 2010.0) is Stage.GONE
    assert until(late, 2299.9) is Stage.DRAINING
    assert until(late, 2300.0) is Stage.GONE


def test_a_reclaimed_node_shortens_a_drain_that_has_begun() -> None:
    life = serving()
    life.end(2000.0, 300.0)
    life.end(2010.0, 30.0)
    assert life.until == 2040.0


def test_a_draining_replica_that_crashes_is_not_started_again() -> None:
    life = serving()
    life.end(2000.0, 300.0)
    assert life.crash(2001.0, "Error")
    assert life.stage is Stage.GONE


def test_drawn_times_have_the_median_and_the_tail_that_were_asked_for() -> None:
    time, rng = LogNormal(median=45.0, p90=70.0), random.Random(7)
    drawn = sorted(draw(time, rng) for _ in range(20_000))
    assert drawn[10_000] == pytest.approx(45.0, rel=0.02)
    assert drawn[18_000] == pytest.approx(70.0, rel=0.03)


def test_a_fixed_time_takes_no_chance_so_that_other_draws_do_not_shift() -> None:
    rng = random.Random(7)
    assert draw(12.0, rng) == 12.0
    assert rng.random() == random.Random(7).random()


def test_a_tail_below_the_median_is_refused() -> None:
    with pytest.raises(ValueError, match="p90: is below the median; write a longer time"):
        LogNormal(median=45.0, p90=30.0)
