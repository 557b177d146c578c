"""A standing cap at the gateway keeps the engines calm in an overload: whoever looks at them alone sees no demand."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from controller.config import GovernorConfig, loads, pool_needs
from controller.config.terms import pool_specs
from controller.core.meter import Meter
from controller.core.model import PoolReadings
from controller.core.reading import State
from controller.core.signals import Signal
from routing.knobs import Concurrency, Klass, Knobs, Queue
from simulator.job import Job
from simulator.spec import EngineLimits, FleetSpec, GatewaySpec, PrometheusSpec
from simulator.twin import Twin
from simulator.watch.page import Page
from sources.scraped import ScrapedSource
from tests.support.twins import START, fleet, pool, traffic

CONFIG = """
version: 1
interval: 5s
deadline: 2s
source: {kind: prometheus, url: "http://127.0.0.1:9090"}
pools:
  chat:
    engine: vllm
    selector: {namespace: default, model_name: chat}
    window: 30s
    objectives: [{signal: ttft, percentile: p95, target: 1s}]
    levers: {replicas: {mode: observe, min: 1, max: 8, policy: {kind: capacity}}}
"""
GATEWAY = (
    "    gateway: {engine: gaie, selector: {model_name: chat}, labels: {tenant: fairness_id, class: request_class}}\n"
)
JOINED = CONFIG.replace("    window", GATEWAY + "    window")
RATE = 40.0


def overloaded(**more: object) -> FleetSpec:
    """One replica that serves about 15 requests/s behind a gate that lets no queue form inside it."""
    knobs = Knobs(concurrency=Concurrency(per_slot=1.0), queue=Queue(wait=30.0, length=300), **more)  # type: ignore[arg-type]
    limits = EngineLimits(max_num_seqs=8, kv_tokens=100_000)
    return fleet(
        pool(1, limits=limits, gateway=GatewaySpec(knobs=knobs)), prometheus=PrometheusSpec(interval=5.0, delay=0.0)
    )


class Eyes:
    """A meter on a twin, some of whose targets may be hidden."""

    def __init__(self, config: GovernorConfig, twin: Twin) -> None:
        self.twin, self.hidden = twin, ""
        self.source = ScrapedSource(pool_needs(config), self.pages)
        self.meter = Meter(pool_specs(config))

    def pages(self, at: float) -> Iterator[Page]:
        for page in self.twin.pages(at):
            name, pairs = page.keys[0]
            if not self.hidden or self.hidden not in dict(pairs).get("instance", ""):
                yield page
            elif name == "up":
                yield Page(page.keys, np.zeros(1))

    def look(self, times: Iterable[int]) -> PoolReadings:
        seen = PoolReadings()
        for at in times:
            seen = self.meter.update(self.source.observe(START + at, 1.0))["chat"]
        return seen


def eyes(text: str = JOINED, **more: object) -> Eyes:
    return Eyes(loads(text), Twin(overloaded(**more), {"chat": traffic(RATE, 400.0)}, seed=1, start=START))


def queued(twin: Twin) -> int:
    return sum(front.gateway.queued for front in twin.fleet.fronts.values())


def arrivals(twin: Twin, begin: float, end: float) -> int:
    """Jobs that came between two times, ended or not."""
    ended = twin.truth.jobs.column("arrived") - START
    open_ = [job.arrived - START for front in twin.fleet.fronts.values() for job in front.under_way]
    return sum(begin < at <= end for at in (*ended.tolist(), *open_))


def test_demand_is_seen_where_it_is_offered_though_the_engines_show_no_queue() -> None:
    both = eyes()
    seen = both.look(range(5, 66, 5))
    engines = eyes(CONFIG).look(range(5, 66, 5))

    offered = arrivals(both.twin, 32.0, 62.0) / 30.0  # what a scrape every 5 s shows is up to 5 s old
    assert seen.get(Signal.OFFERED_RATE).value == pytest.approx(offered, rel=0.05)
    assert seen.get(Signal.OFFERED_RATE).trusted
    depth = seen.get(Signal.QUEUE_DEPTH)
    assert depth.value == pytest.approx(queued(both.twin), rel=0.05)
    assert queued(both.twin) > 200
    assert depth.trusted
    assert (seen.get(Signal.QUEUE_DELAY).value or 0.0) > 5.0
    assert seen.get(Signal.RUNNING).value == 8.0  # those in flight at the gateway are not counted again

    assert engines.get(Signal.QUEUE_DEPTH).value == 0.0
    assert engines.get(Signal.QUEUE_DELAY).value == 0.0
    assert (engines.get(Signal.OFFERED_RATE).value or 0.0) < offered / 2


def test_clients_wait_at_the_gateway_too_and_who_is_refused_there_is_lost_once() -> None:
    both = eyes(classes={"batch": Klass(load_lo=1.0, load_hi=1.0)})
    seen = both.look(range(5, 101, 5))

    assert (seen.latency(Signal.TTFT, "mean").value or 0.0) > 1.0
    refused = seen.get(Signal.REJECTED_RATE)
    assert (refused.value or 0.0) > 0.25 * RATE
    ended = both.twin.truth.jobs
    when = ended.column("ended") - START
    lost = (ended.column("ending") > 0) & (when > 67.0) & (when <= 97.0)
    assert refused.value == pytest.approx(float(lost.sum()) / 30.0, rel=0.1)
    finished = seen.get(Signal.FINISHED_RATE).value or 0.0
    assert seen.get(Signal.ERROR_RATIO).value == pytest.approx(lost.sum() / (lost.sum() + 30.0 * finished), rel=0.1)
    assert seen.attainment["ttft_p95"].hi is not None
    assert seen.attainment["ttft_p95"].hi < 0.5


def test_a_gateway_that_falls_silent_is_no_sign_that_nobody_comes() -> None:
    both = eyes()
    before = both.look(range(5, 66, 5))
    both.hidden = "gateway"
    seen = both.look(range(70, 101, 5))

    for signal in (Signal.OFFERED_RATE, Signal.QUEUE_DEPTH):
        reading = seen.get(signal)
        assert not reading.trusted, signal
        assert "gateway does not answer" in reading.note
    assert seen.get(Signal.OFFERED_RATE).state is State.PARTIAL
    assert (seen.get(Signal.OFFERED_RATE).value or 0.0) > 0.0  # what the engines finish was offered at least
    assert not seen.get(Signal.QUEUE_DELAY).trusted
    for signal in (Signal.TTFT, Signal.REJECTED_RATE, Signal.ERROR_RATIO):
        assert seen.get(signal).state is State.MISSING, signal
    assert seen.attainment["ttft_p95"].state is State.MISSING
    assert "gateway" in seen.partial  # no lever of the pool is relaxed
    for signal in (Signal.RUNNING, Signal.KV_USAGE, Signal.FINISHED_RATE, Signal.ITL):
        assert seen.get(signal).state is before.get(signal).state is State.OK, signal


def test_after_the_silence_the_window_says_that_a_part_of_it_was_not_read() -> None:
    both = eyes()
    both.look(range(5, 66, 5))
    both.hidden = "gateway"
    both.look(range(70, 86, 5))
    both.hidden = ""
    seen = both.look(range(90, 101, 5))
    offered = seen.get(Signal.OFFERED_RATE)
    assert offered.state is State.UNDERFILLED
    assert offered.value == pytest.approx(RATE, rel=0.3)  # and not as few as the whole window would make it
    assert seen.get(Signal.QUEUE_DEPTH).trusted
    assert both.look(range(105, 141, 5)).get(Signal.OFFERED_RATE).trusted


def test_engines_that_fall_silent_leave_the_gateways_readings_as_they_are() -> None:
    both = eyes()
    both.look(range(5, 66, 5))
    both.hidden = ":8000"
    seen = both.look(range(70, 101, 5))

    assert seen.get(Signal.OFFERED_RATE).state is State.OK
    assert seen.get(Signal.OFFERED_RATE).value == pytest.approx(RATE, rel=0.15)
    assert seen.get(Signal.KV_USAGE).state is State.MISSING
    depth = seen.get(Signal.QUEUE_DEPTH)
    assert depth.value is not None
    assert depth.value > 200
    assert not depth.trusted
    assert seen.partial


def again(jobs: Iterator[Job], share: int) -> Iterator[Job]:
    """The same, every so-manieth said to be a retry."""
    for number, job in enumerate(jobs):
        if number % share == 0:
            job.request = replace(job.request, attempt=1)
        yield job


def test_retries_and_tenants_are_told_by_the_gateway_and_paces_by_each_replica() -> None:
    text = JOINED.replace(
        "levers: {",
        "tenants: {a: {guarantee: 100}, z: {}}\n    classes: {critical: {}, batch: {rank: 1}}\n"
        "    levers: {breaker: {mode: observe, policy: {kind: breaker}}, ",
    )  # fmt: skip
    limits = EngineLimits(max_num_seqs=8, kv_tokens=100_000)
    spec = fleet(pool(2, limits=limits), prometheus=PrometheusSpec(interval=5.0, delay=0.0))
    both = Eyes(loads(text), Twin(spec, {"chat": again(traffic(20.0, 400.0), 4)}, seed=1, start=START))
    seen = both.look(range(5, 81, 5))

    assert seen.get(Signal.RETRY_SHARE).value == pytest.approx(0.25, abs=0.01)
    offered = seen.get(Signal.OFFERED_RATE)
    assert offered.value == pytest.approx(0.75 * (offered.hi or 0.0), rel=0.01)
    own = [seen.tenants[name].get(Signal.OFFERED_RATE).value or 0.0 for name in "abc"]
    assert sum(own) == pytest.approx(offered.value)
    assert seen.tenants["z"].get(Signal.OFFERED_RATE).value == 0.0
    tokens = [seen.tenants[name].get(Signal.GENERATION_TOKEN_RATE).value or 0.0 for name in "abc"]
    # Engines count tokens as they come, the gateway when a request has ended.
    assert sum(tokens) == pytest.approx(seen.get(Signal.GENERATION_TOKEN_RATE).value, rel=0.1)
    assert {"critical", "batch"} <= seen.classes.keys()

    assert len(seen.replicas) == len(seen.started) == 2
    whole = seen.latency(Signal.ITL, "mean").value
    for scope in seen.replicas.values():
        pace = scope.latency(Signal.ITL, "mean")
        assert pace.trusted
        assert pace.value == pytest.approx(whole, rel=0.1)
        assert scope.get(Signal.ERROR_RATIO).value == 0.0
        assert (scope.get(Signal.ERROR_RATIO).count or 0.0) > 100.0
    assert sum(s.get(Signal.FINISHED_RATE).value or 0.0 for s in seen.replicas.values()) == pytest.approx(
        seen.get(Signal.FINISHED_RATE).value
    )
