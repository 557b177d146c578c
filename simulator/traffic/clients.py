"""Clients that come again after a refusal or a failure."""

import dataclasses
from collections.abc import Iterable

from simulator.job import Ending, Job
from simulator.traffic import chance
from simulator.traffic.audience import Audience
from simulator.traffic.retry import Retry

AGAIN = 1 << 40  # ids of second attempts begin here, those of third ones at twice this, far above any first attempt


class Clients:
    """Decides if and when a job comes again. Depends on the seed, the job's stream, origin and attempt alone, so that
    neither the order of the endings nor another client moves a decision."""

    def __init__(self, streams: Iterable[Audience], seed: int) -> None:
        self._seed = seed
        self._laws = {s.name: (s.retry, chance.number(s.name, "retry")) for s in streams if s.retry is not None}

    def again(self, job: Job, now: float, retry_after: float | None) -> Job | None:
        """The next attempt of a job that ended badly at `now`, or None when its client has had enough. `retry_after` is
        what the gateway asked for, seconds. `arrived` of the new job is when it comes."""
        law, key = self._laws.get(job.stream, (None, 0))
        if law is None or job.attempt + 1 >= law.attempts or not _comes_back(law, job):
            return None
        origin = job.origin if job.origin >= 0 else job.request.id
        if chance.uniform(self._seed, key, origin, 0) >= law.share:
            return None
        attempt = job.attempt + 1
        pause = min(law.longest, law.backoff * 2.0**job.attempt)
        pause *= 1 - law.jitter * chance.uniform(self._seed, key, origin, 2, attempt)
        if retry_after is not None and chance.uniform(self._seed, key, origin, 1) < law.honours:
            # Jitter comes on top: clients that all wait for the same second would come as one.
            pause = max(pause, retry_after * (1 + law.jitter * chance.uniform(self._seed, key, origin, 3, attempt)))
        at = now + pause
        request = job.request
        deadline = None if request.deadline is None else at + (request.deadline - job.arrived)
        return Job(
            dataclasses.replace(request, id=origin + attempt * AGAIN, attempt=attempt, deadline=deadline),
            job.output,
            at,
            origin,
            attempt,
            job.patience,
            job.stream,
            job.after,
        )


def _comes_back(law: Retry, job: Job) -> bool:
    if job.ending is Ending.ABORTED:
        return law.impatient
    return job.ending in (Ending.REJECTED, Ending.TIMED_OUT, Ending.FAILED)
