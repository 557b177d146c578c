"""A lever that does nothing is passed over, one that works is not, and what does harm is taken back once."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest

from controller.core.effect import (
    PASSED_OVER,
    STANDS,
    Finding,
    PoolEffect,
    Sample,
    Seen,
    Trend,
    Verdict,
    trend,
    verdict,
    watch,
)
from controller.core.model import Lever, Target
from controller.core.ports import Limits
from controller.core.rules import LeverRules
from controller.run import codec

TICK = 15.0
CAP = Target("llm", Lever.TENANT_CAP, "batch")
SENT = Target("llm", Lever.DOWNGRADE, "small")
REPLICAS = Target("llm", Lever.REPLICAS)
RULES = {
    lever: LeverRules(lever, "p", "a", limits=Limits(0, 100), settle=30.0, give_up=600.0)
    for lever in (Lever.REPLICAS, Lever.TENANT_CAP, Lever.DOWNGRADE)
}


def promised(lever: Lever, values: Mapping[str, float]) -> float:
    """Relief in these tests: a cap of x lets x of the flow of 10 through; a share is of a flow of 10."""
    if lever is Lever.TENANT_CAP:
        return math.fsum(max(0.0, 10.0 - v) for v in values.values())
    return math.fsum(10.0 * v for v in values.values()) if lever is Lever.DOWNGRADE else 0.0


def by_lever(values: Mapping[Target, float]) -> dict[Lever, dict[str, float]]:
    return {lever: {t.member: v for t, v in values.items() if t.lever is lever} for lever in RULES}


@dataclass
class Plant:
    """A pool as a fluid queue. `works` scales what the levers really do; `noise` is the spread of a tick's demand."""

    works: float = 1.0
    noise: float = 0.0
    told: bool = True  # whether admissions are told
    seed: int = 1
    carried: float = 20.0
    demand: Callable[[float], float] = lambda at: 24.0
    values: dict[Target, float] = field(default_factory=lambda: {CAP: 10.0, SENT: 0.0, REPLICAS: 20.0})
    harm: float = 0.0  # what an armed lever costs
    at: float = 0.0
    waiting: float = 100.0
    state: PoolEffect = field(default_factory=PoolEffect)
    findings: list[Finding] = field(default_factory=list)
    arrived: bool = True

    def run(self, seconds: float, **moves: float) -> "Plant":
        names = {"cap": CAP, "sent": SENT, "replicas": REPLICAS}
        self.values.update({names[n]: v for n, v in moves.items()})
        rng = random.Random(f"{self.seed}/{self.at}")
        for _ in range(round(seconds / TICK)):
            self.at += TICK
            demand = self.demand(self.at) * (1 + rng.gauss(0.0, self.noise))
            relief = sum(promised(lever, self._of(lever)) for lever in RULES)
            taken = demand - self.works * relief
            flow = self.carried - (self.harm if relief else 0.0)
            before, self.waiting = self.waiting, max(0.0, self.waiting + TICK * (taken - flow))
            admitted = taken - (self.waiting - before) / TICK
            sample = Sample(self.at, demand, self.carried, self.waiting, admitted if self.told else None)
            seen = Seen(self.at, sample, by_lever(self.values), RULES, 60.0, promised, arrived=self.arrived)
            self.state, found = watch(seen, self.state)
            self.findings += found
        return self

    def _of(self, lever: Lever) -> Mapping[str, float]:
        return by_lever(self.values)[lever]

    @property
    def verdicts(self) -> list[Verdict]:
        return [f.verdict for f in self.findings]


