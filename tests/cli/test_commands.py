"""The command line as a person and a pipe meet it: exit codes, messages that name the mend, and no traceback, ever."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.cli import main
from controller.cli.app import app
from controller.config import loads
from tests.support.cli import COMMAND, ROOT, environment, governor, on_terminal

DEMO = ROOT / "examples" / "demo.yaml"
RECORDING = ROOT / "examples" / "recordings" / "vllm-0.32-cpu-1s.jsonl.gz"
COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3\d|4\d|9\d)[;m]")


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ledger of a rehearsal of the shipped recording."""
    place = tmp_path_factory.mktemp("rehearsal") / "ledger"
    done = governor("dry-run", "-c", DEMO, "-r", RECORDING, "--ledger", place)
    assert done.returncode == 0, done.stderr
    return place


def test_where_no_script_is_installed_the_module_is_a_package_that_cannot_be_run() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "controller.cli", "--version"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stdout) == (0, governor("--version").stdout)


def refused(done: subprocess.CompletedProcess[str]) -> str:
    """Assert wrong input: exit 2, a message, nothing on standard output."""
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    return done.stderr


# --- wrong input ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("dry-run", "-c", DEMO), "give --recording FILE or --prometheus URL, or a config whose source"),
        (("dry-run", "-c", DEMO, "-r", RECORDING, "--prometheus", "http://x"), "give only one"),
        (("dry-run", "-c", "/nowhere.yaml", "-r", RECORDING), "/nowhere.yaml: cannot be read"),
        (("dry-run", "-c", DEMO, "-r", "/nowhere.gz"), "/nowhere.gz: cannot be read"),
        (("dry-run", "-c", DEMO, "-r", RECORDING, "--step", "15"), "--step: 15 has no unit|--step: '15' has no unit"),
        (("dry-run", "-c", DEMO, "--prometheus", "http://x", "--from", "noon"), "--from: 'noon' is not a time"),
        (("dry-run", "-c", DEMO, "--prometheus", "http://x", "--from", "1h", "--to", "2h"), "the range is empty"),
        (("dry-run", "-c", DEMO, "--prometheus", "x"), "does not begin with http"),
        (
            ("dry-run", "-c", DEMO, "-r", RECORDING, "--report", "/proc/x/r.html"),
            "--report .*: cannot be written",
        ),
        (("explain", "/nowhere"), "no ledger at /nowhere"),
        (("replay", "/nowhere"), "no ledger at /nowhere"),
        (("test", "/nowhere.yaml"), "/nowhere.yaml: cannot be read"),
        (("import", "/nowhere.txt", "-o", "/tmp/never.gz"), "/nowhere.txt: cannot be read"),
        (("import", "a.txt", "b.txt", "-o", "/tmp/never.gz"), "CSV tables need --mapping"),
        (("import", DEMO, "-o", "/tmp/never.gz", "-l", "pod"), "--label pod: write name=value"),
        (("import", DEMO, "-o", "/tmp/never.gz", "-l", "my pod=a"), "'my pod' is not a label name; use letters"),
        (("import", DEMO, "-o", "/tmp/never.gz", "-l", "pod=a", "-l", "pod=b"), "pod is given twice"),
        (("doctor",), "give --config FILE"),
        (("doctor", "-e", "/nowhere"), "/nowhere: cannot be read"),
        (("init",), "give either --exposition"),
        (("check", ROOT), "cannot be read"),
        (("run", "-c", "/nowhere.yaml"), "/nowhere.yaml: cannot be read"),
        (("fly",), "No such command 'fly'"),
        (("dry-run", "--recording"), "requires an argument"),
    ],
)
def test_wrong_input_is_told_with_its_place_and_exits_2(
    words: tuple[str | Path, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["governor", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    said = capsys.readouterr()
    assert ended.value.code == 2, said
    assert said.out == ""
    assert re.search(message, said.err)


def test_check_names_every_mistake_at_once(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(DEMO.read_text().replace("interval: 5s", "interval: 5").replace("max: 8", "max: -1"))
    said = refused(governor("check", file))
    assert re.search(r"bad\.yaml:\d+: interval: ", said)
    assert re.search(r"bad\.yaml:\d+: pools\.tiny-llama\.levers\.replicas\.max: ", said)


def test_a_name_between_colons_is_no_picture(tmp_path: Path) -> None:
    """Who reads `no ledger at /tmp/a❌b` looks for a file that is not there."""
    absent = tmp_path / "a:x:b:100:"
    assert f"{absent}" in refused(governor("explain", absent))
    copy = tmp_path / "demo:x:.yaml"
    copy.write_text(DEMO.read_text())
    assert "demo:x:.yaml: good" in governor("check", copy).stdout
    assert "demo:x:.yaml: good" in on_terminal("check", copy)


def test_check_looks_at_all_files_even_when_one_is_wrong(tmp_path: Path) -> None:
    done = governor("check", tmp_path / "absent.yaml", DEMO)
    assert done.returncode == 2
    assert "absent.yaml: cannot be read" in done.stderr
    assert "demo.yaml: good" in done.stdout


def test_check_says_that_a_lever_has_nothing_to_act_with() -> None:
    done = governor("check", DEMO)
    assert done.returncode == 0
    assert "demo.yaml: good: 1 pool, 2 objectives, 1 lever" in done.stdout
    assert "pools.tiny-llama.levers.replicas.actuator: is missing" in done.stderr


def test_a_truncated_recording_is_told_and_not_rehearsed(tmp_path: Path) -> None:
    torn = tmp_path / "torn.jsonl.gz"
    torn.write_bytes(RECORDING.read_bytes()[:-5_000])
    assert "torn.jsonl.gz: damaged" in refused(governor("dry-run", "-c", DEMO, "-r", torn))


def test_a_recording_with_a_line_that_cannot_be_is_no_verdict_with_a_footnote(tmp_path: Path) -> None:
    odd = tmp_path / "odd.jsonl"
    lines = gzip.decompress(RECORDING.read_bytes()).decode().splitlines()
    at = json.loads(lines[59])["t"]
    odd.write_text("\n".join([*lines[:59], json.dumps({"t": at, "set": [[9999], [1]]}), *lines[60:], ""]))
    said = refused(governor("dry-run", "-c", DEMO, "-r", odd))
    assert "odd.jsonl: damaged in line 60 (series 9999 was never declared), after 58 good frames" in said


def test_the_mend_that_is_told_for_a_damaged_recording_works_as_it_is_told(tmp_path: Path) -> None:
    torn, config = tmp_path / "torn.jsonl.gz", tmp_path / "governor.yaml"
    torn.write_bytes(RECORDING.read_bytes()[:-5_000])
    source = f"source: {{kind: recording, path: {torn}, damaged: true}}"
    config.write_text(re.sub(r"(?m)^source: .*$", source, DEMO.read_text()))
    said = refused(governor("dry-run", "-c", DEMO, "-r", torn))
    assert "or write `source: {kind: recording, path: FILE, damaged: true}` in the config" in said

    for words in ((), ("-r", torn)):
        done = governor("dry-run", "-c", config, *words)
        assert done.returncode == 0, done.stderr
        assert "ticks" in done.stdout


def test_a_recording_of_another_fleet_is_not_a_quiet_success(tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(DEMO.read_text().replace("tiny-llama-random", "another-model"))
    said = refused(governor("dry-run", "-c", other, "-r", RECORDING))
    assert "nothing could be read at any of" in said
    assert "matches the selector of any pool; its labels are" in said


def test_something_that_is_no_recording_is_told(tmp_path: Path) -> None:
    assert "is not a recording" in refused(governor("dry-run", "-c", DEMO, "-r", DEMO))


def test_a_page_that_is_html_is_not_diagnosed() -> None:
    assert "markup" in refused(governor("doctor", "-e", "-", text="<html><body>404</body></html>"))


def test_a_packed_page_is_read_and_a_torn_one_is_told(tmp_path: Path) -> None:
    page = tmp_path / "page.prom.gz"
    page.write_bytes(gzip.compress(b'vllm:num_requests_waiting{model_name="chat"} 0\n'))
    assert "vllm:num_requests_waiting" in governor("doctor", "-e", page).stdout
    page.write_bytes(page.read_bytes()[:-9])
    assert "page.prom.gz: is damaged gzip" in refused(governor("doctor", "-e", page))


def test_a_prometheus_that_is_not_there_is_told() -> None:
    said = refused(governor("dry-run", "-c", DEMO, "--prometheus", "http://127.0.0.1:9", "--from", "5m"))
    assert "127.0.0.1:9" in said


# --- dry-run -------------------------------------------------------------------------------------------------------


def test_dry_run_says_what_it_would_have_done_and_that_the_past_does_not_answer(tmp_path: Path) -> None:
    report = tmp_path / "build" / "report.html"
    done = governor("dry-run", "-c", DEMO, "-r", RECORDING, "--report", report)
    assert done.returncode == 0
    assert done.stderr == "", "a pipe wants no progress"
    assert "\x1b" not in done.stdout
    assert re.search(r"tiny-llama/replicas 1 → 2 \(recorded 1\): capacity asked 2 \(", done.stdout)
    assert "The past does not answer back" in done.stdout
    assert "replicas: recorded " in done.stdout
    assert f"Report: {report}" in done.stdout
    assert report.read_text().startswith("<!doctype html>")


def test_json_is_json_on_every_line_and_nothing_else(tmp_path: Path) -> None:
    done = governor("dry-run", "-c", DEMO, "-r", RECORDING, "--json", "--report", tmp_path / "r.html")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["type"] for line in lines[:-1]} == {"tick"}
    assert lines[-1]["type"] == "summary"
    assert lines[-1]["ticks"] == len(lines) - 1
    assert all(line["decisions"] for line in lines[:-1]), "every target gets a decision every tick"
    assert "Report: " in done.stderr


def test_step_sets_the_distance_of_ticks() -> None:
    done = governor("dry-run", "-c", DEMO, "-r", RECORDING, "--step", "30s", "--json")
    times = [json.loads(line)["at"] for line in done.stdout.splitlines()[:-1]]
    assert times[1] - times[0] == 30


def test_a_terminal_gets_a_table_and_no_color_is_obeyed() -> None:
    shown = on_terminal("dry-run", "-c", DEMO, "-r", RECORDING)
    assert "time (UTC)" in shown
    assert COLOUR.search(shown)
    plain = on_terminal("dry-run", "-c", DEMO, "-r", RECORDING, extra={"NO_COLOR": "1"})
    assert "time (UTC)" in plain
    assert not COLOUR.search(plain)


def test_check_tells_what_is_hardly_meant_and_passes(tmp_path: Path) -> None:
    text = (ROOT / "examples" / "minimal.yaml").read_text(encoding="utf-8")
    file = tmp_path / "governor.yaml"
    file.write_text(text.replace("{min: 1,", "{pin: {value: 2, until: 2020-01-01T00:00:00Z, reason: fair}, min: 1,"))

    done = governor("check", file)

    assert done.returncode == 0
    assert "levers.replicas.pin: ended at 2020-01-01T00:00Z and holds nothing any more; remove it" in done.stderr


# --- ledger --------------------------------------------------------------------------------------------------------


def test_explain_tells_the_newest_tick_as_a_sentence_and_its_outcome(ledger: Path) -> None:
    done = governor("explain", ledger, "--last", "200", "--changes")
    assert re.search(
        r"^2026-11-29 \d\d:\d\d:\d\d tiny-llama/replicas 1 → 2: capacity asked 2 \(", done.stdout, re.MULTILINE
    )
    assert "    not sent (dry run)" in done.stdout
    assert len(governor("explain", ledger).stdout.splitlines()) <= 2


def test_the_headline_of_a_dry_run_does_not_read_as_done(tmp_path: Path) -> None:
    """ "raises tiny-llama/replicas 1 → 2" above "not sent (dry run)"."""
    text, place = DEMO.read_text(encoding="utf-8"), tmp_path / "ledger"
    pool = text[text.index("  tiny-llama:") :]
    config = tmp_path / "two.yaml"
    silent = pool.replace("  tiny-llama:", "  silent:", 1).replace("tiny-llama-random", "nobody")
    config.write_text(text + silent, encoding="utf-8")
    assert governor("dry-run", "-c", config, "-r", RECORDING, "--ledger", place).returncode == 0

    told = governor("explain", place, "--last", "200").stdout
    assert "dry run, so nothing of this is sent: raises tiny-llama/replicas 1 → 2" in told
    assert not re.search(r"\d\d raises", told)


def test_explain_at_a_time_takes_the_tick_before_it(ledger: Path) -> None:
    line = json.loads(governor("explain", ledger, "--at", "2026-11-29T14:47:00Z", "--json").stdout)
    assert 1_795_963_615 <= line["at"] <= 1_795_963_620
    assert line["target"] == "tiny-llama/replicas"
    assert line["outcome"] in ("dry_run", None)


def test_explain_as_a_table_shows_who_asked_and_the_evidence(ledger: Path) -> None:
    done = governor("explain", ledger, "--last", "200", "--changes", "--table")
    assert re.search(r"capacity\s+1\s+2\s+", done.stdout)
    assert "evidence: " in done.stdout
    still = governor("explain", ledger, "--last", "200", "--table").stdout
    assert "  nothing needs to change\n" in still, "and no bare code such as steady"
    assert "  steady\n" not in still


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--pool", "nobody"), "no such pool in these records; there are tiny-llama"),
        (
            ("-p", "tiny-llama", "-t", "big/replicas"),
            "--pool tiny-llama: --target big/replicas is not of this pool; ",
        ),
        (("-p", "tiny-llama", "-t", "tiny-llama/x"), "--target tiny-llama/x: no such target in these records; "),
        (("--at", "2020-01-01"), "the ledger begins later"),
        (("--at", "soon"), "is not a time"),
    ],
)
def test_explaining_what_is_not_there_is_refused(ledger: Path, words: tuple[str, ...], message: str) -> None:
    assert message in refused(governor("explain", ledger, *words))


@pytest.mark.parametrize("command", [("explain", "--last", "500"), ("replay",)])
@pytest.mark.parametrize("part", [0.0, 0.6])
def test_a_damaged_ledger_shows_what_is_left_of_it_and_is_no_success(
    ledger: Path, tmp_path: Path, command: tuple[str, ...], part: float
) -> None:
    """Nothing at all was shown, and the exit code was zero."""
    (whole,) = ledger.glob("*.ledger.gz")
    data = whole.read_bytes()
    at = int(len(data) * part)
    broken = tmp_path / whole.name
    broken.write_bytes(data[:at] + b"garbage" * bool(part) + data[at + 7 :] * bool(part))

    done = governor(command[0], tmp_path, *command[1:])

    assert done.returncode == 2
    assert str(broken) in done.stderr
    assert "Traceback" not in done.stderr
    assert bool(done.stdout) is bool(part)


@pytest.mark.parametrize("command", [("explain", "--last", "500"), ("replay",)])
def test_a_ledger_that_was_cut_shows_what_is_left_of_it_and_where_it_ends(
    ledger: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (whole,) = ledger.glob("*.ledger.gz")
    cut = tmp_path / whole.name
    cut.write_bytes(whole.read_bytes()[: whole.stat().st_size // 2])

    done = governor(command[0], tmp_path, *command[1:])

    assert done.returncode == 2
    assert done.stdout
    assert re.search(r"ends in the middle of a record, after \d+ lines;.* \d+ ticks of it were read", done.stderr)


def test_a_replay_with_the_same_config_reproduces_every_plan(ledger: Path) -> None:
    for config in ((), ("-c", DEMO)):  # the config is in the ledger, too
        done = governor("replay", ledger, *config)
        assert done.returncode == 0, done.stdout + done.stderr
        ticks = re.match(r"(\d+) of (\d+) plans came out equal", done.stdout)
        assert ticks is not None
        assert ticks[1] == ticks[2] != "0"


def test_a_replay_with_another_config_shows_the_first_difference_and_exits_1(ledger: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    other.write_text(DEMO.read_text().replace("min: 1", "min: 3"))
    done = governor("replay", ledger, "-c", other)
    assert done.returncode == 1
    assert "The first difference, at 2026-11-29 14:" in done.stdout
    assert re.search(r"recorded: .* tiny-llama/replicas", done.stdout)
    assert "the configured minimum raised it to 3" in done.stdout
    assert "not the one that the ledger was made with" in done.stdout


# --- the rest ------------------------------------------------------------------------------------------------------


def test_policy_tests_pass_or_exit_1(tmp_path: Path) -> None:
    example = ROOT / "examples" / "policy_test.yaml"
    done = governor("test", example)
    assert done.returncode == 0, done.stdout
    assert re.fullmatch(r"\d+ passed, 0 failed\n", done.stdout)
    broken = tmp_path / "policy_test.yaml"
    text = example.read_text().replace("current: 2, final: 2", "final: 7")
    broken.write_text(text.replace("config: minimal.yaml", f"config: {ROOT / 'examples' / 'minimal.yaml'}"))
    done = governor("test", broken)
    assert done.returncode == 1
    assert "FAIL" in done.stdout
    assert "final    expected 7, got 2" in done.stdout


def test_schema_is_json_schema_and_version_is_said() -> None:
    assert json.loads(governor("schema").stdout)["type"] == "object"
    said = governor("version").stdout
    assert re.match(r"governor \d+\.\d+", said)
    assert governor("--version").stdout == said


def test_import_makes_a_recording_that_can_be_rehearsed(tmp_path: Path) -> None:
    scrapes = tmp_path / "scrapes.txt"
    scrapes.write_text(
        "".join(
            f'# SCRAPE {1767225600 + 15 * i}\nvllm:num_requests_waiting{{model_name="chat"}} {i}\n' for i in range(9)
        )
    )
    made = tmp_path / "made.jsonl.gz"
    done = governor("import", scrapes, "-o", made, "-l", "pod=chat-0")
    assert done.returncode == 0, done.stderr
    assert "9 frames over 2m" in done.stdout
    minimal = ROOT / "examples" / "minimal.yaml"
    assert governor("dry-run", "-c", minimal, "-r", made).returncode == 0


def test_doctor_on_a_pasted_page_names_metrics_and_targets_between_buckets() -> None:
    page = "\n".join(
        [
            "# TYPE vllm:time_to_first_token_seconds histogram",
            *(
                f'vllm:time_to_first_token_seconds_bucket{{model_name="chat",le="{le}"}} 3'
                for le in (1.0, 2.0, 5.0, "+Inf")
            ),
            'vllm:time_to_first_token_seconds_count{model_name="chat"} 3',
            'vllm:num_requests_waiting{model_name="chat"} 0\n',
        ]
    )
    minimal = ROOT / "examples" / "minimal.yaml"
    done = governor("doctor", "-e", "-", "-c", minimal, text=page)
    assert "vllm:time_to_first_token_seconds" in done.stdout
    assert "lies between two buckets" in done.stdout
    assert "2 s and 5 s are exact" in done.stdout
    data = json.loads(governor("doctor", "-e", "-", "-c", minimal, "--json", text=page).stdout)
    assert data["engine"] == "vllm"
    assert any("between two buckets" in one["text"] for one in data["findings"])


def test_init_gives_a_config_that_loads_and_does_not_overwrite(tmp_path: Path) -> None:
    page = "".join(
        f'{name}{{model_name="chat",engine="0"}} 0\n'
        for name in ("vllm:num_requests_waiting", "vllm:num_requests_running")
    )
    made = tmp_path / "governor.yaml"
    done = governor("init", "-e", "-", "-o", made, text=page)
    assert done.returncode == 0, done.stderr
    assert loads(made.read_text()).pools
    assert "exists" in refused(governor("init", "-e", "-", "-o", made, text=page))


def test_every_command_has_help_that_names_it() -> None:
    listed = governor("--help").stdout
    names = re.findall(r"^  ([a-z][a-z-]*) {2,}\S", listed, re.MULTILINE)
    assert {"run", "dry-run", "test", "explain", "replay", "doctor", "init", "check"} <= set(names)
    for name in names:
        shown = CliRunner().invoke(app, [name, "--help"], prog_name="governor")
        assert shown.exit_code == 0
        assert f"governor {name}" in shown.stdout
        assert "..." not in listed.split(name, 1)[1].splitlines()[0], "a short help that is cut off"


def test_ctrl_c_ends_cleanly(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with (
        subprocess.Popen(
            [*COMMAND, "doctor", "-e", str(pipe)], stderr=subprocess.PIPE, text=True, env=environment()
        ) as process,
        pipe.open("w"),
    ):  # opens when the command reads, so it is at work
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said


def test_a_reader_that_leaves_early_causes_no_traceback() -> None:
    with subprocess.Popen(
        [*COMMAND, "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read()
    assert said == ""


@pytest.mark.parametrize("command", ["init", "doctor"])
def test_a_page_that_is_none_is_refused_with_the_name_of_its_file(command: str, tmp_path: Path) -> None:
    page = tmp_path / "page.txt"
    page.write_text("interval: 5s\n")
    assert f"{page}: line 1: " in refused(governor(command, "-e", page))
    page.write_text("")
    assert f"{page}: there is no metric in this text; give what /metrics" in refused(governor(command, "-e", page))
