"""A loop that swings by itself is turned down; a fleet that follows a swinging load is left alone."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from controller.core.oscillation import LEAST, OscillationState, note
from controller.run import codec

TICK, COLD = 15.0, 180.0


@dataclass(frozen=True)
class Run:
    """Values of the lever and its gain, tick by tick."""

    values: tuple[float, ...]
    gains: tuple[float, ...]
    state: OscillationState

    @property
    def swing(self) -> float:
        """Largest over smallest value of the last two hours."""
        last = self.values[-480:]
        return max(last) / min(last)


def integrating(dead_time: float, *, heeds: bool, integral: float = 600.0, known: float = COLD, hours: int = 8) -> Run:
    """An integral law on latency, ln latency = 3 ln(load): it works at a dead time of 180 s and swings at twice that.
    Steps that release are slowed by the gain, when it is heeded."""
    state, value, gone = OscillationState(), math.log(14.0), list[float]()
    values, gains = [], []
    for tick in range(int(hours * 3600 / TICK)):
        shows = gone[-int(dead_time / TICK)] if len(gone) >= dead_time / TICK else value
        error = min(max(3.0 * (math.log(12.0) - shows), -1.5), 1.5)
        step = TICK / integral * error
        value += step * (state.gain if heeds and step < 0 else 1.0)
        gone.append(value)
        state = note(tick * TICK, value, math.log(10.0), known, 0.0, 0.0, state)
        values.append(math.exp(value))
        gains.append(state.gain)
    return Run(tuple(values), tuple(gains), state)


def test_a_doubled_dead_time_makes_the_loop_swing_and_the_gain_calms_it() -> None:
    """A node pool that takes twice as long to give a GPU turned a well-tuned loop into a saw."""
    left_alone, turned_down = integrating(360.0, heeds=False), integrating(360.0, heeds=True)

    assert left_alone.swing > 3.0
    assert min(left_alone.gains) == LEAST
    assert turned_down.swing < 1.2
    assert min(turned_down.gains) >= LEAST


def test_the_same_when_the_new_dead_time_is_learned() -> None:
    assert integrating(360.0, heeds=True, known=360.0).swing < integrating(360.0, heeds=False).swing / 2


def test_the_loop_it_was_tuned_for_is_left_alone() -> None:
    run = integrating(COLD, heeds=True)

    assert set(run.gains) == {1.0}
    assert run.swing < 1.01


def test_the_gain_comes_back_when_the_swinging_is_over() -> None:
    state = integrating(360.0, heeds=False).state
    at = state.at or 0.0
    low = state.gain
    for tick in range(1, int(40 * COLD / TICK)):
        state = note(at + TICK * tick, math.log(12.0), math.log(10.0), COLD, 0.0, 0.0, state)

    assert low < 0.5
    assert 0.75 < state.gain <= 1.0


# --- periodic demand -----------------------------------------------------------------------------------------------

Demand = Callable[[float], float]


def following(demand: Demand, seed: int, size: float, *, stabilise: float = 300.0) -> Run:
    """Feed-forward on whole replicas with a slow trim behind a cold start; falls wait for the needs of a
    window, which fade."""
    rng = random.Random(seed)
    state, value, trim = OscillationState(), size, 0.0
    wishes, gone = list[float](), list[float]()
    values, gains = [], []
    for tick in range(int(8 * 3600 / TICK)):
        load = size * demand(tick * TICK) * (1 + rng.gauss(0.0, 0.03))
        serving = gone[-int(COLD / TICK)] if len(gone) >= COLD / TICK else value
        error = min(max(math.log(load / 0.85 / serving), -1.5), 1.5)
        trim = min(max(trim * (1 - TICK / 3600.0) + state.gain * TICK / 900.0 * error, -0.15), 0.35)
        wishes = [*wishes, math.ceil(load / 0.85 * math.exp(trim) - 0.1)][-int(stabilise / TICK) :]
        last, window = wishes[-1], stabilise / TICK
        kept = [1 - math.expm1(age / window) / math.expm1(1.0) for age in range(len(wishes))]
        faded = [
            last + math.ceil(max(one - last, 0) * part - 0.5) for one, part in zip(wishes[::-1], kept, strict=True)
        ]
        value = max(last, min(value, max(faded)))
        gone.append(value)
        grain = math.log(1 + 1 / value)
        state = note(tick * TICK, math.log(value), math.log(load), COLD, stabilise, grain, state)
        values.append(value)
        gains.append(state.gain)
    return Run(tuple(values), tuple(gains), state)


@pytest.mark.parametrize("dead_times", [2, 3, 4, 6, 8, 16])
@pytest.mark.parametrize("height", [0.05, 0.3, 0.7])
@pytest.mark.parametrize("size", [3.0, 40.0])
def test_a_load_that_swings_with_the_period_of_an_oscillation_is_followed(
    dead_times: int, height: float, size: float
) -> None:
    """Cron jobs every ten minutes look like an oscillation to whoever watches the replicas alone."""
    run = following(lambda at: math.exp(height * math.sin(2 * math.pi * at / (dead_times * COLD))), 1, size)

    assert set(run.gains) == {1.0}
    if height == 0.7 and dead_times > 4:
        assert run.swing > 1.4, "it did follow"


def test_a_square_load_is_followed_too() -> None:
    assert set(following(lambda at: 2.0 if at % 720.0 < 360.0 else 1.0, 1, 10.0).gains) == {1.0}


@pytest.mark.parametrize("seed", range(5))
def test_noise_on_a_small_pool_is_rounding_and_no_oscillation(seed: int) -> None:
    assert set(following(lambda at: 1.0, seed, 3.0).gains) == {1.0}


def saw(period: float, cycles: int, size: float = 0.3) -> OscillationState:
    """A lever that goes up and down under a load that does not move."""
    state = OscillationState()
    for tick in range(int(period * cycles / TICK)):
        phase = (tick * TICK % period) / period
        value = size * (2 * phase if phase < 0.5 else 2 - 2 * phase)
        state = note(tick * TICK, value, 0.0, COLD, 0.0, 0.0, state)
    return state


def test_only_periods_of_two_to_eight_dead_times_are_of_the_loop() -> None:
    assert saw(4 * COLD, 4).gain < 0.6
    assert saw(1 * COLD, 16).gain == 1.0, "faster than anything that waits for a replica"
    assert saw(12 * COLD, 4).gain == 1.0, "slower than a loop with this dead time swings"


def test_one_correction_and_back_is_no_oscillation() -> None:
    assert saw(4 * COLD, 1).gain == 1.0


def test_the_memory_is_small_and_goes_through_the_ledger() -> None:
    state = OscillationState()
    for tick in range(20_000):
        state = note(TICK * tick, math.log(3.0 + tick), math.log(3.0 + tick), COLD, 300.0, 0.0, state)

    assert len(state.drive) <= 200
    swung = integrating(360.0, heeds=False).state
    assert codec.decode(OscillationState, codec.encode(swung)) == swung
