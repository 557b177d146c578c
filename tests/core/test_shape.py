"""Requests that become longer all at once: learned over minutes, a fleet asks for half of what it needs meanwhile."""

from dataclasses import replace
from statistics import fmean

import pytest

from controller.core import estimate
from controller.core.learned import EstimatorSpec, EstimatorState
from controller.core.model import PoolReadings
from controller.core.reading import Reading, State
from controller.core.shape import AFTER, SETTLED
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


def test_steps_are_judged_by_the_requests_they_served_and_not_by_those_that_are_known() -> None:
    """Steps took three times as long because prompts did. The model was bent by it for the next hour, and 33 replicas
    were asked for where 18 carried the load."""
    calm, after = learned(*CALM), learned(*CALM, *SHIFT, *[pool(12_000.0)] * 20)

    assert after.replica.kappa == pytest.approx(calm.replica.kappa, rel=0.03)
    assert after.replica.tilt.factors() == pytest.approx(calm.replica.tilt.factors(), rel=0.05)


def wave(
    period: float, hours: float, slow: float = 1.0, lengths: tuple[float, float] = (4000.0, 12_000.0)
) -> list[PoolReadings]:
    """Minutes of prompts that are short for half of a period and long for the other, on engines that are so slow."""
    short, long = 4000.0, 12_000.0
    found = []
    for i in range(int(hours * 3600 / EVERY)):
        at = i * EVERY
        share = sum(((at - s) % period) < period / 2 for s in range(int(WINDOW))) / WINDOW
        mean = short + (long - short) * share
        true = step_time(PROFILE, Shape(mean, 100.0), 12.0) * slow
        one = pool(mean)
        found.append(replace(one, latencies={Signal.ITL: {"mean": Reading(State.OK, true)}}))
    return found


@pytest.mark.parametrize("period", [180.0, 300.0, 480.0, 1200.0])
def test_lengths_that_go_up_and_down_teach_nothing_of_the_engine(period: float) -> None:
    """What was learned of longer requests was taken back, what was learned of shorter ones was not: with each wave a
    replica was thought to carry more, twice as much in the end."""
    looks = wave(period, 1.0)
    for till in range(len(CALM), len(looks), 7):
        assert learned(*CALM, *looks[:till]).replica.kappa == pytest.approx(1.0, abs=0.04)


@pytest.mark.parametrize("period", [240.0, 480.0])
def test_an_engine_that_is_slow_is_believed_while_lengths_change_all_the_time(period: float) -> None:
    """Learning rested after each change, and half as slow again was never seen."""
    assert learned(*CALM, *wave(period, 1.0, slow=1.5)).replica.kappa == pytest.approx(1.5, rel=0.05)


def test_it_is_the_same_at_a_look_a_second() -> None:
    calm = [pool(4000.0)] * 300
    shift = [pool(4000.0 + 8000.0 * min(1.0, i / WINDOW), 12_000.0) for i in range(1, 360)]
    before, after = learned(*calm, every=1.0), learned(*calm, *shift, every=1.0)

    assert prompt(after) > 11_000.0
    assert after.replica.kappa == pytest.approx(before.replica.kappa, rel=0.03)


@pytest.mark.parametrize(
    ("readings", "why"),
    [
        (pool(5500.0), "a third more is noise of a mean"),
        (pool(12_000.0, rate=0.8), "48 requests are few, and one client's are much alike"),
    ],
)
def test_what_may_be_chance_is_followed_over_minutes(readings: PoolReadings, why: str) -> None:
    before = [replace(one, signals={**one.signals}) for one in CALM]
    state = learned(*before, readings)
    seen = readings.get(Signal.PROMPT_TOKEN_RATE).value or 0.0
    rate = readings.get(Signal.BEGUN_RATE).value or 1.0

    assert abs(prompt(state) - 4000.0) < 0.15 * abs(seen / rate - 4000.0), why
    assert state.changed is None


def test_shorter_requests_are_followed_over_minutes() -> None:
    """Capacity is not given back in a hurry."""
    long = [pool(12_000.0)] * int(AFTER / EVERY + 2)

    assert prompt(learned(*CALM, pool(1300.0))) > 3700.0
    assert prompt(learned(*CALM, *SHIFT, *long, *[pool(4000.0)] * 4)) > 9000.0


def burst(seconds: float, every: float, period: float = 300.0, hours: float = 1.0) -> list[float]:
    """Mean prompts of the last minute, at looks `every` so often, where they are long for some seconds of a period."""
    looks = [i * every for i in range(1, int(hours * 3600 / every))]
    return [
        4000.0 + 8000.0 * sum(((at - back) % period) < seconds for back in range(int(WINDOW))) / WINDOW for at in looks
    ]


