"""The README shows what the demo prints, and the demo is what `make demo` runs."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

from tests.support.repository import ROOT


def plain(text: str) -> str:
    return " ".join(text.split())


def test_the_readme_shows_what_the_demo_no_longer_prints(tmp_path: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    recipe = re.search(r"^\t\$\(VENV\)/bin/governor (dry-run (?:.*\\\n)*.*)$", makefile, re.MULTILINE)
    assert recipe, "the Makefile's demo does not run governor dry-run"
    report = tmp_path / "report.html"
    arguments = shlex.split(recipe[1].replace("\\\n", " ").replace("$(REPORT)", str(report)))
    done = subprocess.run(
        [sys.executable, "-c", "from controller.cli import main; main()", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "<svg" in report.read_text(encoding="utf-8")

    shown = re.search(r"From `make demo`.*?```\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert shown
    for paragraph in re.split(r"\n(?=\S)|\n\n", shown[1].strip()):
        assert plain(paragraph) in plain(done.stdout), "paste what `make demo` prints now into the README"
