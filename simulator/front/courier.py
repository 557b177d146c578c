"""The courier of a gateway: carries requests to engines, brings their news back, and lets time pass in them.

The network costs its whole delay on the way to the replica; answers come back at once. Engines are brought to the
present only when something concerns them.
"""

import math
import random
from collections.abc import Mapping
from functools import partial
from typing import Protocol

from simulator.agenda import Agenda
from simulator.cluster.life import Stage
from simulator.cluster.server import Server
from simulator.engine.sequence import Leg
from simulator.job import Ending, Job
from simulator.spec import GatewaySpec

_OUT_OF_MEMORY = "Error"  # to Kubernetes, a CUDA out-of-memory is an exit code like any other
_AT_ONCE = 0.005  # seconds that an answer takes which costs no computing
_HEAVY = 0.25  # share of the memory for prompts from which on one is watched


class Flight:
    """A job between its arrival and its end. `server` has it or gets it, `prefill` before that if it is not None;
    `holder` is the one whose engine has it now. `attempt` tells deliveries of an earlier attempt. `direct` when the
    gateway knows nothing of it."""

    __slots__ = ("attempt", "direct", "holder", "job", "prefill", "server")

    def __init__(self, job: Job, *, direct: bool = False) -> None:
        self.job = job
        self.direct = direct
        self.attempt = -1
        self.server: Server | None = None
        self.prefill: Server | None = None
        self.holder: Server | None = None


class Desk(Protocol):
    """Who gets the news."""

    def first_token(self, job: Job, now: float) -> None: ...

    def finished(self, flight: Flight, now: float) -> None:
        """A job has its whole answer."""

    def failed(self, flight: Flight, ending: Ending, why: str, kind: str, now: float) -> None:
        """An attempt came to nothing; `kind` in a word, `why` in a sentence."""

    def drained(self, server: Server, now: float) -> None:
        """A draining replica has nothing left to do."""

    def crash(self, server: Server, reason: str, now: float) -> None:
        """A replica's process dies."""


