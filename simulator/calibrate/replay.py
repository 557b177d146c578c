"""A request log run through the engine: the same requests at the same times, under other coefficients."""

from dataclasses import dataclass, replace
from math import inf

import numpy as np

from controller.core.step_model import Profile
from routing.model import Request
from simulator.calibrate.log import Floats, RequestLog
from simulator.engine.engine import Engine
from simulator.engine.spec import EngineSpec
from simulator.job import Ending, Job


@dataclass(frozen=True, slots=True)
class Replayed:
    """What the engine did with the requests of a log, in its order. Seconds since its first; NaN for a request that
    the engine did not finish."""

    scheduled: Floats
    first: Floats
    last: Floats

    @property
    def lost(self) -> int:
        """Requests that it did not finish."""
        return int(np.isnan(self.last).sum())


def replay(log: RequestLog, spec: EngineSpec, profile: Profile) -> Replayed:
    """Run the log under `profile`. What the log's own engine found in its prefix cache is taken off the prompts: which
    requests shared it is not in the log, so it can be found in no cache here. It is then missing in the contexts."""
    engine = Engine(replace(spec, profile=profile), 0.0)
    jobs = [_job(log, index) for index in range(len(log))]
    for job in jobs:
        engine.advance(job.arrived)
        engine.submit(job, job.arrived)
    while (at := engine.next_at) < inf:
        engine.advance(at)
    done = [job.ending is Ending.FINISHED for job in jobs]
    times = np.array([(job.scheduled_at, job.first_token_at, job.ended_at) for job in jobs], dtype=np.float64)
    scheduled, first, last = np.where(np.array(done)[:, None], times, np.nan).T
    return Replayed(scheduled, first, last)


def _job(log: RequestLog, index: int) -> Job:
    prompt, output = max(1, int(log.prompt[index] - log.cached[index])), int(log.output[index])
    return Job(Request(index, prompt, output), output, float(log.queued[index]))
