"""The daemon as a real process: real signals, real files, real HTTP."""

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from controller.config import loads
from controller.run.daemon import Daemon, describe
from tests.support.lines import Program, program
from tests.support.toy_loop import ToyConfig, build, load
from tests.support.waiting import until
from tests.support.written import pool, written

ROOT = Path(__file__).parents[2]
Start = Callable[..., AbstractContextManager[Program]]


def write(path: Path, **fields: object) -> None:
    """Replaces the file in one step, as editors do."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(fields))
    new.replace(path)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "toy.json"


@pytest.fixture
def start(config: Path) -> Start:
    @contextmanager
    def start(**fields: object) -> Iterator[Program]:
        write(config, **fields)
        with program(["-m", "tests.support.toy_loop", str(config)], ROOT) as daemon:
            yield daemon

    return start


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as problem:
        with problem:
            return problem.code, problem.read().decode()


def status(port: int) -> dict[str, Any]:
    page: dict[str, Any] = json.loads(get(port, "/api/v1/status")[1])
    return page


def metric(port: int, series: str) -> float | None:
    for line in get(port, "/metrics")[1].splitlines():
        name, _, value = line.rpartition(" ")
        if name == series:
            return float(value)
    return None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_tick_cut_in_half_by_a_rollout(start: Start, number: signal.Signals) -> None:
    with start(held=[2]) as daemon:
        daemon.wait("begin", where=lambda line: line["tick"] == 2)
        daemon.process.send_signal(number)
        assert daemon.wait("stopping")["signal"] == number.name
        daemon.say("go on")
        daemon.wait("end", where=lambda line: line["tick"] == 2)
        daemon.wait("closed")
        assert daemon.end() == 0
    assert [line["tick"] for line in daemon.seen if line["event"] == "begin"] == [1, 2]


def test_a_tick_that_runs_while_we_are_stopped_still_writes(start: Start) -> None:
    with start(held=[2]) as daemon:
        daemon.wait("begin", where=lambda line: line["tick"] == 2)
        daemon.process.send_signal(signal.SIGTERM)
        daemon.wait("stopping")
        daemon.say("go on")
        daemon.wait("nothing sent")
        assert daemon.end() == 0


def test_a_tick_that_never_ends_keeps_the_process_alive(start: Start) -> None:
    """Its thread cannot be ended; a reload that waits for it must not swallow the signal either."""
    with start(held=[2], grace=0.3) as daemon:
        daemon.wait("begin", where=lambda line: line["tick"] == 2)
        daemon.process.send_signal(signal.SIGHUP)
        daemon.process.send_signal(signal.SIGTERM)
        daemon.wait("tick_abandoned")
        assert daemon.end() == 0
    assert "threads_left_behind" in {line["event"] for line in daemon.seen}


def test_whoever_asks_twice_to_stop_waits_all_the_same(start: Start) -> None:
    with start(held=[2], grace=1000.0) as daemon:
        daemon.wait("begin", where=lambda line: line["tick"] == 2)
        daemon.process.send_signal(signal.SIGTERM)
        daemon.wait("stopping")
        daemon.process.send_signal(signal.SIGTERM)
        daemon.wait("tick_abandoned")
        assert daemon.end() == 0


def pending(pid: int, number: signal.Signals) -> bool:
    """Whether a process has still to be told of a signal: the masks of Linux' proc(5)."""
    told = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line)
    return any(int(told[mask], 16) >> (number - 1) & 1 for mask in ("SigPnd", "ShdPnd"))


def test_a_storm_of_hangups_reloads_for_each_of_them(start: Start) -> None:
    with start(held=[2]) as daemon:
        daemon.wait("begin", where=lambda line: line["tick"] == 2)
        for _ in range(300):
            daemon.process.send_signal(signal.SIGHUP)
        daemon.wait("reload_asked")
        until(lambda: not pending(daemon.process.pid, signal.SIGHUP))
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait("reload_asked")  # with all of the storm behind it, in however many parts it came
        daemon.say("go on")
        first = daemon.wait("config_reloaded")
        daemon.wait("end")
        daemon.wait("end")
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.end() == 0
    assert [line for line in daemon.seen if line["event"] == "config_reloaded"] == [first]


