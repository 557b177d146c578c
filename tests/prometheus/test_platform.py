"""kube-state-metrics and DCGM join by workload: replicas, restarts, OOM and GPU memory of a pool's own pods."""

from collections.abc import Iterator

import pytest

from controller.core.facts import Fact
from controller.core.observation import Observation
from controller.core.ports import Matcher, PoolNeeds
from sources.frames import Sample
from sources.prometheus import PrometheusSource
from sources.prometheus.config import PrometheusConfig
from tests.support.prometheus import needs_prometheus, prometheus, series, write_blocks

pytestmark = needs_prometheus

START = 1_790_000_000.0
KSM = {"job": "ksm", "instance": "ksm:8080"}
DCGM = {"job": "dcgm", "instance": "node:9400", "namespace": "monitoring", "pod": "dcgm-x"}
LLAMA, LLAMA_70B = "llama-7d9f8b6c5-abcde", "llama-70b-6c5d4b3a2-vwxyz"


def scrape(number: int) -> list[Sample]:
    """At scrape 2 llama's container restarts after an OOM, and llama-70b's after a crash."""
    restarts = 1.0 if number >= 2 else 0.0
    samples = [series("up", KSM, 1.0), series("up", {"job": "dcgm", "instance": "node:9400"}, 1.0)]
    for name, pod, ready in (("llama", LLAMA, 2.0), ("llama-70b", LLAMA_70B, 5.0)):
        workload = {**KSM, "namespace": "prod", "deployment": name}
        container = {**KSM, "namespace": "prod", "pod": pod, "container": "vllm"}
        samples += [
            series("kube_deployment_status_replicas_ready", workload, ready),
            series("kube_deployment_spec_replicas", workload, ready + 1),
            series("kube_pod_container_status_restarts_total", container, 3.0 + restarts),
            series("vllm:num_requests_running", {"job": "v", "instance": pod, "model_name": name, "pod": pod}, 1.0),
            series("up", {"job": "v", "instance": pod}, 1.0),
            series(
                "DCGM_FI_DEV_FB_USED",
                {**DCGM, "exported_namespace": "prod", "exported_pod": pod, "gpu": "0"},
                1000.0 if name == "llama" else 9.2e18,
            ),
        ]
    reason = {**KSM, "namespace": "prod", "pod": LLAMA, "container": "vllm", "reason": "OOMKilled"}
    return [*samples, series("kube_pod_container_status_last_terminated_reason", reason, 1.0)]


def needs(name: str, kind: str = "Deployment") -> PoolNeeds:
    return PoolNeeds(
        pool=name,
        engine="vllm",
        matchers=(Matcher("model_name", "=", name),),
        facts=frozenset({Fact.READY_REPLICAS, Fact.WANTED_REPLICAS, Fact.RESTARTS, Fact.OOM_RESTARTS, Fact.GPU_MEMORY}),
        replica_facts=frozenset({Fact.GPU_MEMORY, Fact.RESTARTS}),
        workload=("prod", kind, name),
    )


@pytest.fixture(scope="module")
def observations(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Observation]]:
    storage = tmp_path_factory.mktemp("platform") / "tsdb"
    write_blocks([(START + 15.0 * k, scrape(k)) for k in range(4)], storage)
    with prometheus(storage) as url:
        source = PrometheusSource(PrometheusConfig(url=url), [needs("llama"), needs("llama-70b")])
        yield [source.observe(START + 15.0 * k, 20.0) for k in range(4)]
        source.close()


def test_replicas_are_those_of_the_workload(observations: list[Observation]) -> None:
    pools = observations[0].pools
    assert (pools["llama"].gauges[Fact.READY_REPLICAS], pools["llama"].gauges[Fact.WANTED_REPLICAS]) == (2.0, 3.0)
    assert pools["llama-70b"].gauges[Fact.READY_REPLICAS] == 5.0


def test_a_sticky_oom_reason_counts_only_with_a_new_restart(observations: list[Observation]) -> None:
    ooms = [o.pools["llama"].counters.get(Fact.OOM_RESTARTS) for o in observations]
    restarts = [o.pools["llama"].counters.get(Fact.RESTARTS) for o in observations]
    assert (ooms[1:], restarts[1:]) == ([0.0, 1.0, 0.0], [0.0, 1.0, 0.0])


def test_a_crash_is_no_oom_and_llama_does_not_claim_llama_70b(observations: list[Observation]) -> None:
    crashed = observations[2].pools["llama-70b"]
    assert crashed.counters[Fact.RESTARTS] == 1.0
    assert crashed.counters.get(Fact.OOM_RESTARTS, 0.0) == 0.0
    assert crashed.replicas[LLAMA_70B].counters == {Fact.RESTARTS: 1.0}


def test_gpu_memory_is_of_the_pods_and_a_blank_is_nothing(observations: list[Observation]) -> None:
    pools = observations[0].pools
    assert pools["llama"].gauges[Fact.GPU_MEMORY] == 1000.0 * 2**20
    assert pools["llama"].replicas[LLAMA].gauges == {Fact.GPU_MEMORY: 1000.0 * 2**20}
    assert Fact.GPU_MEMORY not in pools["llama-70b"].gauges
