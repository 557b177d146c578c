"""Why a reading proves nothing: said in the same words by every law and guard."""

import pytest

from controller.core.doubt import of_demand, unproven
from controller.core.reading import TRUSTED, Reading, State, ok
from controller.core.why import Why
from tests.support.cases import bad, healthy


def test_a_state_is_not_told_as_another_one() -> None:
    """One law said that data is missing where another said that an engine cannot tell: one of these can be mended."""
    told = {state: unproven(state) for state in State if state not in TRUSTED}
    assert told == {
        State.MISSING: Why.MISSING, State.SATURATED_TOP: Why.MISSING, State.STALE: Why.STALE,
        State.PARTIAL: Why.PARTIAL, State.UNDERFILLED: Why.UNDERFILLED, State.CENSORED: Why.UNDERFILLED,
        State.UNSUPPORTED: Why.UNSUPPORTED,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("offered", "depth", "why"),
    [
        (bad(State.UNSUPPORTED), ok(0.0), Why.UNSUPPORTED),
        (ok(5.0), bad(State.STALE), Why.STALE),
        (bad(State.PARTIAL), bad(State.STALE), Why.PARTIAL),
        (ok(5.0), ok(0.0), Why.UNDERFILLED),
    ],
)
def test_unknown_demand_has_the_reason_of_its_first_doubtful_reading(
    offered: Reading, depth: Reading, why: Why
) -> None:
    assert of_demand(healthy(offered_rate=offered, queue_depth=depth)) is why
