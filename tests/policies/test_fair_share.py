"""Fair share: a flood is one tenant's own trouble, guarantees hold while they can, and nobody starves."""

import math
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.core.model import Ask, Lever, PoolReadings, Proposal, Scope, Target, TargetState, Tick
from controller.core.ports import Balance, Brief, Estimate, Limits, View
from controller.core.reading import Reading, State, ok
from controller.core.relief import capped
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.tenancy import TenantRules
from controller.core.why import SENTENCE, Why
from controller.run.codec import decode, encode
from policies.fair_share import FairShare
from policies.use import Use
from tests.support.cases import NOW, healthy

UNIT = 1000.0  # tokens/s of one replica
NO_LIMIT = 1e12
LIMITS = Limits(0.0, NO_LIMIT, 1.0)
TTFT = (Objective("ttft", Signal.TTFT, 2.0, 0.95, 300.0),)
LAW = FairShare(FairShare.Config())


def target(tenant: str) -> Target:
    return Target("llm", Lever.TENANT_CAP, tenant)


def case(
    flows: dict[str, float], carried: float, *, caps: dict[str, float] | None = None, other: float = 0.0,
    left: float | None = None, rules: dict[str, TenantRules] | None = None, pool: PoolReadings | None = None,
    at: float = 0.0, trusted: bool = True,
) -> tuple[View, Brief]:  # fmt: skip
    """Tenants that ask for so many replicas each; `left` as the fold has it where there is no other lever."""
    demand = math.fsum(flows.values()) + other
    caps = caps if caps is not None else dict.fromkeys(flows, NO_LIMIT)
    view = View(
        Tick(10, NOW + at, 15.0),
        pool if pool is not None else healthy(queue_delay=ok(0.0)),
        {target(name): TargetState(cap) for name, cap in caps.items()},
        dict.fromkeys(map(target, caps), LIMITS),
        Estimate(demand=demand, unit_tokens=UNIT, flows=flows, trusted=trusted),
        rules or {},
    )
    wanted = max(0.0, demand - 0.95 * carried) if left is None else left
    return view, Brief(Balance(demand, carried, by_flow=flows), wanted)


def propose(
    view: View, brief: Brief, state: FairShare.State | None = None, law: FairShare = LAW
) -> dict[str, Proposal]:
    proposals, _ = law.propose(view, TTFT, brief, state if state is not None else law.initial())
    return {p.target.member: p for p in proposals}


def values(made: dict[str, Proposal]) -> dict[str, float]:
    return {name: p.value for name, p in made.items()}


def after(state: FairShare.State, view: View, brief: Brief) -> FairShare.State:
    return LAW.propose(view, TTFT, brief, state)[1]


def known(**p99: float) -> FairShare.State:
    """Tenants whose use is known since long ago."""
    return FairShare.State(at=NOW - 15.0, uses={name: Use(each, 1e6) for name, each in p99.items()})


# --- standing ----------------------------------------------------------------------------------------------------


def test_a_standing_cap_is_twice_the_busiest_use_or_the_guarantee() -> None:
    """A full pool: nothing is spare."""
    rules = {"a": TenantRules(), "b": TenantRules(guarantee=900.0)}
    caps = values(propose(*case({"a": 1.0, "b": 0.2}, 1.2 / 0.95, rules=rules), known(a=1100.0, b=300.0)))

    assert caps == {"a": 2200.0, "b": 900.0}


def test_the_evidence_of_a_standing_cap_says_what_decided_it() -> None:
    """ "its guarantee, twice its busiest use, or most of what is spare", and never which."""
    rules = {"a": TenantRules(), "b": TenantRules(guarantee=900.0)}
    full = propose(*case({"a": 1.0, "b": 0.2}, 1.2 / 0.95, rules=rules), known(a=1100.0, b=300.0))
    roomy = propose(*case({"a": 1.0, "b": 1.0}, 4.0), known(a=600.0, b=600.0))

    assert full["a"].evidence["of_use"] == pytest.approx(2200.0, abs=1)
    assert full["b"].evidence["of_guarantee"] == 900.0
    assert roomy["a"].evidence["of_spare"] == 2080.0
    assert "of_part" in propose(*case({"a": 0.95, "new": 0.0}, 1.0), FairShare.State())["new"].evidence


