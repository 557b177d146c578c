"""docs/simulating.md names every key of a scenario as the code has it."""

import pytest

from controller.config.docs import table
from controller.config.plugins import model_of
from simulator.scenario import Against, Event, Promise, Scenario
from tests.support.repository import ROOT


@pytest.mark.parametrize("part", [Scenario, Promise, Event, Against])
def test_the_page_has_the_keys_as_they_are(part: type[object]) -> None:
    page = (ROOT / "docs" / "simulating.md").read_text(encoding="utf-8")
    assert table(model_of(part)) in page, f"paste into the page:\n{table(model_of(part))}"
