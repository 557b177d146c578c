"""What a command writes: looked at before the work, and never over what is no file."""

import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sources.recording_file import Header, RecordingError, RecordingWriter
from tests.support.cli import COMMAND, ROOT, environment, governor

DEMO = ROOT / "examples" / "demo.yaml"
RECORDING = ROOT / "examples" / "recordings" / "vllm-0.32-cpu-1s.jsonl.gz"


def refused(*words: str | Path, text: str = "") -> str:
    done = governor(*words, text=text)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


COMMANDS = {
    "import": ("import", DEMO, "--output"),
    "record": ("record", "-c", DEMO, "--prometheus", "http://127.0.0.1:9", "--output"),
    "dry-run": ("dry-run", "-c", DEMO, "-r", RECORDING, "--report"),
    "init": ("init", "-e", "/nowhere", "--force", "--output"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_device_or_a_pipe_is_not_replaced_by_a_file(command: str, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for target in (pipe, Path("/dev/full")):
        assert f"{target}: is a device or a pipe" in refused(*COMMANDS[command], target)
        assert not stat.S_ISREG(target.stat().st_mode)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("place", "message"), [("/proc/x.gz", "cannot be written"), (".", "is a folder"), ("", "is a folder")]
)
def test_what_cannot_be_written_is_told_before_the_work(command: str, place: str, message: str) -> None:
    said = refused(*COMMANDS[command], place)
    assert message in said
    assert re.search(r"; name a file", said)


def test_what_is_read_is_not_written_over(tmp_path: Path) -> None:
    config = tmp_path / "demo.yaml"
    config.write_text(DEMO.read_text())
    for words in (
        ("dry-run", "-c", config, "-r", RECORDING, "--report", config),
        ("import", config, "-o", config),
        ("record", "-c", config, "-o", config),
    ):
        assert "demo.yaml: is read by the same command" in refused(*words)
    assert config.read_text() == DEMO.read_text()


def test_the_writer_itself_replaces_no_device() -> None:
    with pytest.raises(RecordingError, match="is not a plain file"):
        RecordingWriter(Path("/dev/null"), Header("series", 15.0))


def test_a_recording_that_cannot_be_finished_leaves_no_half_file(tmp_path: Path) -> None:
    target = tmp_path / "made.gz"
    with (
        pytest.raises(RecordingError, match=r"made\.gz: cannot be written"),
        RecordingWriter(target, Header("series", 15.0)),
    ):
        target.mkdir()  # meanwhile somebody took the name
    assert [one.name for one in tmp_path.iterdir()] == ["made.gz"]


def test_two_runs_do_not_share_a_ledger(tmp_path: Path) -> None:
    (tmp_path / "00000000001-1.ledger.gz").write_bytes(b"")
    assert "holds a ledger already" in refused("dry-run", "-c", DEMO, "-r", RECORDING, "--ledger", tmp_path)
    assert "--ledger: is empty" in refused("dry-run", "-c", DEMO, "-r", RECORDING, "--ledger", "")
    assert "is not a folder" in refused("dry-run", "-c", DEMO, "-r", RECORDING, "--ledger", DEMO)


@pytest.mark.parametrize("words", [("schema",), ("version",), ("explain", "--help")])
def test_a_full_disk_behind_standard_output_is_told_as_that(words: tuple[str, ...]) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [*COMMAND, *words],
            stdout=full, stderr=subprocess.PIPE, text=True, env=environment(), check=False, timeout=60,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "governor: standard output: No space left on device; what was printed is not complete\n"


def test_ctrl_c_while_the_program_is_still_loading_is_no_traceback() -> None:
    # The first import of ours that is heavy waits until the signal has come.
    waiting = (
        "import sys, builtins; own = builtins.__import__\n"
        "def slow(name, *rest):\n"
        "    if name.startswith('controller.cli.app'): print('loading', flush=True); sys.stdin.read()\n"
        "    return own(name, *rest)\n"
        "builtins.__import__ = slow\n"
        "from controller.cli import main; main()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", waiting],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "loading\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT  # 130 to a shell
    assert said == ""


@pytest.mark.parametrize("words", [("schema",), ("check", str(DEMO))], ids=lambda words: words[0])
def test_a_pipe_into_head_is_told_as_a_no(words: tuple[str, ...]) -> None:
    """Exit code 1 is for an answer; a script with `pipefail` took a config that is good for one that is not."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as gone:
        done = subprocess.run(
            [*COMMAND, *words], stdout=gone, stderr=subprocess.PIPE, text=True, env=environment(), check=False
        )
    assert done.returncode == 141
    assert "Traceback" not in done.stderr
