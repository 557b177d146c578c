"""Disasters of a file that another program reads."""

import errno
import json
import os
import select
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml
from structlog.testing import capture_logs

from actuators.file import File, FileConfig
from controller.core.model import Applied, Decision, Outcome, Target
from controller.core.ports import Binding
from controller.explain import explain
from controller.run.loop import TickResult
from controller.run.narrate import Narrator
from controller.run.samples import counted, of_tick
from controller.run.settings import Settings
from tests.loop.test_failures import loop
from tests.support.decisions import decide, replicas

NOW = 1_704_067_800.0
LLAMA, QWEN = replicas("llama"), replicas("qwen")
OLD = '{"llama/replicas": 4, "qwen/replicas": 2}'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.json"
    path.write_text(OLD)
    return path


def hands(path: Path, *targets: Target, **config: Any) -> File:
    return File(FileConfig(path=str(path), **config), Binding(targets or (LLAMA, QWEN)))


def apply_one(file: File, decision: Decision) -> Applied:
    (applied,) = file.apply([decision], NOW)
    return applied


def shell(script: str) -> tuple[str, ...]:
    return (sys.executable, "-c", script)


# --- a half-written file -----------------------------------------------------------------------------------------


def test_a_full_disk_leaves_the_old_file_intact(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", no_space)
    applied = apply_one(hands(path), decide(LLAMA, 4, 6))
    assert applied.outcome is Outcome.FAILED
    assert "No space left" in applied.detail
    assert path.read_text() == OLD
    assert list(path.parent.iterdir()) == [path]


def test_a_directory_that_cannot_be_written_leaves_the_old_file_intact(tmp_path: Path) -> None:
    # A directory under a file that is no directory cannot be written by root either, unlike one without w bits.
    blocker = tmp_path / "blocker"
    blocker.write_text("")
    applied = apply_one(hands(blocker / "fleet.json", initial=4.0), decide(LLAMA, 4, 6))
    assert applied.outcome is Outcome.FAILED
    missing = apply_one(hands(tmp_path / "nowhere" / "fleet.json", initial=4.0), decide(LLAMA, 4, 6))
    assert missing.outcome is Outcome.FAILED
    assert "No such file" in missing.detail


def test_a_read_only_directory_leaves_the_old_file_intact() -> None:
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path, whose parents are closed to the user we become
        path = Path(folder) / "fleet.json"
        path.write_text(OLD)
        path.parent.chmod(0o555)
        with nobody():
            applied = apply_one(hands(path), decide(LLAMA, 4, 6))
        assert applied.outcome is Outcome.FAILED
        assert "Permission denied" in applied.detail
        assert path.read_text() == OLD


@contextmanager
def nobody() -> Iterator[None]:
    """Root may write everywhere, so it steps down for a while."""
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)


def test_a_reader_never_sees_half_a_file(path: Path) -> None:
    with path.open() as reader:
        apply_one(hands(path), decide(LLAMA, 4, 6))
        assert reader.read() == OLD
    assert json.loads(path.read_text())["llama/replicas"] == 6


def test_a_batch_is_one_write(path: Path) -> None:
    outcomes = hands(path).apply([decide(LLAMA, 4, 6), decide(QWEN, 3, 1)], NOW)
    assert [a.outcome for a in outcomes] == [Outcome.FAILED, Outcome.FAILED]
    assert "qwen/replicas was changed" in outcomes[0].detail
    assert path.read_text() == OLD


# --- other people's work -----------------------------------------------------------------------------------------


def test_keys_permissions_and_links_of_others_survive(path: Path) -> None:
    path.write_text('{"llama/replicas": 4, "note": {"by": "alice"}}')
    path.chmod(0o640)
    link = path.with_name("link.json")
    link.symlink_to(path)
    assert apply_one(hands(link), decide(LLAMA, 4, 6)).outcome is Outcome.DONE
    assert link.is_symlink()
    assert json.loads(path.read_text()) == {"llama/replicas": 6, "note": {"by": "alice"}}
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_hand_edit_is_seen_and_yielded_to_and_a_touch_is_not(path: Path) -> None:
    file = hands(path)
    file.read([LLAMA, QWEN], NOW)
    path.touch()
    path.write_text(OLD + "\n\n")
    assert file.read([LLAMA], NOW + 15)[LLAMA].foreign_writer == ""
    path.write_text(OLD.replace("4", "9"))
    states = file.read([LLAMA, QWEN], NOW + 30)
    assert states[LLAMA].accepted == 9
    assert states[LLAMA].foreign_writer == f"uid {os.getuid()}"
    assert states[QWEN].foreign_writer == ""


def test_our_own_write_is_not_a_hand_edit(path: Path) -> None:
    file = hands(path)
    file.read([LLAMA], NOW)
    apply_one(file, decide(LLAMA, 4, 6))
    state = file.read([LLAMA], NOW + 15)[LLAMA]
    assert (state.accepted, state.foreign_writer, state.last_change) == (6, "", NOW)