def test_most_of_what_is_spare_is_open_to_each_tenant_but_not_all_at_once() -> None:
    """No idle replicas beside refused requests; and no tenant alone can fill the pool before anybody looks again."""
    caps = values(propose(*case({"a": 1.0, "b": 1.0}, 4.0), known(a=600.0, b=600.0)))

    assert caps == {"a": 2080.0, "b": 2080.0}  # 0.6 of 1.8 replicas


def test_a_stranger_is_capped_at_its_part_until_it_is_known() -> None:
    """The cap must stand before the first flood, and there is no history to make it from."""
    caps = values(propose(*case({"a": 0.95, "new": 0.0}, 1.0), FairShare.State()))

    assert caps["new"] == pytest.approx(475.0, abs=1)


def ahead(flows: dict[str, float], carried: float, forecast: float) -> dict[str, float]:
    view, brief = case(flows, carried)
    return values(propose(view, replace(brief, balance=replace(brief.balance, ahead=forecast)), known(a=1.0, b=1.0)))


def test_caps_stand_tight_before_an_overload_that_is_forecast() -> None:
    """With what is spare now each could take most of it at once, a minute before all of it is needed."""
    flows, carried = {"a": 1.0, "b": 1.0}, 4.0  # 3.8 may be in use
    now, soon, over = ahead(flows, carried, 0.5), ahead(flows, carried, 3.0), ahead(flows, carried, 9.0)

    assert now == {"a": 2080.0, "b": 2080.0}  # demand + 0.6 of 1.8 replicas
    assert soon == {"a": 1980.0, "b": 1980.0}  # demand as forecast + 0.6 of 0.8 replicas
    assert over == {"a": 1900.0, "b": 1900.0}  # together all that is carried, and nothing beyond


def test_a_forecast_opens_no_cap_further() -> None:
    """The flood of one tenant was forecast as growth of all, and most of that growth was its own."""
    with_it, without = ahead({"a": 2.0, "b": 0.2}, 4.0, 3.6), ahead({"a": 2.0, "b": 0.2}, 4.0, 0.0)

    assert with_it["a"] == without["a"] == 2960.0
    assert with_it["b"] < without["b"]


def test_a_forecast_takes_from_nobody_what_it_has() -> None:
    assert ahead({"a": 3.0, "b": 2.0}, 4.0, 9.0) == ahead({"a": 3.0, "b": 2.0}, 4.0, 0.0)


def test_no_spare_while_requests_wait() -> None:
    """The model may be wrong; a queue is not."""
    late = healthy(queue_delay=ok(3.0))
    caps = values(propose(*case({"a": 1.0, "b": 1.0}, 4.0, pool=late), known(a=1100.0, b=1100.0)))

    assert caps == {"a": 2200.0, "b": 2200.0}


def test_small_changes_of_a_standing_cap_are_no_writes() -> None:
    made = propose(*case({"a": 1.0}, 1.0 / 0.95, caps={"a": 2100.0}), known(a=1100.0))

    assert made["a"].value == 2100.0
    assert made["a"].why is Why.STEADY


def test_a_flood_of_minutes_hardly_moves_the_p99_and_a_tenant_that_grew_is_followed() -> None:
    state, at = known(a=1000.0), 0.0
    for _ in range(16):  # four minutes at ten times its use
        at += 15.0
        state = after(state, *case({"a": 10.0}, 20.0, at=at))
    assert state.uses["a"].p99 < 1100.0
    for _ in range(4 * 60 * 4):  # four hours at twice its use
        at += 15.0
        state = after(state, *case({"a": 2.0}, 20.0, at=at))
    assert state.uses["a"].p99 == pytest.approx(2000.0, rel=0.01)


def test_the_p99_is_that_of_the_use_over_a_long_time() -> None:
    """Two values, the higher one for 3 % of the time is above the p99, for 0.3 % it is not."""
    for share, expected in ((0.03, 3000.0), (0.003, 1000.0)):
        state, at = known(a=1000.0), 0.0
        for i in range(10_000):
            at += 120.0
            busy = (i * 7919) % 1000 < share * 1000
            state = after(state, *case({"a": 3.0 if busy else 1.0}, 20.0, at=at))
        assert state.uses["a"].p99 == pytest.approx(expected, rel=0.1)


