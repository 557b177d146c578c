"""Requests that become longer all at once: learned over minutes, a fleet asks for half of what it needs meanwhile."""

from dataclasses import replace

import pytest

from controller.core import estimate
from controller.core.learned import EstimatorSpec, EstimatorState
from controller.core.model import PoolReadings
from controller.core.reading import Reading, State
from controller.core.shape import AFTER
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.step_model import Profile, Shape, step_time

PROFILE = Profile(a=0.01, b=2e-5, c=1e-4, d=1e-8, e=0.0, max_num_seqs=64)
SPEC = EstimatorSpec("llm", (Objective("itl", Signal.ITL, 0.06, 0.95, 60.0),), PROFILE)
NOW, EVERY, WINDOW = 1_000_000.0, 15.0, 60.0


def pool(prompt: float, true: float | None = None, *, rate: float = 10.0, output: float = 100.0) -> PoolReadings:
    """A minute in which requests of so many tokens are seen, while those that run have `true` ones."""
    itl = step_time(PROFILE, Shape(true or prompt, output), 12.0)
    signals = {
        Signal.OFFERED_RATE: rate, Signal.FINISHED_RATE: rate, Signal.BEGUN_RATE: rate, Signal.QUEUE_DEPTH: 0.0,
        Signal.PROMPT_TOKEN_RATE: rate * prompt, Signal.GENERATION_TOKEN_RATE: rate * output, Signal.RUNNING: 24.0,
        Signal.READY_REPLICAS: 2.0,
    }  # fmt: skip
    return PoolReadings(
        signals={name: Reading(State.OK, value, window=WINDOW) for name, value in signals.items()},
        latencies={Signal.ITL: {"mean": Reading(State.OK, itl)}},
    )


def learned(*pools: PoolReadings, every: float = EVERY) -> EstimatorState:
    """After these looks."""
    state = EstimatorState()
    for i, readings in enumerate(pools):
        _, state = estimate.update(SPEC, readings, None, NOW + i * every, state)
    return state


def prompt(state: EstimatorState) -> float:
    """Tokens of a prompt as they were learned."""
    assert state.shape is not None
    return state.shape.prompt


CALM = [pool(4000.0)] * 40
SHIFT = [pool(4000.0 + 2000.0 * i, 12_000.0) for i in range(1, 5)]  # the window fills with the new ones


def test_prompts_three_times_as_long_are_believed_within_a_minute_and_not_in_four() -> None:
    """Half of the demand was unseen for three minutes, in which the fleet read prompts and answered nobody in time."""
    assert prompt(learned(*CALM, *SHIFT, pool(12_000.0))) > 11_000.0


def test_a_model_that_was_scaled_by_requests_nobody_knew_of_is_taken_back() -> None:
    """Steps took three times as long because prompts did. The model was bent by it for the next hour, and 33 replicas
    were asked for where 18 carried the load."""
    calm, after = learned(*CALM), learned(*CALM, *SHIFT, *[pool(12_000.0)] * 20)

    assert after.kappa == pytest.approx(calm.kappa, rel=0.03)
    assert after.tilt.factors() == pytest.approx(calm.tilt.factors(), rel=0.05)


def test_it_is_the_same_at_a_look_a_second() -> None:
    calm = [pool(4000.0)] * 300
    shift = [pool(4000.0 + 8000.0 * min(1.0, i / WINDOW), 12_000.0) for i in range(1, 100)]
    before, after = learned(*calm, every=1.0), learned(*calm, *shift, every=1.0)

    assert prompt(after) > 11_000.0
    assert after.kappa == pytest.approx(before.kappa, rel=0.03)


@pytest.mark.parametrize(
    ("readings", "why"),
    [
        (pool(5500.0), "a third more is noise of a mean"),
        (pool(12_000.0, rate=0.8), "48 requests are few, and one client's are much alike"),
        (pool(1300.0), "capacity is not given back in a hurry"),
    ],
)
def test_what_may_be_chance_is_followed_over_minutes(readings: PoolReadings, why: str) -> None:
    before = [replace(one, signals={**one.signals}) for one in CALM]
    state = learned(*before, readings)
    seen = readings.get(Signal.PROMPT_TOKEN_RATE).value or 0.0
    rate = readings.get(Signal.BEGUN_RATE).value or 1.0

    assert abs(prompt(state) - 4000.0) < 0.15 * abs(seen / rate - 4000.0), why
    assert state.jumped is None


def test_a_model_that_is_two_minutes_old_is_not_taken_back() -> None:
    """The first load on a fleet looks like a jump from the few requests before it. What was learned of it was dropped,
    and a replica less was asked for when the queue came."""
    young = learned(*[pool(1000.0, rate=2.0)] * 8, *[pool(4000.0, 6000.0)] * 4)

    assert young.jumped is None
    assert young.kappa > 1.1


def test_longer_prompts_that_are_in_the_cache_are_no_jump() -> None:
    signals = {**pool(12_000.0).signals, Signal.PREFIX_HIT_RATE: Reading(State.OK, 0.7)}
    assert learned(*CALM, replace(pool(12_000.0), signals=signals)).jumped is None


def test_an_engine_that_becomes_slow_is_slow_and_no_jump() -> None:
    """What is taken back is for requests that changed: a fleet that is throttled is believed."""
    slow = learned(*CALM, *[pool(4000.0, 12_000.0)] * 12)

    assert slow.jumped is None
    assert slow.kappa > 1.3 * learned(*CALM).kappa


def test_learning_goes_on_when_the_jump_is_over() -> None:
    looks = int(AFTER / EVERY) + 40
    slower = learned(*CALM, *SHIFT, *[pool(12_000.0, 18_000.0)] * looks)

    assert slower.kappa > 1.2 * learned(*CALM).kappa
