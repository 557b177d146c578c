"""Max-min: what one leaves goes to the others, and nobody gets more at the cost of one who has less."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.maxmin import Flow, used, water_level

demands = st.floats(0.0, 1e6)
flows = st.lists(st.builds(Flow, demands, st.floats(0.0, 1e5), st.floats(0.01, 100.0)), min_size=1, max_size=12)


def test_what_the_small_ones_leave_goes_to_the_large_ones() -> None:
    """10 for 2, 4 and 10: everybody gets 2, then 8 - 2 is left for two, and the last takes 4."""
    level = water_level([Flow(2.0), Flow(4.0), Flow(10.0)], 10.0)

    assert level == pytest.approx(4.0)
    assert [flow.use(level) for flow in (Flow(2.0), Flow(4.0), Flow(10.0))] == pytest.approx([2.0, 4.0, 4.0])


def test_weights_divide_and_what_is_ones_own_comes_first() -> None:
    assert water_level([Flow(10.0, weight=1.0), Flow(10.0, weight=3.0)], 8.0) == pytest.approx(2.0)
    assert water_level([Flow(10.0, least=6.0), Flow(10.0)], 8.0) == pytest.approx(2.0)
    assert water_level([Flow(10.0, least=2.0), Flow(10.0)], 8.0) == pytest.approx(4.0)  # not on top of its part


def test_enough_is_no_limit_and_nothing_left_is_no_water() -> None:
    assert water_level([Flow(2.0), Flow(4.0)], 6.0) == math.inf
    assert water_level([Flow(0.0)], 1.0) == math.inf
    assert water_level([Flow(10.0, least=6.0), Flow(10.0)], 5.0) == 0.0


@given(flows, st.floats(0.0, 1.0))
def test_all_of_the_supply_is_used_and_no_more(asked: list[Flow], share: float) -> None:
    whole = math.fsum(flow.demand for flow in asked)
    own = used(asked, 0.0)
    supply = own + share * (whole - own)
    level = water_level(asked, supply)

    assert used(asked, level) == pytest.approx(supply, rel=1e-9, abs=1e-6)


@given(flows, st.floats(0.0, 1e7), st.floats(0.0, 1e6))
def test_more_supply_is_never_a_lower_level(asked: list[Flow], supply: float, more: float) -> None:
    assert water_level(asked, supply + more) >= water_level(asked, supply) * (1 - 1e-9)