def test_a_use_is_no_more_than_its_cap_lets_through() -> None:
    """Else a flood that is refused would raise its own standing cap."""
    state = FairShare.State(at=NOW - 15.0, uses={"a": Use(500.0, 30.0)})

    assert after(state, *case({"a": 50.0}, 2.0, caps={"a": 700.0})).uses["a"].p99 <= 700.0


# --- shortfall ---------------------------------------------------------------------------------------------------


def test_a_flood_is_cut_to_its_part_and_nobody_else_is() -> None:
    flows = {"a": 0.3, "b": 0.3, "c": 0.3, "flood": 8.0}
    made = propose(*case(flows, 2.0), known(a=400.0, b=400.0, c=400.0, flood=100.0))

    assert made["flood"].value == 1000.0  # 1.9 replicas less 0.9
    assert made["flood"].why is Why.FAIR_SHARE
    assert all(made[name].value >= 1.2 * flows[name] * UNIT for name in "abc")


def test_a_minute_above_the_mean_is_not_refused_to_who_leaves_part_of_its_part() -> None:
    """Else tenants that ask for a little less than their part would be refused every other minute."""
    caps = values(propose(*case({"a": 0.5, "b": 0.9, "flood": 8.0}, 3.0 / 0.95), known(a=9e3, b=9e3, flood=9e3)))

    assert caps == {"a": 2700.0, "b": 2300.0, "flood": 1600.0}


def test_weights_divide_what_is_backlogged() -> None:
    rules = {"a": TenantRules(weight=1.0), "b": TenantRules(weight=3.0)}
    caps = values(propose(*case({"a": 9.0, "b": 9.0}, 4.0 / 0.95, rules=rules)))

    assert caps == {"a": 1000.0, "b": 3000.0}


def test_a_fair_share_tells_its_weight() -> None:
    rules = {"a": TenantRules(weight=3.0), "b": TenantRules()}
    made = propose(*case({"a": 4.0, "b": 4.0}, 2.0, rules=rules), known(a=1e6, b=1e6))

    assert (made["a"].why, made["a"].evidence["weight"]) == (Why.FAIR_SHARE, 3.0)


def test_a_guarantee_comes_before_the_parts_of_others() -> None:
    rules = {"a": TenantRules(guarantee=3000.0), "b": TenantRules()}
    made = propose(*case({"a": 9.0, "b": 9.0}, 4.0 / 0.95, rules=rules))

    assert values(made) == {"a": 3000.0, "b": 1000.0}
    assert made["a"].why is Why.FAIR_SHARE


def test_guarantees_are_cut_in_proportion_only_when_they_cannot_be_kept() -> None:
    """Half of the fleet is lost. Who does not ask for its guarantee leaves it to the others."""
    rules = {name: TenantRules(guarantee=each) for name, each in (("a", 2000.0), ("b", 1000.0), ("idle", 4000.0))}
    made = propose(*case({"a": 5.0, "b": 5.0, "idle": 0.0}, 1.5 / 0.95, rules=rules))

    assert (made["a"].value, made["b"].value) == (1000.0, 500.0)
    assert made["a"].why is made["b"].why is Why.GUARANTEE_INFEASIBLE

    kept = propose(*case({"a": 5.0, "b": 5.0, "idle": 0.0}, 3.1 / 0.95, rules=rules))
    assert kept["a"].value == 2000.0
    assert kept["b"].value == pytest.approx(1100.0, abs=1)


def test_demand_without_a_tenant_has_one_part_and_does_not_starve_the_others() -> None:
    """Nobody can cap it; it must not cap everybody."""
    caps = values(propose(*case({"a": 3.0, "b": 3.0}, 3.0 / 0.95, other=0.5)))
    assert caps == {"a": 1250.0, "b": 1250.0}
    crowded = values(propose(*case({"a": 3.0, "b": 3.0}, 3.0 / 0.95, other=50.0)))
    assert crowded == {"a": 1000.0, "b": 1000.0}


