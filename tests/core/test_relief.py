"""Receiving pools: what is known of them, and what is assumed of one that stands idle."""

import pytest

from controller.core.model import Lever, Snapshot, Tick
from controller.core.ports import Estimate
from controller.core.relief import Known
from controller.core.rules import LeverRules, PoolRules

RULES = PoolRules("big", (), (LeverRules(Lever.DOWNGRADE, "downgrade", "gateway", members=("small",)),), ())
HERE = Estimate(demand=9.0, unit_rate=2.0, trusted=True)


def receivers(small: Estimate) -> tuple[dict[str, float], dict[str, float]]:
    return Known(Snapshot(Tick(0, 0.0)), {"big": HERE, "small": small}).receivers(RULES, HERE)


def test_a_pool_that_stands_idle_is_sent_something_else_it_would_stand_idle_for_ever() -> None:
    """It has no requests to learn its rate from, and gets none while its rate is not known."""
    idle = Estimate(offered=0.0, trusted=True, evidence={"serving": 4.0})

    room, exchange = receivers(idle)

    assert room == pytest.approx({"small": 0.95 * 4.0})
    assert exchange == {"small": 1.0}


@pytest.mark.parametrize(
    "small",
    [
        Estimate(offered=3.0, trusted=True, evidence={"serving": 4.0}),
        Estimate(offered=None, trusted=True, evidence={"serving": 4.0}),
        Estimate(offered=0.0, trusted=False, evidence={"serving": 4.0}),
    ],
    ids=["busy", "unread", "doubted"],
)
def test_a_pool_that_is_busy_or_not_seen_is_not_taken_for_an_idle_one(small: Estimate) -> None:
    assert receivers(small) == ({}, {})


def test_a_pool_that_told_its_rate_is_taken_at_it() -> None:
    known = Estimate(offered=3.0, demand=1.0, unit_rate=8.0, trusted=True, evidence={"serving": 4.0})

    room, exchange = receivers(known)

    assert room == pytest.approx({"small": 0.95 * 4.0 - 1.0})
    assert exchange == {"small": 0.25}
