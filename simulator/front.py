"""A gateway at work: it hosts the laws of ``routing.gateway``, carries requests to engines and news back, and tells
each job its end.

The network costs its whole delay on the way to the replica; answers come back at once. Engines are brought to the
present only when something concerns them.
"""

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

from routing import strategies
from routing.actions import Action, Cancel, Fail, Redirect, Reject, Send
from routing.gateway import Gateway
from routing.knobs import Knobs
from routing.model import Ability, Replica
from routing.strategies.strategy import Base
from simulator.agenda import Agenda, Wake
from simulator.engine.sequence import Leg
from simulator.job import Ending, Job
from simulator.life import Stage
from simulator.server import Server
from simulator.spec import GatewaySpec

_OUT_OF_MEMORY = "Error"  # to Kubernetes, a CUDA out-of-memory is an exit code like any other
_HEAVY = 0.25  # share of the memory for prompts from which on one is watched


class World(Protocol):
    """What a gateway asks of the rest of the fleet."""

    def redirect(self, pool: str, job: Job, now: float) -> None:
        """A job goes to another pool's gateway."""

    def ended(self, pool: str, job: Job, now: float, retry_after: float | None) -> None:
        """A job has ended for its client, who may come again."""

    def drained(self, server: Server, now: float) -> None:
        """A draining replica has nothing left to do."""

    def crash(self, server: Server, reason: str, now: float) -> None:
        """A replica's process dies."""


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