def test_a_reload_that_failed_for_a_passing_reason_is_never_tried_again(start: Start, config: Path) -> None:
    with start(name="old") as daemon, socket.socket() as other:
        daemon.wait("begin")
        other.bind(("127.0.0.1", 0))
        other.listen()
        write(config, name="new", listen=f"127.0.0.1:{other.getsockname()[1]}")
        daemon.wait("config_rejected")
        other.close()
        daemon.wait("config_reloaded")
        daemon.wait("begin", where=lambda line: line["loop"] == "new")
    assert sum(line["event"] == "config_rejected" for line in daemon.seen) == 1


def test_a_slow_tick_that_is_caught_up_acts_twice_on_the_past(start: Start) -> None:
    with start(held=[2], interval=0.1) as daemon:
        port = daemon.wait("started")["port"]
        slow = daemon.wait("begin", where=lambda line: line["tick"] == 2)["at"]
        for _ in range(3):
            daemon.wait("ticks_missed")
        assert not [line for line in daemon.seen if line["event"] == "begin" and line["tick"] > 2], "overlapped"
        counted = metric(port, "governor_ticks_missed_total")
        assert counted is not None
        assert counted >= 3, "a tick that never ends must show while it hangs"
        daemon.say("go on")
        following = daemon.wait("begin", where=lambda line: line["tick"] == 3)["at"]
        missed = sum(line["slots"] for line in daemon.seen if line["event"] == "ticks_missed")
        assert following == pytest.approx(slow + (missed + 1) * 0.1, abs=1e-6), "each slot ran or was counted, once"


def test_a_tick_that_raises_stops_the_loop_for_good(start: Start) -> None:
    with start(crash=[2, 3]) as daemon:
        port = daemon.wait("started")["port"]
        failed = daemon.wait("tick_failed")
        assert "ArithmeticError" in failed["exception"]
        daemon.wait("tick_recovered")
        assert metric(port, "governor_tick_errors_total") == 2
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.end() == 0
    assert sum(line["event"] == "tick_failed" for line in daemon.seen) == 1, "the second failure is not news"


def test_a_source_that_fails_all_night_fills_the_disk_with_logs(start: Start) -> None:
    with start(blind=[2, 3, 4]) as daemon:
        port = daemon.wait("started")["port"]
        assert daemon.wait("source_failing")["error"] == "connection refused"
        daemon.wait("source_recovered")
        daemon.wait("begin")  # the tick that recovered is recorded
        assert metric(port, "governor_source_errors_total") == 3
    assert sum(line["event"] == "source_failing" for line in daemon.seen) == 1


def test_broken_yaml_takes_the_controller_down(start: Start, config: Path) -> None:
    with start(name="good") as daemon:
        port = daemon.wait("started")["port"]
        daemon.wait("begin")
        config.write_text("{ broken")
        assert daemon.wait("config_rejected")["problems"]
        daemon.wait("begin", where=lambda line: line["loop"] == "good")
        assert metric(port, "governor_config_valid") == 0
        assert metric(port, 'governor_config_reloads_total{result="invalid"}') == 1
        assert get(port, "/readyz")[0] == 200, "a daemon with a good config at work must stay in service"
        page = status(port)["config"]
        assert (page["valid"], page["hash"]) == (False, "hash-good")
        write(config, name="better")
        daemon.wait("config_reloaded")
        assert metric(port, "governor_config_valid") == 1
        assert status(port)["config"]["problems"] == []
    assert sum(line["event"] == "config_rejected" for line in daemon.seen) == 1, "told once, not at every look"


def test_what_is_hardly_meant_is_told_by_check_alone(start: Start, config: Path) -> None:
    """Who reloads a file seldom checks it first."""
    with start(name="good") as daemon:
        daemon.wait("begin")
        assert not [line for line in daemon.seen if line["event"] == "config_doubtful"]
        write(config, name="worse", doubts=["pools.llama.objectives: promise no latency"])
        told = daemon.wait("config_doubtful")
        assert (told["level"], told["problem"]) == ("warning", "pools.llama.objectives: promise no latency")
        daemon.wait("begin", where=lambda line: line["loop"] == "worse")
    assert sum(line["event"] == "config_doubtful" for line in daemon.seen) == 1


