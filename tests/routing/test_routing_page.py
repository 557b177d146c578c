"""docs/routing.md: its tables are the dataclasses, and no strategy is missing."""

import re

import pytest

from benchmarks import page as pages
from benchmarks import routing
from benchmarks.routing_page import PAGE, SKIPPED, compare, compare_affinity, leaning, measured, render
from routing.strategies import NAMES, STRATEGIES

TEXT = PAGE.read_text(encoding="utf-8")


def test_a_table_that_says_what_the_code_no_longer_does() -> None:
    """Mend: `python -m benchmarks.routing_page`."""
    assert render(TEXT) == TEXT


@pytest.mark.parametrize("name", NAMES)
def test_each_strategy_says_what_for_and_how_it_fails(name: str) -> None:
    section = TEXT.partition(f"### `{name}`\n")[2].partition("\n### ")[0]

    assert "*Use it*" in section
    assert "*Fails*" in section
    assert f"<!-- parameters: {name} -->" in section


def test_the_comparison_has_all_that_can_be_compared() -> None:
    """Mend: `python -m benchmarks.routing_page --measure`."""
    rows = re.findall(r"^\| ([a-z-]+) \| [\d.]+ \| [\d.]+ \| [\d.]+ \| \d+% \| [\d.]+ \| \d+% \|$", TEXT, re.MULTILINE)
    assert rows == [name for name in NAMES if name not in SKIPPED]

    fresh = measured(TEXT, compare(60, (1,)))
    assert fresh != TEXT
    assert re.sub(r"<!-- measured -->.*?<!-- end -->", "", fresh, flags=re.DOTALL) == re.sub(
        r"<!-- measured -->.*?<!-- end -->", "", TEXT, flags=re.DOTALL
    )


def test_what_less_affinity_does_has_all_that_have_one() -> None:
    """Mend: `python -m benchmarks.routing_page --measure`."""
    rows = re.findall(r"^\| ([a-z-]+) \|(?: [\d.]+ / \d+% \|){10}$", TEXT, re.MULTILINE)
    assert rows == [name for name in NAMES if STRATEGIES[name].leans]

    fresh = leaning(TEXT, compare_affinity(60, (1,)))
    assert fresh != TEXT
    assert [line.partition("|")[0] for line in fresh.splitlines()] == [
        line.partition("|")[0] for line in TEXT.splitlines()
    ]


def test_decisions_are_measured_for_all_and_a_missed_bound_is_marked() -> None:
    """How fast it is, is for `make bench` on a quiet machine."""
    rows = list(routing.measure(seeds=1, count=3, opened=5))
    assert {(one.strategy, one.prompt) for one in rows} == {
        (name, prompt) for name in NAMES for prompt in routing.PROMPTS
    }
    assert all(0 < one.median <= one.p99 for one in rows)

    late = routing.Decision("cost", 2048, routing.BOUND + 1, 99.0, 1.0)
    good = routing.Decision("cost", 16384, routing.BOUND - 1, 99.0, 1.0)
    section = routing.section([late, good])
    assert "51.0 **(missed)** | 99 | 1.0 | 49.0 | 99" in section


@pytest.mark.parametrize("page", ["# P\n\n## Method\n\nm\n\n## Engines\n\ne\n", "# P\n\n## Method\n\nm\n"])
def test_its_section_finds_its_place_and_keeps_it(page: str) -> None:
    once = pages.replaced(page, routing.HEADING, f"{routing.HEADING}\none\n\n", "## Engines")
    twice = pages.replaced(once, routing.HEADING, f"{routing.HEADING}\ntwo\n\n", "## Engines")

    assert once.replace(f"{routing.HEADING}\none\n\n", "").rstrip() in (
        page.rstrip(),
        page.replace("m\n", "m\n\n## Routing decisions\n\none").rstrip(),
    )
    assert twice == once.replace("one", "two")
    assert ("## Engines" in twice) == ("## Engines" in page)
