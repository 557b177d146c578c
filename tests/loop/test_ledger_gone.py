"""The ledger's folder goes while Governor runs: by a wrong rm, by a mv, by a volume that is taken away. No write fails
then, and all that is recorded goes with it."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from controller.config import loads
from controller.core.model import Lever, Pin, Target
from controller.run import lock, originals, pins
from controller.run.assembly import RunMode, assemble
from controller.run.ledger import LedgerError, ledger_files, read_ledger
from controller.run.loop import ControlLoop
from tests.support.lines import program
from tests.support.nothing import Nothing

ROOT = Path(__file__).parents[2]
START = 1_767_225_600.0
CHAT = Target("chat", Lever.REPLICAS)
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
        mode: auto
        min: 1
        max: 9
        policy: {{kind: capacity}}
        actuator: {{kind: file, path: {folder}/values.json, initial: 2}}
"""


def life(folder: Path, previous: ControlLoop | None = None) -> ControlLoop:
    config = loads(CONFIG.format(folder=folder))
    return assemble(config, mode=RunMode.LIVE, source=Nothing(), previous=previous)


@pytest.fixture
def log() -> Iterator[list[EventDict]]:
    """What is logged, whoever configured where logs go."""
    with capture_logs() as lines:
        yield lines


def told(log: list[EventDict], event: str) -> list[EventDict]:
    """The lines that tell of it."""
    return [line for line in log if line["event"] == event]


def removed(folder: Path) -> None:
    shutil.rmtree(folder)


def moved(folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


def replaced(folder: Path) -> None:
    """Another folder is there now, as when a volume is mounted over it."""
    moved(folder)
    folder.mkdir()


def emptied(folder: Path) -> None:
    for file in ledger_files(folder):
        file.unlink()


@pytest.mark.parametrize("went", [removed, moved, replaced, emptied])
def test_records_go_into_a_folder_that_is_no_longer_there(
    tmp_path: Path, went: Callable[[Path], None], log: list[EventDict]
) -> None:
    folder = tmp_path / "ledger"
    loop = life(tmp_path)
    assert [loop.tick(START + at).ledger_ok for at in (0, 15)] == [True, True]
    went(folder)
    assert [loop.tick(START + at).ledger_ok for at in (30, 45, 60)] == [False, True, True]
    loop.close()
    assert [record.at - START for record in read_ledger(folder)] == [45, 60]
    (gone,) = told(log, "ledger_full")
    words = "was removed or moved away while it was written, with all that was in it; a new file is begun as soon"
    assert words in str(gone)
    assert len(told(log, "ledger_writable_again")) == 1


def test_a_file_in_the_place_of_the_folder_is_told_once_and_waited_for(tmp_path: Path, log: list[EventDict]) -> None:
    folder = tmp_path / "ledger"
    loop = life(tmp_path)
    loop.tick(START)
    moved(folder)
    folder.write_text("not a folder")
    assert not any(loop.tick(START + at).ledger_ok for at in (15, 30, 45))
    assert len(told(log, "ledger_full")) == 1
    assert folder.read_text() == "not a folder"
    folder.unlink()
    assert loop.tick(START + 60).ledger_ok
    loop.close()
    assert [record.at - START for record in read_ledger(folder)] == [60]


def test_a_new_process_takes_over_from_the_folder_that_was_begun_anew(tmp_path: Path) -> None:
    loop = life(tmp_path)
    loop.tick(START)
    removed(tmp_path / "ledger")
    for at in (15, 30, 45):
        loop.tick(START + at)
    loop.close()
    (first, *_) = read_ledger(tmp_path / "ledger")
    assert first.states is not None
    assert first.config is not None
    after = life(tmp_path)
    assert after.state.guards
    after.close()


def test_nobody_else_writes_into_the_folder_that_was_made_again(tmp_path: Path) -> None:
    """The lock went with the old one."""
    folder = tmp_path / "ledger"
    loop = life(tmp_path)
    loop.tick(START)
    removed(folder)
    loop.tick(START + 15)
    loop.tick(START + 30)
    with program(["-m", "tests.support.ledger_holder", str(folder)], ROOT) as other:
        other.wait("taken")
    second = life(tmp_path, loop)  # a reload still shares it
    loop.close()
    second.tick(START + 45)
    with program(["-m", "tests.support.ledger_holder", str(folder)], ROOT) as other:
        other.wait("taken")
    second.close()
    lock.release(lock.acquire(folder))


def test_another_governor_was_quicker_in_the_new_folder(tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    loop = life(tmp_path)
    loop.tick(START)
    moved(folder)
    with program(["-m", "tests.support.ledger_holder", str(folder)], ROOT) as other:
        other.wait("holding")
        assert not any(loop.tick(START + at).ledger_ok for at in (15, 30, 45))
        assert ledger_files(folder) == []
        other.process.kill()
        other.end()
    assert loop.tick(START + 60).ledger_ok
    loop.close()


def test_pins_that_went_with_the_folder_end_without_a_word(tmp_path: Path, log: list[EventDict]) -> None:
    folder = tmp_path / "ledger"
    loop = life(tmp_path)
    with pins.edit(pins.file_of(folder)) as entries:
        entries[CHAT] = pins.Entry(Pin(5.0, START + 3600, "launch"), START)
    loop.tick(START)
    removed(folder)
    for at in (15, 30, 45):
        loop.tick(START + at)
    (line,) = told(log, "pins_removed")
    assert "chat/replicas" in line["ended"]
    with pins.edit(pins.file_of(folder)) as entries:
        entries[CHAT] = pins.Entry(Pin(5.0, START + 3600, "launch"), START)
    loop.tick(START + 60)
    assert told(log, "pins_there_again")
    loop.close()


def test_unpinning_the_last_is_no_loss(tmp_path: Path, log: list[EventDict]) -> None:
    loop = life(tmp_path)
    for at in (0.0, 15.0):
        with pins.edit(pins.file_of(tmp_path / "ledger")) as entries:
            if at:
                entries.clear()
            else:
                entries[CHAT] = pins.Entry(Pin(5.0, START + 3600, "launch"), START)
        loop.tick(START + at)
    assert not told(log, "pins_removed")
    loop.close()


def test_what_was_there_before_governor_is_not_forgotten_with_the_folder(tmp_path: Path) -> None:
    """What would be found at the next write is Governor's own."""
    folder = tmp_path / "ledger"
    (tmp_path / "values.json").write_text(json.dumps({"chat/replicas": 2}))
    with_pin = life(tmp_path)
    with pins.edit(pins.file_of(folder)) as entries:
        entries[CHAT] = pins.Entry(Pin(5.0, START + 3600, "launch"), START)
    with_pin.tick(START)
    kept = originals.read(originals.file_of(folder))
    assert kept[CHAT].value == 2
    removed(folder)
    with_pin.tick(START + 15)
    with_pin.tick(START + 30)
    assert originals.read(originals.file_of(folder)) == kept
    with_pin.close()


def test_a_file_in_the_place_of_the_folder_has_a_mend_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_text("x")
    with pytest.raises(LedgerError) as found:
        life(tmp_path)
    assert str(found.value) == (
        f"ledger {tmp_path / 'ledger'}: Not a directory; move away the file that stands where a folder must be, or set "
        "ledger.path"
    )
    assert os.listdir(tmp_path) == ["ledger"]
