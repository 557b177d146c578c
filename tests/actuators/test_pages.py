"""The pages on actuators say what the code does, and what they show can be installed."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller import registry
from controller.cli.app import app
from controller.config import load, matrix
from controller.registry import Group
from controller.run.assembly import RunMode, assemble
from tests.support.wheels import install, wheel

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "actuators.md").read_text()
CONFIG = """
version: 1
source: {{kind: prometheus, url: "http://127.0.0.1:1"}}
ledger: {{path: {folder}/ledger}}
pools:
  jobs:
    engine: vllm
    levers:
      replicas:
        mode: auto
        min: 1
        max: 9
        policy: {{kind: threshold, signal: queue_depth, upper: 5, lower: 1}}
        actuator: {{kind: workers, folder: {folder}}}
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The third-party actuator of the page, installed as a distribution."""
    code = re.search(r"```python\n(\"\"\"Workers.*?)```", PAGE, re.DOTALL)
    entry = re.search(r"\nworkers = \"workers:Workers\"\n", PAGE)
    assert code is not None
    assert entry is not None
    target = tmp_path / "site"
    target.mkdir()
    monkeypatch.syspath_prepend(str(target))
    entries = "[governor.actuators]\nworkers = workers_plugin:Workers\n"
    install(target, wheel(tmp_path, "workers", entries, code[1]))
    yield tmp_path
    monkeypatch.undo()
    registry.refresh()


def test_the_matrix_of_the_page_is_what_the_classes_say() -> None:
    assert matrix.tables() in PAGE


@pytest.mark.parametrize("kind", registry.builtin(Group.ACTUATOR))
def test_every_target_has_a_page_that_says_what_happens_when_governor_dies(kind: str) -> None:
    page = (DOCS / "actuators" / f"{kind}.md").read_text()
    assert "Governor dies" in page
    assert f"actuators/{kind}.md" in PAGE


def test_the_actuator_of_the_page_moves_its_target(installed: Path) -> None:
    config = installed / "governor.yaml"
    config.write_text(CONFIG.format(folder=installed))
    (installed / "jobs").write_text("4")
    listed = CliRunner().invoke(app, ["actuators"])
    assert "workers replicas: unit workers" in listed.stdout

    pinned = CliRunner().invoke(
        app, ["pin", "jobs/replicas", "6", "--for", "1h", "--reason", "test", "--config", str(config)]
    )
    assert pinned.exit_code == 0, pinned.exception
    loop = assemble(load(config), mode=RunMode.LIVE)
    try:
        loop.tick(time.time())
    finally:
        loop.close()
    assert (installed / "jobs").read_text() == "6"


def test_a_broken_target_of_the_page_is_told_and_stops_nothing(installed: Path) -> None:
    config = installed / "governor.yaml"
    config.write_text(CONFIG.format(folder=installed))
    loop = assemble(load(config), mode=RunMode.LIVE)
    try:
        (state,) = loop.tick(time.time()).snapshot.targets.values()
    finally:
        loop.close()
    assert "write a number there" in state.error