def test_an_edit_after_our_read_is_not_overwritten(path: Path) -> None:
    file = hands(path)
    file.read([LLAMA], NOW)
    path.write_text(OLD.replace("4", "9"))
    assert apply_one(file, decide(LLAMA, 4, 3)).outcome is Outcome.FAILED
    assert json.loads(path.read_text())["llama/replicas"] == 9


# --- a file that makes no sense ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "content"),
    [
        ("json", b"{"), ("json", b"[1]"), ("json", b"\xff\xfe"), ("json", b'{"llama/replicas": NaN}'),
        ("yaml", b"a: [1"), ("yaml", b"- 1"), ("yaml", b"1: 2"), ("lines", b"nothing here"),
    ],
)  # fmt: skip
def test_a_broken_file_is_unreadable_and_never_replaced(path: Path, form: str, content: bytes) -> None:
    path.write_bytes(content)
    file = hands(path, format=form)
    state = file.read([LLAMA], NOW)[LLAMA]
    assert state.accepted is None
    assert form in state.error
    assert apply_one(file, decide(LLAMA, 4, 6)).outcome is Outcome.FAILED
    assert file.verify([decide(LLAMA, 4, 6)], NOW)[0].outcome is Outcome.UNKNOWN
    assert path.read_bytes() == content


@pytest.mark.parametrize("value", ['"4"', "true", "null", "[4]"])
def test_what_is_no_number_is_unreadable(path: Path, value: str) -> None:
    path.write_text(f'{{"llama/replicas": {value}}}')
    state = hands(path).read([LLAMA], NOW)[LLAMA]
    assert state.accepted is None
    assert "set initial" in state.error


