"""A gateway at work: it hosts the laws of ``routing.gateway``, has its requests carried, and tells each job its end."""

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
from simulator.cluster.server import Server
from simulator.engine.sequence import Leg
from simulator.front.courier import Courier, Flight
from simulator.job import Ending, Job
from simulator.spec import PoolSpec
from simulator.watch.page import Page
from simulator.watch.picker import Picker


class World(Protocol):
    """What a gateway asks of the rest of the fleet."""

    def redirect(self, pool: str, to: str, job: Job, now: float) -> None:
        """A job goes from one pool's gateway to another's."""

    def ended(self, pool: str, job: Job, now: float, retry_after: float | None) -> None:
        """A job has ended for its client, who may come again."""

    def drained(self, server: Server, now: float) -> None:
        """A draining replica has nothing left to do."""

    def crash(self, server: Server, reason: str, now: float) -> None:
        """A replica's process dies."""


class Front:
    """The gateway of a pool. `memory` are the prompt tokens whose activations fit a replica, by pool."""

    def __init__(
        self, pool: str, spec: PoolSpec, memory: Mapping[str, int | None], agenda: Agenda, world: World, seed: int
    ) -> None:
        self.pool, self._spec = pool, spec.gateway
        self.picker = Picker(f"{pool}-gateway", spec.model_name or pool, spec.namespace)
        own = spec.gateway
        self.knobs = own.knobs
        self.gateway = Gateway(own.knobs, strategies.make(own.strategy, own.parameters), now=agenda.now)
        self.courier = Courier(pool, own, memory, agenda, self, seed)
        self._agenda, self._world = agenda, world
        self._wake = Wake(agenda, self._poll)
        self._flights = self.courier.flights
        self._servers: dict[str, Server] = {}
        agenda.at(agenda.now + own.report_every, self._report)

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

    def page(self) -> Page:
        """What a scrape of the gateway brings home."""
        gateway = self.gateway
        replicas, counts = gateway.replicas.values(), gateway.counts()
        return self.picker.page(replicas, counts, gateway.inflight, gateway.queued, gateway.cap)

    # --- jobs come ---------------------------------------------------------------------------------------------------

    def arrive(self, job: Job, now: float) -> None:
        """A job comes in."""
        request = job.request
        self._flights[request.id] = Flight(job)
        self.picker.arrived(job)
        self._do(self.gateway.arrive(request, now), now)
        if job.patience is not None and request.id in self._flights:
            self._agenda.at(job.arrived + job.patience, partial(self._impatient, request.id))

    def visit(self, job: Job, server: Server, now: float) -> None:
        """A job comes straight to a replica, past the gateway; its end is written on it."""
        flight = self._flights[job.request.id] = Flight(job, direct=True)
        flight.server, job.replica = server, server.name
        server.pending += 1
        self.courier.deliver(flight, flight.attempt, server, Leg.WHOLE, now)

    def leave(self, job: Job, now: float) -> None:
        """The client of a visit goes away. Nothing happens when it has ended."""
        flight = self._flights.get(job.request.id)
        if flight is not None:
            self.courier.take_back(flight, Ending.ABORTED, now)
            self._end(flight, Ending.ABORTED, "its client went away", now)

    def _impatient(self, id_: int, now: float) -> None:
        """A client goes away if it has no first token yet."""
        flight = self._flights.get(id_)
        if flight is None:
            return
        job = flight.job
        if job.first_token_at is None and flight.holder is not None:
            self.courier.advance(flight.holder, now)
        if job.first_token_at is not None or self._flights.get(id_) is not flight:
            return
        actions = self.gateway.gone(id_, now)
        self.courier.take_back(flight, Ending.ABORTED, now)
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
                prefill = self._servers[action.prefill] if action.prefill else None
                self.courier.send(flight, self._servers[action.replica], prefill, action.attempt, now)
            elif isinstance(action, Redirect):
                del self._flights[action.id]
                flight.job.degraded = True
                self._world.redirect(self.pool, action.pool, flight.job, now)
            elif isinstance(action, Reject):
                self._end(flight, Ending.REJECTED, action.reason, now, action.retry_after)
            elif isinstance(action, Cancel):
                self.courier.take_back(flight, Ending.TIMED_OUT, now)
                self._end(flight, Ending.TIMED_OUT, action.reason, now)
            elif isinstance(action, Fail):
                ending, why = flight.job.ending or Ending.FAILED, flight.job.why or action.kind
                self.courier.take_back(flight, ending, now)
                self._end(flight, ending, why, now, action.retry_after)
            else:
                self._end(flight, Ending.TIMED_OUT, action.reason, now, action.retry_after)
        self._wake.plan(self.gateway.next_at)

    # --- news from engines -------------------------------------------------------------------------------------------

    def first_token(self, job: Job, now: float) -> None:
        """See ``courier.Desk``."""
        flight = self._flights.get(job.request.id)
        if flight is not None and not flight.direct:
            self.picker.first_token(job)
        self._do(self.gateway.first_token(job.request.id, now, job.replica), now)

    def finished(self, flight: Flight, now: float) -> None:
        """See ``courier.Desk``."""
        job = flight.job
        tokens = min(job.output, job.request.max_tokens)
        actions = self.gateway.finished(job.request.id, tokens, now, job.replica)
        self._end(flight, Ending.FINISHED, "", now)
        self._do(actions, now)

    def failed(self, flight: Flight, ending: Ending, why: str, kind: str, now: float) -> None:
        """See ``courier.Desk``. The gateway says whether there is another attempt."""
        job = flight.job
        job.ending, job.why, job.ended_at = ending, why, now
        if flight.direct:
            self._end(flight, ending, why, now)
        else:
            self._do(self.gateway.failed(job.request.id, now, kind, job.replica), now)

    def drained(self, server: Server, now: float) -> None:
        """See ``courier.Desk``."""
        self._world.drained(server, now)

    def crash(self, server: Server, reason: str, now: float) -> None:
        """See ``courier.Desk``."""
        self._world.crash(server, reason, now)

    def _end(self, flight: Flight, ending: Ending, why: str, now: float, retry_after: float | None = None) -> None:
        """A job has ended for its client."""
        job = flight.job
        del self._flights[job.request.id]
        job.ending, job.why = ending, str(why)
        if ending is not Ending.FINISHED:
            job.ended_at = now
        if not flight.direct:
            self.picker.ended(job)
        self._world.ended(self.pool, job, now, retry_after)

    # --- replicas ----------------------------------------------------------------------------------------------------

    def advance(self, server: Server, now: float) -> None:
        """Bring a replica to the present."""
        self.courier.advance(server, now)

    def joined(self, server: Server, ability: Ability, now: float) -> None:
        """A replica serves from now on."""
        engine = server.engine
        if engine is None:
            return
        self.courier.attend(server)
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
        """A replica's process ends; what is lost with it is tried again or not."""
        lost = self.courier.stop(server, now)
        del self._servers[server.name]
        for flight in lost:
            if flight.direct or flight.server is not server:  # unknown to the gateway, or there for its prompt alone
                self.failed(flight, Ending.FAILED, flight.job.why, "crash", now)
        self._do(self.gateway.left(server.name, now), now)

    def _report(self, now: float) -> None:
        """Engines tell their load, which arrives a little later."""
        told: list[_Load] = []
        for server in list(self._servers.values()):
            self.courier.advance(server, now)
            if (engine := server.engine) is not None:
                told.append((server, *engine.load, frozenset(engine.adapters)))
        if self._spec.report_lag > 0:
            self._agenda.at(now + self._spec.report_lag, partial(self._reported, told, now))
        else:
            self._reported(told, now, now)
        self._agenda.at(now + self._spec.report_every, self._report)

    def _reported(self, told: "list[_Load]", then: float, now: float) -> None:
        replicas = self.gateway.replicas
        for server, running, waiting, kv_usage, adapters in told:
            replica = replicas.get(server.name)
            if replica is not None and server.engine is not None:
                replica.adapters = adapters
                self._do(self.gateway.report(server.name, running, waiting, kv_usage, now), now)
                replica.reported_at = then


_Load = tuple[Server, int, int, float, frozenset[str]]


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
