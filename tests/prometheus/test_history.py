"""Raw series of a past range: what `governor record` writes is what the engine said."""

import pytest

from controller.core.facts import Fact
from controller.core.ports import Matcher, PoolNeeds
from sources.frames import Sample
from sources.prometheus import history
from sources.prometheus.config import PrometheusConfig
from sources.prometheus.history import read_range
from tests.support.prometheus import needs_prometheus
from tests.support.vllm_recording import MODEL, scrapes

pytestmark = needs_prometheus

NEEDS = PoolNeeds(
    pool="llama",
    engine="vllm",
    matchers=(Matcher("namespace", "=", "prod"), Matcher("model_name", "=", MODEL)),
    facts=frozenset({Fact.TTFT, Fact.RESPONSES}),
)
WANTED = ("up", "vllm:time_to_first_token_seconds_", "http_requests_total", "vllm:num_requests_", "vllm:kv_cache_usage")


def expected(number: int) -> set[Sample]:
    """The samples of a scrape that the needs ask for, and what tells that the replica is there."""
    return {
        sample
        for sample in scrapes()[number][1]
        if sample.name.startswith(WANTED) and not sample.name.endswith(("_created", "_by_reason"))
    }


@pytest.mark.parametrize("page", [400_000, 60])
def test_a_range_comes_back_whole_in_pages_of_any_size(
    vllm_prometheus: str, page: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_PAGE", page)
    told: list[tuple[int, int]] = []
    start = scrapes()[100][0]
    frames = list(
        read_range(PrometheusConfig(url=vllm_prometheus), [NEEDS], start, start + 20.0, 10.0, lambda *n: told.append(n))
    )
    assert [at for at, _ in frames] == [start, start + 10.0, start + 20.0]
    assert told[-1] == (3, 3)
    assert (len(told) == 1) is (page > 1000)
    assert set(frames[0][1]) == expected(100)


def test_a_range_before_the_first_scrape_is_empty_frames(vllm_prometheus: str) -> None:
    start = scrapes()[0][0] - 1000.0
    frames = list(read_range(PrometheusConfig(url=vllm_prometheus), [NEEDS], start, start + 30.0, 15.0))
    assert [samples for _, samples in frames] == [[], [], []]
