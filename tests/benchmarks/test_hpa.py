"""The emulated HPA does what Kubernetes' own does; a peer that is weaker than the real one would prove nothing."""

from collections.abc import Sequence

import pytest

from benchmarks.peers.hpa import Hpa, recommend
from controller.core.model import Lever, Pending, Phase, PoolReadings, Proposal, Scope, Target, TargetState, Tick
from controller.core.ports import Balance, Brief, Estimate, Limits, View
from controller.core.reading import Reading, State
from controller.core.signals import Signal

TARGET = Target("chat", Lever.REPLICAS)
CONFIG = Hpa.Config(target=10.0)


@pytest.mark.parametrize(
    ("current", "metrics", "pending", "missing", "wanted"),
    [
        (4, [10.9] * 4, 0, 0, 4),  # ratio 1.09: within the tolerance
        (4, [11.1] * 4, 0, 0, 5),  # ceil(1.11 x 4)
        (4, [30.0] * 4, 0, 0, 12),
        (4, [8.9] * 4, 0, 0, 4),  # ceil(3.56)
        (4, [5.0] * 4, 0, 0, 2),
        (4, [0.0] * 4, 0, 0, 0),
        (8, [20.0] * 4, 0, 4, 8),  # 80 over 8 pods is a ratio of 1: what is on its way is enough
        (8, [30.0] * 4, 0, 4, 12),  # 120 / 8 = 15: ceil(1.5 x 8)
        (8, [30.0] * 4, 4, 0, 12),  # pending pods count as idle as well
        (8, [15.0] * 4, 4, 0, 8),  # 60 / 8 = 7.5 turns the direction: nothing changes
        (8, [5.0] * 4, 0, 4, 6),  # missing ones count as at their target: (20 + 40) / 8 = 7.5: ceil(0.75 x 8)
        (8, [5.0] * 4, 4, 0, 2),  # pending ones are left out when less is asked for: ceil(0.5 x 4)
        (3, [20.0] * 5, 0, 0, 6),  # two more are being deleted: ceil(2 x 3)
    ],
)
def test_the_number_of_replicas_is_the_one_computed_by_hand(
    current: float, metrics: Sequence[float], pending: int, missing: int, wanted: float
) -> None:
    assert recommend(CONFIG, current, metrics, pending=pending, missing=missing) == wanted


def view(at: float, accepted: float, loads: Sequence[float], pending: tuple[Pending, ...] = ()) -> View:
    scopes = {
        f"pod-{i}": Scope({Signal.RUNNING: Reading(State.OK, load), Signal.QUEUE_DEPTH: Reading(State.OK, 0.0)})
        for i, load in enumerate(loads)
    }
    state = TargetState(accepted, float(len(loads)), pending)
    return View(Tick(0, at, 15.0), PoolReadings(replicas=scopes), {TARGET: state}, {TARGET: Limits(1, 40)}, Estimate())


def ask(
    law: Hpa, at: float, accepted: float, loads: Sequence[float], state: Hpa.State, *pending: Pending
) -> tuple[Proposal, Hpa.State]:
    brief = Brief(Balance(0.0, 0.0), 0.0)
    (proposal,), after = law.propose(view(at, accepted, loads, pending), (), brief, state)
    return proposal, after


def test_a_rise_is_at_most_the_larger_of_double_and_four_more_in_15_seconds() -> None:
    law = Hpa(CONFIG)
    first, state = ask(law, 0.0, 2, [100.0] * 2, law.initial())
    assert first.value == 6  # 20 are asked for; 2 + 4 > 2 x 2
    again, state = ask(law, 5.0, 6, [100.0] * 2, state)
    assert again.value == 6  # still the same 15 s
    later, state = ask(law, 15.0, 6, [100.0] * 6, state)
    assert later.value == 12  # 6 x 2 > 6 + 4


def test_a_fall_waits_for_the_highest_recommendation_of_five_minutes_and_then_comes_at_once() -> None:
    law = Hpa(CONFIG)
    proposal, state = ask(law, 0.0, 10, [2.0] * 10, law.initial())
    assert proposal.value == 10  # what stands at the start is the first recommendation
    for at in range(15, 300, 15):
        proposal, state = ask(law, float(at), 10, [2.0] * 10, state)
        assert proposal.value == 10
    proposal, state = ask(law, 300.0, 10, [2.0] * 10, state)
    assert proposal.value == 2


def test_replicas_that_still_load_are_missing_and_those_without_a_node_are_pending() -> None:
    law = Hpa(Hpa.Config(target=10.0, down_window=0.0))
    loading, queued = Pending(2, Phase.LOADING, 0.0), Pending(2, Phase.PENDING, 0.0)
    proposal, _ = ask(law, 0.0, 8, [5.0] * 4, law.initial(), loading, queued)
    # Less is asked for: 2 missing at their target, 2 pending left out: (20 + 20) / 6 = 6.67, ceil(0.667 x 6) = 4.
    assert proposal.value == 4


def test_without_any_metric_nothing_is_asked_for() -> None:
    law = Hpa(CONFIG)
    proposals, state = law.propose(view(0.0, 4, []), (), Brief(Balance(0.0, 0.0), 0.0), law.initial())
    assert not proposals
    assert state == law.initial()
