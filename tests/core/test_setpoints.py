"""Set-points of their own unit: their bounds, their rest and what they relieve are theirs and not their lever's."""

from collections.abc import Mapping, Sequence

import pytest

from controller.core import relief
from controller.core.decide import DecideState, decide
from controller.core.model import Ask, Decision, Lever, Mode, Proposal, Snapshot, Target, TargetState, Tick
from controller.core.ports import Balance, Brief, Estimate, Limits, View
from controller.core.rules import FleetRules, LeverRules, PoolRules, Rate, neutral
from controller.core.setpoints import DEADLINE, OWN, PRIORITY
from controller.core.slo import Objective
from controller.core.tenancy import ClassRules
from controller.core.why import Why
from tests.core.test_ladder import Asks, Nothing
from tests.support.cases import NOW, healthy

MEMBERS = ("concurrency", DEADLINE, PRIORITY)
GATE = LeverRules(
    Lever.ADMISSION, "gate", "twin", Mode.AUTO, Limits(1.0, 1e12), rate_up=Rate(1.0, 15.0, relative=True),
    stabilise=0.0, members=MEMBERS, expiry=300.0, own=OWN,
)  # fmt: skip
CLASSES = {"web": ClassRules(0), "api": ClassRules(1), "batch": ClassRules(2, sheddable=True)}
POOL = PoolRules("big", (), (GATE,), tuple(Target("big", Lever.ADMISSION, one) for one in MEMBERS), classes=CLASSES)
NOW_BALANCE = Balance(5.0, 3.0, by_class={"web": 2.0, "api": 2.0, "batch": 1.0})


class Wishes(Asks):
    """Sets each member to its own wish."""

    def __init__(self, wishes: Mapping[str, float]) -> None:
        super().__init__(None)
        self.wishes, self.limits = wishes, dict[str, Limits]()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: Nothing
    ) -> tuple[Sequence[Proposal], Nothing]:
        self.limits = {target.member: one for target, one in view.limits.items()}
        mine = [target for target in view.targets if target.member in self.wishes]
        return [Proposal(t, Ask.SET, self.wishes[t.member], "gate", Why.DEMAND) for t in mine], state


def plan(have: Mapping[str, float], **wishes: float) -> tuple[dict[str, Decision], dict[str, Limits]]:
    """The decisions by member, and the limits that the law saw."""
    targets = {Target("big", Lever.ADMISSION, name): TargetState(value) for name, value in have.items()}
    snapshot = Snapshot(Tick(9, NOW, 15.0), {"big": healthy()}, targets)
    law, known = Wishes(wishes), {"big": Estimate(demand=5.0, trusted=True)}
    made, _ = decide(snapshot, known, FleetRules((POOL,)), {"big/admission": law}, DecideState())
    return {d.target.member: d for d in made.decisions}, law.limits


def test_a_factor_is_not_clamped_to_one_request_nor_rounded_to_whole_ones() -> None:
    """By the bounds of its lever a factor of 0.4 would be 1, and a rank of 0.5 none or one."""
    at_rest = {"concurrency": 1e12, DEADLINE: 1.0, PRIORITY: 100.0}
    made, limits = plan(at_rest, concurrency=40.0, deadline=0.42, priority=0.5)

    assert {name: d.final for name, d in made.items()} == {"concurrency": 40.0, DEADLINE: 0.4, PRIORITY: 0.5}
    assert limits == {"concurrency": GATE.limits, **OWN}
    assert plan(at_rest, deadline=0.01)[0][DEADLINE].final == 0.1


def test_at_rest_they_are_sent_to_nobody_and_else_they_expire() -> None:
    """Neutral by the lever's rule would be no limit, and a factor of 1 renewed for ever."""
    rest, _ = plan({"concurrency": 1e12, DEADLINE: 1.0, PRIORITY: 100.0})
    assert not any(d.send for d in rest.values())

    held, _ = plan({"concurrency": 1e12, DEADLINE: 0.5, PRIORITY: 1.5})
    assert [held[name].send for name in MEMBERS] == [False, True, True]
    assert held[DEADLINE].until == held[PRIORITY].until == NOW + 300.0
    assert [neutral(GATE, name) for name in MEMBERS] == [1e12, 1.0, 100.0]


@pytest.mark.parametrize(
    ("finals", "given"),
    [
        ({"concurrency": 1e12}, 0.0),
        ({"concurrency": 40.0}, 1.0),
        ({"concurrency": 40.0, DEADLINE: 0.2, PRIORITY: 100.0}, 1.0),
        ({"concurrency": 40.0, PRIORITY: 1.5}, 1.0),  # an armed gate refuses the sheddable class in any case
        ({"concurrency": 40.0, PRIORITY: 0.75}, 1.5),
        ({PRIORITY: 1.5}, 0.5),
        ({PRIORITY: 0.0}, 3.0),
    ],
)
def test_what_a_priority_keeps_out_is_relief_and_nobody_is_counted_twice(
    finals: dict[str, float], given: float
) -> None:
    assert relief.given(GATE, finals, POOL, Estimate(), NOW_BALANCE) == pytest.approx(given)
