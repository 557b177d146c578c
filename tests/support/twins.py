"""Small fleets and traffic for tests of the twin."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from controller.core.model import Decision, Lever, Target
from controller.core.why import Why
from routing.model import Request
from simulator.job import Ending, Job
from simulator.spec import EngineLimits, FleetSpec, LifeSpec, PoolSpec, PrometheusSpec
from simulator.truth import ENDINGS
from simulator.twin import Twin

START = 1_000_000.0
LIFE = LifeSpec(provision=10.0, pull=10.0, load=20.0, warm=10.0, drain_timeout=60.0)  # 50 s from wish to service
CHAT = Target("chat", Lever.REPLICAS)


def traffic(
    rate: float,
    seconds: float,
    *,
    seed: int = 1,
    prompt: float = 300.0,
    output: float = 60.0,
    patience: float | None = None,
    first: int = 0,
    start: float = 0.0,
) -> Iterator[Job]:
    """Poisson arrivals at `rate` requests/s with exponential lengths, from `start` on for `seconds`."""
    chance = random.Random(seed)
    at, number = START + start, first
    while True:
        at += chance.expovariate(rate)
        if at >= START + start + seconds:
            return
        request = Request(
            number,
            max(1, min(4000, int(chance.expovariate(1 / prompt)))),
            1000,
            prefix=(chance.randrange(20),),
            klass=chance.choice(("critical", "batch")),
            tenant=chance.choice(("a", "b", "c")),
        )
        yield Job(request, max(1, min(1000, int(chance.expovariate(1 / output)))), at, patience=patience)
        number += 1


def pool(replicas: int = 2, *, seqs: int = 32, life: LifeSpec = LIFE, **more: Any) -> PoolSpec:
    """A pool of small replicas."""
    limits = more.pop("limits", EngineLimits(max_num_seqs=seqs, kv_tokens=200_000))
    return PoolSpec(replicas=replicas, life=life, limits=limits, **more)


def fleet(chat: PoolSpec | None = None, **more: Any) -> FleetSpec:
    """A fleet of one pool, watched every 5 seconds."""
    more.setdefault("prometheus", PrometheusSpec(interval=5.0))
    return FleetSpec(pools={"chat": chat or pool(), **more.pop("pools", {})}, **more)


def twin(spec: FleetSpec | None = None, jobs: Iterator[Job] | None = None, *, seed: int = 1, **more: Any) -> Twin:
    """A twin with moderate traffic for five minutes, if none is given."""
    return Twin(
        spec or fleet(), {"chat": traffic(20.0, 300.0) if jobs is None else jobs}, seed=seed, start=START, **more
    )


def ask(target: Target, current: float | None, final: float) -> Decision:
    """A decision that is to be sent."""
    return Decision(target, current, final, Why.STEADY, send=True)


def conserved(one: Twin, offered: int) -> None:
    """Every job is in flight, or ended exactly once."""
    jobs = one.truth.jobs
    ids = jobs.column("id")
    assert len(ids) == len(set(ids.tolist()))
    assert len(ids) + one.inflight == offered
    assert one.truth.offered["chat"] == offered
    assert np.all(jobs.column("ended") >= jobs.column("arrived"))
    finished = jobs.column("ending") == ENDINGS.index(Ending.FINISHED)
    assert not np.isnan(jobs.column("ttft")[finished]).any()
    for server in one.fleet.cluster.pools["chat"].servers.values():
        held = server.engine.running + server.engine.waiting if server.engine is not None else 0
        assert server.pending >= held >= 0
