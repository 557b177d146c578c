"""A failure that nobody tried is tried by the first outage: every cell of the matrix has its test or its reason."""

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from tests.actuators.matrix import FAILURES, MATRIX, Cannot, table

ROOT = Path(__file__).parents[2]
CELLS = [(name, failure) for name in MATRIX for failure in FAILURES]


@pytest.fixture(scope="module")
def nodes() -> set[str]:
    """Every test that the matrix could mean, as pytest calls it: with its case, and without."""
    named = {test.partition("::")[0] for cells in MATRIX.values() for cell in cells.values()
             if not isinstance(cell, Cannot) for test in cell.tests}  # fmt: skip
    files = [f"tests/actuators/test_{one}.py" for one in sorted(named)]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    whole = {line.removeprefix("tests/actuators/test_").replace(".py::", "::") for line in found.stdout.splitlines()}
    return whole | {one.partition("[")[0] for one in whole}


def test_no_actuator_is_missing() -> None:
    ours = {point.name for point in entry_points(group="governor.actuators") if point.value.startswith("actuators.")}
    assert {name.partition(",")[0] for name in MATRIX} == ours


@pytest.mark.parametrize(("name", "failure"), CELLS)
def test_every_cell_has_a_test_that_exists_or_says_why_it_cannot_happen(
    nodes: set[str], name: str, failure: str
) -> None:
    cell = MATRIX[name][failure]
    if isinstance(cell, Cannot):
        assert 0 < len(cell.why) < 40
        return
    assert cell.outcome
    assert cell.tests
    assert not set(cell.tests) - nodes


def test_the_table_of_the_page_is_the_matrix() -> None:
    assert table() in (ROOT / "docs" / "actuators.md").read_text()
