"""Shield: what was promised is not refused while others get more, and caps leave to the gate what it does by class."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.model import Lever, PoolReadings, Scope
from controller.core.ports import Brief, View
from controller.core.reading import Reading, State, ok
from controller.core.relief import capped
from controller.core.signals import Signal
from controller.core.tenancy import ClassRules, TenantRules
from policies.fair_share import FairShare
from tests.policies.test_fair_share import NO_LIMIT, TTFT, UNIT, case, many, tenants
from tests.support.cases import NOW, healthy

LAW = FairShare(FairShare.Config())
CLASSES = {"critical": ClassRules(), "batch": ClassRules(rank=1, sheddable=True)}
PROMISED = {"victim": TenantRules(guarantee=2000.0), "flooder": TenantRules(guarantee=500.0)}


def split(made: tuple[View, Brief], sheddable: float) -> tuple[View, Brief]:
    """The same with this share of the demand in a class that may be shed first."""
    view, brief = made
    demand = math.fsum(brief.balance.by_flow.values())
    parts = {"critical": demand * (1.0 - sheddable), "batch": demand * sheddable}
    view = replace(view, classes=CLASSES, acting=frozenset({Lever.ADMISSION}))
    return view, replace(brief, balance=replace(brief.balance, by_class=parts))


def values(view: View, brief: Brief, state: FairShare.State | None = None, law: FairShare = LAW) -> dict[str, float]:
    made, _ = law.propose(view, TTFT, brief, state if state is not None else law.initial())
    return {one.target.member: one.value for one in made}


def stepped(made: tuple[View, Brief], state: FairShare.State) -> FairShare.State:
    return LAW.propose(made[0], TTFT, made[1], state)[1]


def refusing(rate: Reading) -> PoolReadings:
    """A pool in which the victim, who asks for 10 requests/s, is refused so many."""
    scope = Scope({Signal.OFFERED_RATE: ok(10.0), Signal.REJECTED_RATE: rate})
    return replace(healthy(queue_delay=ok(0.0)), tenants={"victim": scope})


def flood(at: float = 15.0, rejected: Reading = ok(0.0)) -> tuple[View, Brief]:  # noqa: B008 - frozen
    """One tenant within its promise, one far above its own; four replicas of use."""
    flows = {"victim": 1.0, "flooder": 9.0}
    return case(flows, 4.0 / 0.95, rules=PROMISED, pool=refusing(rejected), at=at)


def test_a_flooder_gets_what_the_promises_leave() -> None:
    assert values(*flood())["flooder"] == 3000.0


def test_who_is_within_its_promise_and_is_refused_presses_the_flooder_until_it_is_not() -> None:
    """The gate sheds by class, whoever fills the pool: the queue stays short, and the victims' batch work was lost."""
    view, brief = flood(rejected=ok(0.5))
    state = stepped((view, brief), FairShare.State(at=NOW))
    pressed = values(view, brief, FairShare.State(at=NOW))
    later = stepped(flood(at=75.0), state._replace(at=NOW + 15.0))

    assert state.press == pytest.approx(0.85)
    assert pressed["flooder"] == pytest.approx(0.85 * 3000.0)
    assert pressed["victim"] >= 2000.0
    assert later.press == pytest.approx(0.86)  # a hundredth a minute


def test_a_refusal_by_chance_presses_nobody() -> None:
    assert stepped(flood(rejected=ok(0.1)), FairShare.State(at=NOW)).press == 1.0


@pytest.mark.parametrize("state", [State.MISSING, State.STALE, State.PARTIAL])
def test_a_press_stays_while_nobody_knows_whether_promises_are_kept(state: State) -> None:
    made = flood(rejected=Reading(state, 0.0 if state is not State.MISSING else None))
    assert stepped(made, FairShare.State(at=NOW, press=0.9)).press == 0.9


def test_what_may_be_shed_is_left_to_the_gate() -> None:
    """Caps see no classes: they cost critical requests what the gate would have taken from batch work."""
    rules = {name: TenantRules(guarantee=100.0) for name in ("a", "b")}
    flows = {"a": 3.0, "b": 3.0}

    assert all(cap >= 3000.0 for cap in values(*split(case(flows, 4.0 / 0.95, rules=rules), 0.4)).values())
    blind = FairShare(FairShare.Config(gate="never"))
    assert values(*split(case(flows, 4.0 / 0.95, rules=rules), 0.4), law=blind) == {"a": 2000.0, "b": 2000.0}


def test_without_a_gate_caps_leave_nothing_to_it() -> None:
    """A pool that has caps alone had nobody to refuse anything."""
    rules = {name: TenantRules(guarantee=100.0) for name in ("a", "b")}
    view, brief = split(case({"a": 3.0, "b": 3.0}, 4.0 / 0.95, rules=rules), 0.4)
    assert values(replace(view, acting=frozenset({Lever.TENANT_CAP})), brief) == {"a": 2000.0, "b": 2000.0}


def test_a_promise_covers_batch_work_too() -> None:
    """A tenant that calls all it sends critical takes nothing of what another was promised, whatever its class."""
    caps = values(*split(flood(), 0.5))

    assert caps["victim"] >= 2000.0
    assert caps["flooder"] == 3000.0


def test_caps_that_shield_nobody_waste_no_capacity() -> None:
    rules = {name: TenantRules(guarantee=100.0) for name in ("a", "b")}
    law = FairShare(FairShare.Config(over=0.1))
    caps = values(*split(case({"a": 9.0, "b": 9.0}, 4.0 / 0.95, rules=rules), 0.1), law=law)

    assert caps == {"a": 2200.0, "b": 2200.0}


