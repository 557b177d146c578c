"""Replicas scraped directly: the same rules of counting as through Prometheus, and failures that are no zeros."""

import time
from collections.abc import Iterator

import pytest

from controller.core.errors import InputError
from controller.core.facts import Fact
from controller.core.join import silence
from controller.core.observation import Observation, PoolFacts
from controller.core.ports import Matcher, PoolNeeds
from sources.direct import DirectConfig, DirectSource
from tests.support.ports import free_port
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


def test_what_is_counted_while_nobody_answers_comes_with_the_next_answer(target: Target) -> None:
    direct = source(target.address)
    seen: list[Observation] = []
    for second, finished in enumerate([10, 15, None, None, 45]):
        target.page = None if finished is None else page(finished)
        seen.append(direct.observe(1000.0 + second, 5.0))
    direct.close()
    assert [bool(one.error) for one in seen] == [False, False, True, True, False]
    assert [one.since for one in seen] == [None, 1000.0, 1001.0, 1001.0, 1001.0]
    assert seen[-1].pools["llama"].counters[Fact.FINISHED] == 30.0


def test_an_outage_that_no_window_spans_is_not_bridged(target: Target) -> None:
    direct = source(target.address)
    for at, shown in ((1000.0, page(10)), (1015.0, page(15)), (1030.0, None)):
        target.page = shown
        direct.observe(at, 5.0)
    target.page = page(900)
    back = direct.observe(1330.0, 5.0)
    direct.close()
    assert (back.since, back.pools["llama"].counters) == (None, {})


def test_a_queue_without_a_number_is_no_short_queue(target: Target) -> None:
    target.page = page(1)
    with scraped() as other:
        direct = source(target.address, other.address)
        seen: list[PoolFacts] = []
        for shown in (page(1), page(1).replace("} 1\n", "} NaN\n", 1), page(1)):
            other.page = shown
            seen.append(direct.observe(1000.0 + len(seen), 5.0).pools["llama"])
        direct.close()
    assert [one.gauges[Fact.RUNNING] for one in seen] == [2.0, 1.0, 2.0]
    assert [one.partial for one in seen] == ["", f"vllm:num_requests_running of {other.address} is not a number", ""]


def test_what_was_no_number_for_a_while_is_not_born_with_all_it_ever_counted(target: Target) -> None:
    direct = source(target.address)
    seen: list[PoolFacts] = []
    for second, finished in enumerate(["900", "905", "NaN", "NaN", "940", "946"]):
        target.page = page(900).replace("900", finished)
        seen.append(direct.observe(1000.0 + second, 5.0).pools["llama"])
    direct.close()
    assert [one.counters.get(Fact.FINISHED) for one in seen] == [None, 5.0, None, None, 0.0, 6.0]
    assert [bool(one.failed) for one in seen] == [False, False, True, True, False, False]
    assert [bool(one.partial) for one in seen] == [False, False, False, False, True, False]


def test_no_number_at_all_is_a_failed_fact(target: Target) -> None:
    direct = source(target.address)
    target.page = page(1).replace("} 1\n", "} +Inf\n", 1)
    pool = direct.observe(1000.0, 5.0).pools["llama"]
    direct.close()
    assert Fact.RUNNING not in pool.gauges
    assert pool.failed == {Fact.RUNNING: f"vllm:num_requests_running of {target.address} is not a number"}


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


def test_a_gateways_page_is_listed_by_its_own_name_and_may_fail_alone(target: Target) -> None:
    front = PoolNeeds(
        pool="llama@gateway",
        engine="gaie",
        matchers=(Matcher("model_name", "=", "m"),),
        facts=frozenset({Fact.ARRIVED, Fact.HELD}),
        fronts="llama",
    )
    target.page = page(1)
    with scraped() as gateway:
        pages = {"llama": [f"http://{target.address}/metrics"], "llama@gateway": [f"http://{gateway.address}/metrics"]}
        direct = DirectSource(DirectConfig(pages, timeout=2.0), [NEEDS, front])
        seen: list[PoolFacts] = []
        for second, came in enumerate([10, 40, None]):
            shown = f'llm_d_epp_request_total{{model_name="m"}} {came}\n'
            shown += 'llm_d_epp_flow_control_queue_size{model_name="m"} 7\n'
            gateway.page = shown if came is not None else None
            pools = direct.observe(1000.0 + second, 5.0).pools
            seen.append(pools["llama@gateway"])
            assert pools["llama"].gauges[Fact.RUNNING] == 1.0
        direct.close()
    assert seen[1].counters[Fact.ARRIVED] == 30.0
    assert seen[1].gauges[Fact.HELD] == 7.0
    assert silence(seen[1], 60.0) == ""
    assert "scrape failed" in silence(seen[2], 60.0)
