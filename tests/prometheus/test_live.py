"""A real Prometheus that scrapes a living target: births, restarts and outages as it writes them down itself, with
staleness markers and a moving clock."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.core.facts import Fact
from controller.core.observation import Observation, PoolFacts
from controller.core.ports import Matcher, PoolNeeds
from sources.prometheus import PrometheusSource
from sources.prometheus.config import PrometheusConfig
from tests.support.prometheus import needs_prometheus, prometheus
from tests.support.scraped import Target, scraped

pytestmark = needs_prometheus

SCRAPING = """
global: {{scrape_interval: 300ms, scrape_timeout: 300ms}}
scrape_configs:
- job_name: vllm
  static_configs: [{{targets: ["{address}"], labels: {{pod: vllm-0}}}}]
"""
NEEDS = PoolNeeds(
    pool="llama",
    engine="vllm",
    matchers=(Matcher("model_name", "=", "m"),),
    facts=frozenset({Fact.FINISHED, Fact.RUNNING, Fact.ERRORS}),
    replica_facts=frozenset({Fact.RUNNING}),
)


def page(finished: int, failed: int | None = None) -> str:
    text = "http_request_duration_highr_seconds_count 1\n"
    text += 'vllm:num_requests_running{model_name="m"} 1\n'
    text += f'vllm:request_success_total{{model_name="m",finished_reason="stop"}} {finished}\n'
    if failed is not None:
        text += f'http_requests_total{{handler="/v1/completions",method="POST",status="5xx"}} {failed}\n'
    return text


@pytest.fixture
def living(tmp_path: Path) -> Iterator[tuple[Target, PrometheusSource]]:
    with scraped() as target:
        target.page = page(10)
        with prometheus(tmp_path / "tsdb", SCRAPING.format(address=target.address)) as url:
            # The scrapes last milliseconds, so the present may be read this close.
            source = PrometheusSource(PrometheusConfig(url=url, delay=0.05), [NEEDS])
            yield target, source
            source.close()


def test_the_life_of_a_target(living: tuple[Target, PrometheusSource]) -> None:
    target, source = living

    def after(shown: str | None) -> PoolFacts:
        target.show(shown)
        seen: Observation = source.observe(time.time(), 10.0)
        assert seen.error == ""
        return seen.pools["llama"]

    assert after(page(10)).counters == {}, "the first observation has no increments"
    assert after(page(15)).counters == {Fact.FINISHED: 5.0, Fact.ERRORS: 0.0}
    assert after(page(15, failed=2)).counters == {Fact.FINISHED: 0.0, Fact.ERRORS: 2.0}, "born while its target was up"
    assert after(page(3, failed=2)).counters == {Fact.FINISHED: 3.0, Fact.ERRORS: 0.0}, "restarted"
    down = after(None)
    assert (down.counters, down.gauges) == ({}, {}), "absent is not zero"
    assert (down.targets_up, down.targets_down, down.replicas["vllm-0"].up) == (0, 1, False)
    back = after(page(50))
    assert Fact.FINISHED not in back.counters, "down before: how old its count is, nobody knows"
    assert (back.targets_up, back.replicas["vllm-0"].up) == (1, True)
    assert after(page(57)).counters[Fact.FINISHED] == 7.0
