"""The range of a rehearsal, and recordings whose clock cannot be believed."""

import gzip
import json
import re
from pathlib import Path

import pytest

from tests.support.cli import ROOT, governor

DEMO = ROOT / "examples" / "demo.yaml"
RECORDING = ROOT / "examples" / "recordings" / "vllm-0.32-cpu-1s.jsonl.gz"
FROM, TO = "2026-11-29T14:46:30Z", "2026-11-29T14:48:30Z"


def test_a_range_cuts_the_recording() -> None:
    done = governor("dry-run", "-c", DEMO, "-r", RECORDING, "--json", "--from", FROM, "--to", TO)
    assert done.returncode == 0, done.stderr
    ticks = [json.loads(line) for line in done.stdout.splitlines()[:-1]]
    assert 1_795_963_590 <= ticks[0]["at"] < 1_795_963_595
    assert 1_795_963_700 < ticks[-1]["at"] <= 1_795_963_710
    # What was counted before the range is not a burst in its first tick.
    whole = governor("dry-run", "-c", DEMO, "-r", RECORDING, "--json", "--from", "2026-11-29T14:46:25Z")
    assert json.loads(whole.stdout.splitlines()[0])["at"] < ticks[0]["at"]


@pytest.mark.parametrize(("since", "until"), [("2020-01-01", "2020-01-02"), ("2026-12-24", None)])
def test_a_range_without_frames_tells_when_the_recording_is(since: str, until: str | None) -> None:
    done = governor("dry-run", "-c", DEMO, "-r", RECORDING, "--from", since, *(("--to", until) if until else ()))
    assert done.returncode == 2
    assert "has nothing of the range asked for; it is from 2026-11-29T14:45:58" in done.stderr


def test_what_a_config_hardly_means_is_said_as_of_when_it_was_recorded(tmp_path: Path) -> None:
    """Only `check` told it, so who rehearsed first took a fleet that was held by nothing for one that was pinned."""
    said = {}
    for until in ("2026-11-29T14:00Z", "2026-11-29T20:00Z"):  # both have ended by now, and the recording is between
        file = tmp_path / "pinned.yaml"
        pin = f"mode: auto\n        pin: {{value: 2, reason: sale, until: '{until}'}}"
        file.write_text(DEMO.read_text(encoding="utf-8").replace("mode: auto", pin), encoding="utf-8")
        done = governor("dry-run", "-c", file, "-r", RECORDING)
        assert done.returncode == 0, done.stderr
        said[until] = f"{file}: pools.tiny-llama.levers.replicas.pin: ended at" in done.stderr
    assert said == {"2026-11-29T14:00Z": True, "2026-11-29T20:00Z": False}


def with_time(tmp_path: Path, change: dict[int, float]) -> Path:
    """The shipped recording with other times in some of its lines."""
    lines = gzip.decompress(RECORDING.read_bytes()).splitlines(keepends=True)
    for number, added in change.items():
        line = json.loads(lines[number])
        lines[number] = json.dumps(line | {"t": line["t"] + added}).encode() + b"\n"
    made = tmp_path / "made.jsonl.gz"
    made.write_bytes(gzip.compress(b"".join(lines)))
    return made


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({50: -3600.0}, r"damaged in line 51 \(time does not move forward\)"),
        ({50: 30.0}, r"damaged in line 52 \(time does not move forward\)"),
        ({-1: 90 * 86400.0}, r"nothing was recorded between 2026-11-29 .* and 2027-02-27 .*--from or --to"),
        ({-1: 1e15}, "no unix seconds"),
    ],
)
def test_a_clock_gone_wrong_is_not_rehearsed(tmp_path: Path, change: dict[int, float], message: str) -> None:
    done = governor("dry-run", "-c", DEMO, "-r", with_time(tmp_path, change))
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.search(message, done.stderr), done.stderr
