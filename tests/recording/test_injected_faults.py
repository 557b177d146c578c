"""Real one-hertz runs of vLLM, with faults put in: restarts, holes, failed scrapes, a pod that vanishes. No rate may go
negative, and none may jump above what the run really did."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pytest

from controller.core.facts import Fact
from controller.core.observation import Observation
from sources.frames import Frame
from sources.import_csv import import_csv
from sources.recording import RecordingConfig, RecordingSource
from sources.recording_file import Recording, RecordingWriter
from tests.support.repository import ROOT
from tests.support.streams import needs, shared

NEED = needs(model_name="llama-3.3-70b")
COUNTERS = (Fact.GENERATION_TOKENS, Fact.PROMPT_TOKENS, Fact.FINISHED, Fact.PREEMPTIONS, Fact.PREFIX_QUERIES)
Fault = Callable[[Iterable[Frame]], Iterator[Frame]]


def restarts(frames: Iterable[Frame]) -> Iterator[Frame]:
    """Every 200 frames the process starts again, with all counters at zero."""
    base: np.ndarray[tuple[int], np.dtype[np.float64]] | None = None
    for number, frame in enumerate(frames):
        counters = [name.endswith("_total") for name, _ in frame.layout.keys]
        if number % 200 == 150 or base is None:
            base = np.where(counters, frame.values, 0.0)
        yield Frame(frame.at, frame.layout, frame.values - base)


def holes(frames: Iterable[Frame]) -> Iterator[Frame]:
    """Now and then the recorder sleeps: 2, 30 and 100 seconds, and once 400."""
    asleep = {range(100, 102), range(200, 230), range(300, 400), range(600, 1000)}
    return (frame for number, frame in enumerate(frames) if not any(number in hole for hole in asleep))


def failed_scrapes(frames: Iterable[Frame]) -> Iterator[Frame]:
    """Every tenth scrape finds nobody: no series, and `up` is 0."""
    for number, frame in enumerate(frames):
        up = np.array([name == "up" for name, _ in frame.layout.keys])
        yield frame if number % 10 != 9 else Frame(frame.at, frame.layout, np.where(up, 0.0, np.nan))


def vanishing_pod(frames: Iterable[Frame]) -> Iterator[Frame]:
    """The pod is not even a target for a minute, and comes back with all that it had counted meanwhile."""
    for number, frame in enumerate(frames):
        yield frame if number % 300 < 240 else Frame(frame.at, frame.layout, np.full_like(frame.values, np.nan))


def observed(path: Path, ticks: Iterable[float] | None = None) -> list[Observation]:
    eyes = RecordingSource(RecordingConfig(str(path)), [NEED])
    return [eyes.observe(at, 1) for at in ticks or eyes.times()]


def rates(seen: Iterable[Observation], fact: Fact) -> list[float]:
    return [
        one.pools["p"].counters[fact] / (one.at - one.since)
        for one in seen
        if one.pools and one.since is not None and fact in one.pools["p"].counters
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    source = shared("recordings/inferencex_vllm_server_metrics_1hz.csv.gz")
    mapping = ROOT / "examples" / "import" / "inferencex.yaml"
    return [one.path for one in import_csv([source], mapping, tmp_path_factory.mktemp("runs"))]


@pytest.mark.parametrize("fault", [restarts, holes, failed_scrapes, vanishing_pod])
def test_no_rate_goes_negative_or_jumps(runs: list[Path], tmp_path: Path, fault: Fault) -> None:
    for run in runs[::3]:
        whole = Recording(run)
        broken = tmp_path / run.name
        with RecordingWriter(broken, whole.header) as writer:
            for frame in fault(whole.frames()):
                writer.write(frame)
        for ticks in (None, whole.times()[::15]):
            honest, seen = observed(run), observed(broken, ticks)
            for fact in COUNTERS:
                found = rates(seen, fact)
                assert len(found) > len(seen) / 3
                assert min(found) >= 0
                assert max(found) <= max(rates(honest, fact)) * (1 + 1e-9)


def test_what_a_restart_did_not_hide_is_counted_whole(runs: list[Path], tmp_path: Path) -> None:
    whole = Recording(runs[0])
    broken = tmp_path / "r.jsonl.gz"
    with RecordingWriter(broken, whole.header) as writer:
        for frame in restarts(whole.frames()):
            writer.write(frame)
    lost = sum(rates(observed(runs[0]), Fact.PROMPT_TOKENS)) - sum(rates(observed(broken), Fact.PROMPT_TOKENS))
    restarted = len(range(150, len(whole.times()), 200))
    # Only what came between the last scrape of the old process and the first of the new one is unknown.
    assert 0 <= lost <= restarted * max(rates(observed(runs[0]), Fact.PROMPT_TOKENS))


def test_while_nobody_answers_the_replica_counts_nothing_and_the_pool_knows_it(
    runs: list[Path], tmp_path: Path
) -> None:
    whole = Recording(runs[0])
    broken = tmp_path / "r.jsonl.gz"
    with RecordingWriter(broken, whole.header) as writer:
        for frame in failed_scrapes(whole.frames()):
            writer.write(frame)
    for number, one in enumerate(observed(broken)[:100]):
        pool = one.pools["p"]
        assert (pool.targets_up, pool.targets_down) == ((1, 0) if number % 10 != 9 else (0, 1))
        assert (Fact.WAITING in pool.gauges) == (number % 10 != 9)
