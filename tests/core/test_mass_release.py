"""One wrong reading does not let a whole fleet's held work in at once; a fleet that recovers by steps is not held."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from controller.core.decide import DecideState, decide
from controller.core.model import Ask, Decision, Lever, Pin, Proposal, Snapshot, Target, TargetState, Tick
from controller.core.ports import Brief, Limits, View
from controller.core.rules import FleetRules, LeverRules, PoolRules
from controller.core.slo import Objective
from controller.core.why import Why
from controller.run.states import encode_states, restore
from tests.support.cases import NOW, estimate, healthy

NO_CAP, UNIT = 1e6, 1000.0
POOLS = tuple(f"pool-{n}" for n in range(10))
CAP = LeverRules(Lever.TENANT_CAP, "w", "n", limits=Limits(0, NO_CAP, 1.0), stabilise=0.0, members=("ann",))


@dataclass(frozen=True)
class Nothing:
    """No memory."""


class Wants:
    """A law that wants one cap."""

    def __init__(self, cap: float) -> None:
        self.cap = cap

    def initial(self) -> Nothing:
        return Nothing()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: Nothing
    ) -> tuple[Sequence[Proposal], Nothing]:
        return [Proposal(t, Ask.SET, self.cap, "wants", Why.CARRIED) for t in view.targets], state


def target(pool: str) -> Target:
    return Target(pool, Lever.TENANT_CAP, "ann")


def plan(
    have: float, want: Mapping[str, float], state: DecideState | None = None, at: float = NOW, pins: Sequence[str] = ()
) -> tuple[dict[str, Decision], DecideState]:
    """One tick: each pool carries 10 and its tenant asks for 8."""
    rules = FleetRules(tuple(PoolRules(p, (), (CAP,), (target(p),)) for p in POOLS))
    known = estimate(12.0, unit_tokens=UNIT, flows={"ann": 8.0})
    pin = Pin(NO_CAP, NOW + 9e3, "a customer called")
    snapshot = Snapshot(
        Tick(9, at, 15.0),
        {p: replace(healthy(), filled_since=NOW - 9e5) for p in POOLS},
        {target(p): TargetState(have, pin=pin if p in pins else None) for p in POOLS},
    )
    laws = {f"{p}/tenant_cap": Wants(want.get(p, have)) for p in POOLS}
    made, after = decide(snapshot, dict.fromkeys(POOLS, known), rules, laws, state or DecideState())
    assert restore(encode_states(after, {}), laws)[0] == after
    return {d.target.pool: d for d in made.decisions}, after


def test_a_reading_that_frees_all_tenants_at_once_is_held() -> None:
    """Demand read as nothing for one tick, and every tenant of the fleet came back at the same moment."""
    decisions, state = plan(2000.0, dict.fromkeys(POOLS[:4], NO_CAP))

    assert [decisions[p].final for p in POOLS] == [2000.0] * 10
    assert decisions["pool-0"].why == Why.FLEET_GUARD
    assert state.releases is not None
    assert state.fleet is None, "replicas are not held for it"


def test_what_is_still_wanted_after_the_hold_comes_in_steps() -> None:
    free = dict.fromkeys(POOLS, NO_CAP)
    _, state = plan(2000.0, free)
    decisions, state = plan(2000.0, free, state, NOW + 301.0)
    assert sum(d.final == NO_CAP for d in decisions.values()) == 2

    decisions, _ = plan(2000.0, free, state, NOW + 316.0)
    assert sum(d.final == NO_CAP for d in decisions.values()) == 0


def test_a_fleet_that_recovers_step_by_step_is_not_held() -> None:
    decisions, state = plan(2000.0, dict.fromkeys(POOLS, 3000.0))

    assert [d.final for d in decisions.values()] == [3000.0] * 10
    assert state.releases is None


@pytest.mark.parametrize("count", [1, 2])
def test_few_pools_may_let_in_what_they_like(count: int) -> None:
    decisions, _ = plan(2000.0, dict.fromkeys(POOLS[:count], NO_CAP))

    assert sum(d.final == NO_CAP for d in decisions.values()) == count


def test_a_cap_that_holds_nothing_back_is_no_release() -> None:
    decisions, _ = plan(9000.0, dict.fromkeys(POOLS, NO_CAP))

    assert sum(d.final == NO_CAP for d in decisions.values()) == 10


def test_tightening_is_never_held() -> None:
    want = {**dict.fromkeys(POOLS[:5], NO_CAP), **dict.fromkeys(POOLS[5:], 100.0)}
    decisions, _ = plan(2000.0, want)

    assert [decisions[p].final for p in POOLS] == [2000.0] * 5 + [100.0] * 5


def test_a_person_is_no_wrong_reading() -> None:
    decisions, _ = plan(2000.0, dict.fromkeys(POOLS, NO_CAP), pins=("pool-3",))

    assert decisions["pool-3"].final == NO_CAP
    assert decisions["pool-4"].final == 2000.0