def test_guarantees_that_cannot_all_be_kept_are_not_cut_for_who_asks_for_less() -> None:
    """Its cap stood just above its mean, and the bucket refused what came above the mean."""
    rules = {"greedy": TenantRules(guarantee=3000.0), "small": TenantRules(guarantee=2000.0)}
    caps = values(*case({"greedy": 9.0, "small": 0.5}, 3.0 / 0.95, rules=rules))

    assert caps == {"greedy": 2500.0, "small": 2000.0}


HOLDS = 25.0  # requests of one replica


def holding(made: tuple[View, Brief], holds: float | None = HOLDS) -> tuple[View, Brief]:
    """The same where it is known how many requests a replica holds."""
    view, brief = made
    return replace(view, estimate=replace(view.estimate, unit_sequences=holds)), brief


def test_a_flood_does_not_fill_what_its_victims_need_in_their_busier_moments() -> None:
    """It was let in up to the brim, and the gate shed the victims' batch work whenever those had a few more requests
    than on the mean: a point of all that they sent."""
    caps = values(*holding(flood()))

    assert caps["flooder"] == pytest.approx(3000.0 - 1000.0 / math.sqrt(HOLDS), abs=1.0)
    assert caps["victim"] >= 2000.0


def test_room_for_the_swings_of_many_is_that_of_all_together() -> None:
    """Their swings even out: twenty small tenants need no more than one that is as large as all of them."""
    small = {f"small-{n}": TenantRules(guarantee=100.0) for n in range(20)}
    flows = {**dict.fromkeys(small, 0.05), "flooder": 9.0}
    rules = {**small, "flooder": TenantRules(guarantee=500.0)}

    caps = values(*holding(case(flows, 4.0 / 0.95, rules=rules)))
    assert caps["flooder"] == pytest.approx(3000.0 - 1000.0 / math.sqrt(HOLDS), abs=1.0)


def test_room_for_swings_is_no_more_than_what_is_still_promised() -> None:
    rules = {**PROMISED, "victim": TenantRules(guarantee=1010.0)}
    caps = values(*holding(case({"victim": 1.0, "flooder": 9.0}, 4.0 / 0.95, rules=rules)))

    assert caps["flooder"] == pytest.approx(2990.0, abs=1.0)


def test_room_for_swings_breaks_nobody_elses_promise() -> None:
    """The flooder asks for what it was promised, too: that comes first."""
    rules = {"victim": TenantRules(guarantee=2000.0), "flooder": TenantRules(guarantee=2950.0)}
    caps = values(*holding(case({"victim": 1.0, "flooder": 9.0}, 4.0 / 0.95, rules=rules)))

    assert caps["flooder"] == 2950.0


@pytest.mark.parametrize("holds", [None, 0.0, math.nan, math.inf])
def test_no_room_is_kept_while_nobody_knows_what_a_replica_holds(holds: float | None) -> None:
    assert values(*holding(flood(), holds))["flooder"] == 3000.0


def test_a_crowd_in_which_nobody_is_within_its_promise_keeps_nothing_free() -> None:
    rules = {name: TenantRules(guarantee=100.0) for name in ("a", "b")}
    assert values(*holding(case({"a": 9.0, "b": 9.0}, 4.0 / 0.95, rules=rules))) == {"a": 2000.0, "b": 2000.0}


def test_room_for_swings_is_the_users() -> None:
    none = FairShare(FairShare.Config(aside=0.0))
    assert values(*holding(flood()), law=none)["flooder"] == 3000.0


@settings(max_examples=200)
@given(many, st.floats(0.1, 100.0), st.floats(0.0, 100.0), tenants, st.floats(1.0, 500.0), st.floats(0.0, 5.0))
def test_room_for_swings_is_all_that_caps_relieve_beyond_what_is_left(
    flows: dict[str, float], carried: float, left: float, rules: dict[str, TenantRules], holds: float, aside: float
) -> None:
    law = FairShare(FairShare.Config(aside=aside))
    caps = dict.fromkeys(flows, NO_LIMIT)
    view, brief = holding(case(flows, carried, caps=caps, left=left, rules=rules), holds)
    made = values(view, brief, law=law)
    plain = values(*case(flows, carried, caps=caps, left=left, rules=rules), law=law)

    most = aside * math.sqrt(math.fsum(flows.values()) / holds)
    assert capped(made, view.estimate, brief.balance) <= left + most + len(flows) / UNIT
    for name, demand in flows.items():  # and nobody pays with what was promised
        assert made[name] >= min(plain[name], demand * UNIT, rules.get(name, TenantRules()).guarantee) - 1.0


@settings(max_examples=200)
@given(many, st.floats(0.1, 100.0), st.floats(0.0, 100.0), tenants, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_classes_never_make_caps_relieve_more_than_is_left(
    flows: dict[str, float], carried: float, left: float, rules: dict[str, TenantRules], shed: float, over: float
) -> None:
    law = FairShare(FairShare.Config(over=over))
    caps = dict.fromkeys(flows, NO_LIMIT)
    view, brief = split(case(flows, carried, caps=caps, left=left, rules=rules), shed)
    made = values(view, brief, law=law)

    assert capped(made, view.estimate, brief.balance) <= left + 1.0 / UNIT