def test_a_file_that_is_not_there_yet_has_the_initial_value(tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    assert hands(path).read([LLAMA], NOW)[LLAMA].accepted is None
    file = hands(path, initial=1.0)
    assert file.read([LLAMA], NOW)[LLAMA].accepted == 1
    assert apply_one(file, decide(LLAMA, 1, 3)).outcome is Outcome.DONE
    assert file.read([LLAMA], NOW)[LLAMA].accepted == 3


@pytest.mark.parametrize("value", [6, 1_234_567, 0.125])
@pytest.mark.parametrize("form", ["json", "yaml", "lines"])
def test_no_form_loses_digits_or_strangers(path: Path, form: str, value: float) -> None:
    path.write_text({"json": '{"v": "1.10"}', "yaml": "v: '1.10'", "lines": "# fleet\nv: 1.10\n"}[form])
    file = hands(path, format=form, initial=0.0, quantum=0.125)
    assert apply_one(file, decide(LLAMA, 0, value)).outcome is Outcome.DONE
    assert file.read([LLAMA], NOW)[LLAMA].accepted == value
    text = path.read_text()
    assert "1.10" in text
    if form != "lines":
        assert yaml.safe_load(text) == {"v": "1.10", "llama/replicas": value}


# --- the reload command ------------------------------------------------------------------------------------------


def test_a_refused_reload_puts_the_old_file_back(path: Path) -> None:
    file = hands(path, reload=shell("import sys; sys.exit('bad directive')"))
    applied = apply_one(file, decide(LLAMA, 4, 6))
    assert applied.outcome is Outcome.FAILED
    assert "bad directive" in applied.detail
    assert path.read_text() == OLD
    assert file.read([LLAMA], NOW)[LLAMA].foreign_writer == ""


def test_a_refused_reload_of_a_new_file_takes_it_away_again(tmp_path: Path) -> None:
    path = tmp_path / "new.json"
    applied = apply_one(hands(path, initial=4.0, reload=("/nonexistent/reload",)), decide(LLAMA, 4, 6))
    assert applied.outcome is Outcome.FAILED
    assert not path.exists()


def test_a_hung_reload_is_ended_with_its_children_and_unknown(path: Path, tmp_path: Path) -> None:
    ends = tmp_path / "pipe"
    os.mkfifo(ends)
    reader = os.open(ends, os.O_RDONLY | os.O_NONBLOCK)
    script = (
        f"import subprocess as s; s.Popen(['sh', '-c', 'exec 3>{ends}; echo x >&3; read forever'], stdin=-1).wait()"
    )
    file = hands(path, timeout=0.5, reload=shell(script))
    applied = apply_one(file, decide(LLAMA, 4, 6))
    assert applied.outcome is Outcome.UNKNOWN
    assert os.read(reader, 9) == b"x\n"
    assert select.select([reader], [], [], 5.0)[0] == [reader]  # the grandchild that held the pipe open is gone
    assert os.read(reader, 9) == b""
    os.close(reader)


def test_what_a_hung_reload_never_brought_into_force_passes_for_done_for_ever(path: Path, tmp_path: Path) -> None:
    """With the new value in the file, `verify` would call it done, and nothing would ever reload again."""
    loaded, once = tmp_path / "loaded", tmp_path / "once"
    reload = f"""
import pathlib, shutil, threading
once = pathlib.Path({str(once)!r})
if not once.exists():
    once.touch()
    threading.Event().wait()
shutil.copy({str(path)!r}, {str(loaded)!r})
"""
    file = hands(path, timeout=0.5, reload=shell(reload))
    file.read([LLAMA], NOW)
    decision = decide(LLAMA, 4, 6)
    assert apply_one(file, decision).outcome is Outcome.UNKNOWN
    assert file.read([LLAMA], NOW)[LLAMA].foreign_writer == ""
    assert file.verify([decision], NOW)[0].outcome is Outcome.FAILED
    assert apply_one(file, decision).outcome is Outcome.DONE
    assert loaded.read_text() == path.read_text() != OLD


def test_the_reload_command_gets_no_shell_and_no_secrets(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBHOOK_KEY", "hunter2")
    out = tmp_path / "out"
    script = f"import os, sys, json; open({str(out)!r}, 'w').write(json.dumps([sys.argv[1:], dict(os.environ)]))"
    assert apply_one(hands(path, reload=(*shell(script), "$(id)", "; rm")), decide(LLAMA, 4, 6)).outcome is Outcome.DONE
    arguments, environment = json.loads(out.read_text())
    assert arguments == ["$(id)", "; rm"]
    assert "hunter2" not in environment.values()


def test_nothing_is_reloaded_when_nothing_changes(path: Path) -> None:
    applied = apply_one(hands(path, reload=("/nonexistent/reload",)), decide(LLAMA, 4, 4))
    assert applied.outcome is Outcome.DONE


@pytest.mark.parametrize(("min_interval", "due"), [(60.0, 4), (75.0, 5), (100.0, 7), (140.0, 10)])
def test_a_protection_waits_long_after_the_pause_between_two_reloads(path: Path, min_interval: float, due: int) -> None:
    """What came too early counted as failures in a row: 75 seconds became 120, and 140 became 240."""
    want = {"llama": 5.0}
    made = loop({"llama/replicas": hands(path, min_interval=min_interval)}, want)
    made.tick(NOW)
    want["llama"] = 9.0
    ticks = [made.tick(NOW + 15 * number).applied[0] for number in range(1, due + 1)]
    assert [one.outcome for one in ticks] == [*[Outcome.FAILED] * (due - 1), Outcome.DONE]
    assert json.loads(path.read_text())["llama/replicas"] == 9
    assert {one.detail for one in ticks[:-1]} == {f"not written: reloads are {min_interval:g} s apart at least"}


def test_a_write_that_is_put_off_is_shown_as_failed(path: Path) -> None:
    """GovernorWritesFailing called somebody in the night, for a file that was as it should be."""
    want = {"llama": 5.0}
    made = loop({"llama/replicas": hands(path, min_interval=60.0)}, want)
    made.tick(NOW)
    want["llama"] = 9.0
    early = made.tick(NOW + 15)
    want["llama"] = 5.0  # nothing is wanted any more
    after = made.tick(NOW + 30)

    assert shown(early) == {"waits"}
    assert explain(early.plan, early.applied)[-1] == "    put off: not written: reloads are 60 s apart at least"
    assert after.applied == ()
    assert shown(after) == {"done"}, "of the newest write that was tried"
    with capture_logs() as lines:
        narrator = Narrator(structlog.get_logger())
        for one in (early, after):
            narrator.ticked(one)
    assert [line["event"] for line in lines if line["event"] != "decision"] == []
    assert counted(early)["outcomes_total", ("llama", "replicas", "waits")] == 1


def shown(tick: TickResult) -> set[str]:
    """The outcome labels of what a tick exposes."""
    settings = Settings(15.0, 10.0, "127.0.0.1:0", "", levers={"llama": {}})
    return {labels[-1] for name, labels, _ in of_tick(tick, settings.pools) if name == "target_outcome"}


def test_a_reload_that_fails_is_forgiven_by_the_pause_after_it(path: Path) -> None:
    """What waits says nothing of the target: failures go on being counted from where they were."""
    made = loop({"llama/replicas": hands(path, min_interval=60.0, reload=("false",))}, {"llama": 5.0})
    told = [made.tick(NOW + 15 * number).applied[0] for number in range(9)]
    assert [number for number, one in enumerate(told) if one.detail.endswith("was put back")] == [0, 4, 8]
    assert "2 failures in a row" in told[5].detail


def test_a_relative_path_is_refused() -> None:
    with pytest.raises(ValueError, match="path: is relative"):
        FileConfig(path="fleet.json")


def test_a_file_that_vanished_pulls_the_fleet_down_to_the_initial_value(path: Path) -> None:
    """A restart on a fresh volume: the file is gone, its reader still runs with what it read."""
    file = hands(path, initial=1.0)
    assert not file.read([LLAMA], NOW)[LLAMA].assumed
    path.unlink()
    state = file.read([LLAMA], NOW + 15)[LLAMA]
    assert (state.accepted, state.assumed, state.foreign_writer) == (1.0, True, "")

    remembered = decide(LLAMA, 4, 5)
    assert apply_one(file, remembered).outcome is Outcome.DONE, "the loop starts from what it remembers, not from 1"
    assert json.loads(path.read_text()) == {"llama/replicas": 5}
    path.unlink()
    assert file.verify([remembered], NOW)[0].outcome is Outcome.FAILED