@pytest.mark.parametrize("told", [True, False])
def test_a_cap_that_the_gateway_ignores_is_passed_over_after_two_absents(told: bool) -> None:
    """A cap that nothing reads was tightened for ever, while the next lever that would have helped was never asked."""
    plant = Plant(works=0.0, told=told).run(240).run(240, cap=7.0)

    assert plant.verdicts == [Verdict.ABSENT]
    assert plant.state.counts(Lever.TENANT_CAP, plant.at), "once may be chance"

    plant.run(240, cap=4.0)

    assert plant.verdicts == [Verdict.ABSENT, Verdict.ABSENT]
    assert not plant.state.counts(Lever.TENANT_CAP, plant.at)
    assert plant.state.counts(Lever.DOWNGRADE, plant.at)
    plant.run(PASSED_OVER)
    assert plant.state.counts(Lever.TENANT_CAP, plant.at), "it gets another chance"


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_a_cap_that_works_is_never_passed_over_under_noise_and_rising_demand(told: bool, seed: int) -> None:
    """Latency and queue grow all the same when demand rises: judged by them, every lever in a flash looks idle."""
    plant = Plant(told=told, noise=0.05, seed=seed, demand=lambda at: 24.0 + 4.0 * at / 900.0).run(240)
    for step in range(1, 6):
        plant.run(240, cap=10.0 - 1.5 * step)

    assert Verdict.ABSENT not in plant.verdicts
    assert Verdict.HARMFUL not in plant.verdicts
    assert Verdict.CONFIRMED in plant.verdicts


@pytest.mark.parametrize("seed", range(8))
def test_a_cap_that_does_nothing_is_passed_over_under_noise_too(seed: int) -> None:
    plant = Plant(works=0.0, noise=0.03, seed=seed).run(240)
    for step in range(1, 6):
        plant.run(240, cap=10.0 - 1.9 * step)
        if not plant.state.counts(Lever.TENANT_CAP, plant.at):
            return

    pytest.fail(f"never passed over: {plant.verdicts}")


def test_an_absent_before_and_after_one_that_helped_is_not_two_in_a_row() -> None:
    plant = Plant(works=0.0).run(240).run(240, cap=7.0)
    plant.works = 1.0
    plant.run(240, cap=4.0)
    plant.works = 0.0
    plant.run(240, cap=2.0)

    assert plant.state.counts(Lever.TENANT_CAP, plant.at)


def test_demand_that_moves_more_than_the_effect_concludes_nothing() -> None:
    plant = Plant(works=0.0, demand=lambda at: 24.0 if at <= 240 else 30.0).run(240).run(240, cap=7.0)

    assert plant.verdicts == [Verdict.INCONCLUSIVE]


def test_two_levers_at_once_conclude_nothing() -> None:
    plant = Plant(works=0.0).run(240).run(240, cap=7.0, sent=0.3)

    assert set(plant.verdicts) == {Verdict.INCONCLUSIVE}


def test_a_lever_that_ramps_is_one_action_and_judged_at_its_end() -> None:
    plant = Plant(works=1.0).run(240)
    for cap in (9.0, 8.0, 7.0):
        plant.run(30, cap=cap)
    plant.run(240)

    assert plant.verdicts == [Verdict.CONFIRMED]
    assert plant.findings[0].predicted == pytest.approx(3.0)
    assert plant.findings[0].realised == pytest.approx(3.0)


def test_caps_that_follow_their_tenants_a_little_at_every_tick_are_judged_all_the_same() -> None:
    plant = Plant(works=0.0).run(240)
    for tick in range(16):
        plant.run(TICK, cap=7.0 + 0.02 * (tick % 3))

    assert plant.verdicts == [Verdict.ABSENT]


def test_what_moves_little_by_little_is_an_action_too() -> None:
    plant = Plant(works=1.0, waiting=900.0).run(240)
    for tick in range(1, 61):
        plant.run(TICK, cap=10.0 - 0.05 * tick)
    plant.run(300)

    assert plant.verdicts == [Verdict.CONFIRMED]


def test_missing_data_concludes_nothing() -> None:
    plant = Plant(works=0.0).run(240)
    seen = Seen(plant.at, None, by_lever({**plant.values, CAP: 5.0}), RULES, 60.0, promised)
    state = plant.state
    found: list[Finding] = []
    for tick in range(1, 30):
        state, made = watch(seen._replace(at=plant.at + TICK * tick), state)
        found += made

    assert [f.verdict for f in found] == [Verdict.INCONCLUSIVE]
    assert state.counts(Lever.TENANT_CAP, seen.at)