def test_what_higher_rungs_relieved_is_not_cut_again() -> None:
    """Demand 10, 4 carried, 5 went to a smaller model: 1 is left."""
    caps = values(propose(*case({"a": 5.0, "b": 5.0}, 4.0 / 0.95, left=1.0)))

    assert caps == {"a": 4500.0, "b": 4500.0}


@pytest.mark.parametrize(("guarantee", "kept"), [(4000.0, 4000.0), (8000.0, 3900.0)])
def test_who_was_promised_nothing_does_not_starve_beside_who_was_promised_everything(
    guarantee: float, kept: float
) -> None:
    """What cannot be kept is cut by as much as the others get, else together they would be more than there is."""
    rules = {"a": TenantRules(guarantee=guarantee), "b": TenantRules()}
    caps = values(propose(*case({"a": 9.0, "b": 9.0}, 4.0 / 0.95, rules=rules)))

    assert caps == {"a": kept, "b": 100.0}  # 5 % of its half


def test_a_guarantee_that_no_pool_could_keep_does_not_open_the_door_to_a_flood() -> None:
    """Promised 100,000 tokens/s of a pool of 21,000: no limit stood, half a minute of queue was there before the
    shortfall was seen, and 58 % of all requests were late."""
    rules = {"a": TenantRules(), "z": TenantRules(guarantee=100_000.0)}
    made = propose(*case({"a": 1.0, "z": 0.5}, 4.0, rules=rules), known(a=500.0, z=100.0))

    assert (made["z"].value, made["z"].why) == (500.0 + 2300.0, Why.GUARANTEE_INFEASIBLE)
    kept = propose(
        *case({"a": 1.0, "z": 0.5}, 4.0, rules={**rules, "z": TenantRules(guarantee=3800.0)}), known(a=500.0)
    )
    assert (kept["z"].value, kept["z"].why) == (3800.0, Why.STANDING_CAP)


def test_a_queue_behind_guarantees_that_cannot_be_kept_is_drained() -> None:
    """The trim moved no guarantee, so that what was cut stayed at all that the model says, and the queue for good."""
    rules = {"a": TenantRules(guarantee=8000.0), "b": TenantRules()}
    view, brief = case({"a": 9.0, "b": 1.0}, 4.0 / 0.95, rules=rules, left=7.0)

    assert values(propose(view, brief))["a"] == 3900.0
    assert values(propose(view, brief, FairShare.State(trim=0.9)))["a"] == pytest.approx(3510.0, abs=1.0)
    assert values(propose(view, brief, FairShare.State(trim=1.1)))["a"] == 3900.0


def test_a_weight_of_a_thousandth_is_no_sentence_to_nothing() -> None:
    """Weights 1, 0.001 and 1000: caps of 2 and 1 tokens/s, less than a request in ten minutes."""
    rules = {
        "x": TenantRules(), "y": TenantRules(weight=0.001), "z": TenantRules(guarantee=100_000.0, weight=1000.0)
    }  # fmt: skip
    caps = values(propose(*case({"x": 2.0, "y": 2.0, "z": 30.0}, 20.0 / 0.95, rules=rules)))

    assert caps["x"] == caps["y"] == pytest.approx(0.05 * 20_000 / 3, abs=1.0)
    assert caps["x"] + caps["y"] + caps["z"] <= 20_002.0


# --- trim --------------------------------------------------------------------------------------------------------


def test_the_trim_is_cut_once_per_window_and_lag_and_grows_back_slowly() -> None:
    late, fine = healthy(queue_delay=ok(4.0)), healthy(queue_delay=ok(0.1))
    flows, caps = {"a": 5.0, "b": 5.0}, {"a": 2000.0, "b": 2000.0}
    state, trims = FairShare.State(at=NOW, trim=1.1), []
    for i in range(1, 8):
        state = after(state, *case(flows, 4.0, caps=caps, pool=late, at=i * 15.0))
        trims.append(state.trim)
    assert trims[0] == trims[5] == pytest.approx(1.1 * 0.95)
    assert trims[6] == pytest.approx(1.1 * 0.95**2)

    state = after(state, *case(flows, 4.0, caps=caps, pool=fine, at=120.0))
    assert state.trim == pytest.approx(trims[6] + 0.01 / 4)


