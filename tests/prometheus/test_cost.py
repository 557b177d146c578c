"""The number of queries of a tick depends on the facts, never on the number of pools."""

from collections.abc import Iterator

import pytest

from controller.core.facts import Fact
from controller.core.ports import Matcher, PoolNeeds
from sources.prometheus import PrometheusSource
from sources.prometheus.assign import Assignment
from sources.prometheus.config import PrometheusConfig
from tests.support.query_api import Api, query_api, vector

FACTS = frozenset({Fact.TTFT, Fact.RUNNING, Fact.WAITING, Fact.FINISHED, Fact.ERRORS, Fact.READY_REPLICAS})


@pytest.fixture
def api() -> Iterator[Api]:
    with query_api() as served:
        yield served


def needs(number: int) -> PoolNeeds:
    return PoolNeeds(
        pool=f"p{number}",
        engine="vllm" if number % 2 else "sglang",
        matchers=(Matcher("namespace", "=", f"ns{number}"), Matcher("model_name", "=", "m")),
        facts=FACTS,
        replica_facts=frozenset({Fact.RUNNING}),
        workload=(f"ns{number}", "Deployment", "llama"),
    )


def fleet(query: str, pools: int) -> tuple[int, str, bytes]:
    """Every pool exposes the running gauge of its engine; nothing else is there."""
    if not query.startswith("count by") or "kube_" in query:
        return vector([])
    engine = "vllm:num_requests_running" if "vllm" in query else "sglang:num_running_reqs"
    own = [n for n in range(pools) if bool(n % 2) == ("vllm" in query)]
    return vector([({"__name__": engine, "namespace": f"ns{n}", "model_name": "m", "job": "j"}, "1") for n in own])


def queries(api: Api, pools: int) -> int:
    api.behave = lambda query: fleet(query, pools)
    source = PrometheusSource(PrometheusConfig(url=api.url), [needs(n) for n in range(pools)], clock=lambda: 5000.0)
    source.observe(1000.0, 10.0)
    api.asked.clear()
    observation = source.observe(1015.0, 10.0)
    source.close()
    assert observation.error == ""
    assert len(observation.pools) == pools
    return len(api.asked)


def test_queries_do_not_grow_with_the_pools(api: Api) -> None:
    assert queries(api, 2) == queries(api, 60) == queries(api, 300)


def test_one_regular_expression_does_not_spoil_the_look_up_of_the_rest() -> None:
    pools = [needs(n) for n in range(50)]
    odd = PoolNeeds("odd", "vllm", (Matcher("namespace", "=~", "ns1[0-2]"), Matcher("pod", "!=", "x")), FACTS)
    found = Assignment([*pools, odd]).pools({"namespace": "ns11", "model_name": "m", "pod": "y"})
    assert [pool.pool for pool in found] == ["p11", "odd"]
    assert Assignment([odd]).pools({"namespace": "ns11", "pod": "x"}) == ()
    assert Assignment([odd]).pools({"namespace": "ns110"}) == ()


def test_an_invalid_regular_expression_is_refused_at_the_start() -> None:
    with pytest.raises(ValueError, match="namespace=~'\\['"):
        Assignment([PoolNeeds("bad", "vllm", (Matcher("namespace", "=~", "["),), FACTS)])
