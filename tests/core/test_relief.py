"""Receiving pools: what is known of them, what is assumed of one that stands idle, and what goes beyond its room."""

import math
from collections.abc import Collection, Mapping
from dataclasses import replace

import pytest

from controller.core.beyond import Beyond, beyond
from controller.core.model import Lever, Mode, Snapshot, Tick
from controller.core.ports import Estimate
from controller.core.relief import Known
from controller.core.rules import FleetRules, LeverRules, PoolRules
from controller.core.tenancy import ClassRules
from policies.downgrade import Downgrade

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


# --- beyond its room -------------------------------------------------------------------------------------------------

FULL = Estimate(
    offered=14.0, demand=3.8, unit_rate=8.0, trusted=True, evidence={"serving": 4.0},
    classes={"critical": 2.8, "batch": 1.0},
)  # fmt: skip
BATCH = Beyond(0.2, ("batch",))


def room_of(small: Estimate, more: Beyond | None) -> float:
    """What fits, of a receiver that carries 3.8."""
    known = {} if more is None else {("big", "small"): more}
    return Known(Snapshot(Tick(0, 0.0)), {"big": HERE, "small": small}, known).receivers(RULES, HERE)[0]["small"]


def test_a_receiver_that_is_full_of_batch_work_does_not_turn_critical_requests_away() -> None:
    """First come, first served: in a crowd critical requests were refused here for batch work there."""
    assert room_of(FULL, None) == 0.0
    assert room_of(FULL, BATCH) == pytest.approx(0.2 * 3.8)


def test_no_more_is_sent_beyond_its_room_than_may_be_shed_there() -> None:
    few = replace(FULL, classes={"critical": 3.7, "batch": 0.1})
    assert room_of(few, BATCH) == pytest.approx(0.1)


def test_a_receiver_that_is_full_beyond_its_room_gets_no_more() -> None:
    assert room_of(replace(FULL, demand=5.0, classes={"critical": 3.0, "batch": 2.0}), BATCH) == 0.0


@pytest.mark.parametrize(
    "told", [{}, {"critical": 3.8}, {"batch": math.nan}, {"batch": math.inf}, {"batch": -1.0}],
    ids=["untold", "critical alone", "nan", "inf", "negative"],
)  # fmt: skip
def test_nothing_goes_beyond_its_room_while_nobody_knows_what_may_be_shed(told: Mapping[str, float]) -> None:
    assert room_of(replace(FULL, classes=told), BATCH) == 0.0


def small_pool(*levers: tuple[Lever, Mode], sheddable: bool = True) -> PoolRules:
    rules = tuple(LeverRules(lever, "gate", "gateway", mode=mode) for lever, mode in levers)
    return PoolRules("small", (), rules, (), classes={"critical": ClassRules(), "batch": ClassRules(1, sheddable)})


def share(gate: str, small: PoolRules) -> Beyond | None:
    law = Downgrade(Downgrade.Config(gate=gate, over=0.2))  # type: ignore[arg-type]
    return beyond(FleetRules((RULES, small)), {"big/downgrade": law}).get(("big", "small"))


@pytest.mark.parametrize(
    ("gate", "small", "known"),
    [
        ("auto", small_pool((Lever.ADMISSION, Mode.AUTO)), True),
        ("auto", small_pool((Lever.ADMISSION, Mode.OBSERVE)), False),
        ("auto", small_pool(), False),
        ("always", small_pool(), True),
        ("always", small_pool(sheddable=False), False),
        ("never", small_pool((Lever.ADMISSION, Mode.AUTO)), False),
    ],
)
def test_without_a_gate_that_sheds_by_class_no_receiver_is_overfilled(gate: str, small: PoolRules, known: bool) -> None:
    """All that it has would be late, its own requests as well."""
    assert share(gate, small) == (BATCH if known else None)


def test_a_strangers_law_and_a_receiver_that_is_not_configured_change_nothing() -> None:
    class Stranger:
        def propose(self, acting: Collection[Lever]) -> None: ...

    small = small_pool((Lever.ADMISSION, Mode.AUTO))
    assert beyond(FleetRules((RULES, small)), {"big/downgrade": Stranger()}) == {}
    assert beyond(FleetRules((RULES,)), {"big/downgrade": Downgrade(Downgrade.Config())}) == {}
    assert beyond(FleetRules((RULES, small)), {}) == {}
