"""A starter that does not load, or that watches the wrong series, is worse than none."""

import time
from pathlib import Path

import pytest

from controller.config import GovernorConfig, loads
from controller.core.errors import InputError
from controller.core.model import Lever, Mode
from controller.core.signals import Signal
from controller.init import from_exposition, from_prometheus
from sources.frames import Sample
from tests.support.prometheus import needs_prometheus, prometheus, series, write_blocks

METRICS = Path(__file__).parents[3] / "shared" / "data" / "metrics"
VLLM = """
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="meta/llama: \\"x\\""} 0
vllm:num_requests_waiting{engine="0",model_name="meta/llama: \\"x\\""} 0
vllm:generation_tokens_total{engine="0",model_name="meta/llama: \\"x\\""} 0
vllm:request_success_total{engine="0",model_name="meta/llama: \\"x\\",finished_reason="stop"} 0
vllm:time_to_first_token_seconds_bucket{le="1.0",model_name="meta/llama: \\"x\\""} 0
vllm:time_to_first_token_seconds_bucket{le="2.5",model_name="meta/llama: \\"x\\""} 0
vllm:time_to_first_token_seconds_bucket{le="+Inf",model_name="meta/llama: \\"x\\""} 0
vllm:inter_token_latency_seconds_bucket{le="0.04",model_name="meta/llama: \\"x\\""} 0
vllm:inter_token_latency_seconds_bucket{le="+Inf",model_name="meta/llama: \\"x\\""} 0
""".replace('\\"x\\",finished', '\\"x\\"",finished')


def pools(text: str) -> GovernorConfig:
    return loads(text, "starter")


def test_a_scrape_becomes_a_pool_with_targets_on_bucket_edges() -> None:
    config = pools(from_exposition(VLLM))
    (name,) = config.pools
    pool = config.pools[name]
    assert name == "llama-x"
    assert (pool.engine, pool.selector) == ("vllm", {"model_name": ("=", 'meta/llama: "x"')})
    targets = {objective.signal: objective.target for objective in pool.objectives}
    assert targets[Signal.TTFT] == 2.5
    assert targets[Signal.ITL] == 0.04


def test_a_starter_moves_nothing() -> None:
    for pool in pools(from_exposition(VLLM)).pools.values():
        assert pool.levers[Lever.REPLICAS].mode is Mode.OBSERVE


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("node_load1 0.5\n", "no metric in the scrape belongs to a known engine"),
        ("<html>login</html>", "markup"),
        ("", "no metric in this text"),
    ],
)
def test_a_page_that_is_no_engine_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        from_exposition(text)


def test_every_recorded_scrape_becomes_a_config_that_loads() -> None:
    files = sorted(METRICS.glob("*.prom")) + sorted((METRICS / "contracts").glob("*.prom"))
    if not files:
        pytest.skip("../shared/data/metrics is not here")
    for path in files:
        assert pools(from_exposition(path.read_text(encoding="utf-8"))).pools, path.name


def fleet(at: float) -> list[Sample]:
    """Two models in prod, one of them also in test, on five pods."""
    samples = []
    for namespace, model, pods in (("prod", "chat", 3), ("prod", "code", 1), ("test", "chat", 1)):
        for pod in range(pods):
            own = {"namespace": namespace, "model_name": model, "instance": f"{namespace}-{model}-{pod}:8000"}
            samples += [
                series("vllm:num_requests_running", own, 1.0),
                series("vllm:num_requests_waiting", own, 0.0),
                series("vllm:time_to_first_token_seconds_bucket", {**own, "le": "2.0"}, 1.0),
                series("vllm:time_to_first_token_seconds_bucket", {**own, "le": "+Inf"}, 1.0),
            ]
    return samples


@needs_prometheus
def test_a_prometheus_becomes_one_pool_per_model_and_namespace(tmp_path: Path) -> None:
    now = time.time()
    write_blocks([(now - back, fleet(now - back)) for back in (60.0, 30.0, 0.0)], tmp_path / "data")
    with prometheus(tmp_path / "data") as url:
        config = pools(from_prometheus(url))
        with pytest.raises(InputError, match=r"does not answer like a Prometheus|not JSON"):
            from_prometheus(f"{url}/graph")
    assert config.source.settings.url == url
    selected = {
        tuple(sorted((label, value) for label, (_, value) in pool.selector.items())): pool.levers[Lever.REPLICAS].max
        for pool in config.pools.values()
    }
    assert selected == {
        (("model_name", "chat"), ("namespace", "prod")): 6,
        (("model_name", "code"), ("namespace", "prod")): 4,
        (("model_name", "chat"), ("namespace", "test")): 4,
    }
    assert {pool.objectives[0].target for pool in config.pools.values()} == {2.0}


@needs_prometheus
def test_a_fleet_that_was_scraped_earlier_is_not_an_unknown_one(tmp_path: Path) -> None:
    now = time.time()
    write_blocks([(now - back, fleet(now - back)) for back in (1860.0, 1830.0, 1800.0)], tmp_path / "data")
    with prometheus(tmp_path / "data") as url, pytest.raises(InputError, match=r"of vLLM in .* last seen 3\dm ago"):
        from_prometheus(url)


DYNAMO = """
dynamo_component_inflight_requests{dynamo_component="backend",dynamo_endpoint="generate"} 0
dynamo_component_requests_total{dynamo_component="backend",dynamo_endpoint="generate"} 12
"""


def test_replicas_that_show_two_contracts_are_one_pool() -> None:
    (pool,) = pools(from_exposition(VLLM + DYNAMO)).pools.values()
    assert pool.engine == "vllm", "which tells latencies"


@needs_prometheus
def test_two_engines_on_replicas_of_their_own_are_two_pools(tmp_path: Path) -> None:
    now = time.time()
    own = {"job": "sglang", "instance": "s:1", "namespace": "prod", "model_name": "qwen"}
    other = [series(f"sglang:{name}", own, 1.0) for name in ("num_running_reqs", "num_queue_reqs", "token_usage")]
    write_blocks([(now - back, [*fleet(now), *other]) for back in (60.0, 30.0, 0.0)], tmp_path / "data")
    with prometheus(tmp_path / "data") as url:
        config = pools(from_prometheus(url))
    assert sorted(pool.engine for pool in config.pools.values()) == ["sglang", "vllm", "vllm", "vllm"]


def test_requests_that_named_no_model_are_no_pool() -> None:
    page = "".join(
        f'dynamo_frontend_{name}{{model="{model}"}} 1\n'
        for model in ("chat", "unknown_model")
        for name in ("inflight_requests", "queued_requests", "requests_total")
    )
    (pool,) = pools(from_exposition(page)).pools.values()
    assert pool.selector == {"model": ("=", "chat")}


def test_a_prometheus_that_is_not_there_is_named() -> None:
    with pytest.raises(InputError, match=r"http://127\.0\.0\.1:9 cannot be asked: .*check the address") as caught:
        from_prometheus("http://127.0.0.1:9", timeout=1.0)
    assert "Max retries" not in str(caught.value)
    with pytest.raises(InputError, match=r"init: --prometheus: url: .*before /api/v1"):
        from_prometheus("http://127.0.0.1:9/api/v1")
