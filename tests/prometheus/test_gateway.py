"""A pool and its gateway in one Prometheus: `doctor` says what each tells, and a tick reads both as one pool."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.config import loads, pool_needs
from controller.config.terms import pool_specs
from controller.core.meter import Meter
from controller.core.signals import Signal
from sources.diagnosis.model import Level
from sources.frames import Sample
from sources.prometheus import PrometheusSource
from sources.prometheus.config import PrometheusConfig
from sources.prometheus.doctor import diagnose
from tests.support.cli import governor
from tests.support.prometheus import needs_prometheus, prometheus, series, write_blocks

START, STEP, SCRAPES = 1_790_000_000.0, 15.0, 21
NOW = START + STEP * (SCRAPES - 1)
CONFIG = """
version: 1
source: {{kind: prometheus, url: "{url}"}}
pools:
  chat:
    engine: vllm
    selector: {{model_name: m}}
    gateway: {{engine: gaie, selector: {{model_name: m}}, labels: {{tenant: fairness_id}}}}
    window: 60s
    levers:
      replicas: {{min: 1, max: 4, policy: {{kind: capacity}}}}
      breaker: {{policy: {{kind: breaker}}}}
"""


def histogram(name: str, of: dict[str, str], count: float, each: float) -> list[Sample]:
    return [
        *(series(f"{name}_bucket", {**of, "le": le}, count) for le in ("1.0", "10.0", "+Inf")),
        series(f"{name}_count", of, count),
        series(f"{name}_sum", of, count * each),
    ]


def scrape(k: int) -> list[Sample]:
    """Two engines that finish 30 requests each between two scrapes, one of them slowly; 90 come to the gateway, half of
    tenant a, and 30 of them are refused."""
    done = 30.0 * k
    found: list[Sample] = []
    for pod, gap in (("a", 0.02), ("b", 0.08)):
        target = {"job": "engines", "instance": f"{pod}:8000", "pod": pod}
        of = {**target, "model_name": "m"}
        found += [
            series("up", target, 1.0),
            series("vllm:num_requests_running", of, 8.0),
            series("vllm:num_requests_waiting", of, 0.0),
            series("vllm:generation_tokens_total", of, 100 * done),
            series("vllm:request_success_total", {**of, "finished_reason": "stop"}, done),
            *histogram("vllm:inter_token_latency_seconds", of, 100 * done, gap),
            *histogram("vllm:time_to_first_token_seconds", of, done, 0.1),
        ]
    target = {"job": "picker", "instance": "g:9090", "pod": "g"}
    own = {**target, "model_name": "m"}
    refused = {**own, "error_code": "ResourceExhausted"}
    return [
        *found,
        series("up", target, 1.0),
        *(series("llm_d_epp_request_total", {**own, "fairness_id": t}, 45.0 * k) for t in "ab"),
        series("llm_d_epp_request_error_total", {**refused, "fairness_id": "b"}, done),
        series("llm_d_epp_request_running", own, 56.0),
        series("llm_d_epp_flow_control_queue_size", own, 40.0),
        *(series("llm_d_epp_per_endpoint_queue_size", {**own, "name": n}, 0.0) for n in "ab"),
    ]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    storage = tmp_path_factory.mktemp("sides") / "tsdb"
    write_blocks([(START + STEP * k, scrape(k)) for k in range(SCRAPES)], storage)
    with prometheus(storage) as address:
        yield address


@needs_prometheus
def test_the_two_are_read_as_one_pool_and_each_replica_has_its_own_pace(url: str) -> None:
    config = loads(CONFIG.format(url=url))
    source, meter = PrometheusSource(PrometheusConfig(url=url), pool_needs(config)), Meter(pool_specs(config))
    *_, seen = (meter.update(source.observe(NOW - STEP * back, 10.0))["chat"] for back in range(5, -1, -1))
    source.close()

    assert seen.get(Signal.OFFERED_RATE).value == pytest.approx(6.0)
    assert seen.get(Signal.OFFERED_RATE).trusted
    assert seen.get(Signal.REJECTED_RATE).value == pytest.approx(2.0)
    assert seen.get(Signal.FINISHED_RATE).value == pytest.approx(4.0)
    assert seen.get(Signal.QUEUE_DEPTH).value == 40.0
    assert seen.get(Signal.RUNNING).value == 16.0
    assert seen.get(Signal.QUEUE_DELAY).value == pytest.approx(10.0)
    assert seen.tenants["a"].get(Signal.OFFERED_RATE).value == pytest.approx(3.0)
    assert seen.tenants["b"].get(Signal.REJECTED_RATE).value == pytest.approx(2.0)
    paces = {name: scope.latency(Signal.ITL, "mean") for name, scope in seen.replicas.items()}
    assert {name: round(pace.value or 0.0, 6) for name, pace in paces.items()} == {"a": 0.02, "b": 0.08}
    assert paces["a"].count == pytest.approx(3000.0)  # those of the newest interval
    assert seen.replicas["a"].get(Signal.FINISHED_RATE).value == pytest.approx(2.0)


@needs_prometheus
def test_doctor_lists_what_the_gateway_tells_and_what_is_left_to_the_engines(url: str) -> None:
    found = diagnose(PrometheusConfig(url=url), pool_needs(loads(CONFIG.format(url=url))), NOW)
    gateway = [one for one in found if one.subject == "chat@gateway"]
    told = next(one.text for one in gateway if one.text.startswith("the gateway tells"))
    assert told == "the gateway tells arrived, errors, held, rejected, waiting"
    assert any("does not tell retries" in one.text for one in gateway)
    assert not [one for one in gateway if one.level is not Level.INFO]


@needs_prometheus
def test_doctor_says_that_a_gateway_is_not_there(url: str, tmp_path: Path) -> None:
    path = tmp_path / "governor.yaml"
    wrong = CONFIG.format(url=url).replace("gaie, selector: {model_name: m}", "gaie, selector: {model_name: n}")
    path.write_text(wrong, encoding="utf-8")
    result = governor("doctor", "--config", path)
    assert result.returncode == 1
    assert "chat@gateway: no series matches its selector" in result.stdout
