"""What targets held before Governor, over reloads, full disks and months of pods that come and go."""

from pathlib import Path

import pytest

from controller.core.model import Decision, Lever, Target
from controller.core.why import Why
from controller.run import originals
from controller.run.originals import FORGET, Originals

START = 1_767_225_600.0
CHAT = Target("chat", Lever.REPLICAS)


def sent(target: Target, current: float, final: float) -> Decision:
    return Decision(target, current, final, Why.DEMAND, send=True)


def breaker(name: str) -> Target:
    return Target("chat", Lever.BREAKER, name)


def full(path: Path, known: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_reload_while_the_disk_is_full_does_not_take_governors_own_value_for_the_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = originals.file_of(tmp_path)
    before = Originals(file)
    with monkeypatch.context() as disk:
        disk.setattr(originals, "write", full)
        before.before([sent(CHAT, 4.0, 6.0)], START)
    assert "No space left" in before.problem
    after = Originals(file, before)
    assert after.problem
    after.before([sent(CHAT, 6.0, 7.0)], START + 15)
    assert not after.problem
    assert originals.read(file)[CHAT].value == 4.0


def test_a_file_mended_between_two_loops_is_read_and_not_what_the_old_one_did_not_know(tmp_path: Path) -> None:
    file = originals.file_of(tmp_path)
    file.write_text("{")
    before = Originals(file)
    assert before.problem
    file.unlink()
    assert not Originals(file, before).problem


def test_pods_of_last_month_do_not_fill_the_file(tmp_path: Path) -> None:
    file, known = originals.file_of(tmp_path), Originals(originals.file_of(tmp_path))
    known.before([sent(breaker("old"), 1.0, 0.0), sent(breaker("stays"), 1.0, 0.0)], START)
    known.before([sent(CHAT, 4.0, 5.0)], START)
    for hour in range(1, 26):  # the old pod is gone at once, the other one is decided on all the time
        at = START + 3600.0 * hour
        known.before([Decision(breaker("stays"), 0.0, 0.0, Why.STEADY)], at)
    known.before([sent(breaker("new"), 1.0, 0.0)], START + FORGET + 3600.0)
    assert set(originals.read(file)) == {CHAT, breaker("stays"), breaker("new")}


def test_a_replica_that_is_not_seen_for_an_hour_keeps_its_original(tmp_path: Path) -> None:
    file, known = originals.file_of(tmp_path), Originals(originals.file_of(tmp_path))
    known.before([sent(breaker("a"), 1.0, 0.0)], START)
    known.before([sent(breaker("b"), 1.0, 0.0)], START + 3600.0)
    known.before([sent(breaker("a"), 0.0, 0.25)], START + 3615.0)
    assert originals.read(file)[breaker("a")].value == 1.0


def test_after_a_restart_a_day_begins_anew_for_replicas_that_are_not_there_yet(tmp_path: Path) -> None:
    file = originals.file_of(tmp_path)
    Originals(file).before([sent(breaker("a"), 1.0, 0.0)], START)
    again = Originals(file)
    again.before([sent(breaker("b"), 1.0, 0.0)], START + 2 * FORGET)
    assert set(originals.read(file)) == {breaker("a"), breaker("b")}
