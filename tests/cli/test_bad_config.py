"""The commands of an emergency while a config that cannot be used lies on the disk: the Governor that runs goes on with
the one before it, and so must they."""

import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from controller.cli.app import app
from controller.config import ConfigError, load
from controller.core.model import Lever, Target
from controller.core.observation import Observation, PoolFacts, ReplicaFacts
from controller.run import pins
from controller.run.assembly import RunMode, assemble
from tests.support.cli import governor
from tests.support.full_disk import full_disk

CONFIG = """
version: 1
source: {{kind: prometheus, url: "http://127.0.0.1:1"}}
ledger:
  path: {folder}/ledger  # where it is

pools:
  chat:
    engine: vllm
    selector: {{model_name: chat}}
    objectives: [{{signal: ttft, percentile: p99, target: 2500ms}}]
    levers:
      replicas: {{min: 1, max: 9, policy: {{kind: capacity}}}}
"""
CHAT = Target("chat", Lever.REPLICAS)
HOLD = ("pin", "chat/replicas", "4", "--for", "2h", "--reason", "night")


class Seen:
    """A source that sees three replicas."""

    def observe(self, at: float, deadline: float) -> Observation:
        return Observation(at, at, {"chat": PoolFacts(replicas={f"pod-{i}": ReplicaFacts() for i in range(3)})})

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The config of a Governor that has run."""
    path = tmp_path / "governor.yaml"
    path.write_text(CONFIG.format(folder=tmp_path))
    loop = assemble(load(path), mode=RunMode.DRY_RUN, source=Seen())
    loop.tick(time.time())
    loop.close()
    return path


def run(config: Path, *words: str) -> Result:
    return CliRunner().invoke(app, [*words, "--config", str(config)])


def pushed(config: Path, old: str, new: str) -> str:
    """A change that makes the config unusable; what is then said of it."""
    text = config.read_text()
    assert old in text
    config.write_text(text.replace(old, new))
    with pytest.raises(ConfigError) as found:
        load(config)
    return str(found.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("max: 9", "max: nine"),
        ("version: 1", "version: 2"),
        ("pools:", "pools: {"),
        ("source: {", "source: {{"),
        ("version: 1", "version: 1\n\tx: y"),
        ("# where it is", "# where it is\n  path: elsewhere"),
    ],
)
def test_a_bad_push_takes_the_tools_of_the_emergency_away(config: Path, old: str, new: str) -> None:
    pushed(config, old, new)
    held = run(config, *HOLD)
    listed = run(config, "pins")
    undone = run(config, "undo", "--last", "10m")
    freed = run(config, "unpin", "chat/replicas")

    assert [one.exit_code for one in (held, listed, undone, freed)] == [0, 0, 0, 0], held.exception
    assert "chat/replicas 4 until" in listed.stdout
    assert "nothing was changed in the last 10m" in undone.stdout
    for one in (held, listed, undone, freed):
        assert one.stderr.startswith(f"governor: {config}: does not load (1 mistake, which `governor check` tells), ")
        assert f", so the config in force is taken from the ledger {config.parent / 'ledger'}\n" in one.stderr


def test_a_pin_is_held_to_the_bounds_in_force_and_not_to_those_of_the_bad_push(config: Path) -> None:
    pushed(config, "min: 1, max: 9", "min: 1, max: 99, mx: 1")
    assert "40 is outside min 1 and max 9" in str(run(config, "pin", "chat/replicas", "40", *HOLD[3:]).exception)
    assert run(config, *HOLD).exit_code == 0
    assert CHAT in pins.read(pins.file_of(config.parent / "ledger"))


def test_a_good_config_is_taken_without_a_word_of_the_ledger(config: Path) -> None:
    config.write_text(config.read_text().replace("max: 9", "max: 8"))
    done = run(config, *HOLD)
    assert (done.exit_code, "ledger" in done.stderr) == (0, False)
    assert "9 is outside min 1 and max 8" in str(run(config, "pin", "chat/replicas", "9", *HOLD[3:]).exception)


def test_without_a_ledger_the_mistakes_of_the_config_are_all_there_is(config: Path, tmp_path: Path) -> None:
    (tmp_path / "ledger").rename(tmp_path / "elsewhere")
    said = pushed(config, "max: 9", "max: nine")
    for words in (HOLD, ("pins",), ("unpin", "chat/replicas"), ("undo", "--last", "10m")):
        assert str(run(config, *words).exception) == said
    assert not (tmp_path / "ledger").exists()
    done = governor(*HOLD, "--config", config)
    assert (done.returncode, "max: 'nine' is not" in done.stderr) == (2, True)


def test_the_mend_of_a_pin_that_cannot_be_written_is_that_of_the_reason(config: Path, tmp_path: Path) -> None:
    (tmp_path / "ledger").rename(tmp_path / "elsewhere")
    (tmp_path / "ledger").write_text("")
    path = pins.file_of(tmp_path / "ledger")
    mend = "move away the file that stands where a folder must be"
    assert str(run(config, *HOLD).exception) == f"{path}: Not a directory; {mend}"
    (tmp_path / "ledger").unlink()
    with full_disk():
        full = run(config, *HOLD)
    assert str(full.exception) == f"{path}: File too large; make room"


def test_run_reads_another_variable_than_pin(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Path, bool]] = []

    def serve(path: Path, dry_run: bool) -> int:
        asked.append((path, dry_run))
        return 0

    monkeypatch.setattr("controller.run.daemon.run", serve)
    monkeypatch.setenv("GOVERNOR_CONFIG", str(config))
    for words in (("run",), ("run", "--dry-run", "--config", "other.yaml")):
        assert CliRunner().invoke(app, words).exit_code == 0
    assert asked == [(config, False), (Path("other.yaml"), True)]


def test_a_config_that_is_not_there_is_not_looked_for_in_any_ledger(config: Path) -> None:
    """Its name was mistyped, and another Governor may be the one of the usual ledger."""
    done = run(config.with_name("governr.yaml"), *HOLD)
    assert "governr.yaml: cannot be read: No such file or directory" in str(done.exception)
