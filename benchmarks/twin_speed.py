"""How many requests a simulated fleet serves per second of CPU time: engines, gateway, life, scrapes and the source.

Twelve replicas of an 8B model on H100s (the prior of the step model), 600,000 KV tokens each, behind one gateway with
the standing concurrency cap and one retry. Prompts have 1,024 tokens in the mean after a system prompt of 512 that one
in twenty tenants shares, answers 256; two classes of priority, clients with patience. Everything is scraped and read
each 15 s, as the loop would. The traffic is made beforehand and not counted. python -m benchmarks.twin_speed
"""

import sys
import time
from collections.abc import Sequence
from statistics import median

from controller.core.facts import Fact
from controller.core.ports import Matcher, PoolNeeds
from routing.knobs import Concurrency, Knobs, Retries
from simulator.job import Job
from simulator.spec import EngineLimits, FleetSpec, GatewaySpec, PoolSpec
from simulator.traffic.build import build
from simulator.traffic.lengths import Fixed, Lognormal
from simulator.traffic.spec import Class, Generated, Prefix, Tenant
from simulator.twin import Twin
from sources.scraped import ScrapedSource

START = 1_000_000.0
REPLICAS = 12
LOADS = {"half": 120.0, "near saturation": 240.0, "overload": 360.0}  # requests/s
STRATEGIES = ("least-loaded", "prefix-affinity", "kv-events", "hybrid")
SECONDS = 60.0
SEEDS = 1
NEEDS = PoolNeeds(
    "chat", "vllm", (Matcher("model_name", "=", "chat"),),
    frozenset(Fact), frozenset({Fact.RUNNING, Fact.WAITING, Fact.KV_USAGE, Fact.GENERATION_TOKENS}),
    workload=("default", "Deployment", "chat"),
)  # fmt: skip


def traffic(rate: float, seed: int) -> list[Job]:
    """The requests of one run."""
    stream = Generated(
        name="chat",
        rate=rate,
        prompt=Lognormal(mean=1024, p99=4096, longest=16384),
        answer=Lognormal(mean=256, p99=1024, longest=2048),
        tenants=(Tenant(name="tenant", count=20, zipf=1.0),),
        classes=(Class(name="critical", priority=0, patience=30.0), Class(name="batch", priority=10)),
        prefix=Prefix(tokens=Fixed(tokens=512)),
    )
    return list(build((stream,), seed=seed, start=START, duration=SECONDS))


def fleet(strategy: str) -> FleetSpec:
    """The fleet of one run."""
    knobs = Knobs(concurrency=Concurrency(per_slot=1.0), retries=Retries(attempts=1))
    gateway = GatewaySpec(strategy=strategy, knobs=knobs, report_every=0.5)
    limits = EngineLimits(kv_tokens=600_000)
    return FleetSpec(pools={"chat": PoolSpec(replicas=REPLICAS, gateway=gateway, limits=limits)})


def run(jobs: Sequence[Job], strategy: str, seed: int) -> tuple[float, float]:
    """Requests per second of CPU time, and milliseconds of CPU time for each reading of the source."""
    twin = Twin(fleet(strategy), {"chat": iter(jobs)}, seed=seed, start=START)
    source = ScrapedSource([NEEDS], twin.pages)
    read: list[float] = []
    begun = time.process_time()
    for tick in range(1, int(SECONDS + 120) // 15 + 1):
        twin.advance(START + 15.0 * tick)
        before = time.process_time()
        source.observe(START + 15.0 * tick, 1.0)
        read.append(time.process_time() - before)
    spent = time.process_time() - begun
    return len(twin.truth.jobs) / spent, 1000.0 * median(read[2:])


def main() -> None:
    """Every load with every strategy."""
    sys.stdout.write(f"{'load':16} {'requests/s':>10} {'strategy':16} {'per CPU s':>10} {'read, ms':>9}\n")
    for load, rate in LOADS.items():
        made = [traffic(rate, seed) for seed in range(SEEDS)]
        for strategy in STRATEGIES:
            rows = [run(_fresh(jobs), strategy, seed) for seed, jobs in enumerate(made)]
            speed, read = (median(column) for column in zip(*rows, strict=True))
            sys.stdout.write(f"{load:16} {rate:10.0f} {strategy:16} {speed:10,.0f} {read:9.2f}\n")


def _fresh(jobs: Sequence[Job]) -> list[Job]:
    """The same jobs as if nothing had happened to them yet."""
    return [
        Job(job.request, job.output, job.arrived, patience=job.patience, stream=job.stream, after=job.after)
        for job in jobs
    ]


if __name__ == "__main__":
    main()
