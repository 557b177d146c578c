"""`governor record` against a real Prometheus: what comes out tells what the engine told, and what Prometheus tells."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from controller import registry
from controller.core.errors import InputError
from controller.core.facts import Fact
from controller.core.observation import Observation, PoolFacts
from controller.core.ports import Matcher, PoolNeeds
from sources.frames import Layout, Sample
from sources.imported import Imported
from sources.increments import Increments
from sources.prometheus import PrometheusSource
from sources.prometheus.config import PrometheusConfig
from sources.recording import RecordingConfig, RecordingSource
from tests.support.prometheus import needs_prometheus, prometheus, write_blocks
from tests.support.vllm_recording import MODEL, scrapes

pytestmark = needs_prometheus

FACTS = frozenset({*Fact} - {Fact.LORA_LOADED})
NEED = PoolNeeds("p", "vllm", (Matcher("model_name", "=", MODEL),), FACTS, frozenset({Fact.WAITING, Fact.TTFT}))
STEP = 5.0


@pytest.fixture(scope="module")
def kept() -> list[tuple[float, tuple[Sample, ...]]]:
    """The real recording, on whole milliseconds as Prometheus keeps them."""
    return [(round(at, 3), samples) for at, samples in scrapes()]


@pytest.fixture(scope="module")
def server(
    kept: list[tuple[float, tuple[Sample, ...]]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrometheusConfig]:
    storage = tmp_path_factory.mktemp("prometheus") / "data"
    write_blocks(kept, storage)
    with prometheus(storage) as url:
        yield PrometheusConfig(url=url)


@pytest.fixture(scope="module")
def recorded(
    server: PrometheusConfig, kept: list[tuple[float, tuple[Sample, ...]]], tmp_path_factory: pytest.TempPathFactory
) -> Imported:
    told: list[tuple[int, int]] = []
    out = tmp_path_factory.mktemp("out") / "r.jsonl.gz"
    done: Imported = registry.tool("record")(
        server, [NEED], kept[0][0], kept[-1][0], STEP, out, progress=lambda *n: told.append(n)
    )
    assert told[-1][0] == told[-1][1] == done.frames
    return done


def ticks(done: Imported) -> list[float]:
    return [done.start + i * STEP for i in range(done.frames)]


def told(pool: PoolFacts) -> tuple[object, ...]:
    """What must not depend on the way."""
    return (
        {fact: round(value, 9) for fact, value in pool.counters.items()},
        {fact: round(value, 9) for fact, value in pool.gauges.items()},
        {fact: (h.edges, h.cumulative, h.count, round(h.sum, 6)) for fact, h in pool.histograms.items()},
        {name: (one.up, one.gauges, one.counters) for name, one in pool.replicas.items()},
        pool.targets_up,
    )


def test_a_recorded_range_gives_what_the_scrapes_themselves_give(
    recorded: Imported, kept: list[tuple[float, tuple[Sample, ...]]]
) -> None:
    eyes = RecordingSource(RecordingConfig(str(recorded.path)), [NEED])
    direct, layout, left = Increments([NEED]), Layout(), list(kept)
    for at in ticks(recorded):
        while left and left[0][0] <= at:
            newest, samples = left.pop(0)
            direct.feed(layout.frame(newest, samples))
        assert told(eyes.observe(at, 5).pools["p"]) == told(direct.take(at).pools["p"])


def test_a_recording_and_a_live_prometheus_tell_the_same(recorded: Imported, server: PrometheusConfig) -> None:
    eyes, live = RecordingSource(RecordingConfig(str(recorded.path)), [NEED]), PrometheusSource(server, [NEED])
    compared = 0
    for at in ticks(recorded):
        one, other = eyes.observe(at, 10), live.observe(at, 10)
        assert (one.since, one.error) == (other.since, other.error)
        ours, theirs = told(one.pools["p"]), told(other.pools["p"])
        assert ours[:3] == theirs[:3]
        compared += 1
    live.close()
    assert compared > 40


def test_a_range_where_nothing_was_scraped_is_refused_and_leaves_no_file(
    server: PrometheusConfig, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="has nothing of pools p from 2001-09-09T01:46:40"):
        registry.tool("record")(server, [NEED], 1e9, 1e9 + 60, STEP, tmp_path / "r.jsonl.gz")
    assert list(tmp_path.iterdir()) == []


def test_time_before_the_first_scrape_is_a_hole_and_not_a_fleet_at_rest(
    server: PrometheusConfig, kept: list[tuple[float, tuple[Sample, ...]]], tmp_path: Path
) -> None:
    start = kept[0][0] - 60
    done: Imported = registry.tool("record")(server, [NEED], start, kept[0][0] + 20, STEP, tmp_path / "r.jsonl.gz")
    assert done.notes == ("at 12 steps there was nothing at all, which is a hole",)
    eyes = RecordingSource(RecordingConfig(str(done.path)), [NEED])
    before: Observation = eyes.observe(start, 1)
    assert "it begins at" in before.error


def test_a_prometheus_that_is_not_there_is_an_error_and_leaves_the_old_recording(tmp_path: Path) -> None:
    old = tmp_path / "r.jsonl.gz"
    old.write_bytes(b"old")
    with pytest.raises(Exception, match="check url and network"):
        registry.tool("record")(PrometheusConfig(url="http://127.0.0.1:9"), [NEED], 0, 60, STEP, old)
    assert [old.read_bytes(), list(tmp_path.iterdir())] == [b"old", [old]]
