"""Dynamo's frontend and its workers in one Prometheus: what the frontend has in flight is what the workers run, told
once more. Added up, the batch looks twice as large, the engine faster than it is, and capacity comes too late."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.core.facts import Fact
from controller.core.observation import PoolFacts
from sources.frames import Sample
from sources.prometheus import PrometheusSource
from sources.prometheus.config import PrometheusConfig
from tests.support.prometheus import needs_prometheus, prometheus, series, write_blocks
from tests.support.streams import needs

START, STEP, SCRAPES = 1_790_000_000.0, 15.0, 9
WORKERS = {"w0": 8.0, "w1": 7.0}


def scrape(namespace: str, workers: bool) -> list[Sample]:
    front = {"job": f"{namespace}-front", "instance": "f:8000", "namespace": namespace}
    found = [
        series("up", front, 1.0),
        series("dynamo_frontend_active_requests", {**front, "model": "m"}, 18.0),
        series("dynamo_frontend_disconnected_clients", front, 0.0),
    ]
    for name, running in WORKERS.items() if workers else ():
        target = {"job": f"{namespace}-workers", "instance": f"{name}:9000", "namespace": namespace, "pod": name}
        found += [
            series("up", target, 1.0),
            series("vllm:num_requests_running", {**target, "model_name": "m"}, running),
            series("vllm:num_requests_waiting", {**target, "model_name": "m"}, 1.0),
        ]
    return found


@pytest.fixture(scope="module")
def pools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, PoolFacts]]:
    """A pool that is scraped at both, and one at the frontend alone."""
    storage: Path = tmp_path_factory.mktemp("front") / "tsdb"
    rows = [*scrape("both", workers=True), *scrape("front", workers=False)]
    write_blocks([(START + STEP * k, rows) for k in range(SCRAPES)], storage)
    rules = [
        needs(Fact.RUNNING, Fact.WAITING, engine="dynamo", pool=name, namespace=name) for name in ("both", "front")
    ]
    with prometheus(storage) as url:
        source = PrometheusSource(PrometheusConfig(url=url), rules)
        yield dict(source.observe(START + STEP * (SCRAPES - 1), 10.0).pools)
        source.close()


@needs_prometheus
def test_what_a_frontend_has_in_flight_is_not_added_to_what_its_workers_run(pools: dict[str, PoolFacts]) -> None:
    both = pools["both"]
    assert both.gauges[Fact.RUNNING] == 15.0
    assert {name: one.gauges[Fact.RUNNING] for name, one in both.replicas.items() if one.gauges} == WORKERS
    assert both.sources[Fact.RUNNING] == "vllm:num_requests_running"


@needs_prometheus
def test_where_no_worker_is_scraped_the_frontend_tells(pools: dict[str, PoolFacts]) -> None:
    assert pools["front"].gauges[Fact.RUNNING] == 18.0
