"""Gateways, engines and fleets of every make, disturbed at random: no job is lost, doubled or left behind."""

import dataclasses
import random
from collections.abc import Iterator
from contextlib import suppress

import pytest

from controller.core.model import Lever, Target
from routing import strategies
from routing.knobs import Admission, Breaker, Concurrency, Klass, Knobs, Queue, Retries, Tenant
from simulator.cluster.disturbances import (
    Crash,
    Disturbance,
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
)
from simulator.engine.spec import Isolation
from simulator.job import Job
from simulator.spec import EngineLimits, FleetSpec, GatewaySpec, PrometheusSpec
from tests.support.twins import CHAT, START, ask, conserved, fleet, pool, traffic, twin


def knobs(draw: random.Random) -> Knobs:
    return Knobs(
        concurrency=Concurrency(per_slot=draw.choice([None, 0.5, 1.0, 2.0])),
        queue=Queue(
            length=draw.choice([0, 20, 500]), wait=draw.choice([1.0, 20.0]), fair=draw.random() < 0.5,
            hold=draw.random() < 0.5,
        ),
        classes={"critical": Klass(rank=0), "batch": draw.choice([Klass(), Klass(rank=2, load_lo=1.0, load_hi=2.0)])},
        admission=Admission(deadlines=draw.random() < 0.5),
        breaker=Breaker(on=draw.random() < 0.5, stuck=draw.choice([None, 5.0]), window=2.0, open_time=5.0),
        retries=Retries(attempts=draw.choice([0, 1, 2]), spare=50.0, budget=0.5),
        slow_start=draw.choice([0.0, 20.0]),
        tenants={"a": Tenant(tokens_per_s=draw.choice([None, 2000.0]))},
    )  # fmt: skip


def limits(draw: random.Random) -> EngineLimits:
    return EngineLimits(
        max_num_seqs=draw.choice([4, 32]),
        kv_tokens=draw.choice([12_000, 100_000]),
        max_wait=draw.choice([None, 3.0]),
        max_queue=draw.choice([None, 10]),
        memory_tokens=draw.choice([None, 4000]),
        isolation=draw.choice([None, Isolation(long_prompt=500, short_seqs=1, long_seqs=1)]),
        prefix_cache=draw.random() < 0.8,
        max_batched_tokens=draw.choice([512, 8192]),
        max_context=draw.choice([None, 3000]),
    )


def disturbance(draw: random.Random) -> Disturbance:
    at, replica, duration = draw.uniform(0, 100), draw.randrange(3), draw.uniform(5, 60)
    some: list[Disturbance] = [
        Crash(at=at, pool="chat", replica=replica),
        OutOfMemory(at=at, pool="chat", replica=replica),
        Straggler(at=at, pool="chat", replica=replica, duration=duration),
        Hang(at=at, pool="chat", replica=replica, duration=duration),
        Reclaim(at=at, pool="chat", replica=replica, notice=draw.uniform(0, 30)),
        Rollout(at=at, pool="chat", version=draw.choice(["v2", "v3"]), factor=draw.choice([0.5, 2.0])),
        SlowNetwork(at=at, delay=draw.uniform(0, 2), duration=duration),
        Quota(at=at, limit=draw.randrange(6), duration=duration),
        PullFailure(at=at, duration=duration),
        StartFailure(at=at, duration=duration),
        MetricsOutage(at=at, duration=duration),
    ]
    return draw.choice(some)


def world(draw: random.Random) -> FleetSpec:
    split, own = draw.random() < 0.3, limits(draw)
    gateway = GatewaySpec(
        strategy="prefill-decode" if split else draw.choice(strategies.NAMES),
        parameters={"decode_prefills": draw.random() < 0.5} if split else {},
        knobs=knobs(draw),
        report_lag=draw.choice([0.0, 0.5]),
        delay=draw.choice([0.0, 0.01]),
        jitter=draw.choice([0.0, 0.05]),
    )
    pools = {}
    if split:
        zones = ("b", "a")
        pools["decode"] = pool(
            draw.randrange(1, 3), role="decode", behind="chat", model_name="m", limits=own, zones=zones
        )
    chat = pool(
        draw.randrange(4), gateway=gateway, limits=own, zones=draw.choice([(), ("a", "b")]), model_name="m",
        role=draw.choice(["prefill", "both"]) if split else "both",
    )  # fmt: skip
    return fleet(
        chat,
        pools=pools,
        disturbances=tuple(disturbance(draw) for _ in range(draw.randrange(8))),
        prometheus=PrometheusSpec(interval=5.0, missing=draw.choice([0.0, 0.1])),
        gpus=draw.choice([None, 6]),
    )


def jobs(draw: random.Random) -> list[Job]:
    wait, patience = draw.choice([None, 2.0]), draw.choice([None, 3.0])
    made = traffic(draw.choice([2.0, 15.0, 30.0]), 100.0, seed=draw.randrange(1000), patience=patience)
    return list(made) if wait is None else list(hurried(made, wait))


def hurried(made: Iterator[Job], wait: float) -> Iterator[Job]:
    """The same jobs, each with a deadline."""
    for job in made:
        job.request = dataclasses.replace(job.request, deadline=job.arrived + wait)
        yield job


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_lost_in_a_wild_world(seed: int) -> None:
    draw = random.Random(seed)
    offered = jobs(draw)
    one = twin(world(draw), iter(offered), seed=seed)
    while one.now < START + 240.0:
        one.advance(one.now + draw.uniform(0.1, 10.0))
        if draw.random() < 0.3:
            with suppress(ConnectionError):
                list(one.scrape(one.now))
        if draw.random() < 0.1:
            one.apply([ask(CHAT, None, float(draw.randrange(5)))], one.now)
        names = list(one.fleet.fronts["chat"].gateway.replicas)
        if names and draw.random() < 0.1:
            weight = Target("chat", Lever.WEIGHT, draw.choice(names))
            one.apply([ask(weight, None, draw.choice([0.0, 0.5, 1.0]))], one.now)
    conserved(one, len(offered))
