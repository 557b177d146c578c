"""Weights: each replica gets what it can serve, slowly, and never at the cost of the cache."""

import json
import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.core.model import Ask, Lever
from controller.core.ports import Balance, Brief
from controller.core.why import Why
from controller.run.codec import decode, encode
from policies.weights import Weights
from tests.support.rotation import BEGIN, Rotation, Seen, named

SLOW = Seen(slow=2.0)
HALF = Brief(Balance(2.0, 4.0), 0.0)  # rho = 0.5, so g <= 0.5


def rotation(count: int = 4, *, step: float = 15.0, **more: object) -> Rotation:
    config = {name: more.pop(name) for name in list(more) if name in Weights.Config.__dataclass_fields__}
    law = Weights(Weights.Config(**config))  # type: ignore[arg-type]
    return Rotation(law, Lever.WEIGHT, named(count), step=step, **{"brief": HALF, **more})  # type: ignore[arg-type]


def test_a_slower_replica_gets_less_by_the_formula() -> None:
    """Half the speed: exp(-0.5 * (ln 2 - 0.1)), beside those whose pace is the median."""
    fleet = rotation()
    fleet.run(900.0, r1=SLOW)

    assert fleet.factors == {"r0": 1.0, "r1": round(math.exp(-0.5 * (math.log(2) - 0.1)), 2), "r2": 1.0, "r3": 1.0}
    assert fleet.last["r1"].why is Why.STEADY
    assert fleet.last["r1"].evidence["pace"] == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize(("demand", "gain"), [(0.5, 1.0), (2.0, 0.5), (3.2, 0.125), (4.0, 0.0), (8.0, 0.0)])
def test_the_fuller_the_fleet_the_smaller_the_gain(demand: float, gain: float) -> None:
    """At high load latency answers to a shift of load many times over; a fixed gain would swing."""
    fleet = rotation(brief=Brief(Balance(demand, 4.0), 0.0))
    fleet.tick(r1=SLOW)

    assert fleet.last["r1"].evidence["gain"] == pytest.approx(gain)


def test_a_hot_prefix_keeps_its_share() -> None:
    """Whoever has the larger batch has the longer step. Less weight would send its requests to where no cache is."""
    fleet = rotation()
    fleet.run(900.0, r0=Seen(batch=80.0))

    assert set(fleet.factors.values()) == {1.0}


def test_a_small_difference_moves_nothing() -> None:
    fleet = rotation()
    for number in range(60):
        fleet.tick(r0=Seen(slow=1.09 if number % 2 else 0.92))

    assert set(fleet.factors.values()) == {1.0}


def test_a_weight_moves_by_a_fifth_a_tick_and_never_below_the_floor() -> None:
    fleet = rotation(brief=Brief(Balance(0.1, 4.0), 0.0), gain=2.0, smooth=0.0)
    fleet.run(60.0)
    seen = [1.0]
    for _ in range(10):
        fleet.tick(r1=Seen(slow=10.0))
        seen.append(fleet.factors["r1"])

    assert all(before - after <= 0.2 + 1e-9 for before, after in pairwise(seen))
    assert seen[-1] == 0.05


def test_one_odd_interval_hardly_moves_anything() -> None:
    fleet = rotation()
    fleet.run(300.0)
    fleet.tick(r1=SLOW)

    assert fleet.factors["r1"] >= 0.95


def test_capacities_that_are_known_beforehand_are_shares() -> None:
    fleet = rotation(capacity={"l40s": 0.4}, roles={"r3": "l40s"})
    fleet.run(120.0)

    assert fleet.factors["r3"] == 0.4
    assert fleet.factors["r0"] == 1.0


def test_a_new_replica_gets_its_share_step_by_step() -> None:
    """Its cache is empty: a full share at once would be a full share of prefills."""
    fleet = rotation()
    fleet.run(120.0)
    fleet.names.append("r9")
    shares = []
    for _ in range(10):
        fleet.tick()
        shares.append(fleet.factors["r9"])

    assert shares[:5] == [0.05, 0.12, 0.25, 0.38, 0.5]
    assert shares[-1] == 1.0
    assert fleet.factors["r0"] == 1.0


def test_who_comes_back_from_a_drain_is_not_new() -> None:
    """Its cache is warm: in an upturn it would have been held at a trickle for two minutes."""
    fleet = rotation()
    fleet.run(300.0)
    fleet.names.remove("r2")
    fleet.away = frozenset({"r2"})
    fleet.run(60.0)
    fleet.names.append("r2")
    fleet.away = frozenset()
    fleet.tick()

    assert fleet.factors["r2"] == 1.0
    fleet.names.remove("r2")
    fleet.run(60.0)
    fleet.names.append("r2")  # without a drain it is another one of the same name
    fleet.tick()
    assert fleet.factors["r2"] == 0.05


def test_those_that_were_there_at_the_start_are_not_new() -> None:
    fleet = rotation()
    fleet.tick()

    assert set(fleet.factors.values()) == {1.0}


def test_in_a_fleet_that_has_just_begun_nobody_is_new() -> None:
    """Else all would begin at a twentieth, and a cap on how many may be down would make that uneven."""
    fleet = rotation(started=dict.fromkeys(named(4), BEGIN))
    for _ in range(12):
        fleet.tick()
        assert set(fleet.factors.values()) == {1.0}


def test_noise_is_not_worth_a_write() -> None:
    """Every write goes to a proxy, and each moves prefixes to where they are not cached."""
    fleet = rotation()
    writes = 0
    for number in range(240):
        before = dict(fleet.factors)
        slow = 1.5 + 0.1 * (number % 3)
        fleet.tick(r1=Seen(slow=slow), r2=Seen(slow=0.85 + 0.1 * (number % 4)))
        writes += sum(before.get(name) != value for name, value in fleet.factors.items())

    assert writes < 15


