"""The memory cap on the twin's engines, which preempt when their KV memory is full: work that is done twice."""

import random
from collections.abc import Iterator

import numpy as np

from routing.knobs import Concurrency, Klass, Knobs, Queue
from routing.model import Request
from simulator.job import Job
from simulator.spec import EngineLimits, GatewaySpec
from simulator.twin import Twin
from tests.support.twins import START, fleet, pool

TARGET = 2.0
CLASSES = {
    "critical": Klass(rank=0, target=TARGET, delay_lo=1.6, delay_hi=2.4, load_lo=1.05, load_hi=1.25),
    "batch": Klass(rank=2, target=TARGET, delay_lo=0.25, delay_hi=1.0, load_lo=0.85, load_hi=1.0),
}


def jobs() -> Iterator[Job]:
    """50 requests/s, half of them critical; about 26 fit in the memory of the fleet, far more in its slots."""
    chance, at = random.Random(1), START
    for number in range(6000):
        at += chance.expovariate(50.0)
        prompt, output = (max(1, min(2000, int(chance.expovariate(1 / mean)))) for mean in (500, 200))
        klass = chance.choice(("critical", "batch"))
        yield Job(Request(number, prompt, 2000, klass=klass, priority=2 * (klass == "batch")), output, at)


def run(kv: float | None) -> tuple[float, float, int]:
    """The share of critical and of all that came in time, and how often an engine preempted."""
    knobs = Knobs(concurrency=Concurrency(per_slot=1.0, kv=kv), queue=Queue(fair=True), classes=CLASSES)
    limits = EngineLimits(max_num_seqs=64, kv_tokens=14_000)
    twin = Twin(fleet(pool(2, limits=limits, gateway=GatewaySpec(knobs=knobs))), {"chat": jobs()}, seed=1, start=START)
    twin.advance(START + 200.0)
    truth = twin.truth.jobs
    first = np.asarray(truth.column("ttft"), dtype=np.float64)  # NaN where there was none
    good = first <= TARGET
    critical = truth.column("klass") == truth.classes.words.index("critical")
    return float(good[critical].mean()), float(good.mean()), int(truth.column("preempted").sum())


def test_engines_that_run_out_of_memory_do_their_work_twice_and_the_memory_cap_ends_it() -> None:
    critical, all_, preempted = run(None)
    assert preempted > 500
    capped_critical, capped_all, capped_preempted = run(0.9)

    assert capped_critical > critical + 0.03
    assert capped_all > all_ + 0.03
    assert capped_preempted < 0.7 * preempted
