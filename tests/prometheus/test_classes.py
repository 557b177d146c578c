"""A histogram with a priority label, in a real Prometheus: one class keeps its promise, one breaks it, one is born
late, and a pool whose engine knows no classes says so. From the queries to what `governor` prints."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller.core.facts import Fact
from controller.core.meter import Meter, PoolSpec
from controller.core.model import PoolReadings
from controller.core.observation import Observation, PoolFacts
from controller.core.ports import Matcher, PoolNeeds
from controller.core.reading import State
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.tally import ENDINGS
from sources.diagnosis.model import Level
from sources.frames import Layout, Sample
from sources.increments import Increments
from sources.prometheus import PrometheusSource
from sources.prometheus.config import PrometheusConfig
from sources.prometheus.doctor import diagnose
from tests.support.cli import governor
from tests.support.prometheus import needs_prometheus, prometheus, series, write_blocks
from tests.support.query_api import Api, failure, query_api, vector

START = 1_790_000_000.0
STEP = 15.0
SCRAPES = 21
BORN = 17  # the scrape that first shows the class "batch"
TTFT = "vllm:time_to_first_token_seconds"
CONFIG = """
version: 1
source: {{kind: prometheus, url: "{url}"}}
pools:
  split:
    engine: vllm
    selector: {{namespace: split, model_name: m}}
    labels: {{class: priority}}
    objectives:
      - {{signal: ttft, percentile: p99, target: 1s}}
      - {{signal: ttft, percentile: p99, target: 1s, class: high}}
      - {{signal: ttft, percentile: p90, target: 1s, class: low}}
    levers: {{replicas: {{min: 1, max: 4, policy: {{kind: capacity}}}}}}
  bare:
    engine: vllm
    selector: {{namespace: bare, model_name: m}}
    labels: {{class: priority}}
    objectives:
      - {{signal: ttft, percentile: p99, target: 1s, class: high}}
    levers: {{replicas: {{min: 1, max: 4, policy: {{kind: capacity}}}}}}
"""


def histogram(target: dict[str, str], klass: str, fast: int, slow: int, edges: tuple[str, ...]) -> list[Sample]:
    """Cumulative counts of requests of half a second and of five seconds."""
    own = {**target, "model_name": "m"} | ({"priority": klass} if klass else {})
    below = {"1.0": fast, "2.5": fast, "10.0": fast + slow}
    return [
        *(series(f"{TTFT}_bucket", {**own, "le": edge}, float(below[edge])) for edge in edges),
        series(f"{TTFT}_bucket", {**own, "le": "+Inf"}, float(fast + slow)),
        series(f"{TTFT}_count", own, float(fast + slow)),
        series(f"{TTFT}_sum", own, fast * 0.5 + slow * 5.0),
    ]


def pod(namespace: str, name: str, k: int, edges: tuple[str, ...], *, classes: bool) -> list[Sample]:
    target = {"job": "vllm", "instance": f"{namespace}/{name}", "namespace": namespace, "pod": name}
    own = {**target, "model_name": "m"}
    found = [
        series("up", target, 1.0),
        series("vllm:num_requests_running", own, 2.0),
        series("vllm:num_requests_waiting", own, 0.0),
        series("vllm:request_success_total", {**own, "finished_reason": "stop"}, float(12 * k)),
    ]
    if not classes:
        return found + histogram(target, "", 8 * k, 4 * k, edges)
    found += histogram(target, "high", 8 * k, 0, edges) + histogram(target, "low", k, 3 * k, edges)
    born = max(0, k - BORN + 1)
    return found + (histogram(target, "batch", 0, 2 * born, edges) if born else [])


def scrape(k: int) -> list[Sample]:
    fine, coarse = ("1.0", "2.5", "10.0"), ("1.0", "10.0")
    return [
        *pod("split", "a", k, fine, classes=True),
        *pod("split", "b", k, coarse, classes=True),
        *pod("bare", "a", k, fine, classes=False),
    ]


def needs(namespace: str, *more: Fact) -> PoolNeeds:
    return PoolNeeds(
        pool=namespace,
        engine="vllm",
        matchers=(Matcher("model_name", "=", "m"), Matcher("namespace", "=", namespace)),
        facts=frozenset({Fact.TTFT, Fact.RUNNING, Fact.WAITING, *ENDINGS}),
        replica_facts=frozenset({Fact.RUNNING, *more}),
        class_facts=frozenset({Fact.TTFT, *ENDINGS}),
        class_label="priority",
    )


NEEDS = (needs("split"), needs("bare"))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    storage = tmp_path_factory.mktemp("classes") / "tsdb"
    write_blocks([(START + STEP * k, scrape(k)) for k in range(SCRAPES)], storage)
    with prometheus(storage) as address:
        yield address


def observed(url: str, *pools: PoolNeeds) -> list[Observation]:
    source = PrometheusSource(PrometheusSource.Config(url=url), pools)
    seen = [source.observe(START + STEP * k, deadline=20.0) for k in range(SCRAPES)]
    source.close()
    assert {one.error for one in seen} == {""}
    return seen


def framed(*pools: PoolNeeds) -> list[Observation]:
    increments, layout = Increments(pools), Layout()
    seen = []
    for k in range(SCRAPES):
        increments.feed(layout.frame(START + STEP * k, scrape(k)))
        seen.append(increments.take(START + STEP * k))
    return seen


def judged(seen: list[Observation], upto: int = SCRAPES) -> PoolReadings:
    objectives = tuple(
        Objective(klass or "all", Signal.TTFT, 1.0, 0.99, 60.0, klass)
        for klass in ("", "high", "low", "batch", "never")
    )
    meter = Meter([PoolSpec("split", 60.0, objectives, class_label="priority")])
    return [meter.update(one) for one in seen[:upto]][-1]["split"]


def told(pool: PoolFacts) -> dict[str, tuple[float, ...]]:
    return {name: (*one.histograms[Fact.TTFT].cumulative, one.histograms[Fact.TTFT].count)
            for name, one in pool.classes.items()}  # fmt: skip


@needs_prometheus
@pytest.mark.parametrize("per_replica", [(), (Fact.TTFT, Fact.FINISHED)])
def test_prometheus_and_frames_tell_the_same_of_each_class(url: str, per_replica: tuple[Fact, ...]) -> None:
    pools = (needs("split", *per_replica), needs("bare"))
    for ours, theirs in zip(observed(url, *pools)[1:], framed(*pools)[1:], strict=True):
        assert told(ours.pools["split"]) == told(theirs.pools["split"])
        assert ours.pools["split"].histograms == theirs.pools["split"].histograms
        assert ours.pools["split"].histograms[Fact.TTFT].edges == (1.0, 10.0), "2.5 is not an edge of both pods"
        assert ours.pools["bare"].classes == theirs.pools["bare"].classes == {}
        assert ours.pools["split"].counters == theirs.pools["split"].counters


@needs_prometheus
def test_tenants_beside_classes_take_nothing_from_the_pool(url: str) -> None:
    """Two questions about one fact: the pool's own value must come from one of them only."""
    both = replace(needs("split"), tenant_facts=frozenset({Fact.TTFT}), tenant_label="priority")
    for ours, alone in zip(observed(url, both)[1:], observed(url, needs("split"))[1:], strict=True):
        pool = ours.pools["split"]
        assert pool.histograms == alone.pools["split"].histograms
        assert {name: one.histograms for name, one in pool.tenants.items()} == {
            name: one.histograms for name, one in pool.classes.items()
        }


