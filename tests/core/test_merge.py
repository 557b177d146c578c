"""Merging does not depend on order, and the protective claim wins."""

from hypothesis import given
from hypothesis import strategies as st

from controller.core.merge import merge
from controller.core.model import Ask, Lever, Proposal, Target
from controller.core.why import Why

TARGET = Target("llm", Lever.REPLICAS)
PROPOSALS = st.lists(
    st.builds(
        Proposal,
        st.just(TARGET),
        st.sampled_from(list(Ask)),
        st.integers(0, 20).map(float),
        st.sampled_from(["capacity", "pid", "schedule"]),
        st.sampled_from([Why.DEMAND, Why.SURPLUS, Why.STALE]),
        st.dictionaries(st.sampled_from("ab"), st.integers(0, 2).map(float)),
    ),
    max_size=6,
)


def ask(kind: Ask, value: float, by: str = "capacity") -> Proposal:
    return Proposal(TARGET, kind, value, by, Why.DEMAND)


def test_a_floor_wins_over_a_ceiling_for_capacity_and_loses_for_a_shed() -> None:
    clash = [ask(Ask.AT_LEAST, 8.0), ask(Ask.AT_MOST, 4.0)]

    assert merge(clash, 6.0, relax_down=True).value == 8.0
    assert merge(clash, 6.0, relax_down=False).value == 4.0


def test_a_pin_beats_everything() -> None:
    assert merge([ask(Ask.SET, 12.0), ask(Ask.AT_LEAST, 9.0), ask(Ask.HOLD, 3.0)], 5.0, relax_down=True).value == 3.0


def test_no_proposal_keeps_what_is_there() -> None:
    assert merge([], 5.0, relax_down=True).value == 5.0


def test_a_floor_that_changes_nothing_still_says_why_nothing_changes() -> None:
    kept = Proposal(TARGET, Ask.AT_LEAST, 5.0, "capacity", Why.STALE)

    assert merge([kept], 5.0, relax_down=True).why == Why.STALE


@given(PROPOSALS, st.randoms(use_true_random=False), st.booleans())
def test_the_order_of_proposals_does_not_matter(proposals: list[Proposal], chance: object, relax_down: bool) -> None:
    shuffled = list(proposals)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]

    assert merge(shuffled, 5.0, relax_down=relax_down) == merge(proposals, 5.0, relax_down=relax_down)


@given(PROPOSALS, st.booleans())
def test_saying_it_twice_changes_nothing(proposals: list[Proposal], relax_down: bool) -> None:
    assert merge(proposals * 2, 5.0, relax_down=relax_down) == merge(proposals, 5.0, relax_down=relax_down)


@given(PROPOSALS, st.integers(0, 20))
def test_a_higher_floor_never_lowers_the_outcome(proposals: list[Proposal], floor: int) -> None:
    calm = [p for p in proposals if p.ask != Ask.HOLD]
    before = merge(calm, 5.0, relax_down=True).value
    after = merge([*calm, ask(Ask.AT_LEAST, float(floor))], 5.0, relax_down=True).value

    assert before is not None
    assert after == max(before, float(floor))
