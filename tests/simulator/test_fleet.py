"""Nothing gets lost in the twin: each job ends once, each second of each replica is counted, and one seed is one
history."""

import hashlib
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.knobs import Concurrency, Knobs, Queue, Retries
from simulator.cluster.disturbances import (
    Crash,
    Disturbance,
    Hang,
    OutOfMemory,
    Quota,
    Reclaim,
    Rollout,
    SlowNetwork,
    Straggler,
)
from simulator.job import Ending
from simulator.spec import FleetSpec, GatewaySpec, PrometheusSpec
from simulator.truth import ENDINGS
from simulator.twin import Twin
from tests.support.twins import CHAT, START, ask, conserved, fleet, pool, traffic, twin

ENDS = {ending: code for code, ending in enumerate(ENDINGS)}
ALL = (
    Crash(at=30.0, pool="chat"),
    Straggler(at=40.0, pool="chat", replica=1, duration=60.0, factor=4.0),
    OutOfMemory(at=60.0, pool="chat", share=0.5),
    Hang(at=100.0, pool="chat", duration=20.0),
    Reclaim(at=130.0, pool="chat", notice=15.0),
    Rollout(at=150.0, pool="chat", version="v2", factor=1.2),
    SlowNetwork(at=160.0, pool="chat", duration=30.0, delay=0.05, jitter=0.1),
    Quota(at=170.0, pool="", limit=2, duration=60.0),
)


def rough(disturbances: tuple[Disturbance, ...] = ALL, **knobs: object) -> FleetSpec:
    """A fleet to which everything happens."""
    gateway = GatewaySpec(
        strategy="power-of-two", delay=0.002, jitter=0.004, report_lag=0.3,
        knobs=Knobs(
            concurrency=Concurrency(per_slot=1.0), queue=Queue(wait=20.0, length=200), retries=Retries(attempts=1)
        ),
    )  # fmt: skip
    return fleet(
        pool(3, gateway=gateway), disturbances=disturbances, prometheus=PrometheusSpec(interval=5.0, missing=0.1)
    )


def counts(one: Twin) -> dict[Ending, int]:
    codes = one.truth.jobs.column("ending")
    return {ending: int((codes == code).sum()) for ending, code in ENDS.items() if (codes == code).any()}


def test_a_calm_fleet_finishes_everything() -> None:
    one = twin()
    one.advance(START + 360.0)
    assert set(counts(one)) == {Ending.FINISHED}
    conserved(one, sum(1 for _ in traffic(20.0, 300.0)))
    assert one.inflight == 0
    ttft = one.truth.jobs.column("ttft")
    assert np.percentile(ttft, 99) < 0.2


def test_whatever_happens_each_job_ends_exactly_once() -> None:
    one = Twin(rough(), {"chat": traffic(40.0, 300.0, patience=10.0)}, seed=3, start=START)
    offered = sum(1 for _ in traffic(40.0, 300.0))
    for at in range(10, 500, 10):
        one.advance(START + at)
    conserved(one, offered)
    assert one.inflight == 0
    assert {Ending.FINISHED, Ending.FAILED} <= set(counts(one))


disturbance = st.one_of(
    st.builds(Crash, at=st.floats(0, 90), pool=st.just("chat"), replica=st.integers(0, 3)),
    st.builds(OutOfMemory, at=st.floats(0, 90), pool=st.just("chat"), share=st.floats(0.1, 1.0)),
    st.builds(Hang, at=st.floats(0, 90), pool=st.just("chat"), duration=st.floats(1, 60)),
    st.builds(Straggler, at=st.floats(0, 90), pool=st.just("chat"), duration=st.floats(1, 60), factor=st.floats(1, 9)),
    st.builds(Reclaim, at=st.floats(0, 90), pool=st.just("chat"), notice=st.floats(0, 40)),
    st.builds(Rollout, at=st.floats(0, 90), pool=st.just("chat"), version=st.sampled_from(["v2", "v3"])),
    st.builds(SlowNetwork, at=st.floats(0, 90), delay=st.floats(0, 3), duration=st.floats(1, 60)),
    st.builds(Quota, at=st.floats(0, 90), limit=st.integers(0, 5), duration=st.floats(1, 60)),
)
moves = st.lists(st.tuples(st.floats(1, 110), st.integers(0, 5)), max_size=4)


