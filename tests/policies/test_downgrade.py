"""Downgrade: nobody without consent, no receiver beyond its room, and back when capacity is warm and not before."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core import relief
from controller.core.model import Ask, Lever, Proposal, Target, TargetState, Tick
from controller.core.ports import Balance, Brief, Estimate, Limits, View
from controller.core.rules import LeverRules, PoolRules
from controller.core.tenancy import ClassRules, TenantRules
from controller.core.why import Why
from controller.run.codec import decode, encode
from policies.downgrade import Downgrade, consenting
from tests.support.cases import NOW, healthy

YES, NO = TenantRules(consents=True), TenantRules()
LAW = Downgrade(Downgrade.Config())
LIMITS = Limits(0.0, 1.0, 0.01)


def target(receiver: str) -> Target:
    return Target("llm", Lever.DOWNGRADE, receiver)


def case(
    left: float, shares: dict[str, float], *, at: float = 0.0, demand: float = 10.0, carried: float | None = None,
    flows: dict[str, float] | None = None, classes: dict[str, float] | None = None,
    rules: dict[str, TenantRules] | None = None, class_rules: dict[str, ClassRules] | None = None,
    room: dict[str, float] | None = None, exchange: dict[str, float] | None = None, trusted: bool = True,
    burning: bool = False,
) -> tuple[View, Brief]:  # fmt: skip
    """A pool with a demand of 10, of which `a` consents to 8 and `b` to nothing; receivers with room for all of it at a
    quarter of the cost. What is carried is what `left` leaves."""
    view = View(
        Tick(5, NOW + at, 15.0),
        healthy(),
        {target(name): TargetState(share) for name, share in shares.items()},
        dict.fromkeys(map(target, shares), LIMITS),
        Estimate(demand=demand, trusted=trusted, burning=burning),
        rules if rules is not None else {"a": YES, "b": NO},
        class_rules or {},
    )
    balance = Balance(
        demand,
        max(0.0, demand - left) / 0.95 if carried is None else carried,
        by_flow=flows if flows is not None else {"a": 8.0, "b": 2.0},
        by_class=classes or {},
        room=room if room is not None else dict.fromkeys(shares, 100.0),
        exchange=exchange if exchange is not None else dict.fromkeys(shares, 0.25),
    )
    return view, Brief(balance, left)


def propose(
    view: View, brief: Brief, state: Downgrade.State | None = None, law: Downgrade = LAW
) -> tuple[dict[str, Proposal], Downgrade.State]:
    proposals, after = law.propose(view, (), brief, state if state is not None else law.initial())
    return {p.target.member: p for p in proposals}, after


def values(made: dict[str, Proposal]) -> dict[str, float]:
    return {name: round(p.value, 9) for name, p in made.items()}


@pytest.mark.parametrize("fits", [None, math.nan, -0.1])
def test_while_the_sizes_of_prompts_are_not_known_nothing_more_is_sent_and_nothing_comes_back(
    fits: float | None,
) -> None:
    for left in (0.0, 4.0):
        view, brief = case(left, {"small": 0.3})
        made, _ = propose(view, replace(brief, balance=replace(brief.balance, fitting=fits)))
        assert (made["small"].ask, made["small"].value, made["small"].why) == (Ask.AT_LEAST, 0.3, Why.MISSING)


def test_a_share_counts_only_as_far_as_prompts_may_go() -> None:
    """A quarter of the work of who consents is of short prompts: it takes four times the share to relieve the same."""
    view, brief = case(1.0, {"small": 0.0})
    some = replace(brief.balance, fitting=0.25)
    assert consenting(view.tenants, view.classes, brief.balance) == 8.0
    assert consenting(view.tenants, view.classes, some) == 2.0
    rules = PoolRules("llm", (), (), (), tenants=view.tenants)
    lever = LeverRules(Lever.DOWNGRADE, "downgrade", "twin", members=("small",))
    assert relief.given(lever, {"small": 0.5}, rules, view.estimate, some) == pytest.approx(1.0)
    assert relief.given(lever, {"small": 0.5}, rules, view.estimate, replace(some, fitting=None)) == 0.0
    here = relief.Here()
    relief.given(lever, {"small": 0.5}, rules, view.estimate, some, here)
    assert here.flow(some, "a") == pytest.approx(7.0)  # the rest is still here for the next lever


def run(
    left: float, share: float, ticks: int, state: Downgrade.State | None = None, start: float = 0.0, **more: object
) -> tuple[list[float], Downgrade.State]:
    """Shares of one receiver, tick by tick, when every proposal is taken as it is."""
    state, shares = state if state is not None else Downgrade.State(), []
    for i in range(ticks):
        made, state = propose(*case(left, {"small": share}, at=start + i * 15.0, **more), state)  # type: ignore[arg-type]
        share = made["small"].value
        shares.append(share)
    return shares, state


def test_the_share_ramps_to_what_is_left_of_those_that_consent() -> None:
    """2 of 8 is a quarter."""
    shares, _ = run(2.0, 0.0, 5)

    assert shares == pytest.approx([0.1, 0.2, 0.25, 0.25, 0.25])


def test_a_share_on_its_ramp_tells_the_ramp() -> None:
    """ "asked 0.1 ... need 0.346" """
    made, _ = propose(*case(4.0, {"small": 0.0}))
    there, _ = propose(*case(0.4, {"small": 0.0}))

    assert made["small"].value == pytest.approx(0.1)
    assert made["small"].evidence["ramp"] == 0.1
    assert "ramp" not in there["small"].evidence


def test_nobody_who_did_not_agree_is_sent() -> None:
    """In whatever way nobody consents: the share is none, whatever is left, and at once."""
    for rules, classes in (
        ({"a": NO, "b": NO}, {}),
        ({"a": YES}, {"batch": ClassRules()}),
        ({"a": NO}, {"batch": ClassRules(consents=True)}),
        ({}, {}),
    ):
        made, _ = propose(*case(5.0, {"small": 0.3}, rules=rules, class_rules=classes, classes={"batch": 5.0}))
        assert (made["small"].ask, made["small"].value, made["small"].why) == (Ask.SET, 0.0, Why.NO_CONSENT)


@pytest.mark.parametrize(
    ("rules", "class_rules", "expected"),
    [
        ({"a": YES, "b": NO}, {}, 8.0),
        ({}, {"batch": ClassRules(consents=True), "chat": ClassRules()}, 3.0),
        ({"a": YES, "b": NO}, {"batch": ClassRules(consents=True), "chat": ClassRules()}, 3.0),
        ({"a": NO, "b": YES}, {"batch": ClassRules(consents=True), "chat": ClassRules()}, 2.0),
    ],
)
def test_what_consents_is_at_most_either_side_as_the_fold_counts_it(
    rules: dict[str, TenantRules], class_rules: dict[str, ClassRules], expected: float
) -> None:
    balance = Balance(10.0, 5.0, by_flow={"a": 8.0, "b": 2.0}, by_class={"batch": 3.0, "chat": 7.0})
    pool = PoolRules("llm", (), (), (), tenants=rules, classes=class_rules)

    assert consenting(rules, class_rules, balance) == expected
    assert relief.consenting(pool, balance) == expected


def test_a_nearly_full_receiver_gets_its_room_and_no_more() -> None:
    """Room of 0.1 at a quarter of the cost is 0.4 of 8; what was sent is not in its readings for a minute."""
    shares, state = run(4.0, 0.0, 4, room={"small": 0.1})
    assert shares == pytest.approx([0.05] * 4)

    again, _ = run(4.0, 0.05, 5, state, start=60.0, room={"small": 0.1})
    assert again[-1] == pytest.approx(0.1)  # once a minute, as long as the room is still told
    made, _ = propose(*case(4.0, {"small": 0.1}, room={"small": 0.0}))
    assert (made["small"].value, made["small"].why) == (0.1, Why.NO_ROOM)


def test_the_cheapest_receiver_is_filled_first_and_emptied_last() -> None:
    shares, exchange = {"dear": 0.0, "cheap": 0.0}, {"dear": 1.0, "cheap": 0.25}
    made, _ = propose(*case(4.0, shares, exchange=exchange, room={"dear": 9.0, "cheap": 0.1}))
    assert values(made) == {"cheap": 0.05, "dear": 0.05}  # ten points together

    back, _ = propose(
        *case(0.8, {"dear": 0.3, "cheap": 0.2}, exchange=exchange, demand=10.0, carried=20.0, at=100.0),
        Downgrade.State(enough_since=NOW),
    )
    assert values(back) == {"cheap": 0.1, "dear": 0.0}


def test_a_shift_to_the_same_model_elsewhere_is_the_same_law() -> None:
    made, _ = propose(*case(4.0, {"eu": 0.0}, exchange={"eu": 1.0}, room={"eu": 0.4}))

    assert values(made) == {"eu": 0.05}


# --- back ------------------------------------------------------------------------------------------------------------


def test_it_comes_back_when_capacity_reaches_further_and_for_long_enough() -> None:
    at_the_edge, _ = run(0.0, 0.25, 20, carried=10.0 / 0.94)  # carried, but with less than the margin
    assert at_the_edge[-1] > 0.05
    warm, _ = run(0.0, 0.25, 6, carried=10.0 / 0.85)
    assert warm == pytest.approx([0.25] * 4 + [0.0] * 2)


def test_a_load_at_the_edge_does_not_make_it_flap() -> None:
    state, share, moves = Downgrade.State(), 0.25, 0
    for i in range(80):
        left = 2.0 if i % 2 else 1.7
        made, state = propose(*case(left, {"small": share}, at=i * 15.0), state)
        moves += made["small"].value != share
        share = made["small"].value

    assert moves == 0


def test_what_the_rungs_above_relieve_is_not_kept_twice() -> None:
    """Tenant caps took all that was left: the share goes, but for the margin."""
    shares, _ = run(0.0, 0.25, 6, carried=5.0)

    assert shares[-1] <= 0.05 * 5.0 / 8.0 + 0.01


def test_a_burning_budget_sends_a_share_where_that_is_wanted() -> None:
    law = Downgrade(Downgrade.Config(on_burn=0.05))
    made, _ = propose(*case(0.0, {"small": 0.0}, burning=True, carried=20.0), law=law)
    assert (made["small"].value, made["small"].why) == (0.05, Why.BUDGET_BURN)
    assert propose(*case(0.0, {"small": 0.0}, burning=True, carried=20.0))[0]["small"].value == 0.0


# --- data ------------------------------------------------------------------------------------------------------------


def test_unknown_numbers_keep_what_is_sent_and_send_no_more() -> None:
    for view, brief in (
        case(0.0, {"small": 0.2}, flows={}),
        case(0.0, {"small": 0.2}, flows={"a": math.nan}),
        case(0.0, {"small": 0.2}, demand=math.nan),
        case(math.nan, {"small": 0.2}, carried=5.0),
        case(0.0, {"small": 0.2}, carried=math.nan),
        case(0.0, {"small": 0.2}, carried=50.0, trusted=False),
    ):
        made, _ = propose(view, brief, Downgrade.State(enough_since=NOW - 1e4))
        assert (made["small"].ask, made["small"].value) == (Ask.AT_LEAST, 0.2)


@pytest.mark.parametrize(
    ("room", "exchange"),
    [
        ({}, {"small": 0.25}), ({"small": 9.0}, {}), ({"small": math.nan}, {"small": 0.25}),
        ({"small": 9.0}, {"small": -1.0}),
    ],
)  # fmt: skip
def test_a_receiver_that_is_not_known_gets_no_more(room: dict[str, float], exchange: dict[str, float]) -> None:
    made, _ = propose(*case(4.0, {"small": 0.2}, room=room, exchange=exchange))

    assert made["small"].value == 0.2


def test_a_gap_starts_the_hold_anew() -> None:
    _, state = run(0.0, 0.25, 3, carried=20.0)
    _, state = propose(*case(0.0, {"small": 0.25}, at=45.0, flows={}), state)
    made, _ = propose(*case(0.0, {"small": 0.25}, at=60.0, carried=20.0), state)

    assert made["small"].value == 0.25


def test_its_memory_goes_to_the_ledger_and_back() -> None:
    _, state = run(2.0, 0.0, 3)

    assert state.rises
    assert decode(Downgrade.State, encode(state)) == state


def test_a_margin_that_is_all_is_refused() -> None:
    with pytest.raises(ValueError, match="margin: is not below utilisation"):
        Downgrade(Downgrade.Config(utilisation=0.5, margin=0.5))


# --- properties ------------------------------------------------------------------------------------------------------

names = st.sampled_from(["p", "q", "r"])
positive = st.floats(0.0, 50.0)
shares_of = st.dictionaries(names, st.integers(0, 33).map(lambda n: n / 100), min_size=1)
per_name = st.dictionaries(names, st.floats(0.01, 4.0))
some_rules = st.dictionaries(st.sampled_from("abc"), st.sampled_from([YES, NO]), min_size=1)
some_flows = st.dictionaries(st.sampled_from("abc"), positive, min_size=1)
holds = st.sampled_from([None, NOW - 10.0, NOW - 1e4])


def at_left(
    left: float, shares: dict[str, float], carried: float, flows: dict[str, float], rules: dict[str, TenantRules],
    room: dict[str, float], exchange: dict[str, float], since: float | None,
) -> dict[str, Proposal]:  # fmt: skip
    made, _ = propose(
        *case(
            left, shares, demand=math.fsum(flows.values()), carried=carried, flows=flows, rules=rules, room=room,
            exchange=exchange,
        ),
        Downgrade.State(enough_since=since),
    )  # fmt: skip
    return made


@settings(max_examples=200)
@given(positive, positive, shares_of, positive, some_flows, some_rules, per_name, per_name, holds)
def test_shares_rise_with_what_is_left(
    left: float, more: float, shares: dict[str, float], carried: float, flows: dict[str, float],
    rules: dict[str, TenantRules], room: dict[str, float], exchange: dict[str, float], since: float | None,
) -> None:  # fmt: skip
    here = at_left(left, shares, carried, flows, rules, room, exchange, since)
    there = at_left(left + more, shares, carried, flows, rules, room, exchange, since)

    assert all(there[name].value >= here[name].value - 1e-9 for name in shares)


@settings(max_examples=200)
@given(positive, shares_of, positive, some_flows, some_rules, per_name, per_name, holds)
def test_no_rise_relieves_more_than_is_left_or_fits(
    left: float, shares: dict[str, float], carried: float, flows: dict[str, float], rules: dict[str, TenantRules],
    room: dict[str, float], exchange: dict[str, float], since: float | None,
) -> None:  # fmt: skip
    made = at_left(left, shares, carried, flows, rules, room, exchange, since)
    agreed = consenting(rules, {}, Balance(0.0, 0.0, by_flow=flows)) or 0.0
    before, total = math.fsum(shares.values()), math.fsum(p.value for p in made.values())

    assert total * agreed <= max(left, before * agreed) + 0.01 * agreed + 1e-6
    assert total <= before + 0.1 + 1e-9
    for name, proposal in made.items():
        more = max(0.0, proposal.value - shares[name])
        assert more * agreed * exchange.get(name, math.inf) <= room.get(name, 0.0) + 1e-6 or more == 0.0
    if not any(one.consents for one in rules.values()):
        assert total == 0.0


@settings(max_examples=100)
@given(
    st.sampled_from([math.nan, math.inf, -math.inf, -1.0]), shares_of,
    st.sampled_from(["demand", "carried", "left", "flow", "room", "exchange"]), holds,
)  # fmt: skip
def test_absurd_numbers_never_relax(bad: float, shares: dict[str, float], where: str, since: float | None) -> None:
    view, brief = case(1e-9, shares, carried=1e6)
    if where == "left":
        brief = replace(brief, left=bad)
    elif where == "flow":
        brief = replace(brief, balance=replace(brief.balance, by_flow={"a": bad}))
    elif where in ("room", "exchange"):
        brief = replace(brief, left=8.0, balance=replace(brief.balance, **{where: dict.fromkeys(shares, bad)}))  # type: ignore[arg-type]
    else:
        brief = replace(brief, balance=replace(brief.balance, **{where: bad}))  # type: ignore[arg-type]
    made, after = propose(view, brief, Downgrade.State(enough_since=since))

    assert all(p.value >= shares[name] for name, p in made.items())
    assert all(math.isfinite(p.value) and all(map(math.isfinite, p.evidence.values())) for p in made.values())
    assert decode(Downgrade.State, encode(after)) == after


def test_a_flood_that_caps_hold_back_keeps_nobody_at_the_smaller_model() -> None:
    """What was sent in its first minute was kept as long as the flood went on: caps let through all that is carried,
    so that the reach that a share waits for never came."""
    view, brief = case(0.0, {"small": 0.16}, demand=22.0, carried=12.0)
    made, state = propose(view, replace(brief, short=10.6))
    late, brief = case(0.0, {"small": 0.16}, demand=22.0, carried=12.0, at=75.0)
    gone, _ = propose(late, replace(brief, short=10.6), state)
    kept, _ = propose(late, brief, propose(view, brief)[1])

    assert (values(made), values(gone)) == ({"small": 0.16}, {"small": 0.0})
    assert kept["small"].value > 0.0, "without caps above it waits for the margin"
