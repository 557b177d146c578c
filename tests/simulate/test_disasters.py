"""The six disasters of examples/scenarios: each fails as its file says when nobody acts, and its remedy is one."""

import re

import pytest

from benchmarks.disasters import (
    DEATH,
    DISASTERS,
    FLOOD,
    FOLDER,
    GAP,
    HOT,
    MEMBERS,
    NONE,
    POOL,
    STARVING,
    STORM,
    Disaster,
    Outcome,
    outcome,
    study,
)  # fmt: skip
from benchmarks.scenarios import PAGE, text
from controller.core.model import Lever
from controller.simulate.load import open_study
from tests.support.pages import assert_same

seeds = pytest.mark.parametrize("seed", [1, 2])


def alone(disaster: Disaster, seed: int = 1) -> Outcome:
    return outcome(disaster, NONE, seed)


@pytest.mark.parametrize("disaster", DISASTERS.values(), ids=DISASTERS.keys())
def test_a_scenario_file_that_is_refused_or_that_gives_the_controller_nothing_to_move(disaster: Disaster) -> None:
    opened = open_study(disaster.path)
    assert opened.scenario.name == disaster.name
    assert opened.scenario.about
    assert opened.scenario.events
    assert Lever.REPLICAS in opened.config.pools[POOL].levers
    for way in disaster.ways:
        assert study(disaster, way).config == opened.config  # a way changes the world, never the controller


def test_a_scenario_without_a_test() -> None:
    shipped = {path.stem for path in FOLDER.glob("*.yaml")}
    assert shipped - {"flash"} == set(DISASTERS)


# --- tenant flood -----------------------------------------------------------------------------------------------------


@seeds
def test_one_tenant_takes_the_fleet_and_the_others_miss_what_they_always_had(seed: int) -> None:
    flood = alone(FLOOD, seed)
    assert min(flood.run.series.attainment[:3]) > 0.95
    assert flood.attained("flood", "member") < 0.2
    assert flood.fair_share(MEMBERS) < 0.6
    assert flood.run.score.fairness["newcomer"] > 1.5


@pytest.mark.parametrize("way", ["fair queue", "cap of 1.5 requests/s on each tenant"])
def test_a_flood_meets_a_law_and_the_others_notice_little(way: str) -> None:
    held = outcome(FLOOD, way, 1)
    assert held.attained("flood", "member") > 0.75
    assert held.fair_share(MEMBERS) > 0.8


# --- starving low priority --------------------------------------------------------------------------------------------


@seeds
def test_batch_starves_while_every_promise_that_is_watched_is_kept(seed: int) -> None:
    busy = alone(STARVING, seed)
    assert busy.attained("busy", "critical") > 0.98
    assert busy.attained("busy", "standard") > 0.85
    assert busy.attained("busy", "batch") < 0.45


def test_a_floor_feeds_batch_and_critical_does_not_notice() -> None:
    strict, floor = (outcome(STARVING, f"fair queue{how}", 1) for how in (" without a floor", ", floor of 10 %"))
    assert strict.attained("busy", "batch") < 0.45
    assert floor.attained("busy", "batch") > 0.5
    assert floor.attained("busy", "critical") > 0.98
    assert floor.attained("busy", "standard") > 0.75


# --- long-prompt OOM --------------------------------------------------------------------------------------------------


@seeds
def test_a_query_of_death_goes_from_replica_to_replica(seed: int) -> None:
    death = alone(DEATH, seed)
    contracts = death.event("contracts").classes["contract"].offered
    assert death.restarts > contracts  # tried again, each kills more than one
    assert death.lost > 100
    assert death.fewest == 0
    assert death.attained("contracts", "chat") < 0.5


def test_a_refused_prompt_kills_nobody() -> None:
    refused = outcome(DEATH, "longest prompt of 32,000", 1)
    assert (refused.restarts, refused.lost, refused.fewest) == (0, 0, 3)
    assert refused.attained("contracts", "chat") > 0.98


def test_more_replicas_are_more_victims() -> None:
    more = outcome(DEATH, "twice the replicas", 1)
    assert more.restarts > alone(DEATH).restarts


