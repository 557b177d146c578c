"""Versions that are looked at every second: what is learned of a canary is the same as at a usual interval."""

import random
from collections.abc import Iterable
from dataclasses import replace
from statistics import fmean, pstdev

import pytest

from controller.core import estimate, versions
from controller.core.learned import EstimatorState
from controller.core.model import PoolReadings, Scope
from controller.core.ports import Estimate
from controller.core.signals import Signal
from tests.core.test_versions import NOW, OLD, SPEC, fleet

INTERVALS = [1.0, 5.0, 15.0, 60.0]


def often(pool: PoolReadings, every: float) -> PoolReadings:
    """The same with latencies of so many seconds."""

    def of(scope: Scope) -> Scope:
        mean = scope.latency(Signal.ITL, "mean")
        tokens = scope.get(Signal.GENERATION_TOKEN_RATE).value or 0.0
        return replace(scope, latencies={Signal.ITL: {"mean": mean._replace(count=tokens * every, window=every)}})

    return replace(pool, replicas={name: of(scope) for name, scope in pool.replicas.items()})


def run(looks: Iterable[PoolReadings], every: float) -> tuple[Estimate, EstimatorState]:
    """After these looks."""
    made, state = Estimate(), EstimatorState()
    for i, pool in enumerate(looks):
        made, state = estimate.update(SPEC, often(pool, every), None, NOW + i * every, state)
    return made, state


def steady(seconds: float, every: float, **slow: float) -> list[PoolReadings]:
    return [fleet(**slow)] * int(seconds / every)


@pytest.mark.parametrize("every", INTERVALS)
def test_a_bad_canary_counts_by_its_own_step_time_after_the_same_minutes(every: float) -> None:
    """A sample of fifteen looks was counted as one second: a canary that was two and a half times as slow was planned
    as a good one for half an hour."""
    made, state = run([*steady(900, every, **OLD), *steady(600, every, **OLD, v2_3=2.5)], every)

    assert state.versions["v2"].trained == pytest.approx(600 - every, abs=15)
    assert made.versions["v2"] < 0.5 * made.versions["v1"]
    assert made.worse is not None
    assert made.worse.version == "v2"


@pytest.mark.parametrize("every", INTERVALS)
def test_who_is_slow_by_itself_is_told_beside_a_canary_and_forgotten_when_it_recovers(every: float) -> None:
    """With a second version nobody was looked at together any more, and what was said of stragglers stayed as it
    was."""
    calm = dict.fromkeys([*OLD, "v1_4", "v1_5"], 1.0)
    slow, canary = {**calm, "v1_5": 4.0}, {"v2_3": 1.0}
    before = [*steady(900, every, **calm), *steady(300, every, **calm, **canary)]
    worse = [*before, *steady(300, every, **slow, **canary)]

    assert "stragglers" not in run(before, every)[0].evidence
    assert run(worse, every)[0].evidence["stragglers"] == 1.0
    assert "stragglers" not in run([*worse, *steady(300, every, **calm, **canary)], every)[0].evidence


def test_the_step_time_of_a_version_is_that_of_all_its_seconds_and_not_of_the_newest() -> None:
    """Each replica reads prompts in a sixth of its seconds, and is five times as slow in them. What the newest second
    showed was taken for all fifteen, and a canary seemed slower or faster than the rest from one to the next."""
    chance, kappas, state = random.Random(1), [], EstimatorState()
    for second in range(1800):
        look = fleet(**{name: 5.0 if chance.random() < 1 / 6 else 1.0 for name in (*OLD, "v2_3")})
        _, state = estimate.update(SPEC, often(look, 1.0), None, NOW + second, state)
        if second > 600:
            kappas.append(state.versions["v2"].kappa)

    assert fmean(kappas) == pytest.approx(6 / 5.2, rel=0.02)  # in six seconds 5.2 seconds' worth of tokens
    assert pstdev(kappas) < 0.04


@pytest.mark.parametrize(("every", "miss"), [(1.0, 5), (1.0, 15), (2.0, 5), (15.0, 5)])
def test_a_canary_whose_page_is_missed_now_and_then_is_judged_all_the_same(every: float, miss: int) -> None:
    """A canary of one replica was away for a look, and began anew with its batch: it never had a sample, and was
    planned as a good one."""
    with_it, without = fleet(**OLD, v2_3=2.5), fleet(**OLD)
    looks = [without if i % miss == 0 else with_it for i in range(int(1800 / every))]
    made, state = run([*steady(600, every, **OLD), *looks], every)

    assert state.versions["v2"].trained > 600.0
    assert made.versions["v2"] < 0.5 * made.versions["v1"]


def test_a_pause_after_a_canary_came_is_not_time_in_which_it_was_watched() -> None:
    """One sample after an hour's pause was an hour of it."""
    _, state = run([*steady(600, 15.0, **OLD), *steady(45, 15.0, **OLD, v2_3=2.5)], 15.0)
    later = (state.at or NOW) + 3600.0
    _, state = estimate.update(SPEC, often(fleet(**OLD, v2_3=2.5), 15.0), None, later, state)
    _, state = estimate.update(SPEC, often(fleet(**OLD, v2_3=2.5), 15.0), None, later + 15.0, state)

    assert state.versions["v2"].trained < versions.WATCHED
