"""When a replica began to serve: its process says so, on series that differ from `up` by their name alone."""

from pathlib import Path

from controller.core.facts import Fact
from controller.core.ports import Matcher, PoolNeeds
from sources.frames import Sample
from sources.prometheus import PrometheusSource
from sources.prometheus.config import PrometheusConfig
from tests.support.prometheus import needs_prometheus, prometheus, series, write_blocks

START = 1_790_000_000.0
POD = {"job": "vllm", "instance": "10.0.0.1:8000", "namespace": "prod", "pod": "llama-0"}


def scrape(number: int) -> tuple[float, list[Sample]]:
    """A pod that was restarted between its second and its third scrape."""
    began = START - 5000.0 if number < 2 else START + 20.0
    return START + 15.0 * number, [
        series("vllm:num_requests_running", {**POD, "model_name": "m"}, 1.0),
        series("up", POD, 1.0),
        series("process_start_time_seconds", POD, began),
    ]


@needs_prometheus
def test_an_engine_that_started_anew_is_not_a_warm_one(tmp_path: Path) -> None:
    write_blocks([scrape(number) for number in range(5)], tmp_path / "tsdb")
    needs = PoolNeeds(
        pool="llama",
        engine="vllm",
        matchers=(Matcher("namespace", "=", "prod"), Matcher("model_name", "=", "m")),
        facts=frozenset({Fact.RUNNING}),
        replica_facts=frozenset({Fact.RUNNING}),
    )
    with prometheus(tmp_path / "tsdb") as url:
        source = PrometheusSource(PrometheusConfig(url=url), [needs])
        began = [
            source.observe(START + 15.0 * number + 1.0, 10.0).pools["llama"].replicas["llama-0"].started_at
            for number in range(4)
        ]
        source.close()
    assert began == [START - 5000.0, START - 5000.0, START + 20.0, START + 20.0]
