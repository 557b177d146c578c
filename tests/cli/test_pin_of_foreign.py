"""A pin of what somebody else has set does nothing for a while, and whoever pins at night must be told."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from actuators.memory import Memory
from controller.cli.app import app
from controller.config import GovernorConfig, loads
from controller.run.assembly import RunMode, assemble
from controller.run.loop import ControlLoop
from tests.support.nothing import Nothing

START = 1_767_225_600.0  # 2026-01-01
CONFIG = """
version: 1
source: {{kind: prometheus, url: "http://127.0.0.1:1"}}
ledger: {{path: {folder}/ledger}}
pools:
  chat:
    engine: vllm
    selector: {{model_name: chat}}
    objectives: [{{signal: ttft, percentile: p99, target: 2500ms}}]
    levers:
      replicas:
        mode: {mode}
        min: 1
        max: 9
        policy: {{kind: capacity}}
        actuator: {{kind: file, path: {folder}/values.json, initial: 2, yield_for: 10m}}
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path, "auto")


def written(folder: Path, mode: str) -> Path:
    path = folder / "governor.yaml"
    path.write_text(CONFIG.format(folder=folder, mode=mode))
    return path


def life(path: Path) -> ControlLoop:
    config: GovernorConfig = loads(path.read_text())
    return assemble(config, mode=RunMode.LIVE, source=Nothing())


def by_hand(path: Path, value: int) -> None:
    (path.parent / "values.json").write_text(json.dumps({"chat/replicas": value}))


def pin(path: Path, monkeypatch: pytest.MonkeyPatch, at: float, value: str = "7") -> Result:
    monkeypatch.setattr("controller.cli.commands_pin.time.time", lambda: START + at)
    done = CliRunner().invoke(
        app, ["pin", "chat/replicas", value, "--for", "2h", "--reason", "night", "--config", str(path)]
    )
    assert done.exit_code == 0, done.exception
    return done


def seen(path: Path, *, until: int = 120) -> None:
    """Two minutes of a Governor, after the first of which a person writes 3, and 4 half a minute later."""
    by_hand(path, 2)
    loop = life(path)
    for at in range(0, until + 1, 15):
        if at in (60, 90):
            by_hand(path, 3 if at == 60 else 4)
        loop.tick(START + at)
    loop.close()


def test_a_pin_of_what_somebody_wrote_by_hand_is_accepted_without_a_word(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen(path)
    told = pin(path, monkeypatch, 125)
    assert "chat/replicas pinned at 7" in told.stdout
    (line,) = told.stderr.splitlines()
    assert line.startswith("governor: chat/replicas: ")
    assert line.endswith(
        " has set it, and it is left at 4 until 2026-01-01 00:11:30 UTC, longer if they write it again; the pin acts "
        "after that"
    )
    loop = life(path)  # what was seen before a restart is not remembered, so the pin is obeyed
    (made,) = loop.tick(START + 135).plan.decisions
    loop.close()
    assert made.final == 7


def test_the_pin_does_nothing_for_as_long_as_was_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_hand(path, 2)
    loop = life(path)
    loop.tick(START)
    by_hand(path, 4)
    loop.tick(START + 90)
    assert "until 2026-01-01 00:11:30 UTC" in pin(path, monkeypatch, 100).stderr
    finals = {at: loop.tick(START + at).plan.decisions[0].final for at in (105, 675, 690)}
    loop.close()
    assert finals == {105: 4, 675: 4, 690: 7}


def test_what_is_over_or_wanted_anyway_is_no_warning(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen(path)
    assert pin(path, monkeypatch, 691).stderr == ""
    assert pin(path, monkeypatch, 125, "4").stderr == ""


def test_a_file_begun_since_does_not_make_the_time_longer(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen(path)
    assert "until 2026-01-01 00:11:30 UTC" in pin(path, monkeypatch, 125).stderr
    monkeypatch.setattr("controller.run.ledger._KEY_EVERY", 2)
    for file in (path.parent / "ledger").glob("*.ledger.gz"):
        file.unlink()
    seen(path)
    assert len(list((path.parent / "ledger").glob("*.ledger.gz"))) > 3
    assert "until 2026-01-01 00:11:30 UTC" in pin(path, monkeypatch, 125).stderr


def test_who_owns_a_target_for_good_has_no_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An autoscaler that is bound to it is told for as long as it is there."""
    path.write_text(path.read_text().replace("yield_for: 10m", "yield_for: 1m"))
    monkeypatch.setattr("actuators.file.actuator.Memory", lambda _: Memory(3600.0))
    seen(path, until=300)
    assert (
        " has set it, and it is left at 4 while they go on with it; the pin acts after"
        in pin(path, monkeypatch, 305).stderr
    )


def test_of_a_lever_that_only_observes_the_mode_is_told_alone(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen(path)
    written(tmp_path, "observe")
    (line,) = pin(path, monkeypatch, 125).stderr.splitlines()
    assert "the lever is in mode observe, so the pin is not sent" in line
