"""A twin that batches otherwise than the engine it stands for: then nothing learned on it is true of the fleet.

A step of the easy engine lasts 10 ms and 1 ms more for each prefill token, so every time here is a sum by hand.
"""

from dataclasses import replace
from math import inf

import pytest

from simulator.engine.engine import Engine
from simulator.engine.sequence import Leg
from simulator.engine.spec import Adapters, EngineSpec, Isolation
from simulator.job import Ending, Job
from tests.support.engines import EASY, drive, job, settle, spec


def ended_at(jobs: list[Job]) -> dict[int, float]:
    return {one.request.id: round(one.ended_at or -1.0, 6) for one in jobs}


def first_tokens(jobs: list[Job]) -> dict[int, float]:
    return {one.request.id: round(one.first_token_at or -1.0, 6) for one in jobs}


def test_one_request_alone() -> None:
    engine = Engine(spec(), 100.0)
    assert engine.next_at == inf
    [done] = drive(engine, [job(1, prompt=50, output=5, at=100.0)])
    assert done.scheduled_at == 100.0
    assert done.ttft == pytest.approx(0.060)
    assert done.tpot == pytest.approx(0.010)
    assert done.ended_at == pytest.approx(100.100)
    assert (done.ending, done.cached, done.preempted) == (Ending.FINISHED, 0, 0)
    assert engine.counts.steps == 5


def test_each_term_of_the_step_time_counts() -> None:
    profile = replace(EASY, b=1e-5, c=1e-4, d=1e-6, e=1e-8)
    done = drive(Engine(spec(profile), 0.0), [job(1, prompt=100, output=3), job(2, prompt=200, output=3, at=0.001)])
    one = 0.010 + 1e-5 * 100 + 1e-8 * 100 * 50
    both = one + 0.010 + 1e-4 + 1e-6 * 100 + 1e-5 * 200 + 1e-8 * 200 * 100  # first decodes while second is computed
    last = both + 0.010 + 2e-4 + 1e-6 * (101 + 200)
    assert first_tokens(done) == pytest.approx({1: one, 2: both}, abs=1e-6)
    assert ended_at(done)[1] == pytest.approx(last, abs=1e-6)


def test_who_comes_in_the_middle_of_a_step_waits_for_its_end() -> None:
    done = drive(Engine(spec(), 0.0), [job(1, output=20), job(2, output=2, at=0.0555)])
    assert done[0].request.id == 2
    assert done[0].scheduled_at == pytest.approx(0.062)  # the prefill of 32 tokens, then steps of 10 ms
    assert done[0].first_token_at == pytest.approx(0.062 + 0.042)


def test_a_prompt_longer_than_the_token_budget_is_computed_in_parts() -> None:
    done = drive(
        Engine(spec(max_batched_tokens=40), 0.0), [job(1, 8, 10), job(2, 100, 1, at=0.001), job(3, 30, 1, at=0.002)]
    )
    # 39 + 39 + 22 tokens of the second beside one decoding; the third takes the 17 that are left over, then its rest.
    assert first_tokens(done) == pytest.approx({1: 0.018, 2: 0.018 + 0.049 + 0.049 + 0.049, 3: 0.165 + 0.023})


def test_decoding_comes_before_prefill() -> None:
    engine = Engine(spec(max_batched_tokens=4), 0.0)
    done = drive(engine, [job(1, 2, 30), job(2, 2, 30), job(3, 20, 1, at=0.02)])
    assert {one.request.id: one.tpot for one in done if one.tpot} == pytest.approx({1: 0.0107, 2: 0.0107}, rel=0.05)
    assert first_tokens(done)[3] == pytest.approx(0.014 + 0.010 + 10 * 0.012)  # two tokens a step are left for it


def test_no_more_sequences_than_seats() -> None:
    engine = Engine(spec(), 0.0)
    for number in range(7):
        engine.submit(job(number, 10, 10), 0.0)
    engine.advance(0.06)
    assert (engine.running, engine.waiting) == (4, 3)
    assert len(settle(engine)) == 7


