"""The cluster: makes replicas, finds nodes for them within the quotas, leads them through life, and ends them."""

import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from simulator.agenda import Agenda, Wake
from simulator.cluster import deployment
from simulator.cluster.life import ON_NODE, Life, Stage
from simulator.cluster.server import Server
from simulator.engine.spec import EngineSpec
from simulator.spec import FleetSpec, PoolSpec
from simulator.truth import STARTING, Census, Truth
from simulator.watch import kube_state
from simulator.watch.page import Labels, Page, labels

PORT = 8000
EngineOf = Callable[[PoolSpec, float], EngineSpec]


class Watcher(Protocol):
    """Who is told of replicas, when it happens."""

    def discovered(self, server: Server, now: float) -> None:
        """It has a network address from now on."""

    def serves(self, server: Server, now: float) -> None:
        """Its process has begun to serve."""

    def drains(self, server: Server, now: float) -> None:
        """It takes no more requests and finishes those that it has."""

    def stops(self, server: Server, now: float) -> None:
        """Its process ends, with all that it still had."""

    def vanished(self, server: Server, now: float) -> None:
        """It is no more."""

    def woken(self, server: Server, now: float) -> None:
        """Something may have happened in its engine."""


@dataclass(slots=True)
class Pool:
    """A Deployment: what is wanted, and the replicas that there are by their numbers."""

    name: str
    spec: PoolSpec
    place: int
    wanted: int
    version: str
    quota: int | None
    factor: float = 1.0  # step time of the newest version, times the profile's
    made: int = 0
    servers: dict[int, Server] = field(default_factory=dict)
    pulls_fail: bool = False
    starts_fail: bool = False

    def ready(self) -> list[Server]:
        """Those that serve and are not being ended, oldest first."""
        return [server for server in self.servers.values() if server.life.stage is Stage.READY]


