"""Where the repository is, and what git says belongs to it."""

import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("controller", "sources", "policies", "actuators", "routing", "simulator", "dashboards")


@cache
def tracked() -> tuple[Path, ...]:
    """The files of the repository, relative to its root. Skips where there is no git checkout (an sdist)."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"not a git checkout: {done.stderr.strip()}", allow_module_level=True)
    return tuple(path for name in done.stdout.split("\0") if name and (ROOT / (path := Path(name))).is_file())


def texts(*suffixes: str) -> dict[Path, str]:
    """The tracked text files with these suffixes (all text files when none is given), by relative path."""
    found = {}
    for path in tracked():
        if suffixes and path.suffix not in suffixes:
            continue
        try:
            found[path] = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue  # a binary, such as a recording
    return found