def test_the_daemon_has_the_doubts_of_check() -> None:
    lever = "replicas: {min: 1, max: 8, policy: {kind: capacity}}"
    (said,) = describe(loads(written(pool("chat", levers=[lever])))).doubts
    assert said.startswith("pools.chat.objectives: promise no latency, so a replica counts as good for all that")


def test_a_plug_in_that_cannot_be_built_leaves_no_loop(start: Start, config: Path) -> None:
    with start(name="good") as daemon:
        daemon.wait("begin")
        write(config, name="worse", refuses_to_build=True)
        assert daemon.wait("config_rejected")["problems"] == ["RuntimeError: this plug-in cannot be built"]
        daemon.wait("end", where=lambda line: line["loop"] == "good")


def test_a_reload_forgets_what_was_learned(start: Start, config: Path) -> None:
    with start(name="old", pools=["llama", "gone"]) as daemon:
        port = daemon.wait("started")["port"]
        last = daemon.wait("end", where=lambda line: line["tick"] == 2)["tick"]
        assert 'pool="gone"' in get(port, "/metrics")[1]
        write(config, name="new", interval=0.3)
        daemon.process.send_signal(signal.SIGHUP)
        daemon.wait("config_reloaded")
        assert 'pool="gone"' not in get(port, "/metrics")[1], "a pool that left the config must leave the exposition"
        first = daemon.wait("begin", where=lambda line: line["loop"] == "new")
        assert first["tick"] > last
        assert (round(first["at"] * 1000) % 300) == 0, "the new interval has its own slots"
        assert metric(port, "governor_interval_seconds") == 0.3
    assert [line["loop"] for line in daemon.seen if line["event"] == "closed"][:1] == ["old"]


