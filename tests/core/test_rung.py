"""What stays goes a short way through its rung. A short way that forgets who holds a target moves what is not ours."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.core.guard_state import GuardState
from controller.core.hindsight import Hindsight
from controller.core.model import (
    Ask,
    Decision,
    Lever,
    Mode,
    Outcome,
    Pin,
    Proposal,
    Scope,
    Snapshot,
    Target,
    TargetState,
    Tick,
)
from controller.core.ports import Balance, Limits
from controller.core.reading import ok
from controller.core.rules import LeverRules, PoolRules, Rate
from controller.core.rung import Rung, bound
from controller.core.signals import Signal
from controller.core.why import Why
from tests.support.cases import NOW, estimate, healthy

VALUES = st.sampled_from([0.0, 0.05, 0.25, 0.333, 1.0, 4.0, 1000.0])
OWNERS = st.builds(
    TargetState, st.none() | VALUES,
    pin=st.none() | st.builds(Pin, VALUES, st.sampled_from([NOW - 1.0, NOW + 60.0]), st.just("load test")),
    foreign_writer=st.sampled_from(["", "", "", "kubectl"]),
    last_outcome=st.sampled_from([None, None, Outcome.DONE, Outcome.UNKNOWN]),
)  # fmt: skip
STATES = st.builds(
    GuardState, st.sampled_from([(), ((NOW - 30.0, 1.0),), ((NOW - 90.0, 0.25), (NOW - 15.0, 1.0))]),
    st.sampled_from([(), ((NOW - 45.0, 0.5),)]), st.none() | st.tuples(st.just(NOW - 15.0), VALUES),
    st.sampled_from([0.0, NOW + 30.0]),
)  # fmt: skip
ASKED = st.lists(st.tuples(st.sampled_from([Ask.SET, Ask.AT_LEAST, Ask.AT_MOST]), VALUES), max_size=2)
HANDS: st.SearchStrategy[dict[str, Any]] = st.just({}) | st.sampled_from(
    [{"pin": Pin(0.5, NOW + 60.0, "load test")}, {"foreign_writer": "kubectl"}, {"last_outcome": Outcome.UNKNOWN}]
)
STAYING = st.tuples(st.sampled_from([0.0, 1.0]), STATES)
OF_ONE = st.lists(
    st.tuples(st.sampled_from([Ask.SET, Ask.AT_MOST]), HANDS, st.none() | st.none() | STATES), min_size=1, max_size=4
)
ALIKE = st.tuples(STAYING, OF_ONE).map(
    lambda both: [
        (TargetState(both[0][0], **hand), state or both[0][1], [(ask, both[0][0])]) for ask, hand, state in both[1]
    ]
)
MEMBERS = ALIKE | st.lists(st.tuples(OWNERS, STATES, ASKED), min_size=1, max_size=4)
RULES = st.builds(
    LeverRules, st.sampled_from([Lever.WEIGHT, Lever.BREAKER, Lever.TENANT_CAP, Lever.ADMISSION, Lever.DOWNGRADE]),
    st.just("p"), st.just("a"), st.sampled_from(list(Mode)),
    st.sampled_from([Limits(0.0, 1.0, 0.01), Limits(0.05, 1.0, 0.3), Limits(0.0, 0.5, 0.05), Limits(0.0, 1000.0)]),
    every=st.sampled_from([0.0, 60.0]), rate_up=st.sampled_from([None, Rate(0.2, 60.0)]),
    stabilise=st.sampled_from([0.0, 60.0]), expiry=st.sampled_from([0.0, 45.0]),
)  # fmt: skip


class LongWay(Rung):
    """The same, with nobody who stays."""

    def _stays(self, owner: TargetState, asked: Sequence[Proposal]) -> bool:
        return False


def decided(
    way: type[Rung], rules: LeverRules, members: Sequence[tuple[TargetState, GuardState, list[tuple[Ask, float]]]]
) -> tuple[dict[Target, Decision], dict[Target, GuardState]]:
    targets = [Target("llm", rules.lever, f"r{i}") for i in range(len(members))]
    pool = replace(healthy(), replicas={t.member: Scope({Signal.RUNNING: ok(1.0)}) for t in targets})
    owners = {t: owner for t, (owner, _, _) in zip(targets, members, strict=True)}
    rung = way(
        PoolRules("llm", (), (rules,), ()), rules, targets, Snapshot(Tick(9, NOW, 15.0), {"llm": pool}, owners),
        estimate(), Balance(1.0, 10.0), Hindsight(), ledger_ok=True,
    )  # fmt: skip
    wanted = {
        t: [Proposal(t, ask, value, "law", Why.DEMAND, {"n": 1.0}) for ask, value in asked]
        for t, (_, _, asked) in zip(targets, members, strict=True)
    }
    states = {t: state for t, (_, state, _) in zip(targets, members, strict=True)}
    return rung.decide(wanted, states, None), states


WISHED = GuardState(((NOW - 30.0, 0.25),), (), (NOW - 15.0, 1.0))


@settings(max_examples=400)
@given(RULES, MEMBERS)
@example(  # alike but for a doubt, which is no wish
    LeverRules(Lever.TENANT_CAP, "p", "a", limits=Limits(0.0, 1000.0), stabilise=60.0),
    [(TargetState(1.0), WISHED, [(Ask.SET, 1.0)]), (TargetState(1.0), WISHED, [(Ask.AT_MOST, 1.0)])],
)
def test_the_short_way_forgets_no_pin_no_stranger_and_no_bound(
    rules: LeverRules, members: list[tuple[TargetState, GuardState, list[tuple[Ask, float]]]]
) -> None:
    assert repr(decided(Rung, rules, members)) == repr(decided(LongWay, rules, members))


def test_most_of_a_healthy_fleet_goes_the_short_way() -> None:
    """Else the property above compares one thing with itself."""
    rules = LeverRules(Lever.WEIGHT, "p", "a", limits=Limits(0.0, 1.0, 0.01))
    gone = []

    class Watched(Rung):
        def _one(
            self, target: Target, owner: TargetState, proposals: Sequence[Proposal], before: GuardState
        ) -> tuple[Decision, GuardState]:
            gone.append(target)
            return super()._one(target, owner, proposals, before)

    decided(Watched, rules, [(TargetState(1.0), GuardState(), [(Ask.SET, 1.0)])] * 3)
    assert not gone
    decided(Watched, rules, [(TargetState(1.0), GuardState(), [(Ask.SET, 0.5)])] * 3)
    assert len(gone) == 3


def test_that_protect_forbids_a_raise_is_what_an_operator_reads_where_the_maximum_does() -> None:
    """Three replicas, `max: 2`, and a law that asks for six: the step that is missing is the one to mend."""
    lever = LeverRules(Lever.REPLICAS, "law", "none", Mode.PROTECT, Limits(1.0, 2.0))
    made = bound(Decision(Target("llm", Lever.REPLICAS), 3.0, 6.0, Why.DEMAND), lever)

    assert made.final == 3.0
    assert [(one.before, one.after, one.why) for one in made.steps] == [
        (6.0, 2.0, Why.MAX_BOUND), (2.0, 3.0, Why.MODE_PROTECT),
    ]  # fmt: skip