# --- retry storm ------------------------------------------------------------------------------------------------------


@seeds
def test_the_trigger_ends_and_the_storm_does_not(seed: int) -> None:
    storm = alone(STORM, seed)
    offered = storm.run.series.offered  # retries are no new requests
    calm, after = sum(offered[:3]) / 3, sum(offered[6:9]) / 3
    assert after < 1.2 * calm
    assert min(storm.run.series.attainment[:3]) > 0.9
    assert storm.attained("after") < 0.6
    assert storm.event("after").recovered is None
    assert storm.answers("after") < 0.95 * after  # though it has nothing else to do


def test_without_retries_there_is_a_bad_minute_and_no_storm() -> None:
    calm, storm = outcome(STORM, "clients that never retry", 1), alone(STORM)
    assert calm.attained("trigger") < 0.6
    assert calm.attained("after") > 0.95
    assert calm.answers("after") > 1.05 * storm.answers("after")


@pytest.mark.parametrize("way", ["retry budget of 10 %", "deadlines"])
def test_a_storm_meets_a_law_and_blows_over(way: str) -> None:
    held, storm = outcome(STORM, way, 1), alone(STORM)
    assert held.attained("after") > 0.9
    assert held.asked < 0.75 * storm.asked


# --- hot prefix -------------------------------------------------------------------------------------------------------


@seeds
def test_the_home_of_a_popular_prefix_drowns_beside_idle_replicas(seed: int) -> None:
    hot = alone(HOT, seed)
    assert hot.busiest("launch") > 0.5
    assert hot.attained("launch", "popular") < 0.2
    assert hot.attained("launch", "usual") > hot.attained("launch", "popular") + 0.4  # most of them live elsewhere
    assert hot.fewest == 4


@pytest.mark.parametrize("way", ["strategy hybrid", "strategy bounded-load"])
def test_a_strategy_that_sees_the_load_spreads_the_prefix_and_keeps_the_hits(way: str) -> None:
    spread, hot = outcome(HOT, way, 1), alone(HOT)
    assert spread.attained("launch") > 0.97
    assert spread.busiest("launch") < 0.4
    assert (spread.run.score.hit_rate or 0) > (hot.run.score.hit_rate or 0) - 0.05


def test_replicas_do_not_mend_routing() -> None:
    more, hot = (outcome(HOT, way.name, 1) for way in (HOT.ways[-1], HOT.ways[0]))
    assert more.run.score.gpu_hours > 1.3 * hot.run.score.gpu_hours
    assert more.attained("launch", "popular") < 0.3


# --- cold-start gap ---------------------------------------------------------------------------------------------------


@seeds
def test_no_scaler_is_fast_enough_for_the_gap(seed: int) -> None:
    nobody, perfect = alone(GAP, seed), outcome(GAP, "replicas asked for at the jump", seed)
    assert nobody.attained("gap") < 0.3
    assert perfect.attained("gap") < 0.3
    assert (nobody.attained("later") < 0.3, perfect.attained("later") > 0.95) == (True, True)


@pytest.mark.parametrize("way", ["the same, no cold start", "replicas asked for three minutes ahead"])
def test_what_is_there_in_time_leaves_no_gap(way: str) -> None:
    assert outcome(GAP, way, 1).attained("gap") > 0.97


def test_class_admission_carries_the_critical_over_the_gap() -> None:
    shed = outcome(GAP, "at the jump, and class admission", 1)
    assert shed.attained("gap", "critical") > 0.95
    assert shed.attained("gap", "sheddable") > 0.15


# --- the page ---------------------------------------------------------------------------------------------------------


def test_the_page_says_what_the_scenarios_do() -> None:
    """With seed 1; the ranges over seeds are left out. Mend: `python -m benchmarks.scenarios`."""
    written = re.sub(r" \([\d.,]+ to [\d.,]+\)", "", PAGE.read_text(encoding="utf-8"))
    assert_same(written, text([1]), share=0.1, least=3.0, mend="run `python -m benchmarks.scenarios`")
