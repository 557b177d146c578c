"""The fleet in virtual time: traffic, gateways, replicas, cluster and the Prometheus that watches them, on one agenda.

Everything that happens is an entry of the agenda, or the next arrival. One seed gives one history.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from math import inf
from typing import Protocol

from routing.model import Ability
from simulator.agenda import Agenda
from simulator.cluster.cluster import Cluster
from simulator.cluster.disturb import Disturber
from simulator.cluster.server import Server
from simulator.engines import engine_spec
from simulator.front.front import Front
from simulator.job import Job
from simulator.spec import FleetSpec, PoolSpec
from simulator.truth import Truth
from simulator.watch.kube_state import INSTANCE, JOB
from simulator.watch.page import Labels, Page, labels
from simulator.watch.scrape import Prometheus


class Clients(Protocol):
    """Who comes again after a bad ending. See ``simulator.traffic.clients``."""

    def again(self, job: Job, now: float, retry_after: float | None) -> Job | None: ...


class Fleet:
    """`jobs` come in order of their arrival, to the pool that they are given for. `start` is unix seconds."""

    def __init__(
        self, spec: FleetSpec, jobs: Mapping[str, Iterable[Job]], *, seed: int, start: float,
        clients: Clients | None = None,
    ) -> None:  # fmt: skip
        self.spec, self.start = spec, start
        self.truth = Truth()
        self.agenda = Agenda(start)
        self._clients = clients
        self.prometheus = Prometheus(spec.prometheus, seed)
        self.blind: set[str] = set()  # pools whose scrapes fail
        self.cluster = Cluster(spec, engine_spec, self.agenda, self.truth, self, seed)
        memory = {name: pool.limits.memory_tokens for name, pool in spec.pools.items()}
        own = {name: pool for name, pool in spec.pools.items() if not pool.behind}
        self.fronts = {name: Front(name, pool, memory, self.agenda, self, seed) for name, pool in own.items()}
        self.front_of = {name: self.fronts[pool.behind or name] for name, pool in spec.pools.items()}
        self._homes: dict[int, str] = {}  # where jobs came in that were sent to another pool
        if strange := [name for name in jobs if name not in self.fronts]:
            raise ValueError(
                f"jobs come to {', '.join(strange)}, where no gateway is; those are {', '.join(self.fronts)}"
            )
        self._traffic = [_Stream(self.fronts[name], iter(some)) for name, some in jobs.items()]
        self._discover(JOB, labels(job=JOB, instance=INSTANCE), self._scrape_kubernetes)
        for front in self.fronts.values():
            self._discover(front.picker.name, front.picker.target, partial(self._scrape_gateway, front))
        self.cluster.begin(start)
        Disturber(self, spec.disturbances, start)

    @property
    def now(self) -> float:
        """The present, unix seconds."""
        return self.agenda.now

    @property
    def inflight(self) -> int:
        """Jobs that arrived and have not ended."""
        return sum(front.inflight for front in self.fronts.values())

    def advance(self, until: float) -> None:
        """Let time pass."""
        agenda, traffic = self.agenda, self._traffic
        while True:
            stream = min(traffic, key=_Stream.due, default=None) if len(traffic) != 1 else traffic[0]
            arrival = inf if stream is None else stream.at
            due = agenda.next_at
            if arrival <= due:
                if arrival > until or stream is None:
                    break
                agenda.now = max(agenda.now, arrival)
                self._arrive(stream.front, stream.take(), agenda.now)
            elif due > until:
                break
            else:
                agenda.turn()
        agenda.now = max(agenda.now, until)

    def pages(self, at: float) -> Iterator[Page]:
        """What an instant query at `at`, not before the present, would see. Raises ConnectionError while Prometheus is
        down."""
        return self.prometheus.pages(at)

    # --- jobs --------------------------------------------------------------------------------------------------------

    def _arrive(self, front: Front, job: Job, now: float) -> None:
        self._offered(front)
        front.arrive(job, now)

    def _offered(self, front: Front) -> None:
        offered = self.truth.offered
        offered[front.pool] = offered.get(front.pool, 0) + 1

    def visit(self, job: Job, server: Server) -> None:
        """A job comes straight to a replica now, past the gateway; its end is written on it."""
        front = self.front_of[server.pool]
        self._offered(front)
        front.visit(job, server, self.now)

    def leave(self, job: Job, server: Server) -> None:
        """The client of a visit goes away now."""
        self.front_of[server.pool].leave(job, self.now)

    def refresh(self, server: Server) -> None:
        """Bring one replica to the present, for who looks at it from outside."""
        self.front_of[server.pool].advance(server, self.now)

    def redirect(self, pool: str, to: str, job: Job, now: float) -> None:
        """See ``front.World``."""
        self._homes.setdefault(job.request.id, pool)
        self.front_of[to].arrive(job, now)

    def ended(self, pool: str, job: Job, now: float, retry_after: float | None) -> None:
        """See ``front.World``."""
        home = self._homes.pop(job.request.id, pool) if job.degraded else pool
        again = self._clients.again(job, now, retry_after) if self._clients is not None else None
        self.truth.jobs.add(home, job, again is not None)
        if again is not None:
            self.agenda.at(again.arrived, partial(self._arrive, self.fronts[home], again))

    # --- replicas ----------------------------------------------------------------------------------------------------

    def drained(self, server: Server, now: float) -> None:
        """See ``front.World``."""
        if not server.pending:
            self.cluster.drained(server, now)

    def crash(self, server: Server, reason: str, now: float) -> None:
        """See ``front.World``."""
        self.cluster.crash(server, reason, now)

    def discovered(self, server: Server, now: float) -> None:
        """See ``cluster.Watcher``."""
        self._discover(server.name, server.target, partial(self._scrape, server))

    def serves(self, server: Server, now: float) -> None:
        """See ``cluster.Watcher``."""
        self.front_of[server.pool].joined(server, _ability(self.spec.pools[server.pool], server), now)

    def drains(self, server: Server, now: float) -> None:
        """See ``cluster.Watcher``."""
        self.front_of[server.pool].drain(server, now)

    def stops(self, server: Server, now: float) -> None:
        """See ``cluster.Watcher``."""
        self.front_of[server.pool].stopped(server, now)

    def vanished(self, server: Server, now: float) -> None:
        """See ``cluster.Watcher``."""
        self.prometheus.forget(server.name, now)

    def woken(self, server: Server, now: float) -> None:
        """See ``cluster.Watcher``."""
        self.front_of[server.pool].advance(server, now)

    # --- scrapes -----------------------------------------------------------------------------------------------------

    def _discover(self, name: str, identity: Labels, scrape: Callable[[float], None]) -> None:
        self.agenda.at(self.prometheus.discover(name, identity, self.agenda.now), scrape)

    def _scrape(self, server: Server, now: float) -> None:
        prometheus = self.prometheus
        page = None
        if not prometheus.fails(server.name) and server.pool not in self.blind:
            self.front_of[server.pool].advance(server, now)
            page = server.page()
        self.agenda.at(prometheus.scraped(server.name, page, now), partial(self._scrape, server))

    def _scrape_gateway(self, front: Front, now: float) -> None:
        name = front.picker.name
        page = None if self.prometheus.fails(name) or front.pool in self.blind else front.page()
        self.agenda.at(self.prometheus.scraped(name, page, now), partial(self._scrape_gateway, front))

    def _scrape_kubernetes(self, now: float) -> None:
        page = None if self.prometheus.fails(JOB) else self.cluster.page()
        self.agenda.at(self.prometheus.scraped(JOB, page, now), self._scrape_kubernetes)


class _Stream:
    """The jobs that come to one gateway; `at` is when the next one does, inf when none does."""

    __slots__ = ("_job", "_jobs", "at", "front")

    def __init__(self, front: Front, jobs: Iterator[Job]) -> None:
        self.front = front
        self._jobs = jobs
        self._job = next(jobs, None)
        self.at = inf if self._job is None else self._job.arrived

    def due(self) -> float:
        return self.at

    def take(self) -> Job:
        """The next job."""
        job = self._job
        if job is None:
            raise StopIteration
        self._job = later = next(self._jobs, None)
        self.at = inf if later is None else later.arrived
        return job


def _ability(pool: PoolSpec, server: Server) -> Ability:
    """What a replica tells its gateway that it can serve."""
    return Ability(
        model=pool.model_name or server.pool,
        version=server.version,
        precision=pool.precision,
        hardware=pool.hardware,
        region=pool.region,
        zone=server.zone,
        role=pool.role,
        context=pool.limits.max_context,
        tenants=frozenset(pool.tenants),
        canary=pool.canary,
    )