@pytest.mark.parametrize("every", [1.0, 15.0, 60.0])
def test_a_moment_of_longer_requests_is_gone_when_it_is_over(every: float) -> None:
    """Long prompts came for a minute in five. Followed up at once and down slowly, the fleet was sized for half as much
    work again as there was, all day."""
    means, state, known = burst(60.0, every), EstimatorState(), []
    for i, mean in enumerate([4000.0] * 40 + means):
        _, state = estimate.update(SPEC, pool(mean), None, NOW + i * every, state)
        if i >= 40:
            known.append(prompt(state))

    assert fmean(known) == pytest.approx(fmean(means), rel=0.1)


@pytest.mark.parametrize(("missing", "hit"), [((Signal.PROMPT_TOKEN_RATE,), 0.0), ((Signal.PREFIX_HIT_RATE,), 0.8)])
@pytest.mark.parametrize("note", ["", "the query failed"])
@pytest.mark.parametrize("after", [0, int(AFTER / EVERY), int(SETTLED / EVERY) + 1])
def test_what_is_not_read_is_as_it_was_and_not_zero(
    missing: tuple[Signal, ...], hit: float, after: int, note: str
) -> None:
    """A query that failed once, just after prompts became longer, was read as prompts of no tokens: three quarters of
    the demand were gone with it."""

    def cached(one: PoolReadings) -> PoolReadings:
        return replace(one, signals={**one.signals, Signal.PREFIX_HIT_RATE: Reading(State.OK, hit)})

    known = [cached(one) for one in (*CALM, *SHIFT, *[pool(12_000.0)] * after)]
    whole = cached(pool(12_000.0))
    failed = Reading(State.MISSING, note=note)
    part = replace(whole, signals={**whole.signals, **dict.fromkeys(missing, failed)})
    before, without = learned(*known).shape, learned(*known, part).shape

    assert before is not None
    assert without is not None
    if Signal.PROMPT_TOKEN_RATE in missing:
        assert without.prompt == before.prompt
    else:
        assert without.hit_rate == pytest.approx(before.hit_rate)


WARM = replace(pool(4000.0), signals={**pool(4000.0).signals, Signal.PREFIX_HIT_RATE: Reading(State.OK, 0.8)})


@pytest.mark.parametrize("state", [State.NO_TRAFFIC, State.UNSUPPORTED])
def test_a_cache_that_was_switched_off_is_none(state: State) -> None:
    """Nobody asks it any more. Taken for unread, it was believed as warm as before for ever, and every replica was
    thought to serve two thirds more than it could."""
    cold = {**pool(4000.0).signals, Signal.PREFIX_HIT_RATE: Reading(state)}
    shape = learned(*[WARM] * 40, *[replace(pool(4000.0), signals=cold)] * 60).shape

    assert shape is not None
    assert shape.hit_rate < 0.02


@pytest.mark.parametrize(
    "doubt",
    [
        {Signal.BEGUN_RATE: Reading(State.UNDERFILLED, 2.5, window=WINDOW)},
        {Signal.BEGUN_RATE: Reading(State.MISSING, note="failed"), Signal.FINISHED_RATE: Reading(State.OK, 5.0)},
        {Signal.PROMPT_TOKEN_RATE: Reading(State.UNDERFILLED, 120_000.0, window=WINDOW)},
        {Signal.PREFIX_HIT_RATE: Reading(State.UNDERFILLED, 0.0)},
    ],
)
def test_a_window_that_was_not_read_in_full_is_no_change_of_requests(doubt: dict[Signal, Reading]) -> None:
    """One query failed for half a minute: there seemed to be half of the requests for the same tokens, three times the
    demand was believed at once, and held for minutes."""
    partly = replace(WARM, signals={**WARM.signals, **doubt})
    before = learned(*[WARM] * 40).shape
    state = learned(*[WARM] * 40, *[partly] * 3)

    assert before is not None
    assert state.shape is not None
    assert state.changed is None
    assert state.shape.prompt < 2 * before.prompt


def test_the_first_load_on_a_fleet_is_no_change_of_requests() -> None:
    """Requests that begin before any has ended look long. Taken for a change, the engines seemed quick enough for them,
    and more replicas were asked for a minute later than they were needed."""
    young = learned(*[pool(1000.0, rate=2.0)] * 8, *[pool(4000.0, 6000.0)] * 4)

    assert young.changed is None
    assert young.replica.kappa > 1.1


def test_longer_prompts_that_are_in_the_cache_are_no_jump() -> None:
    signals = {**pool(12_000.0).signals, Signal.PREFIX_HIT_RATE: Reading(State.OK, 0.7)}
    assert learned(*CALM, replace(pool(12_000.0), signals=signals)).changed is None


def test_an_engine_that_becomes_slow_is_slow_and_no_jump() -> None:
    slow = learned(*CALM, *[pool(4000.0, 12_000.0)] * 12)

    assert slow.changed is None
    assert slow.replica.kappa > 1.3 * learned(*CALM).replica.kappa
