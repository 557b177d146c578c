"""Replaying a ledger reproduces its plans: byte for byte with its config, up to the first difference with another."""

from pathlib import Path

import pytest

from controller.config import GovernorConfig, load, loads
from controller.core.reading import State
from controller.core.signals import Signal
from controller.rehearse.run import open_recording, rehearse
from controller.run.ledger import read_ledger
from controller.run.replay import replay

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "demo.yaml"
RECORDING = ROOT / "examples" / "recordings" / "vllm-0.32-cpu-1s.jsonl.gz"


@pytest.fixture(scope="module")
def config() -> GovernorConfig:
    return load(DEMO)


@pytest.fixture(scope="module")
def book(config: GovernorConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ledger")
    rehearse(config, open_recording(RECORDING, config), ledger=path)
    return path


def test_the_same_config_gives_the_same_plans(book: Path, config: GovernorConfig) -> None:
    report = replay(book, config)

    assert report.reproduced
    assert report.ticks == len(list(read_ledger(book))) > 40
    assert report.first is None


def test_another_config_differs_and_says_where_first(book: Path) -> None:
    other = loads(DEMO.read_text().replace("min: 1", "min: 3"), "other.yaml")
    report = replay(book, other)

    assert not report.reproduced
    assert report.first is not None
    assert report.first.recorded.decisions[0].final != report.first.replayed.decisions[0].final


def test_what_was_recorded_is_what_was_seen(book: Path) -> None:
    states = {r.snapshot.pools["tiny-llama"].get(Signal.TTFT).state for r in read_ledger(book)}

    assert {State.OK, State.NO_TRAFFIC, State.CENSORED} <= states