def test_what_somebody_else_moved_is_not_our_action() -> None:
    plant = Plant(works=0.0).run(240)
    plant.values[CAP] = 5.0
    sample = Sample(plant.at + TICK, 24.0, 20.0, plant.waiting, 20.0)
    seen = Seen(
        plant.at + TICK, sample, by_lever(plant.values), RULES, 60.0, promised, foreign=frozenset({Lever.TENANT_CAP})
    )

    assert not watch(seen, plant.state)[0].trials


# --- harm ----------------------------------------------------------------------------------------------------------


def test_a_lever_that_makes_it_worse_is_undone_once_and_not_again() -> None:
    """A downgrade to a model on the same GPUs took more than it gave."""
    plant = Plant(works=0.0, harm=6.0).run(240).run(240, sent=0.3)

    assert plant.verdicts == [Verdict.HARMFUL]
    assert plant.state.undone(SENT, 0.5, plant.at) == 0.0
    assert plant.state.undone(CAP, 3.0, plant.at) == 3.0

    plant.run(240, sent=0.0).run(240, sent=0.3)

    assert plant.verdicts[-1] == Verdict.HARMFUL
    held = plant.state.undos[Lever.DOWNGRADE]
    assert plant.state.undone(SENT, 0.5, held.until) == 0.5, "the undo of before has run out"
    assert held.until < plant.at + STANDS - TICK, "and no second one began"


def test_demand_that_rises_is_no_harm_that_a_lever_did() -> None:
    plant = Plant(demand=lambda at: 24.0 if at <= 240 else 32.0).run(240).run(240, sent=0.3)

    assert Verdict.HARMFUL not in plant.verdicts
    assert not plant.state.undos


def test_demand_that_falls_beside_a_small_queue_is_no_harm_that_a_lever_did() -> None:
    """Fewer requests were dealt with because fewer came, and the lever that had helped was undone."""
    busy = Trend(24.0, 30.0, 10.0, 0.0, 0.0, 24.0, 0.1, 0.0, 0.1)
    calm = Trend(16.0, 30.0, 40.0, 5.0, 0.4, 15.6, 0.1, 0.0, 0.1)
    for lever in (Lever.TENANT_CAP, Lever.REPLICAS):
        assert verdict(lever, 3.0, busy, calm)[0] is Verdict.INCONCLUSIVE
    draining = Trend(20.0, 30.0, 400.0, 40.0, -8.0, 28.0, 0.1, 0.0, 0.1)
    assert verdict(Lever.TENANT_CAP, 3.0, draining, calm)[0] is Verdict.INCONCLUSIVE, "it had drained"


def test_a_queue_that_grows_although_less_is_asked_is_harm() -> None:
    busy = Trend(24.0, 30.0, 10.0, 0.0, 0.0, 24.0, 0.1, 0.0, 0.1)
    worse = Trend(22.0, 30.0, 900.0, 5.0, 6.0, 16.0, 0.1, 0.0, 0.1)
    held = Trend(16.0, 30.0, 900.0, 300.0, 0.4, 15.6, 0.1, 0.0, 0.1)

    assert verdict(Lever.DOWNGRADE, 3.0, busy, worse)[0] is Verdict.HARMFUL
    assert verdict(Lever.DOWNGRADE, 3.0, busy, held)[0] is Verdict.HARMFUL, (
        "work waited all the time, and less was done"
    )


@pytest.mark.parametrize("seed", range(12))
def test_noise_is_no_harm(seed: int) -> None:
    plant = Plant(works=0.0, noise=0.05, seed=seed).run(240)
    for step in range(1, 5):
        plant.run(240, sent=0.1 * step)

    assert Verdict.HARMFUL not in plant.verdicts


def test_a_release_after_which_a_queue_grows_is_taken_back() -> None:
    plant = Plant(demand=lambda at: 23.0, waiting=0.0).run(240, cap=6.0)
    plant.state = plant.state._replace(trials={})
    plant.run(240, cap=10.0)

    assert plant.verdicts == [Verdict.HARMFUL]
    assert plant.state.undone(CAP, 10.0, plant.at) == 6.0
    assert plant.state.undone(CAP, 4.0, plant.at) == 4.0, "protection goes on"