def test_the_trim_does_not_grow_caps_that_nobody_uses() -> None:
    fine = healthy(queue_delay=ok(0.1))
    flows, caps = {"a": 1.0, "b": 1.0}, {"a": 2000.0, "b": 2000.0}
    state = after(FairShare.State(at=NOW - 15.0), *case(flows, 1.0, caps=caps, pool=fine))

    assert state.trim == 1.0


def test_the_trim_moves_the_level_and_no_guarantee() -> None:
    rules = {"a": TenantRules(guarantee=3000.0), "b": TenantRules()}
    view, brief = case({"a": 9.0, "b": 9.0}, 4.0 / 0.95, rules=rules)
    caps = values(propose(view, brief, FairShare.State(trim=1.1)))

    assert caps == {"a": 3000.0, "b": 1100.0}


# --- data ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "spoilt",
    [
        {"unit_tokens": None}, {"unit_tokens": math.nan}, {"unit_tokens": -5.0}, {"unit_tokens": 0.0},
        {"trusted": False},
    ],
)  # fmt: skip
def test_an_estimate_that_is_none_relaxes_nothing(spoilt: dict[str, object]) -> None:
    view, brief = case({"a": 0.1, "b": 0.1}, 4.0, caps={"a": 100.0, "b": 50.0})
    made = propose(replace(view, estimate=replace(view.estimate, **spoilt)), brief)  # type: ignore[arg-type]

    assert {(p.ask, p.value) for p in made.values()} == {(Ask.AT_MOST, 100.0), (Ask.AT_MOST, 50.0)}


@pytest.mark.parametrize(
    ("balance", "left"),
    [
        (Balance(math.nan, 4.0, by_flow={"a": 0.1, "b": 0.1}), 0.0),
        (Balance(0.2, math.nan, by_flow={"a": 0.1, "b": 0.1}), 0.0),
        (Balance(0.2, 0.0, by_flow={"a": 0.1, "b": 0.1}), 0.2),
        (Balance(0.2, math.inf, by_flow={"a": 0.1, "b": 0.1}), 0.0),
        (Balance(0.2, 4.0, by_flow={"a": math.nan, "b": -1.0}), 0.0),
        (Balance(0.2, 4.0), 0.0),
        (Balance(0.2, 4.0, by_flow={"a": 0.1, "b": 0.1}), math.nan),
    ],
)
def test_a_balance_that_is_none_relaxes_nothing(balance: Balance, left: float) -> None:
    view, _ = case({"a": 0.1, "b": 0.1}, 4.0, caps={"a": 100.0, "b": 50.0})
    made = propose(view, Brief(balance, left))

    assert {name: (p.ask, p.value) for name, p in made.items()} == {
        "a": (Ask.AT_MOST, 100.0), "b": (Ask.AT_MOST, 50.0)
    }  # fmt: skip


@pytest.mark.parametrize("state", [State.MISSING, State.STALE, State.PARTIAL, State.UNDERFILLED])
def test_a_tenant_that_is_not_seen_keeps_its_cap_and_may_still_be_cut(state: State) -> None:
    reading = Reading(state, None if state is State.MISSING else 1.0)
    pool = replace(healthy(queue_delay=ok(0.0)), tenants={"a": Scope({Signal.OFFERED_RATE: reading}), "b": Scope({})})
    pool = replace(pool, tenants={"a": Scope({Signal.OFFERED_RATE: reading})})
    calm = propose(*case({"a": 0.1, "b": 0.1}, 4.0, caps={"a": 100.0, "b": 50.0}, pool=pool))
    assert (calm["a"].ask, calm["a"].value) == (Ask.AT_MOST, 100.0)
    assert calm["b"].ask is Ask.SET

    short = propose(*case({"a": 8.0, "b": 0.1}, 2.0, pool=pool))
    assert short["a"].ask is Ask.SET
    assert short["a"].value == 1800.0


def test_a_tenant_whose_demand_is_not_told_is_neither_raised_nor_cut() -> None:
    made = propose(*case({"a": 8.0}, 2.0, caps={"a": NO_LIMIT, "silent": 300.0}, rules={"silent": TenantRules(500.0)}))

    assert (made["silent"].ask, made["silent"].value) == (Ask.AT_MOST, 300.0)


