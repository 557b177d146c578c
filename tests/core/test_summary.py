"""The sentence of a plan names the hand that moved something, and what a pool waits for in vain."""

from dataclasses import replace

import pytest

from controller.core.decide import DecideState, decide
from controller.core.model import (
    Ask,
    Decision,
    Lever,
    Pending,
    Phase,
    Plan,
    Proposal,
    Snapshot,
    Step,
    Target,
    TargetState,
    Tick,
)  # fmt: skip
from controller.core.ports import Brief, Limits, View
from controller.core.rest import NO_LIMIT
from controller.core.rules import FleetRules, LeverRules, PoolRules
from controller.core.slo import Objective
from controller.core.summary import sentence
from controller.core.why import SENTENCE, Why
from controller.explain import reason
from tests.support.cases import NOW, estimate, healthy

TARGET = Target("chat", Lever.REPLICAS)


def said(current: float, *steps: Step) -> str:
    made = Decision(TARGET, current, steps[-1].after, steps[-1].why, steps)
    return sentence((made,), holding=False)


def test_a_raise_for_another_pool_is_not_told_as_nothing_to_change() -> None:
    """ "raises cheap 6 → 8 because nothing needs to change"."""
    kept = Step("capacity", 6.0, 6.0, Why.STEADY)
    text = said(6.0, kept, Step("joint", 6.0, 8.0, Why.CHEAPEST))

    assert text == f"raises chat/replicas 6 → 8 because {SENTENCE[Why.CHEAPEST]}"


def test_a_wish_to_fall_is_no_reason_for_a_raise() -> None:
    """ "raises chat 4 → 5 because requests wait, and are served before a new replica would be warm"."""
    steps = (
        Step("capacity", 4.0, 2.0, Why.QUEUE_CLEARS), Step("guard", 2.0, 4.0, Why.WORK_WAITING),
        Step("joint", 4.0, 5.0, Why.CHEAPEST),
    )  # fmt: skip

    assert said(4.0, *steps).endswith(SENTENCE[Why.CHEAPEST])


def test_who_asked_is_the_reason_where_a_guard_only_held_a_part() -> None:
    asked, cut = Step("capacity", 4.0, 20.0, Why.DEMAND), Step("guard", 20.0, 8.0, Why.RATE)

    assert said(4.0, asked, cut).endswith(SENTENCE[Why.DEMAND])
    assert said(4.0, asked, cut, Step("joint", 8.0, 9.0, Why.RATIO)).endswith(SENTENCE[Why.DEMAND])
    assert said(4.0, asked, Step("guard", 20.0, 4.0, Why.RATE), Step("bounds", 4.0, 5.0, Why.MIN_BOUND)).endswith(
        SENTENCE[Why.MIN_BOUND]
    )
    assert said(9.0, Step("capacity", 9.0, 2.0, Why.SURPLUS), Step("guard", 2.0, 7.0, Why.RATE)).endswith(
        SENTENCE[Why.SURPLUS]
    )


class _GaveUp:
    """A law that gave up."""

    def initial(self) -> tuple[()]:
        return ()

    def propose(
        self, view: View, objectives: tuple[Objective, ...], brief: Brief, state: tuple[()]
    ) -> tuple[list[Proposal], tuple[()]]:
        evidence = {"again_in": 600.0, "tries": 1.0}
        return [Proposal(TARGET, Ask.SET, 4.0, "capacity", Why.CAPACITY_UNAVAILABLE, evidence)], state


def waiting(*pending: Pending, ready: float = 2.0) -> Plan:
    lever = LeverRules(Lever.REPLICAS, "wants", "none", limits=Limits(1, 50), stabilise=0.0)
    rules = FleetRules((PoolRules("chat", (), (lever,), (TARGET,)),))
    snapshot = Snapshot(
        Tick(9, NOW, 15.0), {"chat": replace(healthy(), filled_since=NOW - 9e5)},
        {TARGET: TargetState(4.0, ready, pending)},
    )  # fmt: skip
    known = {"chat": estimate(4.0, evidence={"serving": 2.0})}
    made, _ = decide(snapshot, known, rules, {"chat/replicas": _GaveUp()}, DecideState())  # type: ignore[dict-item]
    return made


@pytest.mark.parametrize(
    ("phase", "cause"),
    [
        (Phase.REQUESTED, "not created"), (Phase.PENDING, "without a node"), (Phase.PULLING, "pulling the image"),
        (Phase.LOADING, "never ready"), (Phase.WARMING, "never ready"),
    ],
)  # fmt: skip
def test_a_person_is_told_what_capacity_lacks_that_does_not_come_and_when_it_is_tried_again(
    phase: Phase, cause: str
) -> None:
    """ "Do not come" was all, so somebody looked for a bad image while the quota was used up."""
    made = waiting(Pending(2, phase, NOW - 2000.0))

    for text in (made.summary, reason(made.decisions[0])):
        assert cause in text
        assert "tried again at about" in text


def test_a_target_that_tells_counts_alone_still_tells_how_many() -> None:
    assert "2 never ready" in waiting().summary


def test_what_moves_with_a_change_that_is_told_is_told_with_it_and_the_rest_is_counted() -> None:
    """A plan that names three changes and forgets the others looks like a small one."""

    def moved(pool: str, lever: Lever, member: str, to: float, why: Why = Why.DEMAND) -> Decision:
        return Decision(Target(pool, lever, member), 2.0, to, why, (Step("law", 2.0, to, why),))

    made = [
        moved("a", Lever.WEIGHT, "r0", 1.0), moved("b", Lever.REPLICAS, "", 3.0), moved("c", Lever.REPLICAS, "", 3.0),
        moved("d", Lever.REPLICAS, "", 3.0), moved("a", Lever.WEIGHT, "r1", 1.0), moved("a", Lever.WEIGHT, "r2", 3.0),
        moved("a", Lever.WEIGHT, "r3", 1.0, Why.PACE), Decision(Target("e", Lever.REPLICAS), 2.0, 2.0, Why.STEADY),
    ]  # fmt: skip
    told = sentence(made, holding=False).split("; ")

    assert told[0].startswith("lowers 2 of a/weight to 1 because")
    assert [part.split(" 2 ")[0] for part in told[1:3]] == ["raises b/replicas", "raises c/replicas"]
    assert told[3:] == ["and 3 more changes"]


def test_a_cap_that_is_set_for_the_first_time_is_lowered_from_a_trillion() -> None:
    gate = Target("chat", Lever.ADMISSION, "concurrency")
    made = Decision(gate, NO_LIMIT, 21_782.0, Why.DEMAND, (Step("gate", NO_LIMIT, 21_782.0, Why.DEMAND),))

    assert sentence((made,), holding=False).startswith("lowers chat/admission/concurrency no limit → 21,782 because")
