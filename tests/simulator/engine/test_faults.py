"""Slow, hung and dead engines, which must look as they do in a fleet."""

from dataclasses import replace
from math import inf

import pytest

from simulator.engine.engine import Engine
from simulator.job import Ending
from tests.support.engines import EASY, drive, job, settle, spec


def test_a_straggler_takes_longer_from_the_next_step_on() -> None:
    engine = Engine(spec(), 0.0)
    engine.submit(job(1, 10, 11), 0.0)
    engine.advance(0.055)
    engine.slow = 3.0
    [done] = settle(engine)
    assert done.ended_at == pytest.approx(0.060 + 6 * 0.030)
    assert engine.counts.itl.sum == pytest.approx(0.040 + 6 * 0.030)


def test_a_hung_engine_core_says_nothing_and_goes_on_where_it_stopped() -> None:
    engine = Engine(spec(), 0.0)
    engine.submit(job(1, 10, 11), 0.0)
    engine.advance(0.055)
    engine.hung = True
    assert engine.next_at == inf
    engine.submit(job(2, 10, 1), 1.0)
    assert engine.advance(25.0) == []
    assert (engine.running, engine.waiting) == (1, 1)
    assert engine.counts.generation_tokens == 4
    engine.hung = False
    done = settle(engine)
    assert [one.request.id for one in done] == [2, 1]
    assert done[0].first_token_at == pytest.approx(25.005 + 0.020)
    assert done[1].ended_at == pytest.approx(25.005 + 0.020 + 5 * 0.010)
    assert engine.counts.itl.buckets[-2:] == [0, 0]
    assert engine.counts.itl.sum == pytest.approx(25.005 - 0.020 + 0.020 + 5 * 0.010)


def test_a_queue_of_one_in_every_scrape_of_a_fleet_that_is_not_busy() -> None:
    """vLLM counts as waiting whom a step has left out, not whom the next one will take."""
    engine = Engine(spec(), 0.0)
    engine.submit(job(1, 10, 11), 0.0)
    engine.submit(job(2, 10, 11), 0.025)
    assert (engine.waiting, engine.load.waiting) == (1, 0)
    engine.advance(0.1)
    assert (engine.running, engine.waiting, engine.load.waiting) == (2, 0, 0)


def test_whoever_finds_no_place_is_told_to_wait() -> None:
    engine = Engine(spec(replace(EASY, max_num_seqs=1)), 0.0)
    engine.submit(job(1, 10, 11), 0.0)
    engine.submit(job(2, 10, 11), 0.025)
    engine.advance(0.1)
    assert engine.load[:2] == (1, 1)


def test_the_metrics_of_an_engine_whose_core_has_stopped_stand_still() -> None:
    engine = Engine(spec(), 0.0)
    engine.submit(job(1, 10, 11), 0.0)
    engine.advance(0.055)
    engine.hung = True
    told = engine.load
    engine.submit(job(2, 10, 1), 1.0)
    engine.cancel(1, 2.0)
    assert engine.load == told == (1, 0, told.kv_usage)
    engine.hung = False
    assert engine.load != told


def test_a_hung_engine_that_was_idle_takes_up_what_came_meanwhile() -> None:
    engine = Engine(spec(), 0.0)
    engine.hung = True
    engine.hung = True
    engine.submit(job(1, 10, 2), 1.0)
    assert engine.next_at == inf
    engine.advance(4.0)
    engine.hung = False
    [done] = settle(engine)
    assert done.scheduled_at == 4.0


def test_who_waits_for_a_hung_engine_may_give_up() -> None:
    engine = Engine(spec(max_wait=2.0), 0.0)
    engine.submit(job(1, 10, 500), 0.0)
    engine.advance(1.0)
    engine.hung = True
    engine.submit(job(2, 10, 5), 1.5)
    assert engine.next_at == 3.5
    assert [one.ending for one in engine.advance(10.0)] == [Ending.TIMED_OUT]
    assert engine.cancel(1, 11.0)
    assert (engine.running, engine.kv_usage) == (0, 0)
    engine.hung = False
    assert settle(engine) == []


def test_a_crash_loses_all_jobs_and_all_counters() -> None:
    engine = Engine(spec(), 0.0)
    for number in range(6):
        engine.submit(job(number, 10, 20 if number else 2), 0.0)
    lost = engine.fail(0.1)
    # The first had ended before, and nobody had asked.
    assert [(one.request.id, one.ending) for one in lost] == [
        (0, Ending.FINISHED), *((number, Ending.FAILED) for number in range(1, 6)),
    ]  # fmt: skip
    assert {one.ended_at for one in lost[1:]} == {0.1}
    assert (engine.running, engine.waiting, engine.kv_usage, engine.next_at) == (0, 0, 0, inf)
    assert engine.counts.generation_tokens == 0
    assert engine.counts.ttft.count == 0
    assert not engine.cancel(3, 0.2)
    assert len(drive(engine, [job(9, 10, 2, at=1.0)])) == 1


def test_first_tokens_are_told_as_they_come() -> None:
    heard: list[tuple[int, float | None]] = []
    engine = Engine(spec(), 0.0)
    engine.on_first_token = lambda one: heard.append((one.request.id, one.first_token_at))
    drive(engine, [job(1, 10, 3), job(2, 10, 3, at=0.005)])
    assert [number for number, _ in heard] == [1, 2]
    assert [at for _, at in heard] == pytest.approx([0.020, 0.040])


def test_the_answer_so_far_is_told_in_the_middle_of_a_macro_step() -> None:
    engine = Engine(spec(), 0.0)
    engine.submit(job(1, 10, 11), 0.0)
    engine.submit(job(2, 10, 11), 0.0)
    told = []
    for at in (0.005, 0.025, 0.055):
        engine.advance(at)
        told.append((engine.made(1), engine.made(2), engine.made(3)))
    assert told == [(0, 0, None), (1, 0, None), (3, 2, None)]
    settle(engine)
    assert engine.made(1) is None
