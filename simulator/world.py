"""A world: the twin of one scenario with one seed, with all that a scoreboard needs of the truth."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.spec import FleetSpec
from simulator.traffic.build import build
from simulator.traffic.clients import Clients
from simulator.traffic.spec import Stream
from simulator.truth import ENDINGS, Move
from simulator.twin import Twin


class Attempts:
    """All attempts that have arrived, as columns: those that ended, in the order of their ends, then those under way.
    `ending` holds places in `endings`, -1 while there is none; `first_token` and `ended` are unix seconds or NaN."""

    endings = tuple(str(ending) for ending in ENDINGS)

    def __init__(self, world: "World") -> None:
        self._ended = world.truth.jobs
        here = [(front.pool, job) for front in world.fleet.fronts.values() for job in front.under_way]
        self._open = [job for _, job in here]
        classes, tenants, streams = self._ended.classes, self._ended.tenants, self._ended.streams
        self._columns: dict[str, list[float]] = {
            "arrived": [job.arrived for job in self._open],
            "first_token": [np.nan if job.first_token_at is None else job.first_token_at for job in self._open],
            "ended": [np.nan] * len(self._open),
            "tpot": [np.nan] * len(self._open),
            "ending": [-1] * len(self._open),
            "origin": [job.origin if job.origin >= 0 else job.request.id for job in self._open],
            "klass": [classes.number(job.request.klass) for job in self._open],
            "tenant": [tenants.number(job.request.tenant) for job in self._open],
            "pool": [self._ended.pools.number(pool) for pool, _ in here],
            "stream": [streams.number(job.stream) for job in self._open],
            "attempt": [job.attempt for job in self._open],
            "retried": [0] * len(self._open),
            "degraded": [job.degraded for job in self._open],
            "prompt": [job.request.prompt_tokens for job in self._open],
            "output": [job.output for job in self._open],
            "cached": [job.cached for job in self._open],
        }
        self.classes: Sequence[str] = tuple(classes.words)
        self.tenants: Sequence[str] = tuple(tenants.words)

    def column(self, name: str) -> NDArray[Any]:
        """A column as an array of its own."""
        if name == "first_token":
            ended: NDArray[Any] = self._ended.column("arrived") + self._ended.column("ttft")
        else:
            ended = self._ended.column(name)
        return np.concatenate([ended, np.array(self._columns[name], dtype=ended.dtype)])


class World(Twin):
    """The twin with its traffic (streams by the pool that they come to, for `duration` seconds) and clients."""

    def __init__(
        self, fleet: FleetSpec, traffic: Mapping[str, Sequence[Stream]], duration: float, *, seed: int, start: float
    ) -> None:
        streams = [stream for some in traffic.values() for stream in some]
        by_pool = {
            pool: build(some, seed=seed, start=start, duration=duration, first=number, step=len(traffic))
            for number, (pool, some) in enumerate(traffic.items())
        }  # ids are unique over all pools
        super().__init__(fleet, by_pool, seed=seed, start=start, clients=Clients(streams, seed))

    def jobs(self) -> Attempts:
        """All attempts that have arrived so far, also those that are under way."""
        return Attempts(self)

    def replicas(self) -> dict[str, tuple[int, int, int]]:
        """By pool: replicas wanted, ready, and on their way."""
        found = {}
        for name, rows in self.truth.census.items():
            last = rows[-1]
            found[name] = last.wanted, last.ready, last.queued + last.starting
        return found

    def waiting(self) -> int:
        """Requests that wait, at gateways and at engines as of their last step."""
        queued = sum(front.gateway.queued for front in self.fleet.fronts.values())
        engines = (server.engine for pool in self.fleet.cluster.pools.values() for server in pool.servers.values())
        return queued + sum(engine.waiting for engine in engines if engine is not None)

    def gpu_seconds(self, begin: float, end: float) -> float:
        """GPU-seconds of all pools between two times, unix seconds: starting, ready and draining."""
        return sum(
            self.truth.replica_seconds(name, begin, end).paid * pool.gpus
            for name, pool in self.fleet.spec.pools.items()
        )

    def history(self, pool: str) -> list[tuple[float, int, int]]:
        """(since, replicas that are paid for, replicas that are ready) of a pool, in order of time."""
        return [(row.at, row.starting + row.ready + row.draining, row.ready) for row in self.truth.census.get(pool, [])]

    def moves(self) -> Sequence[Move]:
        """What was changed through its levers, in order of time."""
        return self.truth.moves