def test_a_release_that_capacity_carries_stands() -> None:
    plant = Plant(demand=lambda at: 19.0, waiting=0.0).run(240, cap=6.0).run(300, cap=10.0)

    assert Verdict.HARMFUL not in plant.verdicts
    assert not plant.state.undos


# --- replicas ------------------------------------------------------------------------------------------------------


def test_replicas_that_serve_and_drain_the_queue_are_confirmed() -> None:
    plant = Plant(waiting=800.0).run(240)
    plant.arrived = False
    plant.run(180, replicas=28.0)
    assert not plant.findings
    plant.arrived, plant.carried = True, 28.0
    plant.run(300)

    assert plant.verdicts == [Verdict.CONFIRMED]
    assert plant.findings[0].predicted == 8.0


def test_replicas_that_serve_and_that_the_router_never_uses_are_absent() -> None:
    plant = Plant(waiting=800.0, demand=lambda at: 24.0 if at <= 240 else 28.0).run(240)
    plant.demand = lambda at: 24.0
    plant.run(30, replicas=26.0)
    state, found = plant.state, list[Finding]()
    for tick in range(1, 25):
        at = plant.at + TICK * tick
        sample = Sample(at, 24.0, 26.0, plant.waiting + 4.0 * TICK * tick)
        state, made = watch(Seen(at, sample, by_lever(plant.values), RULES, 60.0, promised), state)
        found += made

    assert [f.verdict for f in found] == [Verdict.ABSENT]


def test_replicas_that_never_come_are_given_up_and_said() -> None:
    """dynamo#14251: Pending pods for want of quota froze the controller."""
    plant = Plant(waiting=800.0).run(240)
    plant.arrived = False
    plant.run(660, replicas=26.0).run(660, replicas=28.0)

    assert plant.verdicts == [Verdict.ABSENT, Verdict.ABSENT]
    assert not plant.state.counts(Lever.REPLICAS, plant.at)


def test_more_replicas_are_never_undone_and_fewer_are() -> None:
    calm = Trend(20.0, 20.0, 0.0, 0.0, 0.0, 20.0, 0.1)
    worse = Trend(20.0, 20.0, 900.0, 300.0, 5.0, 15.0, 0.1)
    assert verdict(Lever.REPLICAS, -3.0, calm, worse)[0] is Verdict.HARMFUL

    up = Plant(demand=lambda at: 20.0, waiting=0.0).run(240)
    up.carried = 15.0
    up.run(300, replicas=24.0)
    assert up.verdicts == [Verdict.HARMFUL]
    assert up.state.undone(REPLICAS, 30.0, up.at) == 30.0

    down = Plant(demand=lambda at: 20.0, waiting=0.0).run(240)
    down.carried = 15.0
    down.run(300, replicas=15.0)
    assert down.state.undone(REPLICAS, 15.0, down.at) == 20.0
    assert down.state.undone(REPLICAS, 25.0, down.at) == 25.0


# --- arithmetic ----------------------------------------------------------------------------------------------------


def test_the_growth_of_a_straight_queue_is_its_slope_and_has_no_noise() -> None:
    line = trend([Sample(15.0 * i, 10.0, 8.0, 30.0 * i, 8.0) for i in range(5)])

    assert line is not None
    assert line.growth == pytest.approx(2.0)
    assert line.noise == pytest.approx(0.0, abs=1e-9)
    assert line.shed == pytest.approx(0.0)
    assert trend([Sample(15.0 * i, 10.0, 8.0, 30.0 * i, 8.0) for i in range(3)]) is None


def test_the_memory_goes_through_the_ledger() -> None:
    plant = Plant(works=0.0, harm=6.0).run(240).run(240, sent=0.3).run(60, cap=5.0)
    assert plant.state.trials
    assert plant.state.undos

    assert codec.decode(PoolEffect, codec.encode(plant.state)) == plant.state