def test_priority_goes_first_and_then_arrival() -> None:
    engine = Engine(spec(replace(EASY, max_num_seqs=1.0)), 0.0)
    asked = [job(1, 10, 3), job(2, 10, 3), job(3, 10, 3, priority=-1), job(4, 10, 3, priority=5), job(5, 10, 3)]
    for one in asked:
        engine.submit(one, 0.0)
    # The first had the batch before anybody else was there.
    assert [one.request.id for one in settle(engine)] == [1, 3, 2, 5, 4]


def test_a_wait_that_never_ends() -> None:
    engine = Engine(spec(replace(EASY, max_num_seqs=1.0), max_wait=0.5), 0.0)
    for number in range(3):
        engine.submit(job(number, 10, 100, at=0.0), 0.0)
    assert engine.advance(0.1) == []
    assert engine.next_at == 0.5
    done = engine.advance(0.7)
    assert [(one.request.id, one.ending, one.ended_at) for one in done] == [
        (1, Ending.TIMED_OUT, 0.5),
        (2, Ending.TIMED_OUT, 0.5),
    ]
    assert done[0].why == "waited 0.5 s for a place in the batch"
    assert engine.counts.timed_out == 2
    assert engine.waiting == 0
    assert not engine.cancel(1, 0.8)
    [last] = settle(engine)
    assert last.ending is Ending.FINISHED


def test_a_wait_of_one_who_has_been_served_before() -> None:
    """Preempted is not unserved: it is no longer the waiting time that decides."""
    engine = Engine(spec(replace(EASY, kv_tokens=160), max_wait=0.1), 0.0)
    done = drive(engine, [job(1, 64, 60), job(2, 64, 60, at=0.001)])
    assert engine.counts.preemptions > 0
    assert [one.ending for one in done] == [Ending.FINISHED, Ending.FINISHED]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (job(1, 900, 4, limit=101), "a context of 1001 tokens is longer than 1000 (HTTP 400)"),
        (job(1, 0, 4), "an empty prompt (HTTP 400)"),
    ],
)
def test_a_request_that_can_never_be_served(asked: Job, why: str) -> None:
    engine = Engine(spec(max_context=1000), 5.0)
    engine.submit(asked, 5.0)
    assert engine.next_at == 5.0
    assert engine.advance(5.0) == [asked]
    assert (asked.ending, asked.why, asked.ended_at) == (Ending.REJECTED, why, 5.0)
    assert (engine.counts.rejected, engine.running, engine.waiting, engine.next_at) == (1, 0, 0, inf)


def test_a_context_longer_than_the_cache_would_wait_for_ever() -> None:
    engine = Engine(spec(replace(EASY, kv_tokens=160)), 0.0)
    done = drive(engine, [job(1, 100, 61), job(2, 100, 60)])
    assert [(one.request.id, one.ending) for one in done] == [(1, Ending.REJECTED), (2, Ending.FINISHED)]


def test_a_queue_that_has_a_limit() -> None:
    engine = Engine(spec(replace(EASY, max_num_seqs=1.0), max_queue=1), 0.0)
    for number in range(4):
        engine.submit(job(number, 10, 5), 0.0)
    done = engine.advance(0.0)
    assert [(one.request.id, one.why) for one in done] == [
        (2, "1 requests wait already (HTTP 503)"),
        (3, "1 requests wait already (HTTP 503)"),
    ]
    assert len(settle(engine)) == 2


def test_an_answer_ends_at_its_limit() -> None:
    engine = Engine(spec(), 0.0)
    drive(engine, [job(1, 10, 50, limit=5), job(2, 10, 3, limit=5)])
    assert engine.counts.finished == {"stop": 1, "length": 1}
    assert engine.counts.generation_tokens == 8


