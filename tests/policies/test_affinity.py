"""Affinity against load: skew is met, a shortage is not made worse, and what came back too soon waits longer."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from controller.core.guards import bounds
from controller.core.model import Ask, Lever, PoolReadings, Proposal, Scope, Target, TargetState, Tick
from controller.core.ports import Balance, Brief, Estimate, Limits, View
from controller.core.reading import Reading, State, ok
from controller.core.signals import Signal
from controller.core.why import Why
from controller.run.codec import decode, encode
from policies.affinity import Affinity

TARGET = Target("chat", Lever.ROUTING, "affinity")
LIMITS = Limits(0.5, 1.0, 0.05)
EVEN, HOT = (20.0, 20.0, 20.0, 20.0), (90.0, 10.0, 10.0, 10.0)
CALM = Brief(Balance(2.0, 4.0), 0.0)
SHORT = Brief(Balance(5.0, 4.0), 1.0, short=1.0)
KNOWN = Estimate(demand=2.0, unit_sequences=40.0, trusted=True)
GONE = Reading(State.STALE, note="its scrape failed")


class World:
    """A pool of four; what is proposed is done at once, unless `obeys` is False."""

    def __init__(self, start: float = 1.0, **config: Any) -> None:
        self.law, self.value, self.at = Affinity(Affinity.Config(**config)), start, 1_000_000.0
        self.state, self.number, self.obeys = self.law.initial(), 0, True

    def tick(
        self, work: tuple[float | Reading, ...], brief: Brief = CALM, hit: float | Reading | None = 0.9,
        estimate: Estimate = KNOWN,
    ) -> Proposal:  # fmt: skip
        self.at, self.number = self.at + 15.0, self.number + 1
        replicas = {
            f"r{i}": Scope({Signal.RUNNING: one if isinstance(one, Reading) else ok(one), Signal.QUEUE_DEPTH: ok(0.0)})
            for i, one in enumerate(work)
        }
        told = {} if hit is None else {Signal.PREFIX_HIT_RATE: hit if isinstance(hit, Reading) else ok(hit)}
        pool = PoolReadings(signals=told, replicas=replicas)
        view = View(
            Tick(self.number, self.at, 15.0), pool, {TARGET: TargetState(self.value)}, {TARGET: LIMITS}, estimate
        )
        (made,), self.state = self.law.propose(view, (), brief, self.state)
        assert decode(type(self.state), encode(self.state)) == self.state
        if made.ask is Ask.SET and self.obeys:
            self.value = bounds(LIMITS, made.value)[0]
        return made

    def run(self, ticks: int, work: tuple[float | Reading, ...], **more: Any) -> list[float]:
        values = []
        for _ in range(ticks):
            self.tick(work, **more)
            values.append(self.value)
        return values


def test_a_hot_home_queues_while_others_idle_and_nobody_moves() -> None:
    world = World()
    world.run(4, EVEN)
    first = next(i for i in range(10) if world.tick(HOT).why is Why.UNEVEN and world.value < 1.0)

    assert first <= 3  # within a minute
    assert world.value == 0.9
    world.run(30, HOT)
    assert world.value == LIMITS.min  # and no further, however long it lasts


def test_one_look_at_cold_caches_gives_affinity_away() -> None:
    """At its begin a law has no past to smooth with, and a fleet whose caches fill is uneven for a moment."""
    world = World()
    world.tick(HOT)
    assert set(world.run(20, EVEN)) == {1.0}


def test_steps_follow_each_other_before_the_first_can_have_worked() -> None:
    values = [1.0, *World().run(24, HOT)]
    steps = [i for i, (a, b) in enumerate(pairwise(values)) if b < a]

    assert max(a - b for a, b in pairwise(values)) <= 0.1 + 1e-9
    assert min(b - a for a, b in pairwise(steps)) * 15.0 >= 45.0


def test_a_shortage_is_made_worse_by_giving_up_the_cache() -> None:
    """Where all are short the cache is capacity; less affinity would take it away."""
    world = World()
    world.run(19, (90.0, 40.0, 40.0, 40.0), brief=SHORT)
    made = world.tick((90.0, 40.0, 40.0, 40.0), brief=SHORT)
    # Of demand and capacity it says nothing: the same fleet may serve all of it when it is spread from the start.
    assert (made.ask, made.why, world.value) == (Ask.AT_MOST, Why.OTHERS_BUSY, 1.0)


def test_what_is_too_much_for_the_home_is_spread_until_it_is_too_much_for_all() -> None:
    """Others that have 0.6 of what they can do have no room for a whole queue; one replica's users wait, not all."""
    assert set(World().run(20, (200.0, 26.0, 26.0, 26.0))) == {1.0}
    assert World().run(20, (200.0, 22.0, 22.0, 22.0))[-1] < 1.0


def test_a_queue_at_one_home_is_taken_for_a_shortage_of_all() -> None:
    """The model says short because one queue grows; the others idle, and nobody else would help."""
    assert World().run(12, HOT, brief=SHORT)[-1] < 1.0
    unknown = replace(KNOWN, unit_sequences=None)
    assert set(World().run(12, HOT, brief=SHORT, estimate=unknown)) == {1.0}  # the model alone is left to tell


@pytest.mark.parametrize("work", [(6.0, 1.0, 1.0, 0.0), (1.0, 0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0)])
def test_a_few_requests_at_night_are_no_skew(work: tuple[float, ...]) -> None:
    assert set(World().run(40, work)) == {1.0}
    assert set(World().run(40, work, estimate=replace(KNOWN, unit_sequences=None))) == {1.0}


