"""What came of an action changes the plan: the next lever gets its turn, harm is taken back, a swinging lever calms."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from controller.core.decide import DecideState, decide
from controller.core.model import (
    Ask,
    Decision,
    Lever,
    Mode,
    Pin,
    Plan,
    Proposal,
    Snapshot,
    Target,
    TargetState,
    Tick,
)
from controller.core.ports import Brief, Estimate, Limits, View
from controller.core.reading import State, ok
from controller.core.rules import FleetRules, LeverRules, Pair, PoolRules, Rate, Variants
from controller.core.slo import Objective
from controller.core.tenancy import TenantRules
from controller.core.why import Why
from controller.run.states import encode_states, restore
from tests.support.cases import NOW, bad, estimate, healthy

TICK, UNIT, RATE = 15.0, 1000.0, 5.0  # s, tokens/s and requests/s of one replica
CAP = Target("big", Lever.TENANT_CAP, "ann")
SHARE = Target("big", Lever.DOWNGRADE, "small")
REPLICAS = Target("big", Lever.REPLICAS)


@dataclass(frozen=True)
class Nothing:
    """No memory."""


@dataclass
class Wish:
    """A law that wants what the test says, None for nothing."""

    value: float | None = None
    briefs: list[Brief] = field(default_factory=list)

    def initial(self) -> Nothing:
        return Nothing()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: Nothing
    ) -> tuple[Sequence[Proposal], Nothing]:
        self.briefs.append(brief)
        if self.value is None:
            return (), state
        return [Proposal(t, Ask.SET, self.value, "wish", Why.DEMAND) for t in sorted(view.targets)], state


def rules(mode: Mode = Mode.AUTO, **more: object) -> PoolRules:
    base = LeverRules(Lever.REPLICAS, "w", "n", mode, Limits(1, 60), stabilise=0.0, give_up=600.0)
    base = replace(base, **more)  # type: ignore[arg-type]
    caps = replace(base, lever=Lever.TENANT_CAP, limits=Limits(0, 1e5, 1.0), members=("ann",))
    share = replace(base, lever=Lever.DOWNGRADE, limits=Limits(0, 1.0, 0.01), members=("small",))
    return PoolRules(
        "big", (), (base, caps, share), (REPLICAS, CAP, SHARE), tenants={"ann": TenantRules(consents=True)}
    )


@dataclass
class World:
    """One pool under more demand than it carries, tick by tick through ``decide``. `works` scales what levers do."""

    works: float = 1.0
    demand: float = 12.0
    serving: float = 10.0
    waiting: float = 100.0  # replica-seconds
    harm: float = 0.0  # what each unit of relief costs
    rules: PoolRules = field(default_factory=rules)
    at: float = NOW
    pin: Pin | None = None
    blind: bool = False
    laws: dict[Lever, Wish] = field(default_factory=lambda: {lever: Wish() for lever in Lever})
    have: dict[Target, float] = field(default_factory=lambda: {CAP: 1e5, SHARE: 0.0, REPLICAS: 10.0})
    state: DecideState = field(default_factory=DecideState)
    plan: Plan = field(default_factory=lambda: Plan(0.0))

    def run(self, seconds: float, **wishes: float | None) -> "World":
        for name, value in wishes.items():
            self.laws[Lever(name)].value = value
        for _ in range(round(seconds / TICK)):
            self.step()
        return self

    def step(self) -> None:
        self.at += TICK
        relief = max(0.0, 8.0 - self.have[CAP] / UNIT) + 8.0 * self.have[SHARE]
        taken = self.demand - self.works * relief
        before, self.waiting = self.waiting, max(0.0, self.waiting + TICK * (taken - self.serving + self.harm * relief))
        admitted = taken - (self.waiting - before) / TICK
        signals = {
            "offered_rate": bad(State.MISSING) if self.blind else ok(self.demand * RATE),
            "queue_depth": ok(self.waiting * RATE), "admitted_rate": ok(max(0.0, admitted) * RATE),
        }  # fmt: skip
        snapshot = Snapshot(
            Tick(9, self.at, TICK),
            {"big": replace(healthy(**signals), filled_since=NOW - 9e5)},
            {t: TargetState(v, v, pin=self.pin if t == CAP else None) for t, v in self.have.items()},
        )
        offered = None if self.blind else self.demand * RATE
        known = estimate(
            self.demand, offered=offered, trusted=not self.blind, unit_rate=RATE, unit_tokens=UNIT, flows={"ann": 8.0},
            horizon=180.0, evidence={"serving": self.serving, "proven_rate": RATE},
        )  # fmt: skip
        small = Estimate(demand=1.0, unit_rate=RATE, trusted=True, evidence={"serving": 20.0})
        laws = {f"big/{lever}": law for lever, law in self.laws.items()}
        before_state = self.state
        fleet = FleetRules((self.rules,))
        self.plan, self.state = decide(snapshot, {"big": known, "small": small}, fleet, laws, before_state)
        # What goes through the ledger decides the same.
        back, _ = restore(encode_states(before_state, {}), laws)
        again, after = decide(snapshot, {"big": known, "small": small}, fleet, laws, back)
        assert (again, after) == (self.plan, self.state)
        for decision in self.plan.decisions:
            if decision.send and decision.final is not None:
                self.have[decision.target] = decision.final

    def of(self, target: Target) -> Decision:
        return next(d for d in self.plan.decisions if d.target == target)

    @property
    def left(self) -> float:
        """What the downgrade is asked for."""
        return self.laws[Lever.DOWNGRADE].briefs[-1].left


def test_the_next_lever_is_asked_when_nothing_came_of_two_caps() -> None:
    """A tenant cap that no gateway enforces looked like relief for the whole of an incident."""
    world = World(works=0.0).run(300).run(300, tenant_cap=6000.0)
    assert world.left == pytest.approx(0.5)
    world.run(300, tenant_cap=5000.0)

    assert world.left == pytest.approx(2.5), "the caps count for nothing"
    assert world.of(CAP).steps[-1].why == Why.NO_EFFECT
    assert world.of(CAP).final == 5000.0, "it stands where its law wants it"
    world.run(960)
    assert world.left < 2.5, "it gets another chance"


def test_a_cap_that_works_keeps_its_turn_while_demand_rises() -> None:
    world = World(works=1.0, waiting=900.0).run(300)
    for cap in (7000.0, 6000.0, 5000.0, 4000.0):
        world.demand += 0.3
        world.run(300, tenant_cap=cap)

    assert not world.state.hindsight["big"].effect.passed_over
    assert world.left < 0.2


def test_a_downgrade_that_makes_it_worse_is_taken_back_once() -> None:
    world = World(works=1.0, harm=3.0).run(300).run(180, downgrade=0.3)
    moved = [world.have[SHARE]]
    for _ in range(8):
        world.step()
        moved.append(world.have[SHARE])

    assert moved[0] == 0.3
    assert moved[-1] == 0.0
    assert world.of(SHARE).steps[-1].why == Why.UNDO
    world.run(600)
    assert world.have[SHARE] == 0.3, "the law has its way again"
    world.run(600)
    assert world.have[SHARE] == 0.3, "no second undo within the hold"


def test_an_undo_in_protect_takes_no_protection_away() -> None:
    world = World(works=1.0, harm=3.0, rules=rules(Mode.PROTECT)).run(300).run(600, downgrade=0.3)

    assert world.have[SHARE] == 0.3


def test_a_release_that_broke_the_queue_is_taken_back_and_protection_goes_on() -> None:
    world = World(demand=11.5, waiting=0.0).run(300, tenant_cap=6000.0).run(330, tenant_cap=1e5)
    assert world.have[CAP] == 6000.0
    assert any(s.why == Why.UNDO for s in world.of(CAP).steps)

    world.run(30, tenant_cap=4000.0)

    assert world.have[CAP] == 4000.0


def test_a_pin_and_a_bound_beat_an_undo() -> None:
    world = World(demand=11.5, waiting=0.0).run(300, tenant_cap=6000.0).run(330, tenant_cap=1e5)
    assert world.have[CAP] == 6000.0
    world.pin = Pin(9000.0, world.at + 60.0, "a customer called")
    world.run(15)

    assert world.have[CAP] == 9000.0
    world.pin = None
    replicas, caps, share = world.rules.levers
    world.rules = replace(world.rules, levers=(replicas, replace(caps, limits=Limits(7000, 1e5, 1.0)), share))
    world.run(15)
    assert world.have[CAP] == 7000.0


def test_missing_data_concludes_nothing_about_a_lever() -> None:
    world = World(works=0.0).run(300)
    world.blind = True
    world.run(300, tenant_cap=6000.0).run(300, tenant_cap=5000.0)

    assert not world.state.hindsight["big"].effect.passed_over


def test_replicas_that_swing_by_themselves_are_turned_down_and_are_never_slower_to_protect() -> None:
    world = World(demand=8.0, waiting=0.0)
    for tick in range(200):
        wish = 14.0 if tick * TICK % 1200 < 600 else 10.0
        world.serving = world.have[REPLICAS]
        world.run(TICK, replicas=wish)
        if world.state.hindsight["big"].gain(Lever.REPLICAS) < 1.0:
            break
    seen = world.state.hindsight["big"]

    assert seen.gain(Lever.REPLICAS) == 0.5
    assert seen.gain(Lever.DOWNGRADE) == 1.0
    world.run(TICK)
    assert world.laws[Lever.REPLICAS].briefs[-1].gain == pytest.approx(0.5, abs=0.01)
    have = world.have[REPLICAS]
    world.run(TICK, replicas=have + 8)
    assert world.have[REPLICAS] == have + 8, "protection is not damped"
    world.serving = world.have[REPLICAS]
    world.run(TICK, replicas=have)
    assert world.have[REPLICAS] == have + 4
    assert any(s.why == Why.DAMPED for s in world.of(REPLICAS).steps)


def test_replicas_that_follow_a_swinging_load_are_not() -> None:
    world = World(waiting=0.0)
    for tick in range(300):
        world.demand = 8.0 * math.exp(0.4 * math.sin(2 * math.pi * tick * TICK / 900.0))
        world.serving = world.have[REPLICAS]
        world.run(TICK, replicas=float(math.ceil(world.demand / 0.85)))

    assert world.state.hindsight["big"].gain(Lever.REPLICAS) == 1.0
    assert len({round(b.gain, 3) for b in world.laws[Lever.REPLICAS].briefs}) == 1


# --- pools that are sized together -----------------------------------------------------------------------------------


def together(
    have: Mapping[str, float], want: Mapping[str, float], *, rate_up: Rate | None = None, **fleet: object
) -> dict[str, Decision]:
    """One tick over pools of replicas alone."""
    lever = LeverRules(Lever.REPLICAS, "w", "n", limits=Limits(0, 60), stabilise=0.0, rate_up=rate_up)
    targets = {name: Target(name, Lever.REPLICAS) for name in have}
    pools = tuple(PoolRules(name, (), (lever,), (target,)) for name, target in targets.items())
    snapshot = Snapshot(
        Tick(9, NOW, TICK),
        {name: replace(healthy(), filled_since=NOW - 9e5) for name in have},
        {targets[name]: TargetState(value, value) for name, value in have.items()},
    )
    known = {
        name: estimate(0.5, unit_rate=2.0 if name == "cheap" else 6.0, evidence={"serving": value})
        for name, value in have.items()
    }
    laws = {f"{name}/replicas": Wish(value) for name, value in want.items()}
    made = replace(FleetRules(pools), **fleet)  # type: ignore[arg-type]
    plan, _ = decide(snapshot, known, made, laws, DecideState())
    return {d.target.pool: d for d in plan.decisions}


def test_decode_grows_with_prefill_within_its_own_pace() -> None:
    pairs = (Pair("llama", "p", "d", 0.4, 0.6),)
    free = together({"p": 5.0, "d": 10.0}, {"p": 12.0, "d": 10.0}, pairs=pairs)
    paced = together({"p": 5.0, "d": 10.0}, {"p": 12.0, "d": 10.0}, pairs=pairs, rate_up=Rate(2.0, 60.0))

    assert (free["p"].final, free["d"].final) == (12.0, 19.0)
    assert free["d"].why == Why.RATIO
    assert free["d"].send
    assert (paced["p"].final, paced["d"].final) == (7.0, 10.0)


def test_a_raise_goes_to_the_cheaper_variant() -> None:
    variants = (Variants("llama", {"dear": 4.0, "cheap": 1.0}),)
    made = together({"dear": 4.0, "cheap": 3.0}, {"dear": 6.0, "cheap": 3.0}, variants=variants)

    assert (made["dear"].final, made["cheap"].final) == (4.0, 9.0)
    assert made["cheap"].why == Why.CHEAPEST


def test_a_fleet_without_pairs_and_variants_is_sized_pool_by_pool() -> None:
    made = together({"p": 5.0, "d": 10.0}, {"p": 12.0, "d": 10.0})

    assert (made["p"].final, made["d"].final) == (12.0, 10.0)