def test_a_batch_that_no_longer_fits_loses_its_last_who_computes_it_all_again() -> None:
    engine = Engine(spec(replace(EASY, kv_tokens=160)), 0.0)
    done = drive(engine, [job(1, 64, 60), job(2, 64, 60, at=0.001)])
    first, second = done
    assert (first.request.id, first.preempted, second.preempted) == (1, 0, 1)
    assert engine.counts.preemptions == 1
    # Ten blocks are there, and both hold five when the first wants its sixth, at 0.298: 15 steps after the second's
    # first token. The first ends 43 steps later; then 64 + 16 tokens are computed, and 43 steps are left to the second.
    assert (first.ended_at, second.first_token_at) == pytest.approx((0.728, 0.148))
    assert second.ended_at == pytest.approx(0.728 + 0.090 + 0.430)
    assert engine.counts.generation_tokens == 120
    assert engine.counts.prompt_tokens == 128
    # It said nothing from 0.298 to the end of its recomputation at 0.818, which is one sample of 0.52 s.
    assert engine.counts.itl.buckets[engine.counts.itl.edges.index(0.75)] == 1


def test_the_one_with_the_lowest_priority_makes_room() -> None:
    engine = Engine(spec(replace(EASY, kv_tokens=160)), 0.0)
    done = drive(engine, [job(1, 64, 60, priority=7), job(2, 64, 60, at=0.001)])
    assert [(one.request.id, one.preempted) for one in done] == [(2, 0), (1, 1)]


def test_cancelled_work_makes_room_at_once_and_only_once() -> None:
    engine = Engine(spec(replace(EASY, max_num_seqs=1.0)), 0.0)
    running, waiting = job(1, 10, 100), job(2, 10, 2)
    engine.submit(running, 0.0)
    engine.submit(waiting, 0.0)
    assert engine.cancel(1, 0.123)
    assert not engine.cancel(1, 0.123)
    [done] = settle(engine)
    assert done is waiting
    assert done.scheduled_at == pytest.approx(0.130)  # the end of the step in progress
    assert (running.ending, running.ended_at) == (Ending.ABORTED, 0.123)
    assert engine.counts.aborted == 1
    assert engine.counts.e2e.count == 1  # vLLM tells nothing of an aborted request


def test_the_client_of_one_who_waits_goes_away() -> None:
    engine = Engine(spec(replace(EASY, max_num_seqs=1.0)), 0.0)
    for number in range(3):
        engine.submit(job(number, 10, 10), 0.0)
    assert engine.cancel(1, 0.05, Ending.TIMED_OUT)
    assert (engine.waiting, engine.counts.timed_out) == (1, 1)
    assert [one.request.id for one in settle(engine)] == [0, 2]


def test_the_same_job_twice() -> None:
    engine = Engine(spec(), 0.0)
    engine.submit(job(1), 0.0)
    with pytest.raises(ValueError, match="job 1 is here already"):
        engine.submit(job(1), 0.0)


def test_long_prompts_that_take_every_seat() -> None:
    def waits(isolation: Isolation | None) -> float:
        jobs = [job(number, 200, 40, at=number * 1e-4) for number in range(8)]
        jobs += [job(100 + number, 10, 5, at=0.02 + number * 0.1) for number in range(10)]
        done = drive(Engine(spec(replace(EASY, kv_tokens=16_000), isolation=isolation), 0.0), jobs)
        short = [one.ttft for one in done if one.request.id >= 100 and one.ttft is not None]
        assert len(short) == 10
        return max(short)

    assert waits(None) > 2.0
    assert waits(Isolation(100, short_seqs=1, long_chunk=40)) < 0.6  # three parts of 40 tokens in a step at most


def test_long_prompts_that_take_the_whole_cache() -> None:
    engine = Engine(spec(replace(EASY, kv_tokens=1600), isolation=Isolation(100, long_kv=0.5)), 0.0)
    for number in range(4):
        engine.submit(job(number, 320, 20), 0.0)
    engine.submit(job(9, 32, 20), 0.0)
    engine.advance(0.75)
    assert (engine.running, engine.waiting) == (3, 2)  # two long ones hold 640 of 800 tokens; the short one passed
    assert len(settle(engine)) == 5


def test_a_lane_without_a_seat() -> None:
    with pytest.raises(ValueError, match="leave nothing of max_num_seqs"):
        spec(isolation=Isolation(100, short_seqs=2, long_seqs=2))
    with pytest.raises(ValueError, match="could not hold one token of each sequence"):
        EngineSpec(EASY, max_batched_tokens=3)