@settings(max_examples=30)
@given(st.lists(disturbance, max_size=5), moves, st.integers(0, 1000), st.booleans())
def test_jobs_and_replica_seconds_are_conserved_over_random_histories(
    befalls: list[Disturbance], scales: list[tuple[float, int]], seed: int, rude: bool
) -> None:
    spec = rough(tuple(befalls))
    offered = sum(1 for _ in traffic(15.0, 60.0, seed=seed))
    one = Twin(spec, {"chat": traffic(15.0, 60.0, seed=seed, patience=5.0 if rude else None)}, seed=seed, start=START)
    for at, wanted in sorted(scales):
        one.advance(START + at)
        one.apply([ask(CHAT, None, float(wanted))], one.now)
    one.advance(START + 200.0)
    conserved(one, offered)
    spent = one.truth.replica_seconds("chat", START, START + 200.0)
    census = one.truth.census["chat"]
    assert spent.paid + spent.queued == pytest.approx(
        sum(
            sum(row[2:]) * (after.at - row.at)
            for row, after in zip(census, [*census[1:], census[-1]._replace(at=START + 200.0)], strict=True)
        )
    )
    pool_now = one.fleet.cluster.pools["chat"]
    assert sum(census[-1][2:]) == len(pool_now.servers)


def test_replica_seconds_are_those_of_the_stages() -> None:
    one = twin(fleet(pool(1)), traffic(1.0, 10.0))
    one.apply([ask(CHAT, 1.0, 3.0)], START)
    one.advance(START + 200.0)
    one.apply([ask(CHAT, 3.0, 1.0)], one.now)
    one.advance(START + 300.0)
    spent = one.truth.replica_seconds("chat", START, START + 300.0)
    assert spent.queued == 0.0
    assert spent.starting == 2 * 50.0
    assert spent.ready == 300.0 + 2 * 150.0
    assert spent.draining == 0.0


def digest(seed: int) -> str:
    one = Twin(rough(), {"chat": traffic(15.0, 180.0, patience=10.0)}, seed=seed, start=START)
    seen = hashlib.sha256()
    for at in range(5, 240, 5):
        if at == 100:
            one.apply([ask(CHAT, None, 5.0)], one.now)
        for name, pairs, value in one.scrape(START + at):
            seen.update(repr((name, pairs, value)).encode())
    seen.update(one.truth.jobs.raw())
    seen.update(repr(one.truth.census).encode())
    return seen.hexdigest()


@pytest.mark.parametrize("hash_seed", ["0", "4711"])
def test_the_same_seed_is_the_same_history_bit_for_bit_in_any_process(hash_seed: str) -> None:
    here = digest(5)
    root = Path(__file__).parents[2]
    code = "from tests.simulator.test_fleet import digest; import sys; sys.stdout.write(digest(5))"
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(root)}
    there = subprocess.run([sys.executable, "-c", code], env=env, cwd=root, capture_output=True, text=True, check=True)
    assert there.stdout == here
    assert digest(6) != here


def test_looking_does_not_change_what_happens() -> None:
    """Neither advancing in many steps, nor scrapes, nor bringing engines to the present between their own times."""
    at_once = Twin(rough(), {"chat": traffic(25.0, 200.0, patience=10.0)}, seed=5, start=START)
    at_once.advance(START + 300.0)
    watched = Twin(rough(), {"chat": traffic(25.0, 200.0, patience=10.0)}, seed=5, start=START)
    steps = random.Random(1)
    while watched.now < START + 300.0:
        list(watched.scrape(min(watched.now + steps.uniform(0.01, 2.0), START + 300.0)))
        for server in list(watched.fleet.cluster.pools["chat"].servers.values()):
            watched.fleet.refresh(server)
    assert at_once.truth.jobs.raw() == watched.truth.jobs.raw()
