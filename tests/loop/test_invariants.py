"""The invariants of the design, over random fleets with all levers, each with its own law, in fair weather and foul.

A case is a small fleet that lives for some ticks: load walks, readings vanish, age or turn absurd, replicas appear and
go, the clock is late. Whatever happens, no plan may break a promise of the house.
"""

import math
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from benchmarks.levers import INTERVAL, SMALL, Controller, Fleet, Size, broken, config
from controller.core import drain, group
from controller.core.model import Decision, Lever, Plan, PoolReadings, Snapshot
from controller.core.reading import Reading, State
from controller.core.rules import PER_REPLICA, RELAX_DOWN, FleetRules
from controller.run import codec

SIZE = Size(pools=3, replicas=5, tenants=4)
CONFIG = config(SIZE)
SILENT = {
    "missing": Reading(State.MISSING),
    "stale": Reading(State.STALE, 1.0, age=300.0),
    "partial": Reading(State.PARTIAL, 1.0),
    "underfilled": Reading(State.UNDERFILLED, 1.0),
    "censored": Reading(State.CENSORED, lo=3.0),
    "absurd": Reading(State.STALE, 1e300, age=1e9),
}


@dataclass(frozen=True)
class Life:
    """What a fleet lives through: by tick the fault of each pool, "" for none, and how busy it is; whether replicas
    drain before they go, and for how many seconds."""

    seed: int
    busy: float
    faults: tuple[str, ...]
    drain: float = 0.0


lives = st.builds(
    Life,
    st.integers(0, 10_000),
    st.sampled_from([0.1, 0.6, 0.95, 1.4, 3.0]),
    st.lists(st.sampled_from(["", "", "", "gone", *SILENT]), min_size=6, max_size=14).map(tuple),
    st.sampled_from([0.0, 45.0, 600.0]),
)


def damaged(snapshot: Snapshot, fault: str) -> Snapshot:
    """The snapshot with one fault in its first pool; "gone" is a source that gives nothing."""
    if not fault:
        return snapshot
    if fault == "gone":
        return replace(snapshot, pools={}, error="the source gave nothing")
    pools: dict[str, PoolReadings] = dict(snapshot.pools)
    first = min(pools)
    pools[first] = broken(pools[first], SILENT[fault])
    return replace(snapshot, pools=pools)


def draining(rules: FleetRules, seconds: float) -> FleetRules:
    """The rules with a drain of the replicas of every pool."""
    pools = tuple(
        replace(pool, levers=tuple(
            replace(one, drain=seconds) if one.lever is Lever.REPLICAS else one for one in pool.levers
        ))
        for pool in rules.pools
    )  # fmt: skip
    return replace(rules, pools=pools)


def live(life: Life) -> list[tuple[Snapshot, Plan, str]]:
    """Every tick of a life: what was seen, what was decided, and the fault of that tick."""
    fleet, controller = Fleet(SIZE, CONFIG, seed=life.seed, busy=life.busy), Controller(CONFIG)
    controller.rules = draining(controller.rules, life.drain)
    out = []
    back: dict[str, float] = {}
    for fault in life.faults:
        snapshot = damaged(fleet.snapshot(), fault)
        broken_off = set(fleet.pools) if fault == "gone" else {min(fleet.pools)} if fault else set()
        back.update(dict.fromkeys(broken_off, snapshot.tick.at + INTERVAL))
        # As the meter tells it: after a gap the windows fill anew.
        pools = {
            name: one if name in broken_off or name not in back else replace(one, filled_since=back[name])
            for name, one in snapshot.pools.items()
        }
        snapshot = replace(snapshot, pools=pools)
        plan = controller.plan(snapshot)
        fleet.take(plan)
        out.append((snapshot, plan, fault))
    return out


RULES: FleetRules = Controller(CONFIG).rules
LEVERS = {(pool.pool, rules.lever): rules for pool in RULES.pools for rules in pool.levers}
slow = settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.too_slow])


def relaxes(decision: Decision) -> bool:
    if decision.current is None or decision.final is None:
        return False
    down = decision.final < decision.current
    return decision.final != decision.current and down == RELAX_DOWN[decision.target.lever]


@slow
@given(lives)
@example(Life(0, 0.1, ("", "", "missing", "", "", "gone"), drain=45.0))  # down by a drain that ends with the data
def test_1_every_final_value_is_within_its_bounds_and_on_its_quantum(life: Life) -> None:
    for _, plan, _ in live(life):
        for d in plan.decisions:
            limits = LEVERS[d.target.pool, d.target.lever].limits
            assert d.final is not None
            if d.final == 0 and d.target.lever is Lever.WEIGHT and drain.asked(d):
                continue  # who leaves takes part in nothing
            assert limits.min <= d.final <= limits.max
            steps = d.final / limits.quantum
            assert d.final in (limits.min, limits.max) or math.isclose(steps, round(steps), abs_tol=1e-6)


@slow
@given(lives)
def test_2_data_that_is_missing_old_or_absurd_relaxes_nothing(life: Life) -> None:
    """keda#3065, dynamo#14765, aibrix#2592: what could not be read was read as nothing to do."""
    for snapshot, plan, fault in live(life):
        hurt = set(LEVERS) if fault == "gone" else {key for key in LEVERS if fault and key[0] == min(snapshot.pools)}
        for d in plan.decisions:
            if (d.target.pool, d.target.lever) in hurt:
                assert not relaxes(d), f"{fault}: {d}"


