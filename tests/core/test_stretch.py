"""Step times looked at every second: who reads a prompt was slow, and what was learned was of those that read none."""

import random
from dataclasses import replace

import pytest

from controller.core import estimate
from controller.core.learned import EstimatorSpec, EstimatorState
from controller.core.model import PoolReadings, Scope
from controller.core.pace import SAMPLE
from controller.core.reading import Reading, State
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.step_model import Profile, Shape, step_time
from controller.core.stragglers import Look
from controller.core.stretch import Shown, Stretch

PROFILE = Profile(a=0.01, b=2e-5, c=1e-4, d=1e-8, e=0.0, max_num_seqs=64)
SPEC = EstimatorSpec("llm", (Objective("itl", Signal.ITL, 0.06, 0.95, 60.0),), PROFILE)
NOW, BATCH, REPLICAS = 1_000_000.0, 12.0, 6
STEP = step_time(PROFILE, Shape(1000.0, 100.0), BATCH)


def ok(value: float, count: float | None = None, window: float = 60.0) -> Reading:
    return Reading(State.OK, value, count=count, window=window)


def pool(paces: list[float], mean: float, every: float) -> PoolReadings:
    """Replicas that were so many times as slow as the model since the last look, and the pool's mean of a minute."""
    rate = 10.0
    signals = {
        Signal.OFFERED_RATE: rate, Signal.FINISHED_RATE: rate, Signal.BEGUN_RATE: rate, Signal.QUEUE_DEPTH: 0.0,
        Signal.PROMPT_TOKEN_RATE: rate * 1000, Signal.GENERATION_TOKEN_RATE: rate * 100,
        Signal.RUNNING: BATCH * len(paces),
    }  # fmt: skip
    scopes = {
        f"pod-{i}": Scope(
            {Signal.QUEUE_DEPTH: ok(0.0), Signal.RUNNING: ok(BATCH)},
            {Signal.ITL: {"mean": ok(STEP * pace, BATCH * every / (STEP * pace), every)}},
        )
        for i, pace in enumerate(paces)
    }
    return PoolReadings(
        signals={name: ok(value) for name, value in signals.items()},
        latencies={Signal.ITL: {"mean": ok(STEP * mean)}}, replicas=scopes,
    )  # fmt: skip


def learned(looks: list[PoolReadings], every: float) -> EstimatorState:
    state = EstimatorState()
    for i, readings in enumerate(looks):
        _, state = estimate.update(SPEC, readings, None, NOW + i * every, state)
    return state


def reading_prompts(seconds: int) -> list[PoolReadings]:
    """Each second another one of six reads a prompt, and its batch gets a fifth of the tokens: over a minute all are
    equally slow. 5.2 of 6 seconds' tokens come in 6, so the mean is 6/5.2."""
    return [
        pool([5.0 if i == second % REPLICAS else 1.0 for i in range(REPLICAS)], REPLICAS / 5.2, 1.0)
        for second in range(seconds)
    ]


def test_who_reads_a_prompt_for_a_second_is_no_straggler() -> None:
    """A sixth of the fleet was missing at a tick a second: every replica was taken for one that reads no prompts."""
    state = learned(reading_prompts(600), 1.0)

    assert state.stragglers == 0
    assert state.replica.kappa == pytest.approx(REPLICAS / 5.2, rel=0.02)


def test_who_is_slow_in_every_second_is_left_out() -> None:
    slow = [pool([1.0] * 5 + [4.0], 6 / 5.25, 1.0)] * 600
    state = learned(slow, 1.0)

    assert state.stragglers == 1
    assert state.replica.kappa == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("every", [1.0, 3.0, 5.0])
def test_the_same_minutes_teach_the_same_however_often_one_looks(every: float) -> None:
    minutes = 20
    often = learned([pool([1.3] * REPLICAS, 1.3, every)] * int(minutes * 60 / every), every)
    seldom = learned([pool([1.3] * REPLICAS, 1.3, 15.0)] * (minutes * 4), 15.0)

    assert often.replica.kappa == pytest.approx(seldom.replica.kappa, rel=0.01)
    assert often.replica.samples == pytest.approx(seldom.replica.samples, rel=0.1)


@pytest.mark.parametrize("every", [1.0, 2.0, 5.0, 15.0])
@pytest.mark.parametrize("miss", [3, 10])
def test_a_page_that_is_missed_now_and_then_does_not_end_all_learning(every: float, miss: int) -> None:
    """Of fifty replicas scraped every second one page is nearly always late. A stretch that began anew with each was
    never long enough, and every replica was taken for as fast as the prior."""
    whole = pool([1.3] * REPLICAS, 1.3, every)
    without = replace(whole, replicas={**whole.replicas, "pod-0": Scope({})})
    looks = [without if i % miss == 0 else whole for i in range(int(1200 / every))]

    assert learned(looks, every).replica.kappa == pytest.approx(1.3, rel=0.03)


