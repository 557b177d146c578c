"""Replicas scraped directly: the same rules of counting as through Prometheus, and failures that are no zeros."""

import time
from collections.abc import Iterator

import pytest

from controller.core.errors import InputError
from controller.core.facts import Fact
from controller.core.ports import Matcher, PoolNeeds
from sources.direct import DirectConfig, DirectSource
from tests.support.prometheus import free_port
from tests.support.query_api import query_api
from tests.support.scraped import Target, scraped

NEEDS = PoolNeeds(
    pool="llama",
    engine="vllm",
    matchers=(Matcher("namespace", "=", "prod"), Matcher("model_name", "=", "m")),
    facts=frozenset({Fact.FINISHED, Fact.RUNNING}),
    replica_facts=frozenset({Fact.RUNNING}),
)


def page(finished: int) -> str:
    return (
        'vllm:num_requests_running{model_name="m"} 1\n'
        f'vllm:request_success_total{{model_name="m",finished_reason="stop"}} {finished}\n'
    )


@pytest.fixture
def target() -> Iterator[Target]:
    with scraped() as served:
        yield served


def source(*addresses: str, timeout: float = 2.0) -> DirectSource:
    pages = [f"http://{address}/metrics" for address in addresses]
    return DirectSource(DirectConfig({"llama": pages}, timeout=timeout), [NEEDS])


def test_increments_restarts_and_outages(target: Target) -> None:
    other = f"127.0.0.1:{free_port()}"
    direct = source(target.address, other)
    seen: list[float | None] = []
    for second, finished in enumerate([10, 15, 3]):
        target.page = page(finished)
        pool = direct.observe(1000.0 + second, 5.0).pools["llama"]
        seen.append(pool.counters.get(Fact.FINISHED))
        assert pool.gauges[Fact.RUNNING] == 1.0
        assert pool.replicas[target.address].up
    direct.close()
    assert seen == [None, 5.0, 3.0]


def test_no_answer_at_all_is_an_error_and_not_an_idle_pool(target: Target) -> None:
    target.page = None
    direct = source(target.address)
    observation = direct.observe(1000.0, 5.0)
    direct.close()
    assert observation.pools == {}
    assert "answered 500" in observation.error


def test_a_hanging_replica_costs_its_own_time_only(target: Target) -> None:
    target.page = page(1)
    with query_api() as hanging:
        hanging.behave = lambda query: None
        direct = source(target.address, hanging.url.removeprefix("http://"), timeout=0.3)
        observation = direct.observe(1000.0, 5.0)
        direct.close()
    assert observation.error == ""
    assert observation.pools["llama"].gauges[Fact.RUNNING] == 1.0


def test_headers_that_drip_cost_the_time_of_their_page(target: Target) -> None:
    target.page = page(1)
    with query_api() as dripping:
        dripping.drip_headers = True
        direct = source(target.address, dripping.url.removeprefix("http://"), timeout=0.3)
        began = time.monotonic()
        observation = direct.observe(1000.0, 5.0)
        direct.close()
    assert time.monotonic() - began < 2.0
    assert (observation.error, observation.pools["llama"].gauges[Fact.RUNNING]) == ("", 1.0)


def test_html_with_200_is_a_replica_that_is_down(target: Target) -> None:
    target.page = "<html><body>hello</body></html>"
    direct = source(target.address)
    observation = direct.observe(1000.0, 5.0)
    direct.close()
    assert "markup" in observation.error


def test_a_listing_for_an_unknown_pool_is_refused() -> None:
    with pytest.raises(InputError, match="typo: no such pool"):
        DirectSource(DirectConfig({"typo": []}), [NEEDS])
