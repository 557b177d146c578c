"""The ladder: each lever is asked for what the ones before it left over; no shortage is paid for twice."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core import group, relief
from controller.core.decide import FORGET, DecideState, decide
from controller.core.members import seen
from controller.core.model import (
    Ask,
    Decision,
    Lever,
    Mode,
    PoolReadings,
    Proposal,
    Scope,
    Snapshot,
    Target,
    TargetState,
    Tick,
)
from controller.core.ports import Brief, Estimate, Limits, View
from controller.core.reading import ok
from controller.core.rules import FleetRules, LeverRules, PoolRules
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.tenancy import ClassRules, TenantRules
from controller.core.why import Why
from tests.support.cases import NOW, estimate, healthy

UNIT = 1000.0  # tokens/s of one replica
NO_CAP = 1e6


@dataclass(frozen=True)
class Nothing:
    """No memory."""


class Asks:
    """A law that sets what a function of the brief says, and remembers what it was told."""

    def __init__(self, value: float | None) -> None:
        self.value, self.briefs = value, list[Brief]()

    def initial(self) -> Nothing:
        return Nothing()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: Nothing
    ) -> tuple[Sequence[Proposal], Nothing]:
        self.briefs.append(brief)
        if self.value is None:
            return (), state
        return [Proposal(t, Ask.SET, self.value, "asks", Why.DEMAND) for t in sorted(view.targets)], state


def lever(kind: Lever, top: float, *members: str, **more: object) -> LeverRules:
    made = LeverRules(kind, "asks", "none", limits=Limits(0.0, top, 0.01), stabilise=0.0, members=members or ("",))
    return replace(made, **more)  # type: ignore[arg-type]


def pool(*levers: LeverRules, name: str = "big", **more: object) -> PoolRules:
    targets = tuple(Target(name, one.lever, member) for one in levers for member in one.members)
    return replace(PoolRules(name, (), levers, targets), **more)  # type: ignore[arg-type]


CAPS = lever(Lever.TENANT_CAP, NO_CAP, "ann", "bob")
SHARE = lever(Lever.DOWNGRADE, 1.0, "small")
GATE = lever(Lever.ADMISSION, NO_CAP, "concurrency")
TENANTS = {"ann": TenantRules(consents=True), "bob": TenantRules()}
CLASSES = {"chat": ClassRules(consents=True), "batch": ClassRules(rank=1, sheddable=True, consents=True)}
SHORT = estimate(
    12.0, unit_tokens=UNIT, flows={"ann": 8.0, "bob": 4.0}, classes={"chat": 9.0, "batch": 3.0},
)  # fmt: skip
SMALL = Estimate(demand=1.0, unit_rate=10.0, trusted=True, evidence={"serving": 4.0})


class Told:
    """One tick over hand-made pools: the decisions, and what each law was told."""

    def __init__(
        self, rules: Sequence[PoolRules], values: Mapping[str, float | None], estimates: Mapping[str, Estimate],
        have: Mapping[Target, float], state: DecideState | None = None, at: float = NOW,
        replicas: Mapping[str, Scope] | None = None, laws: Mapping[str, Asks] | None = None,
    ) -> None:  # fmt: skip
        self.laws = {**{key: Asks(value) for key, value in values.items()}, **(laws or {})}
        readings: PoolReadings = replace(healthy(), filled_since=NOW - 9e5, replicas=replicas or {})
        targets = {target: TargetState(value, value) for target, value in have.items()}
        snapshot = Snapshot(Tick(9, at, 15.0), {p.pool: readings for p in rules}, targets)
        plan, self.state = decide(
            snapshot, estimates, FleetRules(tuple(rules)), self.laws, state or DecideState()
        )  # fmt: skip
        self.decisions = {d.target: d for d in plan.decisions}
        self.summary = plan.summary

    def left(self, key: str) -> float:
        return self.laws[key].briefs[-1].left


def at_rest(*rules: PoolRules) -> dict[Target, float]:
    neutral = {Lever.DOWNGRADE: 0.0, Lever.TENANT_CAP: NO_CAP, Lever.ADMISSION: NO_CAP}
    return {t: neutral.get(t.lever, 10.0) for p in rules for t in p.targets}


def test_at_rest_nobody_is_asked_for_relief() -> None:
    rules = pool(CAPS, GATE, SHARE, tenants=TENANTS, classes=CLASSES)
    calm = replace(SHORT, demand=9.0)

    told = Told([rules], {"big/tenant_cap": None, "big/downgrade": None}, {"big": calm}, at_rest(rules))

    assert told.left("big/tenant_cap") == told.left("big/downgrade") == 0.0


def test_the_next_lever_is_asked_only_for_what_the_one_before_left() -> None:
    """Shed and downgraded for the same shortage, the fleet stands half empty while users get errors."""
    rules = pool(CAPS, SHARE, tenants=TENANTS)
    values = {"big/tenant_cap": 7000.0, "big/downgrade": None}

    told = Told([rules], values, {"big": SHORT}, at_rest(rules))

    assert told.left("big/tenant_cap") == pytest.approx(12.0 - 9.5)
    assert told.left("big/downgrade") == pytest.approx(12.0 - 9.5 - 1.0)  # ann is cut from 8 to 7


def test_every_rung_is_told_the_whole_shortage_too() -> None:
    """The trim took what rungs above relieved for no shortage, and learned from latencies that a gate had made fine."""
    rules = pool(CAPS, SHARE, tenants=TENANTS)
    told = Told([rules], {"big/tenant_cap": 1000.0, "big/downgrade": None}, {"big": SHORT}, at_rest(rules))

    assert told.left("big/downgrade") == 0.0
    assert [law.briefs[-1].short for law in told.laws.values()] == [pytest.approx(12.0 - 9.5)] * 2


def test_the_ladder_is_the_users() -> None:
    other = pool(SHARE, CAPS, tenants=TENANTS)

    told = Told([other], {"big/tenant_cap": None, "big/downgrade": 0.25}, {"big": SHORT}, at_rest(other))

    assert told.left("big/tenant_cap") == pytest.approx(2.5 - 0.25 * 8.0)


def test_a_lever_that_only_observes_relieves_nobody() -> None:
    watching = replace(CAPS, mode=Mode.OBSERVE)
    rules = pool(watching, SHARE, tenants=TENANTS)

    told = Told([rules], {"big/tenant_cap": 7000.0, "big/downgrade": None}, {"big": SHORT}, at_rest(rules))

    assert told.left("big/downgrade") == told.left("big/tenant_cap")
    assert not any(d.send for d in told.decisions.values())


def test_demand_does_not_fall_when_a_lever_helps() -> None:
    """Scaling on what is admitted hides what is shed, and the shed stays for ever."""
    rules = pool(CAPS, lever(Lever.REPLICAS, 50.0), tenants=TENANTS)
    have = {**at_rest(rules), Target("big", Lever.TENANT_CAP, "ann"): 4000.0}

    told = Told([rules], {"big/tenant_cap": 4000.0, "big/replicas": None}, {"big": SHORT}, have)

    assert told.laws["big/replicas"].briefs[-1].balance.demand == 12.0
    assert told.left("big/replicas") == 0.0


def test_a_replica_out_of_rotation_carries_nothing() -> None:
    breaker = lever(Lever.BREAKER, 1.0, group=0.5)
    rules = PoolRules("big", (), (breaker, CAPS), tuple(Target("big", Lever.TENANT_CAP, m) for m in CAPS.members))
    scopes = {f"pod-{n}": Scope(signals={Signal.RUNNING: ok(1.0)}) for n in range(10)}
    have = {**at_rest(rules), **{Target("big", Lever.BREAKER, name): 1.0 for name in scopes}}
    have[Target("big", Lever.BREAKER, "pod-3")] = 0.0

    told = Told([rules], {"big/tenant_cap": None}, {"big": SHORT}, have, replicas=scopes)

    assert told.laws["big/tenant_cap"].briefs[-1].balance.carried == 9.0


def test_a_downgrade_charges_the_pool_that_receives_it_in_the_same_tick() -> None:
    """Two pools that each send what they have too much of to a third fill it twice."""
    one = pool(SHARE, tenants=TENANTS)
    two = pool(replace(SHARE), name="bigger", tenants=TENANTS)
    small = pool(lever(Lever.REPLICAS, 50.0), name="small")
    estimates = {"big": SHORT, "bigger": SHORT, "small": SMALL}
    values = {"big/downgrade": 0.25, "bigger/downgrade": None, "small/replicas": None}

    told = Told([one, two, small], values, estimates, at_rest(one, two, small))

    # 0.25 of ann's 8 at half of the cost: one replica-equivalent there.
    assert told.laws["big/downgrade"].briefs[-1].balance.exchange == {"small": 0.5}
    assert told.laws["big/downgrade"].briefs[-1].balance.room == {"small": pytest.approx(0.95 * 4.0 - 1.0)}
    assert told.laws["bigger/downgrade"].briefs[-1].balance.room == {"small": pytest.approx(0.95 * 4.0 - 2.0)}
    assert told.laws["small/replicas"].briefs[-1].balance.demand == 2.0


def test_nothing_is_sent_to_a_pool_that_nobody_knows_well_enough() -> None:
    rules = pool(SHARE, tenants=TENANTS)

    told = Told(
        [rules], {"big/downgrade": None}, {"big": SHORT, "small": replace(SMALL, trusted=False)}, at_rest(rules)
    )

    assert told.laws["big/downgrade"].briefs[-1].balance.room == {}


@pytest.mark.parametrize(
    ("tenants", "classes", "agreed"),
    [(TENANTS, {}, 8.0), ({}, CLASSES, 12.0), (TENANTS, {"chat": ClassRules(consents=True)}, 8.0), ({}, {}, 0.0)],
)
def test_nobody_is_downgraded_who_did_not_agree(
    tenants: Mapping[str, TenantRules], classes: Mapping[str, ClassRules], agreed: float
) -> None:
    rules = pool(SHARE, tenants=tenants, classes=classes)
    now = relief.balance(rules, Snapshot(Tick(1, NOW)), SHORT, relief.Known(Snapshot(Tick(1, NOW)), {}))

    assert relief.consenting(rules, now) == agreed


def test_an_armed_gate_relieves_by_what_it_may_refuse_and_an_open_one_by_nothing() -> None:
    rules = pool(GATE, SHARE, tenants=TENANTS, classes=CLASSES)

    armed = Told([rules], {"big/admission": 40.0, "big/downgrade": None}, {"big": SHORT}, at_rest(rules))
    open_ = Told([rules], {"big/admission": None, "big/downgrade": None}, {"big": SHORT}, at_rest(rules))

    assert armed.left("big/downgrade") == 0.0
    assert open_.left("big/downgrade") == pytest.approx(2.5)


def test_a_value_that_the_target_drops_is_renewed_also_when_nothing_changes_and_nothing_is_known() -> None:
    """Losing the data is not losing the reason: a shed that expires in the outage lets the flood in."""
    rules = pool(replace(CAPS, expiry=60.0), tenants=TENANTS)
    have = {**at_rest(rules), Target("big", Lever.TENANT_CAP, "ann"): 7000.0}

    told = Told([rules], {"big/tenant_cap": None}, {}, have)

    ann, bob = (told.decisions[Target("big", Lever.TENANT_CAP, name)] for name in ("ann", "bob"))
    assert (ann.send, ann.final, ann.until) == (True, 7000.0, NOW + 60.0)
    assert (bob.send, bob.until) == (False, None)  # no cap is neutral, and needs no renewal


# --- members -----------------------------------------------------------------------------------------------------


def test_replicas_come_and_go_and_an_outage_of_the_metrics_takes_none_away() -> None:
    rules = FleetRules((PoolRules("big", (), (lever(Lever.WEIGHT, 1.0),), ()),))
    two = {"big": PoolReadings(replicas={"b": Scope(), "a": Scope()})}

    first = seen(rules, two, ())
    assert first == (Target("big", Lever.WEIGHT, "a"), Target("big", Lever.WEIGHT, "b"))
    assert seen(rules, {}, first) == first
    assert seen(rules, {"big": PoolReadings(replicas={"b": Scope()})}, first) == first[1:]


def test_the_memory_of_pods_that_are_gone_does_not_grow_for_ever() -> None:
    rules = PoolRules("big", (), (lever(Lever.WEIGHT, 1.0),), ())
    state = DecideState()
    for number in range(3):
        have = {Target("big", Lever.WEIGHT, f"pod-{number}"): 1.0}
        state = Told([rules], {}, {}, have, state, at=NOW + number * (FORGET + 1)).state

    assert list(state.guards) == [Target("big", Lever.WEIGHT, "pod-2")]


@pytest.mark.parametrize(
    ("members", "share", "out"), [(1, 0.5, 0), (2, 0.2, 1), (5, 0.2, 1), (10, 0.2, 2), (3, 1.0, 2)]
)
def test_the_last_replica_is_never_taken_out(members: int, share: float, out: int) -> None:
    assert group.most_out(members, share) == out


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.05, 1.0]), st.sampled_from([0.0, 0.05, 0.25, 1.0])), min_size=1, max_size=12
    )
)
def test_however_bad_all_look_no_more_than_the_cap_is_taken_out_at_once(pairs: list[tuple[float, float]]) -> None:
    """Breakers under overload open one after the other, and the last replicas drown."""
    rules = lever(Lever.BREAKER, 1.0)
    made = {
        (t := Target("big", Lever.BREAKER, f"pod-{n}")): Decision(t, current, final, Why.STEADY)
        for n, (current, final) in enumerate(pairs)
    }

    kept = group.keep_in(made, rules)

    was = {t for t, d in made.items() if (d.current or 0.0) < 0.5}
    out = {t for t, d in kept.items() if (d.final or 0.0) < 0.5}
    fresh = out - was
    assert len(out) <= max(group.most_out(len(made), rules.group), len(was))
    assert not fresh or len(out) <= group.most_out(len(made), rules.group)
    assert all(kept[t].steps[-1].why is Why.EJECTION_CAP for t, d in made.items() if kept[t] != d)


def test_what_a_person_takes_out_stays_out() -> None:
    rules = lever(Lever.BREAKER, 1.0)
    pinned = Target("big", Lever.BREAKER, "pod-0")
    made = {pinned: Decision(pinned, 1.0, 0.0, Why.PIN), **{
        (t := Target("big", Lever.BREAKER, f"pod-{n}")): Decision(t, 1.0, 0.0, Why.STEADY) for n in (1, 2)
    }}  # fmt: skip

    kept = group.keep_in(made, rules)

    assert [d.final for d in kept.values()] == [0.0, 1.0, 1.0]


# --- invariant 3 -------------------------------------------------------------------------------------------------


@settings(deadline=None, max_examples=60)
@given(st.floats(0.0, 40.0), st.floats(0.0, 1.0), st.floats(0.0, 9000.0))
def test_the_shortage_is_never_counted_twice(demand: float, share: float, cap: float) -> None:
    flows = {"ann": demand * 0.6, "bob": demand * 0.4}
    rules = pool(CAPS, SHARE, GATE, tenants=TENANTS, classes=CLASSES)
    known = replace(SHORT, demand=demand, flows=flows, classes={"chat": demand})
    values = {"big/tenant_cap": cap, "big/downgrade": share, "big/admission": None}

    told = Told([rules], values, {"big": known}, at_rest(rules))

    short = max(0.0, demand - 0.95 * 10.0)
    lefts = [told.left(key) for key in ("big/tenant_cap", "big/downgrade", "big/admission")]
    assert lefts[0] == pytest.approx(short)
    assert lefts == sorted(lefts, reverse=True)
    assert min(lefts) >= 0.0


# --- the sentence ------------------------------------------------------------------------------------------------


def test_the_plan_says_in_one_sentence_who_is_short_who_takes_it_and_until_when() -> None:
    rules = pool(lever(Lever.REPLICAS, 50.0), CAPS, tenants=TENANTS)
    have = {**at_rest(rules), Target("big", Lever.REPLICAS): 13.0}
    known = replace(SHORT, horizon=180.0, evidence={"serving": 10.0})

    said = Told([rules], {"big/tenant_cap": 7000.0, "big/replicas": None}, {"big": known}, have).summary

    assert said.startswith("lowers 2 of big/tenant_cap to 7,000 because the load offered now needs it; ")
    assert said.endswith("big is short of 2.5 replicas until about 13:49 UTC, of which tenant_cap takes 1.0")


def test_a_shortage_that_nothing_will_end_is_said() -> None:
    rules = pool(CAPS, tenants=TENANTS)

    said = Told([rules], {"big/tenant_cap": None}, {"big": SHORT}, at_rest(rules)).summary

    assert said == "big is short of 2.5 replicas with nothing on its way"


def test_who_was_capped_is_not_downgraded_as_well() -> None:
    """Counted twice, a shortage of ten looks paid for by caps that hold back five and a share of the same five."""
    one = replace(SHORT, demand=15.0, flows={"ann": 10.0})
    rules = pool(CAPS, SHARE, GATE, tenants=TENANTS)

    told = Told(
        [rules], {"big/tenant_cap": 5000.0, "big/downgrade": 0.5, "big/admission": None}, {"big": one}, at_rest(rules)
    )

    assert told.left("big/tenant_cap") == pytest.approx(5.5)
    assert told.left("big/downgrade") == pytest.approx(0.5)  # five are held back
    assert told.left("big/admission") == 0.0  # and of the five that are left, half go elsewhere
    assert "tenant_cap takes 5.0 and downgrade takes 0.5" in told.summary


def test_a_longest_prompt_alone_sheds_no_class() -> None:
    gate = lever(Lever.ADMISSION, NO_CAP, "longest_prompt")
    rules = pool(gate, SHARE, tenants=TENANTS, classes=CLASSES)

    told = Told([rules], {"big/admission": 8000.0, "big/downgrade": None}, {"big": SHORT}, at_rest(rules))

    assert told.left("big/downgrade") == pytest.approx(2.5)
