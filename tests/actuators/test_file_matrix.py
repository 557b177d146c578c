"""Everything that can break under a file that is made by a template, and what is left then."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from actuators.file import File, FileConfig
from controller.core.model import Drift, Lever, Outcome, Target
from controller.core.ports import Binding
from tests.support.decisions import decide
from tests.support.full_disk import full_disk

NOW = 1_704_067_800.0
R1 = Target("chat", Lever.WEIGHT, "r1")
OLD = '{"chat/weight/r1": 1, "note": "%s"}' % ("by somebody else " * 6)
HANGS = ("sh", "-c", "exec tail -f /dev/null", "{file}")
FAILS = (sys.executable, "-c", "import sys; sys.exit('I will not')", "{file}")


class Place:
    """The three files, and an actuator over them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.values, self.template = folder, folder / "values.json", folder / "router.j2"
        self.output = folder / "router.conf"
        self.values.write_text(OLD)
        self.template.write_text("# long enough to need a place on a disk\nr1 {{ share('chat', 'r1') }}\n")
        self.output.write_text("r1 1.0\n")
        self.config = FileConfig(
            str(self.values), template=str(self.template), output=str(self.output), quantum=0.01, timeout=0.3
        )

    def hands(self) -> File:
        return File(self.config, Binding((), scopes=(("chat", Lever.WEIGHT),)))

    def both(self) -> tuple[str, str]:
        return self.values.read_text(), self.output.read_text()

    def left_over(self) -> set[str]:
        return {path.name for path in self.folder.iterdir()} - {"values.json", "router.j2", "router.conf"}


@contextmanager
def read_only(place: Place) -> Iterator[None]:
    """Root may write everywhere, so it steps down for a while."""
    place.folder.chmod(0o555)
    root = os.geteuid() == 0
    if root:
        for path in place.folder.parents:
            if not path.stat().st_mode & 0o001:  # pytest's own folders, as many as there are above
                path.chmod(0o755)
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        place.folder.chmod(0o755)


def command(place: Place, **commands: tuple[str, ...]) -> AbstractContextManager[None]:
    place.config = replace(place.config, **commands)  # type: ignore[arg-type]
    return nullcontext()


def broken(path: Path, text: str | None) -> AbstractContextManager[None]:
    if text is None:
        path.unlink()
    else:
        path.write_text(text)
    return nullcontext()


Trouble = Callable[[Place], AbstractContextManager[None]]
# What happens, the outcome of the write, and what the file then holds: the old values or the new ones.
MATRIX: dict[str, tuple[Trouble, Outcome, str]] = {
    "nothing": (lambda p: nullcontext(), Outcome.DONE, "new"),
    "the disk is full": (lambda p: full_disk(), Outcome.FAILED, "old"),
    "the disk fills up between the two files": (lambda p: full_disk(80), Outcome.FAILED, "old"),
    "the folder is read-only": (read_only, Outcome.FAILED, "old"),
    "the file is garbage": (lambda p: broken(p.values, "{"), Outcome.FAILED, "old"),
    "the template is garbage": (lambda p: broken(p.template, "{% if %}"), Outcome.FAILED, "old"),
    "the template is gone": (lambda p: broken(p.template, None), Outcome.FAILED, "old"),
    "the check refuses": (lambda p: command(p, check=FAILS), Outcome.REFUSED, "old"),
    "the check hangs": (lambda p: command(p, check=HANGS), Outcome.FAILED, "old"),
    "the check is no program": (lambda p: command(p, check=("/nowhere", "{file}")), Outcome.REFUSED, "old"),
    "the reload fails": (lambda p: command(p, reload=FAILS), Outcome.FAILED, "old"),
    "the reload hangs": (lambda p: command(p, reload=HANGS), Outcome.UNKNOWN, "old"),
    "the reload is no program": (lambda p: command(p, reload=("/nowhere",)), Outcome.FAILED, "old"),
}


@pytest.mark.parametrize("trouble", MATRIX)
def test_whatever_breaks_the_two_files_agree_and_a_new_governor_finds_the_truth(tmp_path: Path, trouble: str) -> None:
    breaks, outcome, stands = MATRIX[trouble]
    place = Place(tmp_path)
    with breaks(place):
        before = place.both()
        (applied,) = place.hands().apply([decide(R1, 1, 0.5)], NOW)
    assert applied.outcome is outcome, applied
    assert applied.detail
    if stands == "old":
        assert place.both() == before
    else:
        assert json.loads(place.values.read_text()) == json.loads(OLD) | {"chat/weight/r1": 0.5}
        assert place.output.read_text().endswith("r1 0.5\n")
    assert place.left_over() == set()
    if trouble not in ("the file is garbage", "the template is garbage", "the template is gone"):
        (verified,) = place.hands().verify([decide(R1, 1, 0.5)], NOW)
        assert verified.outcome is (Outcome.DONE if stands == "new" else Outcome.FAILED)


def test_a_foreign_writer_is_yielded_to(tmp_path: Path) -> None:
    place = Place(tmp_path)
    one = place.hands()
    one.read([R1], NOW)
    place.values.write_text(OLD.replace(": 1,", ": 0.3,"))
    state = one.read([R1], NOW + 15)[R1]
    assert (state.accepted, state.drift) == (0.3, Drift.FOREIGN)


def test_when_every_governor_is_dead_a_value_stays_and_nothing_else_is_claimed() -> None:
    assert not any(one.expiry for one in File.describe().values())


def test_the_doctor_finds_what_would_fail_and_writes_nothing(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.config = replace(place.config, check=("/nowhere/nginx", "{file}"), reload=("no-such-program",))
    before = place.both()
    found = {(f.level, f.subject): f.text for f in place.hands().diagnose(NOW)}
    assert ("error", "check") in found
    assert ("error", "reload") in found
    assert ("warning", str(place.output)) in found
    place.template.unlink()
    place.config = replace(place.config, output=str(tmp_path / "nowhere" / "x"), check=(), reload=())
    assert {f.level for f in place.hands().diagnose(NOW)} == {"error"}
    assert place.both() == before