def test_a_new_leader_goes_on_with_the_slow_start_of_the_old_one() -> None:
    fleet = rotation(started={"r0": BEGIN - 45.0, "r1": BEGIN - 9000.0}, factors={"r0": 0.4})
    fleet.tick()

    assert (fleet.factors["r0"], fleet.factors["r1"]) == (0.5, 1.0)


def test_of_a_slow_new_replica_the_lower_factor_counts() -> None:
    """Not the product, by which it would be punished twice."""
    fleet = rotation(slow_start=600.0)
    fleet.run(60.0)
    fleet.names.append("r9")
    fleet.run(480.0, r9=SLOW)

    assert fleet.factors["r9"] == pytest.approx(math.exp(-0.5 * (math.log(2) - 0.1)), abs=0.04)


def test_behind_a_router_that_balances_load_weights_stay_neutral() -> None:
    """Two hands at one rope: the router sends less to the slow one already."""
    fleet = rotation(router="load_aware", factors={"r0": 0.4})
    fleet.run(300.0, r1=SLOW)

    assert set(fleet.factors.values()) == {1.0}
    assert fleet.last["r1"].why is Why.ROUTER_BALANCES


def test_the_only_replica_has_the_full_share() -> None:
    fleet = rotation(1, factors={"r0": 0.3})
    fleet.tick(SLOW)

    assert fleet.factors == {"r0": 1.0}


def test_a_replica_without_data_keeps_its_weight() -> None:
    fleet = rotation()
    fleet.run(600.0, r1=SLOW)
    before = fleet.factors["r1"]
    fleet.run(600.0, r1=Seen(up=False))

    assert fleet.factors["r1"] == before < 1.0
    assert (fleet.last["r1"].ask, fleet.last["r1"].why) == (Ask.AT_MOST, Why.MISSING)


def test_a_move_that_costs_cache_hits_is_undone_once_and_not_made_again() -> None:
    """Hashing by prefix: less weight moves its prefixes to replicas that do not have them."""
    fleet = rotation(rest=600.0)
    fleet.run(300.0)
    fleet.run(60.0, r1=SLOW)
    assert fleet.factors["r1"] < 1.0
    fleet.hit_rate = 0.3
    fleet.until("r1", 1.0, 120.0, r1=SLOW)
    assert fleet.last["r1"].why is Why.HIT_RATE_LOST

    fleet.run(450.0, r1=SLOW)
    assert fleet.factors["r1"] == 1.0
    fleet.run(600.0, r1=SLOW)
    assert fleet.factors["r1"] < 1.0


def test_a_hit_rate_that_falls_as_it_always_does_undoes_nothing() -> None:
    fleet = rotation()
    for number in range(60):
        fleet.hit_rate = 0.5 + 0.1 * (-1) ** number
        fleet.tick(r1=SLOW)

    assert fleet.factors["r1"] < 0.8
    assert fleet.state.resting == 0.0


def test_a_new_replica_with_a_cold_cache_is_not_the_weights_fault() -> None:
    fleet = rotation()
    fleet.run(300.0)
    fleet.run(30.0, r1=SLOW)
    fleet.names.append("r9")
    fleet.hit_rate = 0.3
    fleet.run(60.0, r1=SLOW)
    assert fleet.state.move is None
    fleet.run(300.0, r1=SLOW)

    assert fleet.state.resting == 0.0


def test_unknown_load_is_no_reason_to_move() -> None:
    fleet = rotation(brief=Brief(Balance(0.0, 0.0), 0.0))
    fleet.run(300.0, r1=SLOW)

    assert set(fleet.factors.values()) == {1.0}


seen = st.builds(
    Seen,
    slow=st.sampled_from([0.2, 1.0, 3.0, 30.0]),
    batch=st.sampled_from([1.0, 20.0, 100.0]),
    up=st.sampled_from([True, True, False]),
    traffic=st.sampled_from([True, True, False]),
)


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 6),
    ticks=st.lists(st.tuples(st.lists(seen, min_size=8, max_size=8), st.floats(0, 1)), min_size=1, max_size=20),
    demand=st.floats(0.0, 10.0),
    more=st.integers(0, 2),
    modelled=st.booleans(),
    begin=st.dictionaries(st.sampled_from(named(8)), st.sampled_from([0.05, 0.5, 1.0])),
)
def test_whatever_is_read_every_replica_keeps_at_least_the_floor(
    count: int, ticks: list[tuple[list[Seen], float]], demand: float, more: int, modelled: bool, begin: dict[str, float]
) -> None:
    """Invariant 8: never all zero."""
    fleet = rotation(count, brief=Brief(Balance(demand, 4.0), 0.0), modelled=modelled, factors=dict(begin))
    for number, (row, hits) in enumerate(ticks):
        if number == len(ticks) // 2:
            fleet.names = named(count + more)
        fleet.hit_rate = hits
        proposals = fleet.tick(None, **dict(zip(named(8), row, strict=True)))
        assert all(0.05 <= proposal.value <= 1.0 for proposal in proposals.values())
        assert decode(Weights.State, json.loads(json.dumps(encode(fleet.state)))) == fleet.state


@pytest.mark.parametrize(
    ("config", "message"),
    [({"router": "least"}, "router: unknown router 'least'"), ({"capacity": {"a": 0.0}}, "capacity: a has 0")],
)
def test_a_config_that_means_nothing_is_refused(config: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Weights(Weights.Config(**config))  # type: ignore[arg-type]
