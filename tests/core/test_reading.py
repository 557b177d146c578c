"""A reading cannot hold what would poison a decision."""

import math

import pytest

from controller.core.reading import USABLE, Reading, State


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["value", "lo", "hi", "count", "age", "window"])
def test_nan_and_infinity_cannot_be_constructed(field: str, bad: float) -> None:
    with pytest.raises(ValueError, match=field):
        Reading(State.OK, **{field: bad})  # type: ignore[arg-type]


@pytest.mark.parametrize("state", [State.MISSING, State.UNSUPPORTED, State.NO_TRAFFIC])
def test_a_state_that_knows_nothing_cannot_carry_zero(state: State) -> None:
    """keda#3065, dynamo#14765: a failed query became 0, and 0 scaled production to its minimum."""
    with pytest.raises(ValueError, match="no value"):
        Reading(state, value=0.0)


def test_only_ok_quiet_and_below_the_first_edge_justify_relaxing() -> None:
    trusted = {state for state in State if Reading(state).trusted}

    assert trusted == {State.OK, State.NO_TRAFFIC, State.BELOW_FIRST}


def test_a_censored_wait_protects_by_its_lower_bound() -> None:
    assert Reading(State.CENSORED, lo=42.0).usable == 42.0
    assert State.STALE not in USABLE
