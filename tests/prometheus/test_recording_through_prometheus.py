"""The real vLLM recording through a real Prometheus: the same increments as counted from the frames themselves."""

import math
from collections.abc import Iterator, Mapping

import pytest

from controller.core.facts import Fact
from controller.core.observation import Observation, PoolFacts
from controller.core.ports import Matcher, PoolNeeds
from sources.frames import Layout
from sources.increments import Increments
from sources.prometheus import PrometheusSource
from tests.support.prometheus import needs_prometheus
from tests.support.vllm_recording import MODEL, scrapes

pytestmark = needs_prometheus

PLATFORM = frozenset({Fact.READY_REPLICAS, Fact.WANTED_REPLICAS, Fact.RESTARTS, Fact.OOM_RESTARTS, Fact.XID_ERRORS})
GPU = frozenset({Fact.GPU_MEMORY, Fact.GPU_UTILISATION})
NEEDS = PoolNeeds(
    pool="llama",
    engine="vllm",
    matchers=(Matcher("namespace", "=", "prod"), Matcher("model_name", "=", MODEL)),
    facts=frozenset(Fact) - PLATFORM - GPU,
    replica_facts=frozenset({Fact.RUNNING, Fact.WAITING, Fact.KV_USAGE, Fact.GENERATION_TOKENS}),
)


@pytest.fixture
def source(vllm_prometheus: str) -> Iterator[PrometheusSource]:
    source = PrometheusSource(PrometheusSource.Config(url=vllm_prometheus), [NEEDS])
    yield source
    source.close()


@pytest.mark.parametrize("every", [1, 15, 40])
def test_increments_equal_those_of_the_frames(source: PrometheusSource, every: int) -> None:
    counted = Increments([NEEDS])
    layout = Layout()
    for number, (at, samples) in enumerate(scrapes()):
        counted.feed(layout.frame(at, samples))
        if number % every == 0 and (every > 1 or 40 < number < 80):
            _same(source.observe(at, deadline=20.0), counted.take(at))


def _same(seen: Observation, expected: Observation) -> None:
    assert seen.error == ""
    assert seen.since == expected.since
    ours, theirs = seen.pools["llama"], expected.pools["llama"]
    assert ours.failed == {}
    assert _close(ours.counters, theirs.counters)
    assert _close(ours.gauges, theirs.gauges)
    assert ours.histograms.keys() == theirs.histograms.keys()
    for fact, histogram in ours.histograms.items():
        other = theirs.histograms[fact]
        assert histogram.edges == pytest.approx(other.edges), fact
        assert histogram.cumulative == pytest.approx(other.cumulative), fact
        assert (histogram.count, histogram.sum) == pytest.approx((other.count, other.sum), abs=1e-6), fact
    assert set(ours.unsupported) == set(theirs.unsupported)
    assert ours.targets_up == theirs.targets_up == 1
    _same_replica(ours, theirs)


def _same_replica(ours: PoolFacts, theirs: PoolFacts) -> None:
    assert ours.replicas.keys() == theirs.replicas.keys() == {"vllm-0"}
    one, other = ours.replicas["vllm-0"], theirs.replicas["vllm-0"]
    assert one.up is other.up
    assert one.age == pytest.approx(other.age, abs=0.002)
    assert _close(one.counters, other.counters)
    assert _close(one.gauges, other.gauges)


def _close(ours: Mapping[Fact, float], theirs: Mapping[Fact, float]) -> bool:
    assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
    wrong = {key: (ours[key], theirs[key]) for key in ours if not math.isclose(ours[key], theirs[key], abs_tol=1e-6)}
    assert wrong == {}
    return True
