"""The loop that would drive a real fleet drives the twin: through its contracts, its actuator, and nothing else."""

from collections.abc import Iterator
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from controller.config import loads, pool_needs
from controller.core.facts import Fact
from controller.core.model import Lever, Target
from controller.core.observation import Observation
from controller.run.assembly import RunMode, assemble
from controller.run.loop import ControlLoop
from simulator.cluster.disturbances import MetricsOutage
from simulator.job import Job
from simulator.spec import EngineLimits, FleetSpec, LifeSpec, ProfileEngine, PrometheusSpec
from simulator.twin import Twin
from sources.scraped import ScrapedSource
from tests.support.twins import CHAT, START, fleet, pool, traffic

# One replica serves about 6 requests/s: 8 sequences of 60 tokens at 20 ms and a little each.
SLOW = ProfileEngine(a=0.020, b=20e-6, c=50e-6, d=50e-9, e=0.0, max_num_seqs=8, kv_tokens=60_000)
CONFIG = """
version: 1
interval: 15s
source: {kind: prometheus, url: "http://127.0.0.1:9090"}
pools:
  chat:
    engine: vllm
    selector: {namespace: default, model_name: chat}
    window: 60s
    objectives:
      - {signal: ttft, percentile: p95, target: 1s}
      - {signal: itl, percentile: p95, target: 50ms}
    workload: {namespace: default, name: chat}
    profile: {base: 20ms, prefill_token: 20us, sequence: 50us, kv_token: 50ns, max_num_seqs: 8, kv_tokens: 60000}
    cold_start: 60s
    levers:
      replicas: {mode: auto, min: 1, max: 12, policy: {kind: capacity}, cooldown: {down: 60s}, stabilise: 180s}
"""


class Run(NamedTuple):
    twin: Twin
    loop: ControlLoop
    seen: list[Observation]


def closed(spec: FleetSpec, jobs: Iterator[Job], *, seed: int = 1) -> Run:
    config = loads(CONFIG)
    twin = Twin(spec, {"chat": jobs}, seed=seed, start=START)
    seen: list[Observation] = []

    class Eyes(ScrapedSource):
        def observe(self, at: float, deadline: float) -> Observation:
            seen.append(super().observe(at, deadline))
            return seen[-1]

    loop = assemble(config, mode=RunMode.SIMULATE, source=Eyes(pool_needs(config), twin.pages), actuator=twin)
    return Run(twin, loop, seen)


def drive(run: Run, until: float) -> None:
    for at in np.arange(START + 15.0, START + until + 1.0, 15.0):
        run.loop.tick(float(at))


def attained(twin: Twin, target: float, begin: float, end: float) -> float:
    """Share of the ended jobs that arrived between two times and had their first token in time."""
    jobs = twin.truth.jobs
    chosen = (jobs.column("arrived") >= START + begin) & (jobs.column("arrived") < START + end)
    return float((jobs.column("ttft")[chosen] <= target).mean())


def slow_fleet(replicas: int, **more: object) -> FleetSpec:
    chat = pool(replicas, engine=SLOW, limits=EngineLimits(), life=LifeSpec(pull=10.0, load=25.0, warm=15.0))
    return fleet(chat, prometheus=PrometheusSpec(interval=15.0, delay=1.0), **more)


def step() -> Iterator[Job]:
    return chain(traffic(7.0, 300.0), traffic(21.0, 500.0, seed=2, first=1_000_000, start=300.0))


def test_a_step_of_load_is_met_with_replicas_and_the_promise_holds_again() -> None:
    run = closed(slow_fleet(2), step())
    drive(run, 800.0)
    twin = run.twin
    wanted = [row.wanted for row in twin.truth.census["chat"]]
    assert wanted[0] == 2
    assert 4 <= twin.fleet.cluster.pools["chat"].wanted <= 10
    assert attained(twin, 1.0, 60.0, 300.0) > 0.98
    assert attained(twin, 1.0, 600.0, 790.0) > 0.95
    # Without a controller two replicas drown.
    alone = Twin(slow_fleet(2), {"chat": step()}, seed=1, start=START)
    alone.advance(START + 800.0)
    assert alone.inflight > 2_500
    assert attained(alone, 1.0, 360.0, 790.0) < 0.1


def test_no_increment_is_negative_and_together_they_are_what_was_counted() -> None:
    run = closed(slow_fleet(2), traffic(7.0, 300.0))
    drive(run, 330.0)
    finished = ttft = 0.0
    for one in run.seen:
        facts = one.pools["chat"]
        assert all(value >= 0.0 for value in facts.counters.values())
        for histogram in facts.histograms.values():
            assert all(a <= b for a, b in pairwise((0.0, *histogram.cumulative, histogram.count)))
        finished += facts.counters.get(Fact.FINISHED, 0.0)
        ttft += facts.histograms[Fact.TTFT].count if Fact.TTFT in facts.histograms else 0.0
    # The first observation carries no increments, and neither does what ended before the first scrape.
    jobs = run.twin.truth.jobs
    after = int((jobs.column("ended") > START + 15.0).sum())
    assert after <= finished <= len(jobs)
    assert 0 <= finished - ttft <= 2 * 8  # of those that ran at the first scrape only the end was seen


def test_the_loop_rides_out_a_metrics_outage_and_lowers_nothing_in_it() -> None:
    outage = MetricsOutage(at=300.0, duration=200.0)
    run = closed(slow_fleet(4, disturbances=(outage,)), traffic(10.0, 700.0))
    drive(run, 700.0)
    blind = [one for one in run.seen if one.error]
    assert [one.at - START for one in blind] == [float(at) for at in range(300, 500, 15)]
    assert all("Prometheus does not answer" in one.error for one in blind)
    wanted = run.twin.truth.census["chat"]
    assert not [row for row in wanted if 300.0 < row.at - START < 500.0]
    # What was counted meanwhile is not lost: each target brings it with its first scrape, within an interval.
    later = [one for one in run.seen if START + 500.0 <= one.at < START + 530.0]
    assert sum(one.pools["chat"].counters[Fact.FINISHED] for one in later) > 0.95 * 10.0 * 230.0


def test_the_loop_asks_through_the_actuator_and_reads_back_what_kubernetes_would_tell() -> None:
    run = closed(slow_fleet(1), traffic(15.0, 400.0))
    drive(run, 400.0)
    moves = run.twin.truth.moves
    assert moves
    assert {move.target for move in moves} == {Target("chat", Lever.REPLICAS)} == {CHAT}
    assert run.twin.truth.travel()[CHAT][0] == len(moves)
    kept = run.seen[-1].pools["chat"].gauges
    assert kept[Fact.WANTED_REPLICAS] == run.twin.fleet.cluster.pools["chat"].wanted