class Front:
    """The gateway of a pool. `memory` are the prompt tokens whose activations fit a replica, by pool."""

    def __init__(
        self, pool: str, spec: GatewaySpec, memory: Mapping[str, int | None], agenda: Agenda, world: World, seed: int
    ) -> None:
        self.pool = pool
        self._spec, self._memory, self._agenda, self._world = spec, memory, agenda, world
        self.knobs = spec.knobs
        self.gateway = Gateway(spec.knobs, strategies.make(spec.strategy, spec.parameters), now=agenda.now)
        self._wake = Wake(agenda, self._poll)
        self._network = random.Random(f"{seed}/network/{pool}")
        self.slower = (0.0, 0.0)  # delay and jitter that a disturbance adds, seconds
        self._flights: dict[int, Flight] = {}
        self._servers: dict[str, Server] = {}
        self._firsts: list[Job] = []  # first tokens that engines told of and the gateway does not know yet
        agenda.at(agenda.now + spec.report_every, self._report)

    @property
    def now(self) -> float:
        """The present, unix seconds."""
        return self._agenda.now

    @property
    def inflight(self) -> int:
        """Jobs that arrived and have not ended."""
        return len(self._flights)

    @property
    def under_way(self) -> list[Job]:
        """Those jobs, in the order in which they came."""
        return [flight.job for flight in self._flights.values()]

    # --- jobs --------------------------------------------------------------------------------------------------------

    def arrive(self, job: Job, now: float) -> None:
        """A job comes in."""
        request = job.request
        self._flights[request.id] = Flight(job)
        self._do(self.gateway.arrive(request, now), now)
        if job.patience is not None and request.id in self._flights:
            self._agenda.at(job.arrived + job.patience, partial(self._impatient, request.id))

    def visit(self, job: Job, server: Server, now: float) -> None:
        """A job comes straight to a replica, past the gateway; its end is written on it."""
        flight = self._flights[job.request.id] = Flight(job, direct=True)
        flight.server, job.replica = server, server.name
        server.pending += 1
        self._deliver(flight, flight.attempt, server, Leg.WHOLE, now)

    def leave(self, job: Job, now: float) -> None:
        """The client of a visit goes away. Nothing happens when it has ended."""
        flight = self._flights.get(job.request.id)
        if flight is not None:
            self._take_back(flight, Ending.ABORTED, now)
            self._end(flight, Ending.ABORTED, "its client went away", now)

    def _impatient(self, id_: int, now: float) -> None:
        """A client goes away if it has no first token yet."""
        flight = self._flights.get(id_)
        if flight is None:
            return
        job = flight.job
        if job.first_token_at is None and flight.holder is not None:
            self.advance(flight.holder, now)
        if job.first_token_at is not None or self._flights.get(id_) is not flight:
            return
        actions = self.gateway.gone(id_, now)
        self._take_back(flight, Ending.ABORTED, now)
        self._end(flight, Ending.ABORTED, "its client had no patience left", now)
        self._do(actions, now)

    # --- what the gateway wants --------------------------------------------------------------------------------------

    def tune(self, knobs: Knobs, now: float) -> None:
        """Other set-points from now on."""
        self.knobs = knobs
        self._do(self.gateway.tune(knobs, now), now)
        for server in self._servers.values():
            self._listen(server)

    def _poll(self, now: float) -> None:
        self._do(self.gateway.poll(now), now)

    def _do(self, actions: Iterable[Action], now: float) -> None:
        for action in actions:
            flight = self._flights.get(action.id)
            if flight is None:
                continue
            if isinstance(action, Send):
                self._send(flight, action, now)
            elif isinstance(action, Redirect):
                del self._flights[action.id]
                flight.job.degraded = True
                self._world.redirect(action.pool, flight.job, now)
            elif isinstance(action, Reject):
                self._end(flight, Ending.REJECTED, action.reason, now, action.retry_after)
            elif isinstance(action, Cancel):
                self._take_back(flight, Ending.TIMED_OUT, now)
                self._end(flight, Ending.TIMED_OUT, action.reason, now)
            elif isinstance(action, Fail):
                job = flight.job
                ending, why = job.ending or Ending.FAILED, job.why or action.kind
                self._take_back(flight, ending, now)
                self._end(flight, ending, why, now, action.retry_after)
            else:
                self._end(flight, Ending.TIMED_OUT, action.reason, now, action.retry_after)
        self._wake.plan(self.gateway.next_at)

    def _send(self, flight: Flight, action: Send, now: float) -> None:
        job = flight.job
        self._take_back(flight, Ending.FAILED, now)  # where it is decoded has gone, not where its prompt is computed
        if job.ending is not None:  # an attempt that failed is followed by another
            job.ending = job.sent_at = job.scheduled_at = job.first_token_at = job.ended_at = None
            job.why, job.cached = "", 0
        flight.attempt = action.attempt
        flight.server = server = self._servers[action.replica]
        flight.prefill = self._servers[action.prefill] if action.prefill else None
        job.replica = server.name
        first = flight.prefill or server
        leg = Leg.WHOLE if flight.prefill is None else Leg.PREFILL
        first.pending += 1
        delay = self._delay()
        if delay > 0:
            self._agenda.at(now + delay, partial(self._deliver, flight, action.attempt, first, leg))
        else:
            self._deliver(flight, action.attempt, first, leg, now)

    def _delay(self) -> float:
        spec, (more, jitter) = self._spec, self.slower
        delay, jitter = spec.delay + more, spec.jitter + jitter
        return delay + jitter * self._network.random() if jitter else delay

    def _deliver(self, flight: Flight, attempt: int, server: Server, leg: Leg, now: float) -> None:
        """A request reaches a replica."""
        job = flight.job
        id_ = job.request.id
        if self._flights.get(id_) is not flight or flight.attempt != attempt or job.ending is not None:
            self._lighter(server, now)
            return
        engine = server.engine
        if engine is None:
            server.pending -= 1
            self._failed(flight, Ending.FAILED, "the replica refused the connection", "refused", now)
            return
        flight.holder = server
        memory = self._memory[server.pool]
        if memory is not None and leg is not Leg.DECODE and job.request.prompt_tokens >= _HEAVY * memory:
            server.heavy[id_] = job
        engine.submit(job, now, leg)
        if self._firsts:
            self._tell_firsts(now)
        server.engine_wake.plan(engine.next_at)

    def _take_back(self, flight: Flight, ending: Ending, now: float) -> None:
        """Stop the work on a job, wherever it is."""
        server, flight.holder = flight.holder, None
        if server is None or server.engine is None:
            return
        if server.engine.cancel(flight.job.request.id, now, ending):
            server.http.finished += 1  # a stream that was broken off counts 2xx
            self._released(flight, server, now)
            server.engine_wake.plan(server.engine.next_at)

    # --- what engines tell -------------------------------------------------------------------------------------------

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

    def _tell_firsts(self, now: float) -> None:
        firsts, self._firsts[:] = list(self._firsts), ()
        for job in firsts:
            self._do(self.gateway.first_token(job.request.id, now, job.replica), now)

    def _over(self, server: Server, job: Job, now: float) -> None:
        """A job has ended at a replica by itself."""
        id_, ending = job.request.id, job.ending
        flight = self._flights.get(id_)
        if flight is None or flight.holder is not server:  # given up in the very moment of its end
            server.http.finished += 1
            self._lighter(server, now)
            return
        self._released(flight, server, now)
        if ending is Ending.FINISHED:
            server.http.finished += 1
            actions = self.gateway.finished(id_, min(job.output, job.request.max_tokens), now, job.replica)
            self._end(flight, ending, "", now)
            self._do(actions, now)
            return
        kind = "crash"
        if ending is Ending.REJECTED:
            refused = job.why.endswith("(HTTP 400)")
            server.http.refused += refused
            server.http.failed += not refused
            kind = "refused" if refused else "busy"
        elif ending is Ending.TIMED_OUT:
            server.http.finished += 1
            kind = "timeout"
        self._failed(flight, ending or Ending.FAILED, job.why, kind, now)

    def _failed(self, flight: Flight, ending: Ending, why: str, kind: str, now: float) -> None:
        """An attempt came to nothing; the gateway says whether there is another."""
        job = flight.job
        job.ending, job.why, job.ended_at = ending, why, now
        if flight.direct:
            self._end(flight, ending, why, now)
            return
        self._do(self.gateway.failed(job.request.id, now, kind, job.replica), now)

    def _prefilled(self, server: Server, job: Job, now: float) -> None:
        """A prompt is computed; its KV cache moves to where the answer is made."""
        server.http.finished += 1
        flight = self._flights.get(job.request.id)
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
        self._agenda.at(moved, partial(self._deliver, flight, flight.attempt, target, Leg.DECODE))

    def _weigh(self, server: Server, now: float) -> None:
        """Prompts in the making that do not fit the memory for activations end the process."""
        computing = 0
        for id_, job in list(server.heavy.items()):
            if job.first_token_at is not None or job.ending is not None:
                del server.heavy[id_]
            elif job.scheduled_at is not None:
                computing += job.request.prompt_tokens
        if computing > (self._memory[server.pool] or math.inf):
            self._world.crash(server, _OUT_OF_MEMORY, now)

    def _released(self, flight: Flight, server: Server, now: float) -> None:
        flight.holder = None
        server.heavy.pop(flight.job.request.id, None)
        self._lighter(server, now)

    def _lighter(self, server: Server, now: float) -> None:
        """A replica has one job less; one that drains may be done."""
        server.pending -= 1
        if not server.pending and server.life.stage is Stage.DRAINING:
            self._agenda.at(now, partial(self._world.drained, server))

    def _end(self, flight: Flight, ending: Ending, why: str, now: float, retry_after: float | None = None) -> None:
        """A job has ended for its client."""
        job = flight.job
        del self._flights[job.request.id]
        job.ending, job.why = ending, str(why)
        if ending is not Ending.FINISHED:
            job.ended_at = now
        self._world.ended(self.pool, job, now, retry_after)

    # --- replicas ----------------------------------------------------------------------------------------------------

    def joined(self, server: Server, ability: Ability, now: float) -> None:
        """A replica serves from now on."""
        engine = server.engine
        if engine is None:
            return
        engine.on_first_token = self._firsts.append
        self._servers[server.name] = server
        self._listen(server)
        tokens = engine.spec.profile.kv_tokens
        replica = Replica(
            server.name,
            ability,
            kv_tokens=None if tokens is None else int(tokens),
            slots=engine.spec.max_num_seqs,
            reported_at=now,
        )
        self._do(self.gateway.joined(replica, now), now)

    def _listen(self, server: Server) -> None:
        """Let an engine tell what its prefix cache holds, if the strategy wants to know it."""
        if server.engine is not None:
            wanted = type(self.gateway.strategy).stored is not Base.stored
            server.engine.listener = _Events(self, server.name) if wanted else None

    def drain(self, server: Server, now: float) -> None:
        """A replica gets nothing new."""
        self._do(self.gateway.drain(server.name, now), now)
        if not server.pending:
            self._agenda.at(now, partial(self._world.drained, server))

    def stopped(self, server: Server, now: float) -> None:
        """A replica's process ends. What it finished before counts; the rest is lost, and tried again or not."""
        self.advance(server, now)
        del self._servers[server.name]
        for job in server.stop(now):
            flight = self._flights[job.request.id]
            self._released(flight, server, now)
            if flight.direct:
                self._end(flight, Ending.FAILED, job.why, now)
            elif flight.server is not server:  # it was there for its prompt alone
                self._do(self.gateway.failed(job.request.id, now, "crash", job.replica), now)
        self._do(self.gateway.left(server.name, now), now)

    def _report(self, now: float) -> None:
        """Engines tell their load, which arrives a little later."""
        told = []
        for server in list(self._servers.values()):
            self.advance(server, now)
            if (engine := server.engine) is not None:
                told.append((server, engine.running, engine.waiting, engine.kv_usage, frozenset(engine.adapters)))
        if self._spec.report_lag > 0:
            self._agenda.at(now + self._spec.report_lag, partial(self._reported, told, now))
        else:
            self._reported(told, now, now)
        self._agenda.at(now + self._spec.report_every, self._report)

    def _reported(self, told: list[tuple[Server, int, int, float, frozenset[str]]], then: float, now: float) -> None:
        replicas = self.gateway.replicas
        for server, running, waiting, kv_usage, adapters in told:
            replica = replicas.get(server.name)
            if replica is not None and server.engine is not None:
                replica.adapters = adapters
                self._do(self.gateway.report(server.name, running, waiting, kv_usage, then), now)


class _Events:
    """KV events of one engine on their way to the strategy."""

    __slots__ = ("_front", "_name")

    def __init__(self, front: Front, name: str) -> None:
        self._front, self._name = front, name

    def stored(self, hashes: Sequence[int]) -> None:
        self._front.gateway.strategy.stored(self._name, hashes, self._front.now)

    def evicted(self, hashes: Sequence[int]) -> None:
        self._front.gateway.strategy.evicted(self._name, hashes, self._front.now)

    def cleared(self) -> None:
        """The replica leaves, and the strategy is told that."""
