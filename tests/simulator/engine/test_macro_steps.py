"""Macro-steps that are fast and wrong: whatever happens, they must tell what stepping token by token tells."""

from dataclasses import replace
from math import isclose

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.step_model import Profile
from simulator.engine.counts import Counts, Histogram
from simulator.engine.engine import Engine
from simulator.engine.macro import end_of, ended_by
from simulator.engine.sequence import Leg
from simulator.engine.spec import Adapters, EngineSpec, Isolation
from simulator.job import Ending, Job
from tests.support.engines import PROFILE, drive, job, settle, spec

NOISE = 1e-9  # seconds; steps last milliseconds


def profiles() -> st.SearchStrategy[Profile]:
    return st.builds(
        lambda seqs, kv, host: Profile(
            PROFILE.a, PROFILE.b, PROFILE.c, PROFILE.d * 50, PROFILE.e, float(seqs), float(kv), host
        ),
        st.integers(1, 12),
        st.integers(400, 4000),
        st.sampled_from((0.0, 0.0, 0.0013717, 0.0037131)),
    )


def specs() -> st.SearchStrategy[EngineSpec]:
    return st.builds(
        EngineSpec,
        profile=profiles(),
        max_batched_tokens=st.sampled_from((32, 100, 512)),
        block=st.sampled_from((4, 16)),
        prefix_cache=st.booleans(),
        watermark=st.sampled_from((0.0, 0.05)),
        max_wait=st.sampled_from((None, 0.0913, 0.5017)),
        max_queue=st.sampled_from((None, 3)),
        isolation=st.sampled_from((None, Isolation(60, 0, 0, long_kv=0.517, long_chunk=24), Isolation(60))),
        adapters=st.sampled_from((None, Adapters(2, 0.0271))),
    )


Event = tuple[float, str, int]
Life = tuple[list[Job], list[Event]]


