"""The page of traps names tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_every_test_that_the_page_of_traps_names_exists() -> None:
    page = (ROOT / "docs" / "traps.md").read_text()
    named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", page)
    gone = [f"{file}::{name}" for file, name in named if f"def {name}(" not in _text(ROOT / file)]

    assert len(named) > 60
    assert gone == []


def _text(file: Path) -> str:
    return file.read_text() if file.exists() else ""
