"""What a Prometheus tells about itself before it hurts."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import itemgetter

import pytest

from controller.core.facts import Fact
from controller.core.needs import facts_for
from controller.core.ports import Matcher, PoolNeeds
from controller.core.signals import Signal
from sources.diagnosis.model import Finding, Level
from sources.frames import Sample
from sources.prometheus.config import PrometheusConfig
from sources.prometheus.doctor import diagnose
from tests.support.ports import free_port
from tests.support.prometheus import needs_prometheus, prometheus, series, write_blocks

START = 1_790_000_000.0
NOW = START + 600.0


def engine(job: str, namespace: str, pod: str, edges: Sequence[str], up: float = 1.0) -> list[Sample]:
    target = {"job": job, "instance": f"{namespace}/{pod}", "namespace": namespace, "pod": pod}
    of = {**target, "model_name": "m"}
    buckets = [series("vllm:time_to_first_token_seconds_bucket", {**of, "le": le}, 1.0) for le in (*edges, "+Inf")]
    return [
        series("up", target, up),
        series("vllm:num_requests_running", of, 1.0),
        series("vllm:time_to_first_token_seconds_count", of, 1.0),
        series("vllm:time_to_first_token_seconds_sum", of, 1.0),
        *buckets,
    ]


def scrape() -> list[Sample]:
    ksm = {"job": "ksm", "instance": "k", "namespace": "twice", "deployment": "llama"}
    return [
        *engine("pods", "twice", "a", ["1.0", "10.0"]),
        *engine("services", "twice", "a", ["1.0", "10.0"]),
        *engine("pods", "mixed", "a", ["1.0", "10.0"]),
        *engine("pods", "mixed", "b", ["1.0", "10.0", "100.0"], up=0.0),
        series("up", {"job": "ksm", "instance": "k"}, 1.0),
        series("kube_deployment_status_replicas_ready", ksm, 1.0),
    ]


def young() -> list[Sample]:
    """A target that was born a minute ago, whose engine counts prefix hits and has no ratio of them."""
    of = {"job": "pods", "instance": "young/a", "namespace": "young", "pod": "a", "model_name": "m"}
    hits = [series(f"vllm:prefix_cache_{what}_total", of, 1.0) for what in ("queries", "hits")]
    return [*engine("pods", "young", "a", ["1.0", "10.0"]), *hits]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    storage = tmp_path_factory.mktemp("doctor") / "tsdb"
    gone = [(START - 1800.0 + 30.0 * k, engine("pods", "gone", "a", ["1.0"])) for k in range(5)]
    regular = [(START + 30.0 * k, scrape()) for k in range(21)]
    born = [(NOW - 60.0 + 15.0 * k, young()) for k in range(5)]
    write_blocks(sorted([*gone, *regular, *born], key=itemgetter(0)), storage)
    with prometheus(storage) as address:
        yield address


def needs(namespace: str, target: float) -> PoolNeeds:
    return PoolNeeds(
        pool=namespace,
        engine="vllm",
        matchers=(Matcher("namespace", "=", namespace),),
        facts=frozenset({Fact.TTFT, Fact.TPOT, Fact.RUNNING, Fact.READY_REPLICAS, Fact.GPU_MEMORY}),
        workload=(namespace, "Deployment", "llama"),
        edges={Fact.TTFT: (target,)},
    )


@pytest.fixture(scope="module")
def findings(url: str) -> list[Finding]:
    pools = [needs("twice", 2.0), needs("mixed", 20.0), needs("nowhere", 1.0)]
    return diagnose(PrometheusConfig(url=url), pools, NOW)


@needs_prometheus
@pytest.mark.parametrize(
    ("subject", "level", "words"),
    [
        ("twice", Level.ERROR, "jobs pods and services scrape the same replica"),
        ("twice", Level.WARNING, "ttft: the target 2 s lies between two buckets"),
        ("twice", Level.WARNING, "choose 1 s or 10 s"),
        ("twice", Level.INFO, "ttft: bucket edges 1, 10 s"),
        ("twice", Level.WARNING, "scraped every 30 s, so a window of 60 s holds fewer than 4 scrapes"),
        ("twice", Level.WARNING, "tpot is unsupported"),
        ("mixed", Level.WARNING, "edges that not all have are not used: 100"),
        ("mixed", Level.WARNING, "above the last bucket"),
        ("mixed", Level.WARNING, "1 of 2 targets are down"),
        ("mixed", Level.WARNING, "has no ready_replicas of Deployment mixed/llama"),
        ("nowhere", Level.ERROR, "no series matches its selector"),
        ("dcgm", Level.WARNING, "DCGM exporter is not scraped here"),
    ],
)
def test_what_would_mislead_is_said(findings: list[Finding], subject: str, level: Level, words: str) -> None:
    assert [f for f in findings if f.subject == subject and f.level is level and words in f.text], findings


@needs_prometheus
def test_a_pool_that_is_no_longer_scraped_is_no_wrong_selector(url: str) -> None:
    found = diagnose(PrometheusConfig(url=url), [needs("gone", 1.0)], NOW)
    (told,) = [f.text for f in found if f.level is Level.ERROR]
    assert told.startswith("its series were last seen 38 min ago")


@needs_prometheus
def test_a_young_target_is_not_scraped_rarely(url: str) -> None:
    found = diagnose(PrometheusConfig(url=url), [needs("young", 1.0)], NOW)
    assert not [f for f in found if "scraped every" in f.text]
    found = diagnose(PrometheusConfig(url=url), [needs("young", 1.0)], NOW, window=45.0)
    assert [f for f in found if "scraped every 15 s" in f.text]


@needs_prometheus
def test_a_fact_that_is_missing_is_no_loss_where_another_way_leads_to_its_signal(url: str) -> None:
    asked = replace(
        needs("young", 1.0),
        facts=facts_for(Signal.PREFIX_HIT_RATE) | facts_for(Signal.TPOT) | facts_for(Signal.QUEUE_DEPTH),
    )
    texts = [f.text for f in diagnose(PrometheusConfig(url=url), [asked], NOW) if "is unsupported" in f.text]
    assert sorted(text.split()[0] for text in texts) == ["queue_depth", "tpot"]


@needs_prometheus
def test_what_is_right_is_not_complained_about(findings: list[Finding]) -> None:
    assert not [f for f in findings if f.subject == "twice" and "ready_replicas" in f.text]
    assert not [f for f in findings if f.subject == "mixed" and "same replica" in f.text]


def test_no_prometheus_is_a_finding_and_no_crash() -> None:
    found = diagnose(PrometheusConfig(url=f"http://127.0.0.1:{free_port()}"), [needs("twice", 1.0)], NOW)
    assert [(f.level, f.subject) for f in found] == [(Level.ERROR, "prometheus")]
