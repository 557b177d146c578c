"""What a series gained, on a real Prometheus: restarts, births, strangers, missed scrapes, bucket edges, odd labels.

One store with a namespace per story, scraped every 15 s; each test reads its own pool.
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import pytest

from controller.core.facts import Fact
from controller.core.observation import HistogramIncrement, Observation, PoolFacts
from controller.core.ports import Matcher, PoolNeeds
from sources.frames import Sample
from sources.prometheus import PrometheusSource
from tests.support.prometheus import needs_prometheus, prometheus, series, write_blocks

pytestmark = needs_prometheus

START = 1_790_000_000.0
STEP = 15.0
SCRAPES = 7
ODD = 'we"ird\\ns|(a.b)\n$'
ODDER = "[x]+*? {y}^"
STORIES = (
    "restart",
    "no number",
    "refilled",
    "born",
    "stranger",
    "missed",
    "spelling",
    "grids",
    "upgrade",
    "twice",
    ODD,
    ODDER,
)
Levels = Sequence[float | None]


def pod(
    namespace: str, name: str, levels: Mapping[tuple[str, tuple[tuple[str, str], ...]], Levels]
) -> list[list[Sample]]:
    """The scrapes of one pod: its series by (name, more labels), one value per scrape, None where it is absent. The pod
    is up whenever it has any sample."""
    target = {"job": "vllm", "instance": f"{namespace}/{name}", "namespace": namespace, "pod": name}
    scrapes: list[list[Sample]] = []
    for number in range(SCRAPES):
        samples = [
            series(metric, {**dict(more), **target, "model_name": "m"}, value)
            for (metric, more), of in levels.items()
            if (value := of[number]) is not None
        ]
        if samples:
            samples += [series("up", target, 1.0)]
        scrapes.append(samples)
    return scrapes


def finished(*levels: float | None) -> dict[tuple[str, tuple[tuple[str, str], ...]], Levels]:
    return {
        ("vllm:request_success_total", (("finished_reason", "stop"),)): levels,
        ("vllm:num_requests_running", ()): [None if level is None else 1.0 for level in levels],
    }


def ttft(edges: Sequence[str], *counts: Sequence[float]) -> dict[tuple[str, tuple[tuple[str, str], ...]], Levels]:
    """Cumulative counts per scrape, the last one for +Inf; each sample counts as one second in the sum."""
    name = "vllm:time_to_first_token_seconds"
    by_edge = zip((*edges, "+Inf"), zip(*counts, strict=True), strict=True)
    return {
        **{(f"{name}_bucket", (("le", edge),)): of for edge, of in by_edge},
        (f"{name}_sum", ()): [of[-1] for of in counts],
        (f"{name}_count", ()): [of[-1] for of in counts],
        ("vllm:num_requests_running", ()): [1.0] * SCRAPES,
    }


def store() -> list[tuple[float, list[Sample]]]:
    ramp = [10.0 * (k + 1) for k in range(SCRAPES)]
    pods = [
        pod("restart", "a", finished(10, 20, 30, 5, 8, 9, 9)),
        pod("no number", "a", finished(10, 20, math.nan, math.nan, 50, 60, 60)),
        # After the restart the first bucket is fuller than before, the whole is not.
        pod("refilled", "a", ttft(["1.0"], (1, 9), (1, 9), (1, 9), (5, 7), (5, 7), (5, 7), (5, 7))),
        pod("born", "a", {
            **finished(*ramp),
            ("http_request_duration_highr_seconds_count", ()): ramp,
            ("http_requests_total", (("handler", "/v1/completions"), ("method", "POST"), ("status", "5xx"))):
                (None, None, None, 2, 2, 3, 3),
        }),
        pod("stranger", "a", finished(0, 0, 0, 0, 0, 0, 0)),
        pod("stranger", "b", finished(None, None, None, 100, 107, 107, 107)),
        pod("missed", "a", finished(10, 20, None, 40, 40, 40, 40)),
        pod("spelling", "a", ttft(["1.0", "10.0"], *[(k, 2 * k, 3 * k) for k in range(SCRAPES)])),
        pod("spelling", "b", ttft(["1", "10"], *[(k, k, k) for k in range(SCRAPES)])),
        pod("grids", "a", ttft(["1.0", "10.0"], *[(k, 2 * k, 4 * k) for k in range(SCRAPES)])),
        pod("grids", "b", ttft(["1.0", "10.0", "100.0"], *[(k, 2 * k, 3 * k, 4 * k) for k in range(SCRAPES)])),
        pod("upgrade", "old", {
            ("vllm:gpu_cache_usage_perc", ()): [0.2] * SCRAPES,
            ("vllm:gpu_prefix_cache_hits_total", ()): ramp,
            ("vllm:num_requests_running", ()): [1.0] * SCRAPES,
        }),
        pod("upgrade", "both", {
            ("vllm:gpu_cache_usage_perc", ()): [0.6] * SCRAPES,
            ("vllm:kv_cache_usage_perc", ()): [0.6] * SCRAPES,
            ("vllm:gpu_prefix_cache_hits_total", ()): ramp,
            ("vllm:prefix_cache_hits_total", ()): ramp,
            ("vllm:num_requests_running", ()): [1.0] * SCRAPES,
        }),
        # Two API servers of one engine repeat its gauges under their pids; two ranks do not repeat each other.
        pod("twice", "a", {
            ("vllm:num_requests_running", (("engine", rank), ("pid", pid))): [3.0 + int(rank)] * SCRAPES
            for rank in ("0", "1") for pid in ("7", "8")
        }),
        pod(ODD, "a", finished(*ramp)),
        pod(ODDER, "a", finished(*ramp)),
    ]  # fmt: skip
    return [(START + STEP * k, [sample for scrapes in pods for sample in scrapes[k]]) for k in range(SCRAPES)]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    storage = tmp_path_factory.mktemp("counting") / "tsdb"
    write_blocks(store(), storage)
    with prometheus(storage) as address:
        yield address


def needs(namespace: str) -> PoolNeeds:
    return PoolNeeds(
        pool=namespace,
        engine="vllm",
        matchers=(Matcher("namespace", "=", namespace), Matcher("model_name", "=", "m")),
        facts=frozenset({Fact.FINISHED, Fact.ERRORS, Fact.TTFT, Fact.RUNNING, Fact.KV_USAGE, Fact.PREFIX_HITS}),
        replica_facts=frozenset({Fact.RUNNING, Fact.FINISHED}),
    )


@pytest.fixture(scope="module")
def observations(url: str) -> list[Observation]:
    """One per scrape."""
    source = PrometheusSource(PrometheusSource.Config(url=url), [needs(story) for story in STORIES])
    seen = [source.observe(START + STEP * k, deadline=20.0) for k in range(SCRAPES)]
    source.close()
    assert [observation.error for observation in seen] == [""] * SCRAPES
    return seen


def told(observations: Sequence[Observation], story: str) -> list[PoolFacts]:
    return [observation.pools[story] for observation in observations]


def counted(observations: Sequence[Observation], story: str, fact: Fact) -> list[float | None]:
    return [pool.counters.get(fact) for pool in told(observations, story)]


def test_a_first_observation_has_no_increments(observations: list[Observation]) -> None:
    assert observations[0].since is None
    assert counted(observations, "restart", Fact.FINISHED)[0] is None


def test_a_restarted_process_counts_from_zero(observations: list[Observation]) -> None:
    assert counted(observations, "restart", Fact.FINISHED)[1:] == [10, 10, 5, 3, 1, 0]


def test_what_was_no_number_for_a_while_is_not_born_with_all_it_ever_counted(observations: list[Observation]) -> None:
    """A load of 53/s looked like 1,960/s, and the fleet was raised to its maximum."""
    assert counted(observations, "no number", Fact.FINISHED)[1:] == [10, None, None, None, 10, 0]
    assert "not a number" in told(observations, "no number")[4].failed[Fact.FINISHED]


def test_a_restarted_histogram_counts_wholly_from_zero(observations: list[Observation]) -> None:
    assert told(observations, "refilled")[3].histograms[Fact.TTFT] == HistogramIncrement((1.0,), (5.0,), 7.0, 7.0)


def test_a_series_born_while_its_target_was_up_counts_in_full(observations: list[Observation]) -> None:
    assert counted(observations, "born", Fact.ERRORS)[1:] == [0, 0, 2, 0, 1, 0]


def test_the_count_of_a_stranger_is_not_taken_for_new(observations: list[Observation]) -> None:
    assert counted(observations, "stranger", Fact.FINISHED)[1:] == [0, 0, 0, 7, 0, 0]
    assert told(observations, "stranger")[3].replicas["b"].counters == {}
    assert told(observations, "stranger")[4].replicas["b"].counters == {Fact.FINISHED: 7.0}


def test_a_missed_scrape_loses_nothing(observations: list[Observation]) -> None:
    assert counted(observations, "missed", Fact.FINISHED)[1:4] == [10, 0, 20]


def test_le_10_and_le_10_0_are_one_edge(observations: list[Observation]) -> None:
    assert told(observations, "spelling")[1].histograms[Fact.TTFT] == HistogramIncrement(
        (1.0, 10.0), (2.0, 3.0), 4.0, 4.0
    )


def test_edges_that_not_all_pods_have_are_left_out(observations: list[Observation]) -> None:
    assert told(observations, "grids")[1].histograms[Fact.TTFT] == HistogramIncrement((1.0, 10.0), (2.0, 4.0), 8.0, 8.0)


def test_a_pod_that_exposes_two_generations_is_read_once(observations: list[Observation]) -> None:
    pool = told(observations, "upgrade")[1]
    assert pool.counters[Fact.PREFIX_HITS] == 20.0
    assert pool.gauges[Fact.KV_USAGE] == pytest.approx(0.4)
    assert set(pool.sources[Fact.KV_USAGE].split(" + ")) == {"vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"}


def test_a_gauge_repeated_under_several_pids_is_counted_once(observations: list[Observation]) -> None:
    assert told(observations, "twice")[0].gauges[Fact.RUNNING] == 7.0


@pytest.mark.parametrize("story", [ODD, ODDER])
def test_label_values_are_taken_literally(observations: list[Observation], story: str) -> None:
    assert counted(observations, story, Fact.FINISHED)[1:3] == [10, 10]


def test_a_late_tick_still_counts_everything(url: str) -> None:
    source = PrometheusSource(PrometheusSource.Config(url=url), [needs("born")])
    first, second = (source.observe(START + after, deadline=20.0) for after in (0.4, 77.3))
    source.close()
    assert first.since is None
    assert second.pools["born"].counters[Fact.FINISHED] == 50.0
    assert second.pools["born"].counters[Fact.ERRORS] == 3.0


def test_after_a_long_gap_reading_starts_anew(url: str) -> None:
    source = PrometheusSource(PrometheusSource.Config(url=url), [needs("born")])
    source.observe(START - 400.0, deadline=20.0)
    late = source.observe(START + 30.0, deadline=20.0)
    source.close()
    assert late.since is None
    assert late.pools["born"].counters == {}
