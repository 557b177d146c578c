"""Flood: one tenant's flood is its own trouble, a crowd is everybody's, and a smaller answer is better than none."""

import math
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.core.model import Lever, Proposal, Target, TargetState, Tick
from controller.core.ports import Balance, Brief, Estimate, Limits, View
from controller.core.reading import ok
from controller.core.relief import capped
from controller.core.tenancy import TenantRules
from controller.core.why import Why
from policies.fair_share import FairShare
from policies.flood import floods
from policies.use import Use
from tests.support.cases import NOW, healthy

UNIT = 1000.0  # tokens/s of one replica
NO_LIMIT = 1e12
USUAL = {"ann": 2000.0, "bob": 2000.0, "cat": 2000.0, "dan": 1000.0}
CALM = {"ann": 2.0, "bob": 2.0, "cat": 2.0, "dan": 1.0}
LAW = FairShare(FairShare.Config())


def proposals(
    flows: dict[str, float], carried: float, below: float, *, usual: dict[str, float] | None = None,
    seen: float = 1e6, rules: dict[str, TenantRules] | None = None, left: float | None = None, law: FairShare = LAW,
) -> tuple[dict[str, Proposal], View, Brief]:  # fmt: skip
    """Tenants that ask for so many replicas each, without caps; `below` is what a downgrade could take."""
    demand = math.fsum(flows.values())
    targets = {Target("llm", Lever.TENANT_CAP, name): TargetState(NO_LIMIT) for name in flows}
    view = View(
        Tick(10, NOW, 15.0), healthy(queue_delay=ok(0.0)), targets, dict.fromkeys(targets, Limits(0.0, NO_LIMIT, 1.0)),
        Estimate(demand=demand, unit_tokens=UNIT, flows=flows, trusted=True), rules or {},
    )  # fmt: skip
    brief = Brief(
        Balance(demand, carried, by_flow=flows), max(0.0, demand - 0.95 * carried) if left is None else left,
        below=below,
    )  # fmt: skip
    uses = {name: Use(each, seen) for name, each in (USUAL if usual is None else usual).items() if name in flows}
    made, _ = law.propose(view, (), brief, FairShare.State(at=NOW - 15.0, uses=uses))
    return {p.target.member: p for p in made}, view, brief


def relieved(made: dict[str, Proposal], view: View, brief: Brief) -> float:
    return capped({name: p.value for name, p in made.items()}, view.estimate, brief.balance)


# --- who floods --------------------------------------------------------------------------------------------------


def test_a_crowd_is_nobodys_flood() -> None:
    thrice = {name: 3.2 * each * (1.2 if name == "bob" else 1.0) for name, each in USUAL.items()}

    assert set(floods(thrice, USUAL, 2.0).values()) == {0.0}


def test_a_flood_is_told_from_those_who_suffer_it() -> None:
    assert floods({**USUAL, "dan": 9000.0}, USUAL, 2.0) == {"ann": 0.0, "bob": 0.0, "cat": 0.0, "dan": 1.0}


def test_one_flood_does_not_excuse_another() -> None:
    """Against the mean of all others two that flood together look like a crowd."""
    found = floods({**USUAL, "cat": 40_000.0, "dan": 6000.0}, USUAL, 2.0)

    assert found == {"ann": 0.0, "bob": 0.0, "cat": 1.0, "dan": 1.0}


def test_who_uses_a_third_of_its_promise_makes_nobody_a_flood() -> None:
    """Asking for what one was promised is no flood, however little the others ask for."""
    promised = {"ann": 3000.0, "bob": 3000.0, "dan": 1000.0}

    assert set(floods({"ann": 100.0, "bob": 100.0, "dan": 1400.0}, promised, 2.0).values()) == {0.0}


@pytest.mark.parametrize("usual", [{"ann": 1000.0}, {"ann": 0.0, "bob": 0.0}, {}], ids=["alone", "nothing", "unknown"])
def test_without_others_to_compare_with_nobody_floods(usual: dict[str, float]) -> None:
    demands = dict.fromkeys(usual or {"ann": 1.0}, 5000.0)

    assert set(floods(demands, usual, 2.0).values()) == {0.0}


def test_noise_about_the_threshold_moves_no_cap_by_much() -> None:
    """All or nothing, the cap of a tenant that is just about twice as busy as others would jump every 15 s."""
    found = [floods({**USUAL, "dan": 1000.0 * grown}, USUAL, 2.0)["dan"] for grown in (1.5, 1.6, 1.75, 1.9, 2.0)]

    assert found == pytest.approx([0.0, 0.2, 0.5, 0.8, 1.0])


# --- who is cut --------------------------------------------------------------------------------------------------


def test_who_floods_is_cut_and_nobody_else_is_downgraded_for_it() -> None:
    """The victims of a flood got the smaller model so that more of the flood could be answered."""
    made, view, brief = proposals({**CALM, "dan": 9.0}, 9.0, below=6.0)

    assert made["dan"].why is Why.FAIR_SHARE
    assert made["dan"].value == pytest.approx(0.95 * 9.0 * UNIT - 6000.0, abs=1)
    assert all(made[name].why is Why.STANDING_CAP for name in ("ann", "bob", "cat"))
    assert relieved(made, view, brief) == pytest.approx(brief.left, abs=0.01), "nothing is left to downgrade"
    assert made["dan"].evidence["floods"] == 1.0


