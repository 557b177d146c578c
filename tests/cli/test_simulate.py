"""`governor simulate` as people and scripts use it: a terminal, a pipe, a wrong file, Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.cli import COMMAND, environment, governor, on_terminal
from tests.support.scenarios import SMALL, changed, written
from tests.support.waiting import until


@pytest.fixture(scope="module")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("scenario"))


@pytest.fixture(scope="module")
def piped(scenario: Path) -> subprocess.CompletedProcess[str]:
    return governor("simulate", scenario, "--seeds", "1", "--report", scenario.parent / "report.html")


def test_in_a_pipe_each_decision_is_a_line_and_the_scoreboard_ends_it(
    piped: subprocess.CompletedProcess[str], scenario: Path
) -> None:
    assert piped.returncode == 0, piped.stderr
    assert piped.stderr == ""
    assert "\x1b" not in piped.stdout
    lines = piped.stdout.splitlines()
    assert re.match(r"0\d:\d\d chat/replicas 1 → 2: capacity asked", lines[0])
    head = next(line for line in lines if "no controller" in line)
    assert head.split() == ["Governor", "no", "controller", "cheapest", "static", "hpa", "oracle"]
    attained = next(line for line in lines if line.startswith("attained"))
    assert len(re.findall(r"[\d.]+ %", attained)) == 5
    assert len(attained) == len(head)
    assert lines[-1].startswith(f"Report: {scenario.parent / 'report.html'} (")
    assert "times the GPU-hours of the oracle" in piped.stdout


def test_the_report_stands_alone_and_has_the_plots(piped: subprocess.CompletedProcess[str], scenario: Path) -> None:
    page = (scenario.parent / "report.html").read_text(encoding="utf-8")
    assert not re.search(r'(src|href)="http|url\(', page)
    for words in ("Scoreboard", "no controller", "replicas that are paid for", "time to first token", "capacity asked"):
        assert words in page
    assert page.count('class="mark up"') > 1
    assert "nan" not in re.sub(r"<script>.*</script>", "", page, flags=re.DOTALL).lower().replace("governance", "")


def test_json_is_one_object_and_nothing_else(scenario: Path) -> None:
    done = governor("simulate", scenario, "--json", "--cores", "2")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = json.loads(done.stdout)
    assert found["seeds"] == [1, 2]
    assert set(found["contenders"]) == {"governor", "none", "static", "hpa", "oracle"}
    mine = found["contenders"]["governor"]
    assert mine["measures"]["attained"]["count"] == 2
    assert [run["seed"] for run in mine["runs"]] == [1, 2]
    assert mine["runs"][0]["changes"][0]["why"]


def test_the_ledger_of_a_simulated_run_is_explained_and_replayed_like_any_other(tmp_path: Path) -> None:
    alone = changed(SMALL, "against", {"none": False, "static": False, "oracle": False})
    ledger = tmp_path / "ledger"
    done = governor("simulate", written(tmp_path, alone), "--seeds", "2", "--ledger", ledger)
    assert done.returncode == 0, done.stderr
    first = done.stdout.splitlines()[0].partition(" chat/replicas ")[2]
    told = governor("explain", ledger, "--last", "100", "--changes")
    assert first.partition(":")[0] in told.stdout
    replayed = governor("replay", ledger)
    assert replayed.returncode == 0, replayed.stdout
    again = governor("simulate", written(tmp_path, alone), "--seeds", "1", "--ledger", ledger)
    assert again.returncode == 2
    assert "holds a ledger already" in again.stderr


def test_on_a_terminal_the_run_is_seen_as_it_goes_and_the_screen_is_left_clean(scenario: Path) -> None:
    shown = on_terminal("simulate", scenario, "--seeds", "1", "--cores", "2")
    assert "all runs" in shown
    assert "attained so far" in shown
    assert "ready," in shown
    end = shown[shown.rindex("small: seed 1") :]
    assert "cheapest static" in end
    assert shown.count("\x1b[?25l") == shown.count("\x1b[?25h") > 0  # the cursor is shown again


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--seeds", "0"], "greater than or equal to 1"),
        (["--cores", "many"], "valid integer"),
        (["--config", "/nowhere/governor.yaml"], "/nowhere/governor.yaml: cannot be read"),
        (["--report", "/proc/report.html"], "--report /proc/report.html: cannot be written"),
        (["--report", "/tmp"], "--report /tmp: is a folder"),
    ],
)
def test_wrong_options_are_told_before_anything_runs(scenario: Path, words: list[str], told: str) -> None:
    done = governor("simulate", scenario, *words)
    assert done.returncode == 2
    assert told in " ".join(done.stderr.replace("│", " ").split())
    assert done.stdout == ""


def test_wrong_files_are_told_with_line_path_and_mend(tmp_path: Path) -> None:
    assert "cannot be read" in governor("simulate", tmp_path / "none.yaml").stderr
    done = governor("simulate", written(tmp_path, changed(SMALL, "duration", "6")))
    assert done.returncode == 2
    assert re.search(r"small.yaml:\d+: duration: '6' has no unit; write 6s", done.stderr)
    report = written(tmp_path)
    assert "is read by the same command" in governor("simulate", report, "--report", report).stderr
    empty = tmp_path / "empty.yaml"
    empty.touch()
    assert "the file is empty; docs/simulating.md begins with one" in governor("simulate", empty).stderr


def test_a_lever_that_only_observes_is_pointed_out(tmp_path: Path) -> None:
    idle = changed(SMALL, "governor.pools.chat.levers.replicas.mode", "observe")
    idle = changed(idle, "against", {"static": False, "oracle": False})
    file = written(tmp_path, idle)
    done = governor("simulate", file, "--seeds", "2", "--cores", "2")
    assert done.returncode == 0
    place = f"{file}: governor.pools.chat.levers.replicas"
    assert done.stderr == f"governor: {place}: mode observe moves nothing; write mode: auto to see it act\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_ends_when_told_to_and_leaves_no_worker_behind(tmp_path: Path, number: int, code: int) -> None:
    long = changed(changed(SMALL, "duration", "20h"), "seeds", 4)
    with subprocess.Popen(
        [*COMMAND, "simulate", str(written(tmp_path, long)), "--cores", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert "chat/replicas" in process.stdout.readline()  # it is in the middle of it
        began = time.monotonic()
        process.send_signal(number)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # else the test waits for it, too
            raise
        assert time.monotonic() - began < 20
        assert process.returncode == code
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert gone(process.pid)


def ended(process: subprocess.Popen[str], within: float) -> tuple[int, str]:
    """How a command ended that was told to, and what it said; one that does not is killed with its workers."""
    try:
        _, said = process.communicate(timeout=within)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)  # else the test waits for it, too
        raise
    return process.returncode, said


def workers(parent: int) -> list[int]:
    """The worker processes of a command that import what they will need, or have done so."""
    listed = Path(f"/proc/{parent}/task/{parent}/children").read_text(encoding="ascii").split()
    own = [one for one in listed if b"spawn_main" in Path(f"/proc/{one}/cmdline").read_bytes()]  # no fork on its way
    return [int(one) for one in own if b"_multiarray_umath" in Path(f"/proc/{one}/maps").read_bytes()]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_ctrl_c_while_workers_still_import_is_no_traceback_of_each(tmp_path: Path, number: int, code: int) -> None:
    """A terminal sends it to all processes, and `timeout` does so with SIGTERM; the workers were said to have died of
    too little memory."""
    with subprocess.Popen(
        [*COMMAND, "simulate", str(written(tmp_path, changed(SMALL, "duration", "20h"))), "--cores", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True,
    ) as process:  # fmt: skip
        until(lambda: bool(workers(process.pid)), 60.0)
        os.killpg(process.pid, number)
        assert ended(process, 30.0) == (code, "")
    assert gone(process.pid)


@contextmanager
def stuck(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A command whose worker is in a step without end."""
    said = folder / "asked"
    peer = {"kind": "tests.support.stuck:Stuck", "said": str(said)}
    file = written(folder, changed(SMALL, "against", {"static": False, "oracle": False, "peers": {"stuck": peer}}))
    with subprocess.Popen(
        [*COMMAND, "simulate", str(file), "--cores", "2", "--seeds", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True,
    ) as process:  # fmt: skip
        until(said.exists, 60.0)
        yield process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_worker_that_does_not_look_up_is_not_waited_for(tmp_path: Path, number: int, code: int) -> None:
    with stuck(tmp_path) as process:
        process.send_signal(number)
        assert ended(process, 30.0) == (code, "")
    assert gone(process.pid)


def test_a_worker_that_was_killed_is_told_as_such(tmp_path: Path) -> None:
    with stuck(tmp_path) as process:
        os.kill(workers(process.pid)[0], signal.SIGKILL)
        code, told = ended(process, 30.0)
    assert code == 2
    assert "a worker was killed, most likely for want of memory; use --cores 1, or a shorter scenario" in told
    assert gone(process.pid)


def test_workers_do_not_outlive_a_command_that_was_killed(tmp_path: Path) -> None:
    long = changed(changed(SMALL, "duration", "20h"), "seeds", 4)
    with subprocess.Popen(
        [*COMMAND, "simulate", str(written(tmp_path, long)), "--cores", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment(), start_new_session=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert "chat/replicas" in process.stdout.readline()
        process.kill()
    assert gone(process.pid)


def gone(group: int, patience: float = 15.0) -> bool:
    """Whether no process of the group is left; the dead ones are waited for, as init takes its time to bury them."""
    wait, end = threading.Event(), time.monotonic() + patience
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        wait.wait(0.1)
    return False
