"""The emulated APA follows AIBrix' arithmetic, and its known mistakes only when asked to."""

import pytest

from benchmarks.peers.apa import Apa, recommend
from controller.core.why import Why
from tests.support.peer_views import LIMITS, asked, view

CONFIG = Apa.Config(target=10.0)


@pytest.mark.parametrize(
    ("value", "current", "replicas"),
    [
        (11.0, 4, 4),  # ratio 1.1 is not above 1 + 0.1
        (11.2, 4, 5),  # ceil(4.48)
        (40.0, 4, 8),  # 16 are wanted, ceil(2 x 4) are allowed
        (9.0, 4, 4),
        (8.0, 5, 4),
        (7.4, 4, 3),  # ceil(2.96)
        (1.0, 5, 2),  # 1 is wanted, floor(5 / 2) are allowed
    ],
)
def test_the_number_of_replicas_is_the_one_computed_by_hand(value: float, current: float, replicas: float) -> None:
    assert recommend(CONFIG, value, current) == replicas


def test_the_metric_is_the_mean_over_pods_and_over_a_minute() -> None:
    law = Apa(CONFIG)
    proposal, state = asked(law, view(0.0, 2, [(4, 0), (12, 4)]), law.initial())
    assert proposal.value == 2  # (4 + 16) / 2 = 10
    proposal, state = asked(law, view(30.0, 2, [(16, 0)] * 2), state)
    assert proposal.value == 3  # (10 + 16) / 2 = 13: ceil(2.6)
    proposal, state = asked(law, view(35.0, 2, [(90, 0)] * 2), state)
    assert proposal.why == Why.NOT_DUE


def test_replicas_on_their_way_count_as_idle_when_more_is_asked_for() -> None:
    law = Apa(CONFIG)
    # 2 of 4 serve with 20 each: 8 without the guard; over all four it is 10, which is the target.
    proposal, _ = asked(law, view(0.0, 4, [(20, 0)] * 2), law.initial())
    assert proposal.value == 4
    proposal, _ = asked(law, view(0.0, 4, [(30, 0)] * 2), law.initial())
    assert proposal.value == 6  # 15 over all four
    bare = Apa(Apa.Config(target=10.0, guard=False))
    proposal, _ = asked(bare, view(0.0, 4, [(20, 0)] * 2), bare.initial())
    assert proposal.value == 8


def test_replicas_on_their_way_count_as_at_their_target_when_less_is_asked_for() -> None:
    law = Apa(Apa.Config(target=10.0, down_cooldown=0.0))
    proposal, _ = asked(law, view(0.0, 4, [(4, 0)] * 2), law.initial())
    assert proposal.value == 3  # (4 x 2 + 10 x 2) / 4 = 7: ceil(2.8)


def test_a_dip_shrinks_nothing_unless_the_windows_are_inverted_as_they_were() -> None:
    for inverted, after in ((False, 8), (True, 4)):
        law = Apa(Apa.Config(target=10.0, window=5.0, inverted=inverted))
        _, state = asked(law, view(0.0, 8, [(10, 0)] * 8), law.initial())
        proposal, state = asked(law, view(15.0, 8, [(1, 0)] * 8), state)
        assert proposal.value == after


def test_it_shrinks_to_the_highest_of_five_minutes() -> None:
    law = Apa(CONFIG)
    state, values = law.initial(), {}
    for at in range(0, 330, 15):
        proposal, state = asked(law, view(float(at), 8, [(5 if at else 10, 0)] * 8), state)
        values[at] = proposal.value
    assert values[285] == 8
    # The mean over the window leaves the 10 of 0 s behind at 60 s; from 315 s on nothing above 5 or 6 is remembered.
    assert values[315] < 8


def test_without_any_metric_nothing_changes() -> None:
    law = Apa(CONFIG)
    proposal, _ = asked(law, view(0.0, 8, [None] * 8), law.initial())
    assert (proposal.value, proposal.why) == (8, Why.MISSING)


def test_the_bounds_hold() -> None:
    law = Apa(CONFIG)
    proposal, _ = asked(law, view(0.0, 30, [(90, 0)] * 30), law.initial())
    assert proposal.value == LIMITS.max
