"""Replaying a ledger reproduces its plans: byte for byte with its config, up to the first difference with another."""

import gzip
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.cli.app import app
from controller.config import GovernorConfig, config_hash, load, loads
from controller.core.reading import State
from controller.core.signals import Signal
from controller.rehearse.run import open_recording, rehearse
from controller.run.ledger import LedgerError, ledger_files, read_ledger
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
    report = replay(book, other())

    assert not report.reproduced
    assert report.first is not None
    assert report.first.recorded.decisions[0].final != report.first.replayed.decisions[0].final


def test_what_was_recorded_is_what_was_seen(book: Path) -> None:
    states = {r.snapshot.pools["tiny-llama"].get(Signal.TTFT).state for r in read_ledger(book)}

    assert {State.OK, State.NO_TRAFFIC, State.CENSORED} <= states


@pytest.fixture(scope="module")
def reloaded(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ledger of a Governor whose config changed on the way."""
    path = tmp_path_factory.mktemp("reloaded") / "ledger"
    shutil.copytree(book, path)
    rehearse(other(), open_recording(RECORDING, other()), ledger=path)
    return path


def other() -> GovernorConfig:
    return loads(DEMO.read_text().replace("min: 1", "min: 3"), "other.yaml")


def edited(ledger: Path, to: Path, config: object) -> Path:
    """The ledger with another config at the head of its last file."""
    shutil.copytree(ledger, to)
    last = ledger_files(to)[-1]
    head, *rest = gzip.decompress(last.read_bytes()).splitlines(keepends=True)
    changed = json.dumps({**json.loads(head), "config": config}).encode() + b"\n"
    last.write_bytes(gzip.compress(b"".join([changed, *rest])))
    return to


def test_a_reload_is_followed_and_not_compared_with_the_config_before_it(reloaded: Path, book: Path) -> None:
    """Every plan after the first reload was told as a difference, and none of them was one."""
    report = replay(reloaded)

    assert report.reproduced
    assert report.ticks == 2 * replay(book).ticks
    assert report.hashes == (config_hash(load(DEMO)), config_hash(other()))
    assert not replay(reloaded, load(DEMO)).reproduced


def test_a_reload_whose_config_is_not_in_the_ledger_ends_the_replay_and_says_so(
    reloaded: Path, book: Path, tmp_path: Path
) -> None:
    bare = replay(edited(reloaded, tmp_path / "bare", None))
    strange = replay(edited(reloaded, tmp_path / "strange", {"pools": {"a": {"engine": "none such"}}}))

    for report in (bare, strange):
        assert report.ticks == report.equal == len(list(read_ledger(book)))
        assert not report.reproduced
        assert config_hash(other()) in report.stopped
    assert "holds the hash alone; give the config with --config" in bare.stopped
    assert "this version refuses it" in strange.stopped
    told = CliRunner().invoke(app, ["replay", str(tmp_path / "bare")])
    assert told.exit_code == 1
    assert "What follows was not replayed" in told.output


def test_a_ledger_whose_first_config_is_missing_is_refused(book: Path, tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="the hash alone"):
        replay(edited(book, tmp_path / "bare", None))