@pytest.mark.parametrize("every", [1.0, 2.0, 5.0])
@pytest.mark.parametrize("turn", [12.0, 16.0, 20.0, 26.0])
def test_a_fleet_that_changes_every_quarter_of_a_minute_is_learned_of(every: float, turn: float) -> None:
    """A stretch had to be of one fleet. With a replica that came and went every twenty seconds none was ever whole, and
    an engine that was a third slower than its profile was never seen to be."""
    looks = [pool([1.3] * (3 + int(i * every // turn) % 2), 1.3, every) for i in range(int(1200 / every))]

    assert learned(looks, every).replica.kappa == pytest.approx(1.3, rel=0.02)


@pytest.mark.parametrize("every", [1.0, 5.0, 7.0])
@pytest.mark.parametrize("idle", [5, 20])
def test_a_moment_in_which_nobody_runs_anything_does_not_spoil_the_rest(every: float, idle: int) -> None:
    """A small fleet has nothing to do every few seconds, and each time what was seen before was thrown away."""
    busy = pool([1.3] * REPLICAS, 1.3, every)
    still = replace(busy, signals={**busy.signals, Signal.RUNNING: ok(0.0)})
    looks = [still if i % idle == 0 else busy for i in range(int(1800 / every))]

    assert learned(looks, every).replica.kappa == pytest.approx(1.3, rel=0.01)


def test_who_came_in_the_middle_has_the_batch_of_its_own_time() -> None:
    """Over all of the stretch it seemed to run half as much, and to be slow for that."""
    look = Look(0.1, 70.0, 12.0, 11.0)
    stretch, shown = Stretch(), None
    for i in range(int(SAMPLE)):
        seen = {"a": look, "b" if i < 9 else "c": look}
        stretch, shown = stretch.take(seen, 12.0, 1.0, whole=True)

    assert shown is not None
    assert sorted(shown.replicas) == ["a", "c"]
    assert shown.replicas["c"] == pytest.approx((0.1, 70.0 * 5, 12.0, 11.0, 0.0))
    assert shown.batch == pytest.approx(12.0)


def test_a_look_of_a_quarter_of_a_minute_is_taken_as_it_is() -> None:
    seen = {"a": Look(0.1, 70.0, 3.0, 3.1)}
    assert Stretch().take(seen, 3.0, SAMPLE, whole=True) == (Stretch(), Shown(seen, 3.0, SAMPLE))
    assert Stretch().take(seen, 3.0, None, whole=True) == (Stretch(), Shown(seen, 3.0))


def test_two_looks_at_the_same_time_are_one() -> None:
    seen = {"a": Look(0.1, 15.0, 3.0, 3.0, 1.0)}
    assert Stretch().take(seen, 3.0, 0.0, whole=True) == (Stretch(), None)


def test_who_is_gone_before_the_end_says_nothing() -> None:
    both = {"a": Look(0.1, 10.0, 3.0, 3.0), "b": Look(0.2, 10.0, 3.0, 3.0)}
    stretch, first = Stretch().take(both, 3.0, 7.0, whole=True)
    after, shown = stretch.take({"a": Look(0.4, 5.0, 5.0, 4.0)}, 5.0, 7.0, whole=True)

    assert first is None
    assert after == Stretch()
    assert shown is not None
    assert list(shown.replicas) == ["a"]
    assert shown.replicas["a"] == pytest.approx(((0.1 * 10 + 0.4 * 5) / 15, 15.0, 4.0, 3.5, 0.0))
    assert (shown.batch, shown.time, shown.itl) == pytest.approx((4.0, 14.0, 0.2))


def test_a_sample_that_is_looked_at_again_has_its_gaps_but_once() -> None:
    """Scraped every 15 s and looked at every second, two slow tokens of a replica were thirty, and made a straggler."""
    stretch, shown = Stretch(), None
    for _ in range(int(SAMPLE)):
        stretch, shown = stretch.take({"a": Look(0.1, 15.0, 3.0, 3.0, 15.0)}, 3.0, 1.0, whole=True)

    assert shown is not None
    assert shown.replicas["a"].gaps == pytest.approx(14.0)
    assert shown.itl == pytest.approx(0.1)


@pytest.mark.parametrize("fails", [0.15, 0.3])
def test_a_query_that_fails_now_and_then_does_not_end_all_learning(fails: float) -> None:
    """What finished could not be read in every sixth second, and what others had seen was thrown away with it."""
    chance, whole = random.Random(1), pool([1.5] * 4, 1.5, 1.0)
    failed = replace(
        whole, signals={**whole.signals, Signal.FINISHED_RATE: Reading(State.MISSING, note="the query failed")}
    )
    looks = [failed if chance.random() < fails else whole for _ in range(1800)]

    assert learned(looks, 1.0).replica.kappa == pytest.approx(1.5, rel=0.02)