class Courier:
    """`flights` are the jobs that have not ended, by id. `memory` are the prompt tokens whose activations fit a
    replica, by pool. `slower` is what a disturbance adds to delay and jitter, seconds."""

    def __init__(
        self, pool: str, spec: GatewaySpec, memory: Mapping[str, int | None], agenda: Agenda, desk: Desk, seed: int
    ) -> None:
        self.flights: dict[int, Flight] = {}
        self.slower = (0.0, 0.0)
        self._spec, self._memory, self._agenda, self._desk = spec, memory, agenda, desk
        self._network = random.Random(f"{seed}/network/{pool}")
        self._firsts: list[Job] = []  # first tokens that engines told of and the desk does not know yet

    def attend(self, server: Server) -> None:
        """A replica's new engine is to tell of first tokens."""
        if server.engine is not None:
            server.engine.on_first_token = self._firsts.append

    # --- there -------------------------------------------------------------------------------------------------------

    def send(self, flight: Flight, server: Server, prefill: Server | None, attempt: int, now: float) -> None:
        """An attempt at `server`, with the prompt computed at `prefill` where that is not None."""
        job = flight.job
        self.take_back(flight, Ending.FAILED, now)  # where it is decoded has gone, not where its prompt is computed
        if job.ending is not None:  # an attempt that failed is followed by another
            job.ending = job.sent_at = job.scheduled_at = job.first_token_at = job.ended_at = None
            job.why, job.cached = "", 0
        flight.attempt, flight.server, flight.prefill = attempt, server, prefill
        job.replica = server.name
        first = prefill or server
        leg = Leg.WHOLE if prefill is None else Leg.PREFILL
        first.pending += 1
        delay = self._delay()
        if delay > 0:
            self._agenda.at(now + delay, partial(self.deliver, flight, attempt, first, leg))
        else:
            self.deliver(flight, attempt, first, leg, now)

    def _delay(self) -> float:
        spec, (more, jitter) = self._spec, self.slower
        delay, jitter = spec.delay + more, spec.jitter + jitter
        return delay + jitter * self._network.random() if jitter else delay

    def deliver(self, flight: Flight, attempt: int, server: Server, leg: Leg, now: float) -> None:
        """A request reaches a replica, who counts it among its pending ones."""
        job = flight.job
        id_ = job.request.id
        if self.flights.get(id_) is not flight or flight.attempt != attempt or job.ending is not None:
            self._lighter(server, now)
            return
        engine = server.engine
        if engine is None:
            server.pending -= 1
            self._desk.failed(flight, Ending.FAILED, "the replica refused the connection", "refused", now)
            return
        if server.broken:
            self._agenda.at(now + _AT_ONCE, partial(self._refused, flight, attempt, server))
            return
        flight.holder = server
        memory = self._memory[server.pool]
        if memory is not None and leg is not Leg.DECODE and job.request.prompt_tokens >= _HEAVY * memory:
            server.heavy[id_] = job
        engine.submit(job, now, leg)
        if self._firsts:
            self._tell_firsts(now)
        server.engine_wake.plan(engine.next_at)

    def _refused(self, flight: Flight, attempt: int, server: Server, now: float) -> None:
        """A replica has answered with an error."""
        server.http.failed += 1
        self._lighter(server, now)
        if self.flights.get(flight.job.request.id) is flight and flight.attempt == attempt:
            self._desk.failed(flight, Ending.FAILED, "the replica answered HTTP 500", "error", now)

    def take_back(self, flight: Flight, ending: Ending, now: float) -> None:
        """Stop the work on a job, wherever it is."""
        server, flight.holder = flight.holder, None
        if server is None or server.engine is None:
            return
        if server.engine.cancel(flight.job.request.id, now, ending):
            server.http.finished += 1  # a stream that was broken off counts 2xx
            server.heavy.pop(flight.job.request.id, None)
            self._lighter(server, now)
            server.engine_wake.plan(server.engine.next_at)

    # --- back --------------------------------------------------------------------------------------------------------

    def advance(self, server: Server, now: float) -> None:
        """Bring an engine to the present, and pass on what happened in it."""
        engine = server.engine
        if engine is None:
            return
        ended = engine.advance(now)
        if self._firsts:
            self._tell_firsts(now)
        for job in ended:
            self._over(server, job, now)
        if engine.prefilled:
            done, engine.prefilled = engine.prefilled, []
            for job in done:
                self._prefilled(server, job, now)
        if server.heavy:
            self._weigh(server, now)
        server.engine_wake.plan(engine.next_at)

    def stop(self, server: Server, now: float) -> list[Flight]:
        """A replica's process ends. What it finished before counts; the answer is what was lost with it."""
        self.advance(server, now)
        lost = [self.flights[job.request.id] for job in server.stop(now)]
        for flight in lost:
            self._released(flight, server, now)
        return lost

    def _tell_firsts(self, now: float) -> None:
        firsts, self._firsts[:] = list(self._firsts), ()
        for job in firsts:
            self._desk.first_token(job, now)

    def _over(self, server: Server, job: Job, now: float) -> None:
        """A job has ended at a replica by itself."""
        flight, ending, http = self.flights.get(job.request.id), job.ending, server.http
        if flight is None or flight.holder is not server:  # given up in the very moment of its end
            http.finished += 1
            self._lighter(server, now)
            return
        self._released(flight, server, now)
        if ending is Ending.FINISHED:
            http.finished += 1
            self._desk.finished(flight, now)
        elif ending is Ending.REJECTED and job.why.endswith("(HTTP 400)"):
            http.refused += 1
            self._desk.failed(flight, ending, job.why, "refused", now)
        elif ending is Ending.REJECTED:
            http.failed += 1
            self._desk.failed(flight, ending, job.why, "busy", now)
        else:
            http.finished += 1
            self._desk.failed(flight, ending or Ending.FAILED, job.why, "timeout", now)

    def _prefilled(self, server: Server, job: Job, now: float) -> None:
        """A prompt is computed; its KV cache moves to where the answer is made."""
        server.http.finished += 1
        flight = self.flights.get(job.request.id)
        if flight is None or flight.holder is not server:
            self._lighter(server, now)
            return
        self._released(flight, server, now)
        target = flight.server
        if target is None:
            return
        spec = self._spec
        per_token = spec.transfer if server.zone == target.zone else spec.transfer_far
        target.pending += 1
        moved = now + spec.hand_over + per_token * job.request.prompt_tokens
        self._agenda.at(moved, partial(self.deliver, flight, flight.attempt, target, Leg.DECODE))

    def _weigh(self, server: Server, now: float) -> None:
        """Prompts in the making that do not fit the memory for activations end the process."""
        computing = 0
        for id_, job in list(server.heavy.items()):
            if job.first_token_at is not None or job.ending is not None:
                del server.heavy[id_]
            elif job.scheduled_at is not None:
                computing += job.request.prompt_tokens
        if computing > (self._memory[server.pool] or math.inf):
            self._desk.crash(server, _OUT_OF_MEMORY, now)

    def _released(self, flight: Flight, server: Server, now: float) -> None:
        flight.holder = None
        server.heavy.pop(flight.job.request.id, None)
        self._lighter(server, now)

    def _lighter(self, server: Server, now: float) -> None:
        """A replica has one job less; one that drains may be done."""
        server.pending -= 1
        if not server.pending and server.life.stage is Stage.DRAINING:
            self._agenda.at(now, partial(self._desk.drained, server))