@needs_prometheus
def test_each_class_is_judged_on_its_own_requests(url: str) -> None:
    for seen in (observed(url, *NEEDS), framed(*NEEDS)):
        found = judged(seen).attainment
        assert (found["high"].state, found["high"].lo, found["high"].hi) == (State.OK, 1.0, 1.0)
        assert (found["low"].state, found["low"].lo, found["low"].hi) == (State.OK, 0.25, 0.25)
        assert found["all"].value == pytest.approx(18 / 28)
        assert (found["batch"].value, found["never"].state) == (0.0, State.NO_TRAFFIC)
        assert judged(seen, BORN).attainment["batch"].state is State.NO_TRAFFIC, "not born yet"
        assert judged(seen, BORN + 1).attainment["batch"].count == 4, "born while its target was up"


@needs_prometheus
def test_a_dry_run_judges_classes_and_so_does_its_recording(url: str, tmp_path: Path) -> None:
    config, kept, page = tmp_path / "governor.yaml", tmp_path / "kept.jsonl.gz", tmp_path / "report.html"
    config.write_text(CONFIG.format(url=url))
    span = ("--from", str(START), "--to", str(START + STEP * (SCRAPES - 1)))
    done = governor("record", "-c", config, *span, "-o", kept)
    assert done.returncode == 0, done.stderr
    live = governor("dry-run", "-c", config, *span, "--prometheus", url, "--report", page)
    again = governor("dry-run", "-c", config, "-r", kept)
    for run in (live, again):
        assert run.returncode == 0, run.stderr
        assert "ttft p99 of high ≤ 1 s: kept, 100 % of requests (promised 99 %)" in run.stdout
        assert "ttft p90 of low ≤ 1 s: broken, 25 % of requests (promised 90 %)" in run.stdout
        assert "ttft p99 of high ≤ 1 s: no data" in run.stdout, "the pool whose engine knows no classes"
    text = page.read_text()
    assert "share of requests of class low with ttft within 1 s" in text
    assert "ttft p99 of high" in text