def test_its_memory_goes_to_the_ledger_and_back() -> None:
    state = after(known(a=123.456, b=1.0), *case({"a": 8.0, "b": 1.0}, 2.0, pool=healthy(queue_delay=ok(9.0))))

    assert state.trim < 1.0
    assert decode(FairShare.State, encode(state)) == state


def test_a_cut_larger_than_the_trim_is_refused() -> None:
    with pytest.raises(ValueError, match="cut: is above trim"):
        FairShare(FairShare.Config(trim=0.05, cut=0.1))


# --- properties ------------------------------------------------------------------------------------------------------

names = st.sampled_from("abcdef")
tenants = st.dictionaries(
    names, st.builds(TenantRules, st.one_of(st.just(0.0), st.floats(0.0, 5000.0)), st.floats(0.1, 10.0)), max_size=6
)
many = st.dictionaries(names, st.floats(0.0, 50.0), min_size=1)
currents = st.dictionaries(names, st.one_of(st.just(NO_LIMIT), st.floats(1.0, 1e5)))


def standing(p99: dict[str, float], trim: float) -> FairShare.State:
    return FairShare.State(NOW - 15.0, {name: Use(each, 1e6) for name, each in p99.items()}, trim)


states = st.builds(standing, st.dictionaries(names, st.floats(0.0, 50_000.0)), st.floats(0.85, 1.15))


def at_left(
    flows: dict[str, float], now: dict[str, float], carried: float, left: float, rules: dict[str, TenantRules],
    state: FairShare.State, other: float,
) -> dict[str, Proposal]:  # fmt: skip
    caps = {name: now.get(name, NO_LIMIT) for name in flows}
    return propose(*case(flows, carried, caps=caps, other=other, left=left, rules=rules), state)


def _trimmed(caps: dict[str, float], flows: dict[str, float], rules: dict[str, TenantRules]) -> float:
    """What the trim may take of guarantees that are cut, replica-equivalents."""
    cut = [
        caps[name] / UNIT
        for name, d in flows.items()
        if caps[name] < min(rules.get(name, TenantRules()).guarantee, d * UNIT) - 1.0
    ]
    return math.fsum(cut) * (1.0 / 0.85 - 1.0)


@settings(max_examples=200)
@given(many, currents, st.floats(0.1, 100.0), st.floats(0.0, 100.0), tenants, states, st.floats(0.0, 20.0))
def test_never_more_is_relieved_than_is_left(
    flows: dict[str, float], now: dict[str, float], carried: float, left: float, rules: dict[str, TenantRules],
    state: FairShare.State, other: float,
) -> None:  # fmt: skip
    """Guarantees that cannot be kept follow the trim, which is at most 15 % and has seen that requests are late."""
    caps = values(at_left(flows, now, carried, left, rules, state, other))
    view, brief = case(flows, carried, left=left)

    assert capped(caps, view.estimate, brief.balance) <= left + _trimmed(caps, flows, rules) + 1.0 / UNIT


@settings(max_examples=200)
@given(
    many, currents, st.floats(0.1, 100.0), st.floats(0.0, 100.0), st.floats(0.0, 50.0), tenants, states,
    st.floats(0.0, 20.0),
)  # fmt: skip
def test_caps_fall_with_what_is_left(
    flows: dict[str, float], now: dict[str, float], carried: float, left: float, more: float,
    rules: dict[str, TenantRules], state: FairShare.State, other: float,
) -> None:  # fmt: skip
    """With the trim at rest; it is feedback on time, not on what is left."""
    state = state._replace(at=NOW)
    here = values(at_left(flows, now, carried, left, rules, state, other))
    there = values(at_left(flows, now, carried, left + more, rules, state, other))

    assert all(there[name] <= here[name] + 1.0 for name in flows)