def test_an_adapter_that_is_not_loaded_holds_up_the_step() -> None:
    engine = Engine(spec(adapters=Adapters(slots=1, load=0.2)), 0.0)
    jobs = [job(1, 10, 3, adapter="a"), job(2, 10, 3, adapter="b"), job(3, 10, 3, adapter="a", at=0.001), job(4, 10, 3)]
    done = drive(engine, sorted(jobs, key=lambda one: one.arrived))
    # b waits for the slot, and is passed by another a and by one without an adapter.
    assert done[-1].request.id == 2
    assert first_tokens(done)[1] == pytest.approx(0.220)
    assert engine.adapters == ("b",)
    assert max(one.ended_at or 0.0 for one in done[:-1]) <= (done[-1].scheduled_at or 0.0)
    [again] = drive(engine, [job(5, 10, 3, adapter="b", at=2.0)])
    assert again.ttft == pytest.approx(0.020)


def test_prefill_here_and_decode_there() -> None:
    here, there = Engine(spec(), 0.0), Engine(spec(), 0.0)
    one = job(1, 100, 11)
    here.submit(one, 0.0, Leg.PREFILL)
    assert settle(here) == []
    assert here.prefilled == [one]
    assert (one.ending, one.first_token_at, here.kv_usage) == (None, None, 0)
    assert here.counts.finished == {"stop": 0, "length": 1}
    there.submit(one, 0.5, Leg.DECODE)
    assert settle(there) == [one]
    assert one.first_token_at == pytest.approx(0.511)  # its last token was left to compute
    assert one.ended_at == pytest.approx(0.611)
    assert there.counts.prompt_tokens == 100


def test_the_head_of_the_queue_gives_up_and_who_stood_behind_it_fits() -> None:
    engine = Engine(spec(replace(EASY, kv_tokens=160), max_wait=0.1), 0.0)
    runs, large, small = job(1, 64, 60), job(2, 100, 10, at=0.001), job(3, 16, 2, at=0.08)
    drive(engine, [runs, large, small])
    assert (large.ending, large.ended_at) == (Ending.TIMED_OUT, 0.101)
    assert small.scheduled_at == pytest.approx(0.104)  # the end of the step in which the large one gave up


def test_nobody_is_admitted_in_the_step_that_puts_one_out() -> None:
    engine = Engine(spec(replace(EASY, kv_tokens=160)), 0.0)
    urgent = job(3, 48, 4, at=0.1, priority=-1)
    drive(engine, [job(1, 64, 60), job(2, 64, 60, at=0.001), urgent])
    # Both hold five blocks when the first wants its sixth, at 0.298. The second goes; the urgent one comes a step on.
    assert engine.counts.preemptions >= 1
    assert urgent.scheduled_at == pytest.approx(0.308)


def test_a_watermark_is_left_free_but_never_keeps_an_idle_engine_idle() -> None:
    engine = Engine(spec(replace(EASY, kv_tokens=160), watermark=0.3), 0.0)
    done = drive(engine, [job(1, 64, 5), job(2, 64, 5, at=0.001), job(3, 140, 2, at=0.002)])
    assert done[1].scheduled_at == done[0].ended_at  # six blocks were free, three of them not for it
    assert done[2].scheduled_at == done[1].ended_at


def test_attention_of_a_prompt_in_parts_is_that_of_the_whole() -> None:
    profile = replace(EASY, b=0.0, e=1e-6)
    [done] = drive(Engine(spec(profile, max_batched_tokens=100), 0.0), [job(1, 150, 1)])
    assert done.ttft == pytest.approx(2 * 0.010 + 1e-6 * 150 * 75)


def test_a_head_without_room_is_passed_by_nobody_whatever_the_adapter() -> None:
    engine = Engine(spec(replace(EASY, kv_tokens=160), adapters=Adapters(slots=4, load=0.0)), 0.0)
    first, large, small = job(1, 64, 20), job(2, 110, 5, at=0.001), job(3, 16, 5, at=0.002, adapter="a")
    drive(engine, [first, large, small])
    assert large.scheduled_at == first.ended_at
    assert small.scheduled_at == large.scheduled_at