@needs_prometheus
def test_doctor_names_the_classes_and_the_label_that_is_not_there(url: str) -> None:
    found = diagnose(PrometheusConfig(url=url), NEEDS, START + STEP * (SCRAPES - 1))
    told = {(one.subject, one.level, one.text) for one in found if "priority" in one.text}
    missing = (
        "ttft: no series has the label priority, so promises for a class cannot be judged; "
        "choose the label that names it, or promise for all requests"
    )
    assert told == {
        ("split", Level.INFO, "ttft: classes by priority: batch, high, low"),
        ("bare", Level.WARNING, missing),
    }


# --- what it costs, and what a failure costs ---


@pytest.fixture
def api() -> Iterator[Api]:
    with query_api() as served:
        yield served


def asked(api: Api, pools: int, *, classes: bool) -> int:
    names = ("vllm:num_requests_running", f"{TTFT}_count", "vllm:request_success_total")
    rows = [
        ({"__name__": name, "namespace": f"n{n}", "model_name": "m", "job": "j"}, "1")
        for n in range(pools)
        for name in names
    ]
    api.behave = lambda query: vector(rows if query.startswith("count by") and "__name__" in query else [])
    wanted = [needs(f"n{n}") if classes else _plain(needs(f"n{n}")) for n in range(pools)]
    source = PrometheusSource(PrometheusSource.Config(url=api.url), wanted, clock=lambda: 5000.0)
    source.observe(1000.0, 10.0)
    api.asked.clear()
    assert source.observe(1015.0, 10.0).error == ""
    source.close()
    return len(api.asked)


def _plain(pool: PoolNeeds) -> PoolNeeds:
    return replace(pool, class_facts=frozenset(), class_label="")


def test_classes_cost_no_query_of_their_own(api: Api) -> None:
    assert asked(api, 3, classes=False) == asked(api, 3, classes=True) == asked(api, 100, classes=True)


@pytest.mark.parametrize("by_class", [True, False])
def test_a_failed_query_blinds_what_it_was_for_and_no_more(api: Api, by_class: bool) -> None:
    """With the histogram wanted per replica, too, the classes have a query of their own. That one answered and the
    other did not must not make a zero of the pool."""
    target = {"job": "vllm", "instance": "i", "model_name": "m", "namespace": "n", "pod": "p", "priority": "high"}

    def behave(query: str) -> tuple[int, str, bytes]:
        if query.startswith("count by") and "__name__" in query:
            names = ("vllm:num_requests_running", f"{TTFT}_count")
            return vector([({"__name__": name, **target}, "1") for name in names])
        if "process_start_time_seconds" in query:
            return vector([({"__name__": "up", "job": "vllm", "instance": "i"}, "1")])
        if "timestamp" in query:
            return vector([(target, "1000")])
        if TTFT in query and ("priority" in query) is by_class:
            return failure(503, "overloaded")
        return vector([({**target, "le": "1.0"}, "4"), ({**target, "le": "+Inf"}, "5"), (target, "5")])

    api.behave = behave
    source = PrometheusSource(PrometheusSource.Config(url=api.url), [needs("n", Fact.TTFT)], clock=lambda: 5000.0)
    pool = [source.observe(at, 5.0) for at in (1000.0, 1015.0)][-1].pools["n"]
    source.close()
    failed, other = (pool.class_failed, pool.failed) if by_class else (pool.failed, pool.class_failed)
    assert "503" in failed[Fact.TTFT]
    assert other == {}
    assert (Fact.TTFT in pool.histograms) is by_class
    assert [h.count for one in pool.classes.values() for h in one.histograms.values()] == ([] if by_class else [5])


def test_an_answer_by_class_does_not_make_a_zero_of_a_pool_whose_query_failed(api: Api) -> None:
    """No error was seen in any class; but the errors of the pool could not be read."""
    target = {"job": "vllm", "instance": "i", "model_name": "m", "namespace": "n", "pod": "p"}

    def behave(query: str) -> tuple[int, str, bytes]:
        if query.startswith("count by") and "__name__" in query:
            names = ("vllm:num_requests_running", "http_request_duration_highr_seconds_count")
            return vector([({"__name__": name, **target}, "1") for name in names])
        if "process_start_time_seconds" in query:
            return vector([({"__name__": "up", "job": "vllm", "instance": "i"}, "1")])
        if "timestamp" in query:
            return vector([(target, "1000")])
        return failure(503, "overloaded") if "5xx" in query and "priority" not in query else vector([])

    api.behave = behave
    source = PrometheusSource(PrometheusSource.Config(url=api.url), [needs("n", Fact.ERRORS)], clock=lambda: 5000.0)
    pool = [source.observe(at, 5.0) for at in (1000.0, 1015.0)][-1].pools["n"]
    source.close()
    assert "503" in pool.failed[Fact.ERRORS]
    assert Fact.ERRORS not in pool.counters