def test_without_an_operating_point_requests_above_the_mean_tell() -> None:
    assert World().run(12, HOT, estimate=replace(KNOWN, unit_sequences=None))[-1] < 1.0


def test_a_replica_that_the_breaker_holds_out_makes_the_others_look_uneven() -> None:
    """Of four, two serve all; the mean is theirs."""
    assert set(World().run(20, (40.0, 36.0, 0.0, 0.0), brief=Brief(Balance(1.0, 2.0), 0.0))) == {1.0}
    assert World().run(20, (40.0, 36.0, 0.0, 0.0))[-1] < 1.0


def test_it_comes_back_slowly_where_hits_were_lost() -> None:
    world = World()
    world.run(30, EVEN)
    world.run(12, HOT)
    low = world.value
    values = [low, *world.run(400, EVEN, hit=0.7)]

    assert low < 0.9
    assert values[-1] == 1.0
    assert max(b - a for a, b in pairwise(values)) <= 0.05 + 1e-9
    rises = [i for i, (a, b) in enumerate(pairwise(values)) if b > a]
    assert rises[0] * 15.0 >= 300.0
    assert min(b - a for a, b in pairwise(rises)) * 15.0 >= 300.0


def test_what_costs_no_hits_is_tried_again_every_few_minutes() -> None:
    world = World()
    world.run(30, EVEN)
    world.run(8, HOT)
    low = world.value
    assert set(world.run(200, EVEN)) == {low}  # 50 minutes
    assert world.run(60, EVEN)[-1] == pytest.approx(low + 0.05)


def test_a_skew_that_stays_is_met_again_and_again_at_the_same_pace() -> None:
    """The load is even because affinity is low. Each return that was followed by skew doubles the next wait."""
    world, rises, before = World(), [], 1.0
    world.run(30, EVEN)
    for _ in range(1600):
        world.tick(HOT if before >= 0.9 else EVEN, hit=0.7 if before < 1.0 else 0.9)
        if world.value > before:
            rises.append(world.at)
        before = world.value
    gaps = [b - a for a, b in pairwise(rises)]
    assert gaps[2] > 1.5 * gaps[0]
    assert max(gaps) <= 16 * 300.0 + 600.0


@pytest.mark.parametrize(
    "work",
    [(GONE, GONE, GONE, 20.0), (GONE, GONE, GONE, GONE), ()],
    ids=["one of four is read", "none is read", "none is there"],
)
def test_an_outage_is_taken_for_evenness(work: tuple[float | Reading, ...]) -> None:
    world = World(0.6)
    world.run(2, EVEN)
    for _ in range(400):
        made = world.tick(work)
        assert (made.ask, made.value, made.why) == (Ask.AT_MOST, 0.6, Why.MISSING)


@pytest.mark.parametrize(
    ("more", "work"),
    [
        ({"hit": GONE}, EVEN),
        ({"hit": None}, EVEN),
        ({"estimate": replace(KNOWN, trusted=False)}, EVEN),
        ({}, (20.0, 20.0, 20.0, Reading(State.STALE, 20.0))),
        ({}, (20.0, 20.0, 20.0, Reading(State.UNDERFILLED, 20.0))),
    ],
    ids=["hits are stale", "hits are gone", "not trusted", "a replica is stale", "a replica is young"],
)
def test_it_comes_back_on_half_of_the_evidence(more: dict[str, Any], work: tuple[float | Reading, ...]) -> None:
    world = World(0.6)
    world.run(4, EVEN)
    made = [world.tick(work, **more) for _ in range(400)]
    assert world.value == 0.6
    assert made[-1].ask is Ask.AT_MOST


def test_skew_that_is_seen_in_part_is_met_all_the_same() -> None:
    """Missing data never holds protection back."""
    world = World()
    assert world.run(20, (*HOT[:3], GONE), estimate=replace(KNOWN, trusted=False))[-1] < 1.0


def test_a_night_in_which_nobody_looked_is_taken_for_calm() -> None:
    world = World(0.6)
    world.run(4, EVEN)
    world.at += 36_000.0
    assert set(world.run(10, EVEN)) == {0.6}


def test_an_engine_that_tells_no_hits_keeps_it_low_for_ever() -> None:
    world = World(0.6)
    assert world.run(300, EVEN, hit=None)[-1] == 1.0


def test_what_only_observes_waits_for_an_effect_of_what_it_never_did() -> None:
    world = World()
    world.obeys = False
    asked = [world.tick(HOT) for _ in range(20)]
    assert [one.value for one in asked[4:]] == [0.9] * 16
    assert {one.ask for one in asked[4:]} == {Ask.SET}


@pytest.mark.parametrize("quantum", [0.3, 0.5])
def test_a_coarse_target_rounds_every_step_away(quantum: float) -> None:
    law = Affinity(Affinity.Config(dwell=0.0))
    pool = PoolReadings(replicas={f"r{i}": Scope({Signal.RUNNING: ok(one)}) for i, one in enumerate(HOT)})
    view = View(
        Tick(1, 1_000_000.0, 15.0), pool, {TARGET: TargetState(1.0)}, {TARGET: Limits(0.0, 1.0, quantum)}, KNOWN
    )
    (made,), _ = law.propose(view, (), CALM, law.initial())
    assert bounds(Limits(0.0, 1.0, quantum), made.value)[0] < 1.0


def test_thresholds_without_a_gap_are_refused() -> None:
    with pytest.raises(ValueError, match="ease: must be below bound"):
        Affinity(Affinity.Config(bound=1.5, ease=1.5))