def test_a_config_map_update_goes_unseen(tmp_path: Path) -> None:
    """Kubernetes swaps a symlink to a folder; the mounted file itself never changes."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "toy.json").write_text(json.dumps({"name": name}))
    (tmp_path / "..data").symlink_to("first")
    (tmp_path / "toy.json").symlink_to("..data/toy.json")
    with program(["-m", "tests.support.toy_loop", str(tmp_path / "toy.json")], ROOT) as daemon:
        daemon.wait("end", where=lambda line: line["loop"] == "first")
        (tmp_path / "..data_tmp").symlink_to("second")
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")
        daemon.wait("end", where=lambda line: line["loop"] == "second")


def test_a_listen_address_that_changes_or_is_taken(start: Start, config: Path) -> None:
    with start(name="here") as daemon, socket.socket() as other:
        port = daemon.wait("started")["port"]
        other.bind(("127.0.0.2", port))
        other.listen()
        write(config, name="there", listen=f"127.0.0.2:{port}")
        assert "Address already in use" in daemon.wait("config_rejected")["problems"][0]
        assert get(port, "/healthz")[0] == 200
        write(config, name="there", listen="localhost:0")
        daemon.wait("config_reloaded")
        daemon.wait("closed")
        with pytest.raises(urllib.error.URLError, match="refused"):
            get(port, "/healthz")


def test_governor_is_in_the_way_of_its_own_new_address(start: Start, config: Path) -> None:
    """From one host to all of them on the same port: the config, with all else in it, was rejected for ever."""
    with start(name="here") as daemon:
        port = daemon.wait("started")["port"]
        write(config, name="there", listen=f"0.0.0.0:{port}")
        daemon.wait("config_reloaded")
        daemon.wait("end", where=lambda line: line["loop"] == "there")
        assert get(port, "/healthz")[0] == 200
        with socket.create_connection(("127.0.0.2", port), timeout=10):
            pass
        write(config, name="worse", listen=f"localhost:{port}", refuses_to_build=True)
        assert daemon.wait("config_rejected")["problems"] == ["RuntimeError: this plug-in cannot be built"]
        with socket.create_connection(("127.0.0.2", port), timeout=10):
            pass


def test_logs_in_a_pipe_cannot_be_parsed(start: Start) -> None:
    with start() as daemon:
        daemon.wait("end")
        daemon.process.send_signal(signal.SIGTERM)
        assert daemon.end() == 0
    lines = [json.loads(text) for text in daemon.text]
    assert {"level", "timestamp", "event"} <= next(line for line in lines if line["event"] == "started").keys()


def test_a_clock_that_steps_back_makes_the_loop_relive_the_past(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(config, interval=15)
    now = [3600.0]
    monkeypatch.setattr("controller.run.daemon.time.time", lambda: now[0])
    daemon = Daemon(
        path=config, load=lambda: load(config), build=build, describe=ToyConfig.settings, version="0.0", mode="live"
    )
    for now[0] in (3600.0, 3615.2, 3614.0, 3600.5, 3602.0, 3615.3, 3630.1):
        daemon._tick()  # noqa: SLF001 - what the scheduler would call, without its clock
    daemon._face.close()  # noqa: SLF001 - it never ran
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [line["at"] for line in told if line["event"] == "begin"] == [3600.0, 3615.0, 3630.0]


def test_a_clock_that_is_set_back_by_an_hour_stops_the_controller_for_an_hour(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(config, interval=15)
    now = [7200.0]
    monkeypatch.setattr("controller.run.daemon.time.time", lambda: now[0])
    daemon = Daemon(
        path=config, load=lambda: load(config), build=build, describe=ToyConfig.settings, version="0.0", mode="live"
    )
    with capture_logs() as lines:
        for now[0] in (7200.0, 7215.2, 3615.3, 3630.1, 3645.1, 3675.0, 7230.0):
            daemon._tick()  # noqa: SLF001 - what the scheduler would call, without its clock
    daemon._face.close()  # noqa: SLF001 - it never ran
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert [line["at"] for line in told if line["event"] == "begin"] == [
        7200.0, 7215.0, 3615.0, 3630.0, 3645.0, 3675.0, 7230.0
    ]  # fmt: skip
    assert [line["event"] for line in lines].count("clock_stepped_back") == 1
    assert [line["slots"] for line in lines if line["event"] == "ticks_missed"] == [1, 236]


def test_the_scheduler_waits_for_a_clock_that_was_set_back(config: Path) -> None:
    """Its jobs are due by the wall clock, and those of before come in an hour: neither a tick nor a look at the config
    until then."""
    write(config, interval=0.05)
    daemon = Daemon(
        path=config, load=lambda: load(config), build=build, describe=ToyConfig.settings, version="0.0", mode="live",
        poll=0.05,
    )  # fmt: skip
    scheduler, loop = daemon._scheduler, daemon._loop  # noqa: SLF001 - where a clock that is set back leaves its jobs
    running = threading.Thread(target=daemon.run)
    running.start()
    until(lambda: loop.count > 1)
    for name in ("look", "tick"):
        scheduler.modify_job(name, next_run_time=datetime.now(UTC) + timedelta(hours=1))
    before = loop.count + 1  # one may have begun meanwhile
    until(lambda: loop.count > before + 1)
    write(config, name="new", interval=0.05)
    until(lambda: daemon._loop is not loop)  # noqa: SLF001
    daemon.stop()
    running.join(20)
    assert not running.is_alive()


def test_a_terminal_shows_json() -> None:
    """Readable on a terminal, without colours where NO_COLOR asks for none."""
    ours, theirs = pty.openpty()
    script = (
        "from controller.run import logs; import structlog; logs.configure(); structlog.get_logger().info('hello', a=1)"
    )
    env = os.environ | {"NO_COLOR": "1", "TERM": "xterm"}
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, stderr=theirs, env=env, check=False)
    os.close(theirs)
    with open(ours, "rb", buffering=0) as terminal:
        text = terminal.read(4096).decode()
    assert done.returncode == 0
    assert re.fullmatch(r"\S+Z \[info +\] hello +a=1\s+", text), text
