"""Low ranks are kept out when shedding is not enough: never more than is left, the last first, the first rank never."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.model import Ask, Lever, Proposal, Target, TargetState, Tick
from controller.core.ports import Balance, Brief, Estimate, View
from controller.core.setpoints import EVERY_RANK, OWN, PRIORITY, refused
from controller.core.tenancy import ClassRules
from controller.core.why import Why
from controller.run.codec import decode, encode
from policies.gate import Gate
from policies.ranks import wanted
from routing.admission import kept_out
from tests.support.cases import NOW, healthy

TARGET = Target("llm", Lever.ADMISSION, PRIORITY)
CLASSES = {"web": ClassRules(0), "api": ClassRules(1), "batch": ClassRules(2, sheddable=True)}
DEMAND = {"web": 2.0, "api": 2.0, "batch": 1.0}
LAW = Gate(Gate.Config())


def propose(
    current: float, left: float, *, at: float = 15.0, state: Gate.State | None = None, trusted: bool = True,
    demand: dict[str, float] | None = None,
) -> tuple[Proposal, Gate.State]:  # fmt: skip
    asked = DEMAND if demand is None else demand
    view = View(
        Tick(5, NOW + at, 15.0), healthy(), {TARGET: TargetState(current)}, {TARGET: OWN[PRIORITY]},
        Estimate(demand=5.0, trusted=trusted), classes=CLASSES,
    )  # fmt: skip
    brief = Brief(Balance(5.0, 5.0 - left, by_class=asked), left)
    (made,), after = LAW.propose(view, (), brief, state if state is not None else Gate.State(at=NOW))
    return made, after


@pytest.mark.parametrize(
    ("left", "value"), [(0.0, 100.0), (1.0, 100.0), (1.5, 0.75), (2.0, 0.5), (3.0, 0.0), (99.0, 0.0)]
)
def test_who_is_kept_out_is_what_shedding_cannot_give(left: float, value: float) -> None:
    """Up to 1.0 the sheddable class is enough; then it goes whole and the next rank in part; the first one never."""
    made, _ = propose(100.0, left)
    assert (made.ask, made.value) == (Ask.SET, value)
    assert made.why is (Why.STEADY if value == 100.0 else Why.SHORTFALL)


def test_the_gateway_and_the_controller_mean_the_same_by_a_priority() -> None:
    """Else the relief that is counted is not the relief that is given."""
    assert kept_out(2, 100.0) == refused(2, 100.0) == 0.0
    for rank in range(4):
        for step in range(80):
            assert kept_out(rank, step * 0.05) == refused(rank, step * 0.05)


def test_it_lets_in_again_by_steps_and_then_everybody() -> None:
    state, value, at = Gate.State(at=NOW), 0.5, 0.0
    rises = []
    while value < EVERY_RANK and at < 900.0:
        at += 15.0
        made, state = propose(value, 0.0, at=at, state=state)
        rises.append(made.value - value)
        value = made.value
        assert decode(Gate.State, encode(state)) == state
    assert value == EVERY_RANK
    assert max(rises[:-1]) <= 0.15 + 1e-9
    assert at == pytest.approx(180.0, abs=30.0)  # half a rank a minute, from 0.5 to 2


def test_a_ramp_that_guards_hold_runs_ahead_by_one_rank_and_begins_anew_with_the_next_shortage() -> None:
    """Held for an hour and then let go, it must not let in everybody at once while half are still too many."""
    state, at, wishes = Gate.State(at=NOW), 0.0, list[float]()
    for _ in range(240):
        at += 15.0
        held, state = propose(0.0, 0.0, at=at, state=state)
        wishes.append(held.value)
    assert 1.0 <= max(wishes) <= 1.125
    _, state = propose(0.0, 3.0, at=at + 15.0, state=state)  # nothing more fits
    again, _ = propose(0.0, 0.0, at=at + 30.0, state=state)
    assert again.value <= 0.125


@pytest.mark.parametrize(
    ("trusted", "demand"), [(False, DEMAND), (True, {}), (True, {**DEMAND, "web": math.nan})]
)  # fmt: skip
def test_without_data_nobody_is_let_in_again(trusted: bool, demand: dict[str, float]) -> None:
    made, _ = propose(0.5, 0.0, trusted=trusted, demand=demand)
    assert (made.ask, made.value) == (Ask.AT_MOST, 0.5)


def test_a_shortage_protects_on_whatever_data_there_is() -> None:
    assert propose(100.0, 2.0, trusted=False)[0].value == 0.5


def test_classes_that_ask_for_nothing_change_nothing() -> None:
    """A class without demand relieves nobody, so keeping it out alone would only be unkind."""
    assert propose(100.0, 1.0, demand={"web": 4.0, "api": 1.0, "batch": 0.0})[0].value == 0.0
    assert propose(100.0, 0.5, demand={"web": 4.0, "api": 1.0, "batch": 0.0})[0].value == 0.5


ranks = st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.floats(0.0, 10.0)), min_size=1, max_size=6)


@given(rows=ranks, left=st.floats(0.0, 40.0), more=st.floats(0.0, 10.0))
def test_never_more_is_kept_out_than_is_left_and_more_is_when_more_is_left(
    rows: list[tuple[int, bool, float]], left: float, more: float
) -> None:
    classes = {f"c{i}": ClassRules(rank, sheddable) for i, (rank, sheddable, _) in enumerate(rows)}
    demand = {f"c{i}": each for i, (_, _, each) in enumerate(rows)}

    def out(value: float) -> float:
        return math.fsum(refused(classes[name].rank, value) * demand[name] for name in classes)

    value = wanted(classes, demand, left)
    assert out(value) <= left + 1e-6
    assert out(math.ceil(value / 0.05 - 1e-6) * 0.05) <= left + 1e-4
    assert wanted(classes, demand, left + more) <= value + 1e-9
    first = min(one.rank for one in classes.values())
    assert all(refused(one.rank, value) == 0.0 for one in classes.values() if one.rank == first)
