"""A batch that was full of requests is taken for a full KV cache, or the other way round."""

from dataclasses import replace

import numpy as np

from controller.core.step_model import Profile
from routing.model import Request
from simulator.calibrate.limits import read_limits
from simulator.calibrate.log import RequestLog
from simulator.engine.engine import Engine
from simulator.engine.spec import EngineSpec
from simulator.job import Job
from tests.support.requestlogs import TRUE, lengths, poisson


def logged(profile: Profile, rate: float, count: int = 300) -> RequestLog:
    """A log with scheduling times, of an engine with these limits."""
    engine = Engine(EngineSpec(profile, prefix_cache=False), 0.0)
    queued, prompt, output = poisson(count, rate), lengths(count, 800, 0.5, 1), lengths(count, 200, 0.5, 2)
    jobs = [Job(Request(i, int(prompt[i]), int(output[i])), int(output[i]), float(queued[i])) for i in range(count)]
    for job in jobs:
        engine.advance(job.arrived)
        engine.submit(job, job.arrived)
    engine.advance(1e9)
    scheduled, first, last = np.array(
        [(job.scheduled_at, job.first_token_at, job.ended_at) for job in jobs], dtype=np.float64
    ).T
    return RequestLog(queued, scheduled, first, last, prompt, output, np.zeros(count))


def test_slots() -> None:
    seen = read_limits(logged(replace(TRUE, max_num_seqs=24.0), rate=20.0))
    assert (seen.max_num_seqs, seen.kv_tokens) == (24, None)


def test_the_kv_cache() -> None:
    seen = read_limits(logged(replace(TRUE, max_num_seqs=256.0, kv_tokens=20_000.0), rate=20.0))
    assert seen.max_num_seqs is None
    assert seen.kv_tokens is not None
    assert 17_000 < seen.kv_tokens < 21_500


def test_where_nothing_waits_nothing_is_claimed() -> None:
    seen = read_limits(logged(TRUE, rate=2.0))
    assert (seen.max_num_seqs, seen.kv_tokens) == (None, None)
    assert 2 < seen.largest < 64