def test_a_crowd_that_fits_below_is_not_refused() -> None:
    """Caps that stand before the downgrade refused what the smaller model had room for."""
    thrice = {name: 3.0 * each for name, each in CALM.items()}
    made, view, brief = proposals(thrice, 12.0, below=10.0)

    assert brief.left == pytest.approx(9.6)
    assert relieved(made, view, brief) == 0.0


def test_what_does_not_fit_below_is_cut_of_everybody() -> None:
    thrice = {name: 3.0 * each for name, each in CALM.items()}
    made, view, brief = proposals(thrice, 12.0, below=4.0)

    assert relieved(made, view, brief) == pytest.approx(brief.left - 4.0, abs=0.01)
    for name in ("ann", "bob", "cat"):
        assert made[name].value == pytest.approx((0.95 * 12.0 + 4.0 - 3.0) / 3 * UNIT, abs=1)


def test_where_nothing_is_below_caps_are_what_they_were() -> None:
    """Nobody consents, or no receiver has room: everybody is cut to its max-min part, whoever floods."""
    flows = {**CALM, "ann": 4.0, "dan": 9.0}
    made, view, brief = proposals(flows, 8.0, below=0.0)

    assert made["ann"].value == made["dan"].value == pytest.approx(0.95 * 8.0 / 4 * UNIT, abs=1)
    assert relieved(made, view, brief) == pytest.approx(brief.left, abs=0.01)
    assert "floods" not in made["dan"].evidence


def test_a_flood_keeps_its_guarantee() -> None:
    made, _, _ = proposals({**CALM, "dan": 9.0}, 8.0, below=6.0, rules={"dan": TenantRules(guarantee=2500.0)})

    assert made["dan"].value == 2500.0


def test_a_stranger_that_comes_with_a_flood_is_not_taken_for_one_that_always_was_so_busy() -> None:
    usual = {**USUAL, "dan": 9000.0}
    flows = {**CALM, "dan": 9.0}
    new, view, brief = proposals(flows, 9.0, below=7.0, usual=usual, seen=15.0)
    old, *_ = proposals(flows, 9.0, below=7.0, usual=usual)

    assert relieved(new, view, brief) == pytest.approx(brief.left, abs=0.01)
    assert old["dan"].value >= 9000.0, "that is what it takes on every busy day"


def test_a_pool_taken_for_stronger_than_it_is_sends_nobody_elsewhere_for_a_flood() -> None:
    """A fold that counts less as usable than the law does would leave a rest, and a downgrade rounds it up."""
    made, view, brief = proposals({**CALM, "dan": 9.0}, 9.0, below=6.0, left=15.0 - 0.9 * 9.0)

    assert relieved(made, view, brief) == pytest.approx(15.0 - 0.9 * 9.0, abs=0.01)


def test_an_absurd_room_below_relaxes_nothing() -> None:
    flows = {**CALM, "dan": 9.0}
    without, *_ = proposals(flows, 8.0, below=0.0)
    for absurd in (math.nan, math.inf, -1.0):
        made, *_ = proposals(flows, 8.0, below=absurd)
        assert {n: p.value for n, p in made.items()} == {n: p.value for n, p in without.items()}


many = st.dictionaries(st.sampled_from("abcdef"), st.floats(0.0, 50.0), min_size=1)
uses = st.dictionaries(st.sampled_from("abcdef"), st.floats(0.0, 50_000.0))
rules_of = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(TenantRules, st.one_of(st.just(0.0), st.floats(0.0, 5000.0)), st.floats(0.1, 10.0)),
)
amount = st.floats(0.0, 100.0)


@example(
    {"a": 0.0, "b": 0.0, "c": 7.0, "f": 37.552734375},
    {"a": 9817.0},
    1.0,
    17.921875,
    1.0,
    2.225073858507e-311,
    {"c": TenantRules(0.0, 3.0), "d": TenantRules(), "f": TenantRules(0.0, 2.0)},
)  # room below that is rounded raised the cap of one who asks for nothing
@settings(max_examples=100)
@given(many, uses, st.floats(0.1, 100.0), amount, amount, amount, rules_of)
def test_caps_fall_with_what_is_left_and_never_relieve_more(
    flows: dict[str, float], usual: dict[str, float], carried: float, left: float, more: float, below: float,
    rules: dict[str, TenantRules],
) -> None:  # fmt: skip
    here, view, brief = proposals(flows, carried, below, usual=usual, left=left, rules=rules)
    there, *_ = proposals(flows, carried, below, usual=usual, left=left + more, rules=rules)

    assert relieved(here, view, brief) <= left + len(flows) / UNIT
    assert all(there[name].value <= here[name].value + 1.0 for name in flows)


@settings(max_examples=100)
@given(many, uses, st.floats(0.1, 100.0), amount, amount, rules_of)
def test_more_room_below_cuts_nobody_further_who_does_not_flood(
    flows: dict[str, float], usual: dict[str, float], carried: float, below: float, more: float,
    rules: dict[str, TenantRules],
) -> None:  # fmt: skip
    less, *_ = proposals(flows, carried, below, usual=usual, rules=rules)
    roomy, *_ = proposals(flows, carried, below + more, usual=usual, rules=rules)

    for name in flows:
        if not roomy[name].evidence.get("floods"):
            assert roomy[name].value >= less[name].value - 1.0


def test_how_much_is_a_flood_is_the_users() -> None:
    patient = FairShare(FairShare.Config(flood=20.0))
    flows = {**CALM, "dan": 9.0}
    made, view, brief = proposals(flows, 9.0, below=7.0, law=patient)

    assert relieved(made, view, brief) == 0.0
    assert replace(patient.config, flood=2.0) == LAW.config