@settings(max_examples=200)
@given(many, currents, st.floats(0.1, 100.0), st.floats(0.0, 100.0), tenants, states, st.floats(0.0, 1e3))
def test_nobody_starves(
    flows: dict[str, float], now: dict[str, float], carried: float, left: float, rules: dict[str, TenantRules],
    state: FairShare.State, other: float,
) -> None:  # fmt: skip
    """Whatever others ask for, were promised or weigh: some of its part is everybody's."""
    caps = values(at_left(flows, now, carried, left, rules, state, other))
    weights = math.fsum(rules.get(name, TenantRules()).weight for name in flows)

    for name in flows:
        part = max(rules.get(name, TenantRules()).weight / weights, 1.0 / len(flows))
        assert caps[name] >= 0.05 * 0.95 * carried * UNIT * part - 1e-6
        assert caps[name] > 0


@example({"a": 1.0, "b": 3.0, "c": 1.0}, {}, 2.75, {"a": TenantRules(0.0, 9.0), "b": TenantRules(2322.0)})
@settings(max_examples=200)
@given(many, currents, st.floats(0.1, 100.0), tenants)
def test_no_tenant_is_capped_below_max_min_and_guarantees_hold_while_they_can(
    flows: dict[str, float], now: dict[str, float], carried: float, rules: dict[str, TenantRules]
) -> None:
    """Against a max-min made by filling up step by step."""
    caps = values(propose(*case(flows, carried, caps={n: now.get(n, NO_LIMIT) for n in flows}, rules=rules)))
    supply = 0.95 * carried * UNIT
    rule = {name: rules.get(name, TenantRules()) for name in flows}
    demand = {name: flows[name] * UNIT for name in flows}
    own = {name: min(demand[name], rule[name].guarantee) for name in flows}
    if math.fsum(own.values()) > supply:
        return
    assert all(caps[name] >= own[name] - 1e-6 for name in flows)
    weights = math.fsum(one.weight for one in rule.values())
    # What nobody is capped below comes before what weights divide.
    floors = {n: 0.05 * supply * max(one.weight / weights, 1 / len(flows)) for n, one in rule.items()}
    least = {n: max(one.guarantee, floors[n]) for n, one in rule.items()}
    lo, hi = 0.0, 1e9
    for _ in range(200):
        middle = (lo + hi) / 2
        parts = [min(demand[n], max(least[n], rule[n].weight * middle)) for n in flows]
        lo, hi = (middle, hi) if math.fsum(parts) <= supply else (lo, middle)
    for name in flows:
        assert caps[name] >= min(demand[name], max(least[name], rule[name].weight * lo)) - 1.0  # the quantum


bad_numbers = st.sampled_from([math.nan, math.inf, -math.inf, -1.0, None])


@settings(max_examples=100)
@given(many, currents, bad_numbers, st.sampled_from(["unit_tokens", "demand", "carried", "left", "flow", "untrusted"]))
def test_absurd_numbers_never_relax(
    flows: dict[str, float], now: dict[str, float], bad: float | None, where: str
) -> None:
    caps = {name: now.get(name, 10.0) for name in flows}
    view, brief = case(flows, 1000.0, caps=caps)
    if where == "unit_tokens":
        view = replace(view, estimate=replace(view.estimate, unit_tokens=bad))
    elif where == "untrusted":
        view = replace(view, estimate=replace(view.estimate, trusted=False))
    elif bad is None:
        return
    elif where == "left":
        brief = replace(brief, left=bad)
    elif where == "flow":
        brief = replace(brief, balance=replace(brief.balance, by_flow=dict.fromkeys(flows, bad)))
    else:
        brief = replace(brief, balance=replace(brief.balance, **{where: bad}))  # type: ignore[arg-type]
    made = propose(view, brief)

    assert all(p.value <= caps[name] for name, p in made.items())
    assert all(math.isfinite(p.value) and all(map(math.isfinite, p.evidence.values())) for p in made.values())


def test_a_reason_is_as_true_of_one_guarantee_and_of_a_raise() -> None:
    """One tenant was promised more than the pool, with no shortfall, and "the guarantees together" were blamed; a cap
    that rose rose "because demand is above what the pool carries"."""
    made = propose(*case({"z": 0.5}, 4.0, rules={"z": TenantRules(guarantee=100_000.0)}), known(z=100.0))

    assert made["z"].why is Why.GUARANTEE_INFEASIBLE
    assert not SENTENCE[made["z"].why].startswith("the guarantees together")
    assert not SENTENCE[Why.FAIR_SHARE].startswith("demand is above")
