"""The README shows what the demo prints, and the demo is what `make demo` runs."""

import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.repository import ROOT

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
NEAR = 0.15  # other builds of numpy draw other crowds


def run(target: str, report: Path) -> subprocess.CompletedProcess[str]:
    """What the Makefile's target runs, with the report elsewhere."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(rf"^{target}:.*\n(?:\t@.*\n)*\t\$\(VENV\)/bin/governor ((?:.*\\\n)*.*)$", makefile, re.MULTILINE)
    assert recipe, f"the Makefile's {target} does not run governor"
    words = re.sub(r"\$\((REPORT|REHEARSAL)\)", str(report), recipe[1].replace("\\\n", " "))
    return subprocess.run(
        [sys.executable, "-c", "from controller.cli import main; main()", *shlex.split(words)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def plain(text: str) -> str:
    return " ".join(text.split())


def close(shown: str, printed: str) -> bool:
    """The same words, and numbers that are near: a README whose demo has become another is told from one that was
    pasted on another computer."""
    if NUMBER.sub("#", plain(shown)) != NUMBER.sub("#", plain(printed)):
        return False
    pairs = zip(NUMBER.findall(shown), NUMBER.findall(printed), strict=True)
    numbers = [(float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in pairs]
    return all(abs(a - b) <= max(NEAR * max(a, b), 8.0 if max(a, b) < 60 else 0.0) for a, b in numbers)


def test_the_readme_shows_what_the_demo_no_longer_prints(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run("demo", report)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert "<svg" in report.read_text(encoding="utf-8")
    assert f"Report: {report}" in done.stdout
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert seconds < 60, "the demo is to take less than a minute, on one core too"

    shown = re.search(r"From `make demo`.*?```\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert shown
    printed = done.stdout.splitlines()
    first = re.match(r"(.*?)\n\.\.\.\n", shown[1], re.DOTALL)
    assert first
    assert close(first[1], printed[0]), "paste the first decision that `make demo` prints now into the README"
    for line in shown[1][first.end() :].strip().splitlines():
        assert not line or any(close(line, one) for one in printed), f"paste what `make demo` prints now: {line}"


def test_the_rehearsal_of_a_real_recording_still_runs(tmp_path: Path) -> None:
    report = tmp_path / "report.html"
    done = run("rehearse", report)
    assert done.returncode == 0, done.stderr
    assert "<svg" in report.read_text(encoding="utf-8")
    assert "capacity asked 7 (the queue must be worked off" in done.stdout


@pytest.mark.parametrize(("shown", "printed"), [("a 100 b", "a 90 c"), ("a 100 b", "a 80 b"), ("a 1", "a 1 2")])
def test_a_stale_line_is_told_from_a_near_one(shown: str, printed: str) -> None:
    assert not close(shown, printed)
    assert close("a 100 b 1,000", "a  95 b 990")
