"""Disturbances at work: each is put on the agenda, and undone when its time is over.

Of two that overlap on the same thing the end of either ends both.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from simulator.agenda import Agenda
from simulator.cluster.cluster import Cluster
from simulator.cluster.disturbances import (
    Crash,
    Disturbance,
    Errors,
    Hang,
    MetricsOutage,
    OutOfMemory,
    PullFailure,
    Quota,
    Reclaim,
    Rollout,
    SlowNetwork,
    StartFailure,
    Straggler,
    Victims,
)
from simulator.cluster.server import Server
from simulator.front.front import Front
from simulator.spec import FleetSpec
from simulator.watch.scrape import Prometheus


class World(Protocol):
    """What can be disturbed."""

    spec: FleetSpec
    agenda: Agenda
    cluster: Cluster
    prometheus: Prometheus
    fronts: dict[str, Front]
    blind: set[str]

    def woken(self, server: Server, now: float) -> None: ...


class Disturber:
    """Puts `disturbances` on the agenda of a world that begins at `start`, unix seconds."""

    def __init__(self, world: World, disturbances: tuple[Disturbance, ...], start: float) -> None:
        self._world = world
        for one in disturbances:
            world.agenda.at(start + one.at, partial(self._begin, one))

    def _begin(self, one: Disturbance, now: float) -> None:
        cluster = self._world.cluster
        if isinstance(one, Rollout):
            cluster.roll_out(one.pool, one.version, one.factor, now)
        elif isinstance(one, Quota):
            usual = cluster.pools[one.pool].spec.quota if one.pool else self._world.spec.gpus
            cluster.limit(one.pool, one.limit, now)
            self._later(one.duration, now, lambda at: cluster.limit(one.pool, usual, at))
        elif isinstance(one, PullFailure):
            cluster.fail_pulls(one.pool, True)
            self._later(one.duration, now, lambda _: cluster.fail_pulls(one.pool, False))
        elif isinstance(one, StartFailure):
            cluster.fail_starts(one.pool, True)
            self._later(one.duration, now, lambda _: cluster.fail_starts(one.pool, False))
        elif isinstance(one, SlowNetwork):
            self._slow(one, (one.delay, one.jitter))
            self._later(one.duration, now, lambda _: self._slow(one, (0.0, 0.0)))
        elif isinstance(one, MetricsOutage):
            self._blind(one, True)
            self._later(one.duration, now, lambda _: self._blind(one, False))
        else:
            for server in self._victims(one):
                self._strike(one, server, now)

    def _later(self, duration: float | None, now: float, undo: Callable[[float], None]) -> None:
        if duration is not None:
            self._world.agenda.at(now + duration, undo)

    def _slow(self, one: SlowNetwork, slower: tuple[float, float]) -> None:
        for name, front in self._world.fronts.items():
            if one.pool in ("", name):
                front.courier.slower = slower

    def _blind(self, one: MetricsOutage, blind: bool) -> None:
        if not one.pool:
            self._world.prometheus.down = blind
        elif blind:
            self._world.blind.add(one.pool)
        else:
            self._world.blind.discard(one.pool)

    # --- replicas ----------------------------------------------------------------------------------------------------

    def _victims(self, one: Victims) -> list[Server]:
        serving = self._world.cluster.pools[one.pool].ready()
        return [serving[place] for place in one.places(len(serving))]

    def _strike(self, one: Victims, server: Server, now: float) -> None:
        cluster = self._world.cluster
        if isinstance(one, Crash):
            cluster.crash(server, "Error", now)
        elif isinstance(one, OutOfMemory):
            cluster.crash(server, "OOMKilled", now)
        elif isinstance(one, Reclaim):
            cluster.reclaim(server, one.notice, now)
        elif isinstance(one, Straggler):
            self._pace(server, one.factor, now)
            self._later(one.duration, now, partial(self._pace, server, 1.0))
        elif isinstance(one, Hang):
            self._hang(server, True, one.answers, now)
            self._later(one.duration, now, partial(self._hang, server, False, True))
        elif isinstance(one, Errors):
            self._break(server, True, now)
            self._later(one.duration, now, partial(self._break, server, False))

    @staticmethod
    def _break(server: Server, broken: bool, _now: float) -> None:
        """The server answers errors; one that starts anew does not."""
        server.broken = broken

    def _pace(self, server: Server, factor: float, now: float) -> None:
        """The hardware is slow, so it stays so when the process starts anew."""
        self._world.woken(server, now)
        server.slow = factor
        if server.engine is not None:
            server.engine.slow = factor
            server.engine_wake.plan(server.engine.next_at)

    def _hang(self, server: Server, hung: bool, answers: bool, now: float) -> None:
        """The process is stuck; one that starts anew is not."""
        self._world.woken(server, now)
        server.answers = answers
        if server.engine is not None:
            server.engine.hung = hung
            server.engine_wake.plan(server.engine.next_at)