@slow
@given(lives)
def test_2_a_pool_that_is_blind_does_not_stop_the_others(life: Life) -> None:
    seen = [(s, p) for s, p, fault in live(life) if fault and fault != "gone"]
    for snapshot, plan in seen:
        assert {d.target.pool for d in plan.decisions} == {pool.pool for pool in RULES.pools}
        assert len(plan.decisions) == len(snapshot.targets)


@slow
@given(lives)
def test_4_no_target_moves_faster_than_its_rate(life: Life) -> None:
    moves: dict[str, list[tuple[float, float]]] = {}
    for snapshot, plan, _ in live(life):
        for d in plan.decisions:
            rules = LEVERS[d.target.pool, d.target.lever]
            change = (d.final or 0.0) - (d.current or 0.0)
            rate = rules.rate_up if change > 0 else rules.rate_down
            if change == 0 or rate is None:
                continue
            same = moves.setdefault(f"{d.target} {change > 0}", [])
            same.append((snapshot.tick.at, abs(change)))
            within = [size for at, size in same if at > snapshot.tick.at - rate.period + 1e-6]
            before = math.fsum(within[:-1])
            base = (d.current or 0.0) + (-before if change > 0 else before)
            allowed = rate.allowance(max(base, 0.0), rules.limits.quantum)
            assert math.fsum(within) <= allowed + 1e-6 * max(1.0, abs(base))


@slow
@given(lives)
def test_5_the_same_life_gives_the_same_plans_byte_for_byte(life: Life) -> None:
    first, second = live(life), live(life)

    assert [codec.encode(plan) for _, plan, _ in first] == [codec.encode(plan) for _, plan, _ in second]


@slow
@given(lives)
def test_8_enough_replicas_stay_in_rotation_and_only_who_agreed_is_sent_away(life: Life) -> None:
    for snapshot, plan, _ in live(life):
        for (pool, lever), rules in LEVERS.items():
            mine = [d for d in plan.decisions if (d.target.pool, d.target.lever) == (pool, lever)]
            if lever in PER_REPLICA and mine:
                out = [d for d in mine if (d.final or 0.0) < 0.5]
                was = [d for d in mine if (d.current or 0.0) < 0.5]
                assert len(out) <= max(group.most_out(len(mine), rules.group), len(was))
                assert any((d.final or 0.0) >= 0.5 for d in mine)
            if lever is Lever.DOWNGRADE:
                assert math.fsum(d.final or 0.0 for d in mine) <= 1.0 + 1e-9
        assert all(d.target.pool != SMALL for d in plan.decisions if d.target.lever is Lever.DOWNGRADE)
        assert len(snapshot.targets) == len(plan.decisions)


@slow
@given(lives)
def test_8_no_tenant_is_starved(life: Life) -> None:
    """One fully starved tenant is worse than an overload by as little."""
    for _, plan, _ in live(life):
        for d in plan.decisions:
            if d.target.lever is Lever.TENANT_CAP:
                assert (d.final or 0.0) > 0.0


@slow
@given(lives)
def test_every_memory_of_the_laws_survives_the_ledger(life: Life) -> None:
    fleet, controller = Fleet(SIZE, CONFIG, seed=life.seed, busy=life.busy), Controller(CONFIG)
    for fault in life.faults[:6]:
        controller.plan(damaged(fleet.snapshot(), fault))
    for key, state in controller.state.policies.items():
        assert codec.decode(type(state), codec.encode(state)) == state, key
    for held in controller.state.guards.values():
        assert codec.decode(type(held), codec.encode(held)) == held


def test_a_fleet_that_is_short_moves_several_levers_and_one_at_rest_moves_none_but_replicas() -> None:
    """Else every property above would hold of a controller that does nothing."""
    short = live(Life(7, 3.0, ("",) * 12))
    moved = {d.target.lever for _, plan, _ in short for d in plan.decisions if d.changed}
    assert {Lever.REPLICAS, Lever.TENANT_CAP, Lever.ADMISSION, Lever.DOWNGRADE} <= moved

    leaving = [d for _, plan, _ in live(Life(7, 0.3, ("",) * 12, 45.0)) for d in plan.decisions if drain.asked(d)]
    assert {d.final for d in leaving} >= {0.0}

    calm = live(Life(7, 0.3, ("",) * 12))
    moved = {d.target.lever for _, plan, _ in calm for d in plan.decisions if d.changed}
    assert Lever.DOWNGRADE not in moved
    assert Lever.BREAKER not in moved


@pytest.mark.parametrize("fault", ["gone", "missing"])
def test_2_an_outage_at_the_onset_of_a_flash_takes_no_protection_away(fault: str) -> None:
    """Twenty blind ticks after an overload began: nothing relaxes, nothing falls, and the way back does not dip."""
    seen = live(Life(3, 3.0, ("",) * 6 + (fault,) * 20 + ("",) * 3))
    for _, plan, now in seen[6:]:
        for d in plan.decisions:
            if d.target.pool != "model-0000" and fault == "missing":
                continue
            assert not relaxes(d), f"{now or 'back'}: {d}"
