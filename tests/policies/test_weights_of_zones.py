"""Weights between groups of replicas: a small region must not get what a large one can take."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.members import member, seen, stands_for
from controller.core.model import Ask, Lever, PoolReadings, Scope, Target
from controller.core.ports import Balance, Brief
from controller.core.reading import Reading, State, ok
from controller.core.rules import FleetRules, LeverRules, PoolRules
from controller.core.signals import Signal
from controller.core.why import Why
from policies.weights import Weights
from tests.support.rotation import Rotation, Seen, named

HALF = Brief(Balance(4.0, 8.0), 0.0)  # rho = 0.5, so g <= 0.5
ZONES = dict(zip(named(8), ["eu"] * 6 + ["us"] * 2, strict=True))
SLOW = dict.fromkeys(["r6", "r7"], Seen(slow=2.0))


def regions(*, brief: Brief = HALF, **config: object) -> Rotation:
    law = Weights(Weights.Config(**config))  # type: ignore[arg-type]
    return Rotation(law, Lever.WEIGHT, named(8), brief=brief, zones=ZONES)


def test_two_regions_of_different_size_come_to_shares_by_size() -> None:
    """Half of all traffic went to a quarter of the replicas."""
    fleet = regions()
    fleet.run(300.0)

    assert fleet.factors == {"eu": 1.0, "us": pytest.approx(2 / 6, abs=0.005)}


def test_of_two_gpu_types_the_shares_are_by_size_and_speed() -> None:
    """What is known beforehand is used whole, and is not counted a second time when it is measured."""
    fleet = regions(capacity={"us": 0.5})
    fleet.run(600.0, **SLOW)

    assert fleet.factors == {"eu": 1.0, "us": pytest.approx(2 * 0.5 / 6, abs=0.005)}


def test_a_region_that_turns_slow_loses_share_by_the_formula_and_by_steps() -> None:
    fleet = regions()
    fleet.run(300.0)
    shares = [fleet.factors["us"]]
    for _ in range(60):
        fleet.tick(**SLOW)
        shares.append(fleet.factors["us"])

    assert shares[-1] == pytest.approx(2 / 6 * math.exp(-0.5 * (math.log(2) - 0.1)), abs=0.04)
    assert all(0.05 <= after <= before and before - after <= 0.2 for before, after in pairwise(shares))
    fleet.run(1200.0)
    assert fleet.factors["us"] == pytest.approx(2 / 6, abs=0.04)


def test_the_larger_region_that_turns_slow_gives_the_smaller_one_more() -> None:
    fleet = regions()
    fleet.run(900.0, **dict.fromkeys(named(6), Seen(slow=2.0)))

    assert fleet.factors["us"] == pytest.approx(2 / 6 * math.exp(0.5 * (math.log(2) - 0.1)), abs=0.04)


def test_a_full_or_unknown_load_still_divides_by_size() -> None:
    """Sizes are counted, not inferred from latencies, so that no feedback can swing."""
    for brief in (Brief(Balance(8.0, 8.0), 0.0), Brief(Balance(0.0, 0.0), 0.0)):
        fleet = regions(brief=brief)
        fleet.run(300.0, **SLOW)
        assert fleet.factors == {"eu": 1.0, "us": pytest.approx(2 / 6, abs=0.005)}


def test_a_new_region_begins_small_and_ends_at_what_its_size_is_worth() -> None:
    """Its weight in the router is 1 when it appears: without this it would get half of the traffic, cold."""
    fleet = regions()
    fleet.names = named(6)
    fleet.run(120.0)
    fleet.names = named(8)
    shares = []
    for _ in range(12):
        fleet.tick()
        shares.append(fleet.factors["us"])

    assert shares[0] == 0.05
    assert fleet.last["us"].why is Why.STEADY
    assert shares == sorted(shares)
    assert shares[-1] == pytest.approx(2 / 6, abs=0.005)


def test_a_region_that_grows_gets_more_as_its_new_replicas_warm_up() -> None:
    fleet = regions()
    fleet.names = named(7)
    fleet.run(300.0)
    assert fleet.factors["us"] == pytest.approx(1 / 6, abs=0.005)
    fleet.names = named(8)
    fleet.tick()
    assert fleet.factors["us"] < 0.2
    fleet.run(180.0)
    assert fleet.factors["us"] == pytest.approx(2 / 6, abs=0.005)


def test_what_the_router_gives_at_weight_one_is_taken_off() -> None:
    """A router whose own weights are 3 to 1 is right already: a second division by size would starve the small one."""
    fleet = regions(shares={"eu": 3.0})
    fleet.run(300.0)

    assert fleet.factors == {"eu": 1.0, "us": 1.0}


def test_a_region_of_which_less_than_half_is_read_keeps_its_weight() -> None:
    fleet = regions()
    fleet.run(300.0)
    before = dict(fleet.factors)
    fleet.run(300.0, **dict.fromkeys(named(4), Seen(up=False)))

    assert fleet.factors == before
    assert (fleet.last["eu"].ask, fleet.last["eu"].why) == (Ask.AT_MOST, Why.MISSING)


one = st.builds(
    Seen, slow=st.sampled_from([0.2, 1.0, 3.0, 30.0]), batch=st.sampled_from([1.0, 20.0, 100.0]), up=st.booleans(),
    traffic=st.sampled_from([True, True, False]),
)  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(
    ticks=st.lists(st.lists(one, min_size=8, max_size=8), min_size=1, max_size=12),
    demand=st.floats(0.0, 10.0),
    begin=st.dictionaries(st.sampled_from(["eu", "us"]), st.sampled_from([0.05, 0.5, 1.0])),
)
def test_whatever_is_read_no_region_is_without_any(
    ticks: list[list[Seen]], demand: float, begin: dict[str, float]
) -> None:
    fleet = regions(brief=Brief(Balance(demand, 8.0), 0.0))
    fleet.factors = dict(begin)
    for row in ticks:
        proposals = fleet.tick(None, **dict(zip(named(8), row, strict=True)))
        assert all(0.05 <= proposal.value <= 1.0 for proposal in proposals.values())


# --- what is read of a zone ----------------------------------------------------------------------------------------


def scope(running: float, usage: float, itl: float, samples: float) -> Scope:
    return Scope(
        {Signal.RUNNING: ok(running, age=1.0), Signal.KV_USAGE: ok(usage, age=2.0)},
        {Signal.ITL: {"mean": ok(itl, count=samples)}} if samples else {},
    )


POOL = PoolReadings(
    replicas={"a": scope(10.0, 0.2, 0.01, 300.0), "b": scope(30.0, 0.6, 0.03, 100.0), "c": scope(5.0, 0.9, 0.05, 0.0)},
    zones={"a": "eu", "b": "eu", "c": "us", "gone": "asia"},
)


def test_of_a_zone_work_is_summed_shares_are_averaged_and_latencies_by_their_samples() -> None:
    """A mean of running requests would make a large region look idle; a sum of usage would be above 100 %."""
    eu = member(POOL, "eu")

    assert eu.get(Signal.RUNNING).value == 40.0
    assert eu.get(Signal.KV_USAGE).value == pytest.approx(0.4)
    assert eu.latency(Signal.ITL, "mean").value == pytest.approx(0.015)
    assert eu.latency(Signal.ITL, "mean").count == 400.0
    assert member(POOL, "us").latency(Signal.ITL, "mean").state is State.MISSING
    assert member(POOL, "a") is POOL.replicas["a"]
    assert member(POOL, "asia") == Scope()


def test_a_zone_is_no_better_known_than_the_worst_of_its_replicas() -> None:
    """A sum that lacks one would be too small, and would let the zone have more."""
    for gone, state in ((Reading(State.STALE, 3.0), State.STALE), (Reading(State.MISSING), State.MISSING)):
        pool = PoolReadings(replicas={**POOL.replicas, "b": Scope({Signal.RUNNING: gone})}, zones=POOL.zones)
        assert member(pool, "eu").get(Signal.RUNNING).state is state


@pytest.mark.parametrize(("by", "names"), [("zone", ["eu", "us"]), ("replica", ["a", "b", "c"])])
def test_the_members_are_the_zones_of_replicas_that_are_seen(by: str, names: list[str]) -> None:
    lever = LeverRules(Lever.WEIGHT, "weights", "", by=by)
    rules = FleetRules((PoolRules("llm", (), (lever,), ()),))

    targets = seen(rules, {"llm": POOL}, ())
    assert targets == tuple(Target("llm", Lever.WEIGHT, name) for name in names)
    assert seen(rules, {}, targets) == targets
    assert stands_for(POOL, "eu") == ("a", "b")
