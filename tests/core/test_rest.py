"""At rest: one number for no limit, also where it cannot be imported."""

import re

import pytest

from controller.core.model import Lever, Target
from controller.core.rest import NO_LIMIT, at_rest
from tests.support.repository import ROOT


@pytest.mark.parametrize("path", ["actuators/redis/bucket.lua", "dashboards/build.py"])
def test_a_cap_that_one_program_takes_for_none_is_no_cap_in_another(path: str) -> None:
    """A cap of a million million tokens there, and none here."""
    told = re.findall(r"< (\d+e\d+)", (ROOT / path).read_text(encoding="utf-8"))
    assert told
    assert {float(one) for one in told} == {NO_LIMIT}


def test_what_was_never_told_stands_where_it_does_nothing() -> None:
    told = {lever: at_rest(Target("a", lever, "m")) for lever in Lever if lever is not Lever.REPLICAS}
    assert told == {
        Lever.WEIGHT: 1.0, Lever.BREAKER: 1.0, Lever.TENANT_CAP: 1e12, Lever.ADMISSION: 1e12, Lever.DOWNGRADE: 0.0,
        Lever.ROUTING: 1.0,
    }  # fmt: skip
    assert [at_rest(Target("a", Lever.ADMISSION, name)) for name in ("deadline", "priority")] == [1.0, 100.0]
