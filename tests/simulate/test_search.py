"""The bounds are those of their families: nothing cheaper that was tried attains as much."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.simulate import search
from controller.simulate.run import Run, Series
from controller.simulate.score import Score, Share
from simulator.foresight import Need

SERIES = Series((), (), (), (), {})


def mark(attained: float) -> search.Mark:
    return search.Mark(1000 - round(1000 * attained), 0)


def run(attained: float, hours: float, settings: Mapping[str, float]) -> Run:
    share = Share(1000, round(1000 * attained), 0, 0, {})
    return Run("x", 1, Score(3600.0, share, {}, {}, hours, 0, 60, 0), SERIES, settings=settings)


class World:
    """A fleet that attains as much as its smallest number of replicas over 10 allows."""

    def __init__(self) -> None:
        self.tried: list[float] = []

    def attempt(self, fleet: search.Fleet, settings: Mapping[str, float]) -> Run:
        self.tried.append(next(iter(settings.values())))
        least = min([*fleet.start.values(), *(n for s in fleet.schedules for _, n in s.steps)])
        return run(min(1.0, least / 10), float(sum(fleet.start.values())), settings)


@pytest.mark.parametrize("wanted", [0.05, 0.3, 0.61, 1.0])
def test_the_cheapest_static_fleet_is_found_in_a_few_tries(wanted: float) -> None:
    world = World()
    found = search.static(mark(wanted), {"chat": Need(5.0, (4.0,) * 12, 60.0)}, world.attempt)
    assert found is not None
    assert found.settings["replicas of chat"] == max(1, -(-wanted * 10 // 1))
    assert len(world.tried) <= 6


def test_pools_keep_the_proportion_of_their_peaks() -> None:
    needs = {"chat": Need(5.0, (4.0, 8.0), 60.0), "code": Need(5.0, (2.0, 1.0), 60.0)}
    found = search.static(mark(0.2), needs, World().attempt)
    assert found is not None
    assert found.settings == {"replicas of chat": 5.0, "replicas of code": 2.0}


def test_a_fleet_that_lets_the_critical_ones_wait_is_not_equal() -> None:
    def scored(critical: int, sheddable: int) -> Score:
        classes = {"critical": Share(100, critical, 0, 0, {}), "sheddable": Share(100, sheddable, 0, 0, {})}
        return Score(3600.0, Share(200, critical + sheddable, 0, 0, {}), classes, {}, 1.0, 0, 60, 0)

    goal = search.Mark.set_by(scored(99, 61))
    assert goal.met(scored(99, 61))
    assert goal.met(scored(100, 60))
    assert not goal.met(scored(80, 100))  # more in all, but fewer of the critical ones
    assert not goal.met(scored(100, 59))
    alike = Score(3600.0, Share(100, 99, 0, 0, {}), {"": Share(100, 99, 0, 0, {})}, {}, 1.0, 0, 60, 0)
    assert search.Mark.set_by(alike) == search.Mark(1, 0)


def test_what_no_fleet_attains_is_said_and_not_searched_for_ever() -> None:
    world = World()
    need = {"chat": Need(5.0, (0.5,) * 12, 60.0)}
    assert search.static(mark(0.9), need, world.attempt) is None
    assert search.oracle(mark(0.99), {"chat": Need(5.0, (0.5,) * 12, 60.0)}, 0.0, world.attempt) is None
    assert len(world.tried) < 20


def test_the_oracles_margin_is_the_smallest_that_attains() -> None:
    world = World()
    found = search.oracle(mark(0.6), {"chat": Need(5.0, (4.0,) * 12, 60.0)}, 0.0, world.attempt)
    assert found is not None
    assert found.score.gpu_hours == 6.0
    assert 1.25 < found.settings["margin"] <= 1.5  # ceil(margin x 4) is 6


@given(
    offered=st.integers(1, 60), mine=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    other=st.tuples(st.integers(0, 60), st.integers(0, 60)), fate=st.integers(0, 60),
)  # fmt: skip
def test_nobody_reaches_the_mark_by_leaving_more_requests_open(
    offered: int, mine: tuple[int, int], other: tuple[int, int], fate: int
) -> None:
    """Of `offered` requests each has (lost, open) ones. Whoever reaches the mark attains no less, with the open ones
    left out, and when the same number of each's turns out good."""
    (lost, waiting), (missed, left) = mine, other
    if lost + waiting > offered or missed + left > offered:
        return
    governed = Share(offered - waiting, offered - waiting - lost, 0, waiting, {})
    found = Share(offered - left, offered - left - missed, 0, left, {})
    goal = search.Mark.of(governed)
    assert goal.reached(governed)
    if goal.reached(found):
        if found.offered and governed.offered:
            assert (found.attainment or 0.0) >= (governed.attainment or 0.0)
        assert found.good + min(fate, left) >= governed.good + min(fate, waiting)


def test_a_clairvoyant_asks_ahead_of_need_and_keeps_what_it_would_have_to_start_again() -> None:
    slots = [1.0, 1.0, 1.0, 1.0, 3.0, 1.0, 3.0, 1.0, 1.0, 1.0, 1.0, 1.0]
    need = Need(30.0, tuple(slots), lead=60.0)
    assert search.plan(need, 1.0) == ((0.0, 1), (60.0, 3), (210.0, 1))


def test_a_margin_scales_the_need_before_it_is_rounded_up() -> None:
    need = Need(30.0, (1.2,) * 4, lead=0.0)
    assert search.plan(need, 0.8) == ((0.0, 1),)
    assert search.plan(need, 1.0) == ((0.0, 2),)
    assert search.plan(need, 0.0) == ((0.0, 1),)