class Cluster:
    """Pools by name. Every change of a replica's life passes here, so that what follows from it happens at once."""

    def __init__(
        self, spec: FleetSpec, engine_of: EngineOf, agenda: Agenda, truth: Truth, watcher: Watcher, seed: int
    ) -> None:
        self._agenda, self._truth, self._watcher = agenda, truth, watcher
        self._seed = seed
        self._engine_of = engine_of
        self.gpus = spec.gpus
        self.pools = {
            name: Pool(name, pool, place, pool.replicas, pool.version, pool.quota)
            for place, (name, pool) in enumerate(spec.pools.items())
        }

    def begin(self, now: float) -> None:
        """The replicas of the start are there, and serve."""
        for pool in self.pools.values():
            for _ in range(pool.wanted):
                server = self._make(pool, now)
                server.life.settle(now)
                self._watcher.discovered(server, now)
                server.start(now)
                self._watcher.serves(server, now)
            self._counted(pool, now)

    # --- what others want ------------------------------------------------------------------------------------------

    def scale(self, name: str, wanted: int, now: float, first: Collection[str] = ()) -> None:
        """So many replicas are wanted of a pool; those named go before others that serve."""
        pool = self.pools[name]
        pool.wanted = wanted
        for server in pool.servers.values():
            server.cost = -1 if server.name in first else 0
        self._settle(now)

    def roll_out(self, name: str, version: str, factor: float, now: float) -> None:
        """A new version is to replace what is there."""
        pool = self.pools[name]
        pool.version, pool.factor = version, factor
        self._settle(now)

    def limit(self, name: str, limit: int | None, now: float) -> None:
        """Replicas of a pool, or without a name GPUs of all, that find a node from now on."""
        if name:
            self.pools[name].quota = limit
        else:
            self.gpus = limit
        self._settle(now)

    def fail_pulls(self, name: str, fail: bool) -> None:
        """Whether images of a pool (without a name: any) cannot be pulled."""
        for pool in self.pools.values():
            if name in ("", pool.name):
                pool.pulls_fail = fail

    def fail_starts(self, name: str, fail: bool) -> None:
        """Whether processes of a pool (without a name: any) end when they have loaded."""
        for pool in self.pools.values():
            if name in ("", pool.name):
                pool.starts_fail = fail

    def crash(self, server: Server, reason: str, now: float) -> None:
        """Its process ends, with the reason that Kubernetes gives."""
        if server.life.crash(now, reason):
            self._changed(server, now)

    def reclaim(self, server: Server, notice: float, now: float) -> None:
        """Its node goes away after `notice` seconds."""
        server.life.end(now, notice)
        self._changed(server, now)

    def drained(self, server: Server, now: float) -> None:
        """A draining replica has nothing left to do."""
        server.life.drained(now)
        self._changed(server, now)

    # --- what is seen ----------------------------------------------------------------------------------------------

    def page(self) -> Page:
        """What kube-state-metrics shows."""
        return kube_state.page(
            [
                kube_state.Workload(
                    pool.spec.namespace,
                    pool.name,
                    pool.wanted,
                    pool.version,
                    [(server.name, server) for server in pool.servers.values()],
                )
                for pool in self.pools.values()
            ]
        )

    # --- lives -----------------------------------------------------------------------------------------------------

    def _make(self, pool: Pool, now: float) -> Server:
        spec, number = pool.spec, pool.made
        pool.made += 1
        name = f"{pool.name}-{pool.version}-{number}"
        zone = spec.zones[number % len(spec.zones)] if spec.zones else ""
        life = Life(spec.life, random.Random(f"{self._seed}/life/{pool.name}/{number}"), now)
        server = Server(
            name, pool.name, number, pool.version, zone,
            life=life,
            spec=self._engine_of(spec, pool.factor),
            target=self._target(pool, name, number, zone),
            model_name=spec.model_name or pool.name,
        )  # fmt: skip
        server.life_wake = Wake(self._agenda, partial(self._due, server))
        server.engine_wake = Wake(self._agenda, partial(self._watcher.woken, server))
        pool.servers[number] = server
        return server

    def _target(self, pool: Pool, name: str, number: int, zone: str) -> Labels:
        spec = pool.spec
        instance = f"10.{pool.place}.{number // 250}.{number % 250 + 1}:{PORT}"
        own = {"job": pool.name, "instance": instance, "namespace": spec.namespace, "pod": name, "zone": zone}
        own["version"] = pool.version
        own["role"] = "" if spec.role == "both" else spec.role
        return labels(**{**spec.labels, **own})

    def _due(self, server: Server, now: float) -> None:
        pool = self.pools[server.pool]
        moved = False
        while server.life.advance(now, pull_fails=pool.pulls_fail):
            moved = True
            if pool.starts_fail and server.life.stage is Stage.WARMING:
                server.life.crash(now, "Error")
            self._follow(server, now)
        if moved:
            self._settle(now)
        server.life_wake.plan(server.life.until)

    def _changed(self, server: Server, now: float) -> None:
        self._follow(server, now)
        server.life_wake.plan(server.life.until)
        self._settle(now)

    def _follow(self, server: Server, now: float) -> None:
        """Do what the stage that a replica has just come to brings with it."""
        stage, watcher = server.life.stage, self._watcher
        if stage is Stage.PULLING and not server.life.pull_failures:
            watcher.discovered(server, now)
        elif stage is Stage.READY:
            server.start(now)
            watcher.serves(server, now)
        elif stage is Stage.DRAINING:
            watcher.drains(server, now)
        elif stage in (Stage.BACKOFF, Stage.GONE) and server.engine is not None:
            watcher.stops(server, now)
        if stage is Stage.GONE and self.pools[server.pool].servers.pop(server.number, None) is not None:
            watcher.vanished(server, now)

    def _settle(self, now: float) -> None:
        """Make, end and place replicas until nothing more follows."""
        for pool in self.pools.values():
            while True:
                verdict = deployment.reconcile(list(pool.servers.values()), pool.wanted, pool.version)
                if not verdict.make and not verdict.end:
                    break
                for _ in range(verdict.make):
                    self._make(pool, now)
                for number in verdict.end:
                    server = pool.servers[number]
                    server.life.end(now, pool.spec.life.drain_timeout)
                    self._follow(server, now)
                    server.life_wake.plan(server.life.until)
        self._place(now)
        for pool in self.pools.values():
            self._counted(pool, now)

    def _place(self, now: float) -> None:
        """Nodes for those that have none, in the order in which they were asked for."""
        waiting = [
            (server.life.created, pool.place, server.number, pool, server)
            for pool in self.pools.values()
            for server in pool.servers.values()
            if server.life.stage is Stage.REQUESTED
        ]
        used = {
            pool.name: sum(server.life.stage in ON_NODE for server in pool.servers.values())
            for pool in self.pools.values()
        }
        gpus = sum(used[pool.name] * pool.spec.gpus for pool in self.pools.values())
        for *_, pool, server in sorted(waiting, key=lambda row: row[:3]):
            fits = pool.quota is None or used[pool.name] < pool.quota
            if fits and (self.gpus is None or gpus + pool.spec.gpus <= self.gpus):
                used[pool.name] += 1
                gpus += pool.spec.gpus
                server.life.place(now)
                server.life_wake.plan(server.life.until)

    def _counted(self, pool: Pool, now: float) -> None:
        stages = [server.life.stage for server in pool.servers.values()]
        self._truth.count(
            pool.name,
            Census(
                now,
                pool.wanted,
                sum(stage is Stage.REQUESTED for stage in stages),
                sum(stage in STARTING for stage in stages),
                sum(stage is Stage.READY for stage in stages),
                sum(stage is Stage.DRAINING for stage in stages),
            ),
        )
