"""The import contracts hold, and each of them bites."""

import configparser
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository import PACKAGES, ROOT


def lint_imports(where: Path, contract: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()", "--no-logo"]
    command += ["--no-cache", *(["--contract", contract] if contract else [])]
    return subprocess.run(command, cwd=where, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("house")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, where / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", where)
    return where


# room that is entered by the wrong door, the import, the contract that must notice
TRESPASSES = [
    ("controller/core", "import time", "pure"),
    ("controller/core", "import logging", "pure"),
    ("controller/core", "import pydantic", "pure"),
    ("policies", "import random", "pure"),
    ("policies", "import sources", "wings"),
    ("actuators", "import sources", "wings"),
    ("sources", "import controller.config", "wings"),
    ("actuators", "import controller.run", "wings"),
    ("controller/run", "import sources", "built-ins-by-entry-point"),
    ("controller/core", "import controller.config", "spine"),
    ("controller/config", "import controller.run", "spine"),
    ("controller/run", "import apscheduler", "apscheduler"),
    ("sources", "import prometheus_api_client", "prometheus-client"),
    ("controller/run", "import kubernetes", "kubernetes"),
    ("controller/run", "import grpc", "grpc"),
    ("controller/run", "import simulator", "built-ins-by-entry-point"),
    ("simulator", "import sources", "worlds"),
    ("simulator", "import controller.run", "wings"),
    ("simulator/front", "import time", "virtual-time"),
    ("routing", "import simulator", "routing"),
    ("routing", "import controller.core", "routing"),
    ("routing", "import random", "pure"),
]


@pytest.mark.parametrize(("room", "line", "contract"), TRESPASSES, ids=lambda value: value.replace("import ", ""))
def test_a_contract_that_never_bites_guards_nothing(copy: Path, room: str, line: str, contract: str) -> None:
    planted = copy / room / "zz_planted.py"
    planted.write_text(f"{line}\n", encoding="utf-8")
    try:
        done = lint_imports(copy, contract)
    finally:
        planted.unlink()
    assert done.returncode == 1, done.stdout + done.stderr
    assert "BROKEN" in done.stdout


def test_an_arrow_turned_round_goes_unnoticed_for_years(copy: Path) -> None:
    done = lint_imports(copy)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_new_room_stands_outside_the_contracts() -> None:
    """The spine contract is exhaustive by itself; the list of rooms closed to the wings must name them all too."""
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    rooms = {
        f"controller.{path.stem}"
        for path in (ROOT / "controller").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    } - {"controller.__init__", "controller.core"}
    top = contracts["importlinter:contract:wings"]["layers"].strip().splitlines()[0]
    closed = {name.strip(" ()") for name in top.split(":")}
    assert rooms <= closed, f"add to the first line of the wings contract: {sorted(rooms - closed)}"