@st.composite
def lives(draw: st.DrawFn) -> Life:
    """Jobs that arrive, are cancelled, meet a slow and a hung engine; a scrape in between takes the counts."""
    count = draw(st.integers(1, 14))
    jobs: list[Job] = []
    events: list[Event] = []
    now = 0.0
    for number in range(count):
        now += draw(st.floats(0.0, 0.3)) * 1.000137 + 1.37e-5
        prompt = draw(st.integers(1, 150))
        family = draw(st.integers(0, 2))
        full = prompt // 16
        prefix = tuple(family * 100 + index for index in range(draw(st.sampled_from((full, full // 2, 0)))))
        after = tuple(family * 100 + index for index in range(full, full + draw(st.integers(0, 9))))
        jobs.append(
            job(
                number, prompt, draw(st.integers(1, 120)), at=now, prefix=prefix, priority=draw(st.integers(0, 2)),
                adapter=draw(st.sampled_from(("", "a", "b", "c"))), after=after,
            )
        )  # fmt: skip
        leg = draw(st.sampled_from(("whole", "whole", "whole", "prefill", "decode")))
        events.append((now, leg, number))
        if draw(st.booleans()):
            what = draw(st.sampled_from(("cancel", "scrape", "slow", "hang")))
            at = now + draw(st.floats(0.0, 0.8)) * 1.00071 + 2.3e-6
            events.append((at, what, number))
            if what in ("slow", "hang"):
                events.append((at + 0.0717 + draw(st.floats(0.0, 0.2)), "un" + what, number))
    return jobs, sorted(events)


def live(engine: Engine, life: Life) -> list[Job]:
    jobs, events = life
    ended: list[Job] = []
    for at, what, number in events:
        while engine.next_at <= at:
            ended += engine.advance(engine.next_at)
        if what in ("whole", "prefill", "decode"):
            engine.submit(jobs[number], at, Leg[what.upper()])
        elif what == "cancel":
            engine.cancel(number, at)
        else:
            ended += engine.advance(at)
            if what.endswith("slow"):
                engine.slow = 1.0 if what == "unslow" else 2.7131
            elif what.endswith("hang"):
                engine.hung = what == "hang"
    engine.hung = False
    return ended + settle(engine)


def told(one: Job) -> tuple[object, ...]:
    return one.request.id, one.ending, one.why, one.cached, one.preempted


def times(one: Job) -> tuple[float, ...]:
    marks = (one.scheduled_at, one.first_token_at, one.ended_at)
    return tuple(-1.0 if mark is None else mark for mark in marks)


def same(macro: Counts, stepped: Counts) -> None:
    for name in Counts.__slots__:
        one, other = getattr(macro, name), getattr(stepped, name)
        if isinstance(one, Histogram):
            assert one.buckets == other.buckets, name
            assert one.count == other.count, name
            assert isclose(one.sum, other.sum, abs_tol=1e-7), name
        else:
            assert one == other, name


@given(specs(), st.data())
@settings(max_examples=150)
def test_macro_steps_that_tell_another_story_than_steps(chosen: EngineSpec, data: st.DataObject) -> None:
    life = data.draw(lives())
    again = ([Job(one.request, one.output, one.arrived, after=one.after) for one in life[0]], life[1])
    fast, slow = Engine(chosen, 0.0), Engine(chosen, 0.0, stepping=True)
    ended, expected = live(fast, life), live(slow, again)
    assert [told(one) for one in ended] == [told(one) for one in expected]
    for one, other in zip(life[0], again[0], strict=True):
        assert told(one) == told(other)
        assert times(one) == pytest.approx(times(other), abs=NOISE)
    same(fast.counts, slow.counts)
    for engine in (fast, slow):
        assert (engine.running, engine.waiting, engine.kv_usage) == (0, 0, 0)


def test_percentiles_that_depend_on_how_time_is_computed() -> None:
    def latencies(*, stepping: bool) -> tuple[np.ndarray, Engine]:
        draw = np.random.default_rng(7)
        jobs, now = [], 0.0
        for number in range(400):
            now += float(draw.exponential(0.06))
            prompt, output = (int(draw.lognormal(mean, 0.8)) + 1 for mean in (5.5, 4.5))
            jobs.append(job(number, prompt, output, at=now, priority=number % 3))
        engine = Engine(spec(replace(PROFILE, kv_tokens=12_000)), 0.0, stepping=stepping)
        ended = drive(engine, jobs)
        assert len(ended) == len(jobs)
        return np.array([(one.ttft, one.tpot or 0.0, (one.ended_at or 0.0) - one.arrived) for one in ended]), engine

    (macro, fast), (stepped, slow) = latencies(stepping=False), latencies(stepping=True)
    for q in (0.5, 0.9, 0.95, 0.99):
        assert np.quantile(macro, q, axis=0) == pytest.approx(np.quantile(stepped, q, axis=0), abs=NOISE)
    assert fast.counts.preemptions > 0  # or the case is too easy
    same(fast.counts, slow.counts)


def test_a_step_that_waits_for_the_host_until_contexts_have_grown() -> None:
    profile = Profile(a=0.010, b=0.0, c=0.0, d=1e-5, e=0.0, max_num_seqs=4.0, kv_tokens=16_000, host=0.0067)
    ended = []
    for stepping in (False, True):
        engine = Engine(spec(profile), 0.0, stepping=stepping)
        for number in (1, 2):
            engine.submit(job(number, 100, 200), 0.0)
        settle(engine)
        ended.append(engine.counts)
    same(*ended)
    # Two sequences of 100 to 298 tokens: the first 70 steps take the host's 13.4 ms, the others up to 15.9 ms.
    longest = ended[0].itl.sum / ended[0].itl.count
    assert 0.0134 < longest < 0.0159
    assert ended[0].itl.count == 398


def test_a_scrape_in_the_middle_of_a_macro_step_that_sees_nothing() -> None:
    profile = Profile(a=0.010, b=0.0, c=0.0, d=0.0, e=0.0, max_num_seqs=4.0, kv_tokens=1600)
    engine = Engine(spec(profile), 0.0)
    engine.submit(job(1, 32, 100), 0.0)
    assert engine.advance(0.5051) == []
    assert engine.counts.generation_tokens == 50
    assert engine.counts.itl.count == 49
    assert engine.kv_usage == 96 / 1600  # 32 + 49 tokens, in blocks
    assert engine.next_at == pytest.approx(1.0)


@given(st.floats(0.0, 2e9), st.floats(1e-4, 10.0), st.floats(0.0, 1e-2), st.integers(1, 5000), st.floats(0.0, 1.2))
def test_a_step_that_ends_twice_or_never(start: float, first: float, slope: float, steps: int, share: float) -> None:
    now = start + share * (end_of(start, first, slope, steps) - start)
    done = ended_by(start, first, slope, steps, now)
    assert 0 <= done <= steps
    assert done == 0 or end_of(start, first, slope, done) <= now
    assert done == steps or end_of(start, first, slope, done + 1) > now


@given(
    st.floats(1e-3, 0.2), st.floats(0.0, 1e-3), st.integers(1, 400), st.integers(1, 9)
)  # fmt: skip
def test_a_bucket_that_a_ramp_skips(first: float, slope: float, length: int, times_each: int) -> None:
    first, slope = first * 1.00137 + 1e-7, slope * 1.0071
    closed, one_by_one = Counts().itl, Counts().itl
    closed.ramp(first, slope, length, times_each)
    for index in range(length):
        one_by_one.add(first + index * slope, times_each)
    assert closed.buckets == one_by_one.buckets
    assert closed.count == one_by_one.count
    assert closed.sum == pytest.approx(one_by_one.sum)


def test_a_job_that_is_cancelled_is_counted_once() -> None:
    engine = Engine(spec(PROFILE), 0.0)
    first = job(1, 100, 50)
    engine.submit(first, 0.0)
    assert engine.cancel(1, 0.1)
    assert not engine.cancel(1, 0.1)
    assert not engine.cancel(1, 0.2, Ending.TIMED_OUT)
    assert not engine.cancel(2, 0.2)
    assert (first.ending, first.ended_at) == (Ending.ABORTED, 0.1)
    assert (engine.counts.aborted, engine.counts.timed_out) == (1, 0)
    assert settle(engine) == []
    assert engine.kv_usage == 0
