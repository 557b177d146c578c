"""PID in velocity form: a step response by hand, no wind-up, no bump, no jump on silence."""

import math
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.model import Ask, Lever, PoolReadings, Proposal, Target, TargetState, Tick
from controller.core.ports import Balance, Brief, Estimate, Limits, View
from controller.core.reading import Reading, State, ok
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why
from policies.pid import Pid
from tests.support.cases import NOW

TARGET = Target("llm", Lever.REPLICAS)
TTFT = Objective("ttft", Signal.TTFT, 2.0, 0.95, 60.0)
BRIEF = Brief(Balance(0.0, 0.0), 0.0)
PLAIN = {"filter_time": 0.0, "dead_band": 0.0}


def view(latency: Reading, current: float, at: float, quantum: float = 1.0) -> View:
    pool = PoolReadings(latencies={Signal.TTFT: {"p95": latency}})
    return View(Tick(1, at), pool, {TARGET: TargetState(current)}, {TARGET: Limits(0, 100, quantum)}, Estimate())


def run(
    latencies: Iterable[Reading], start: float = 10.0, quantum: float = 0.0, step: float = 15.0, **config: object
) -> list[tuple[Proposal, float]]:
    """Follow the law's own value, as an actuator would."""
    law = Pid(Pid.Config(**config))  # type: ignore[arg-type]
    state, value, out = law.initial(), start, []
    for i, latency in enumerate(latencies):
        proposals, state = law.propose(view(latency, value, NOW + i * step, quantum), (TTFT,), BRIEF, state)
        value = proposals[0].value
        out.append((proposals[0], value))
    return out


def test_the_step_response_is_the_textbook_one() -> None:
    """K = 0.4, Ti = 600 s, e = ln 2 from the second tick on: a jump of K*e, then a ramp of K*dt/Ti*e a tick."""
    e = math.log(2.0)
    values = [value for _, value in run([ok(2.0), *[ok(4.0)] * 3], gain=0.4, integral_time=600.0, **PLAIN)]

    ramp = 0.4 * 15.0 / 600.0 * e
    assert values[0] == 10.0
    assert math.log(values[1] / 10.0) == pytest.approx(0.4 * e + ramp)
    assert math.log(values[2] / values[1]) == pytest.approx(ramp)
    assert math.log(values[3] / values[2]) == pytest.approx(ramp)


def test_half_as_many_ticks_of_twice_the_length_end_at_the_same_value() -> None:
    fine = run([ok(2.0), *[ok(4.0)] * 20], step=15.0, **PLAIN)[-1][1]
    coarse = run([ok(2.0), *[ok(4.0)] * 10], step=30.0, **PLAIN)[-1][1]

    assert fine == pytest.approx(coarse)


def test_an_hour_without_a_controller_is_made_up_for_in_one_step() -> None:
    law = Pid(Pid.Config(**PLAIN))  # type: ignore[arg-type]
    _, before = law.propose(view(ok(4.0), 10.0, NOW, 0.0), (TTFT,), BRIEF, law.initial())
    steps = [
        law.propose(view(ok(4.0), 10.0, NOW + gone, 0.0), (TTFT,), BRIEF, before)[0][0].value
        for gone in (60.0, 120.0, 3600.0)
    ]

    assert steps[0] < steps[1] == steps[2]


def test_a_value_held_at_its_bound_does_not_wind_up() -> None:
    """The next step starts from the value that was read back, not from what was wished for."""
    law = Pid(Pid.Config(**PLAIN))  # type: ignore[arg-type]
    state = law.initial()
    for i in range(200):
        _, state = law.propose(view(ok(8.0), 20.0, NOW + 15.0 * i, 0.0), (TTFT,), BRIEF, state)
    proposals, _ = law.propose(view(ok(1.0), 20.0, NOW + 3000.0, 0.0), (TTFT,), BRIEF, state)

    assert proposals[0].value < 20.0


def test_a_person_moving_the_value_causes_no_bump() -> None:
    law = Pid(Pid.Config(**PLAIN))  # type: ignore[arg-type]
    _, state = law.propose(view(ok(2.0), 10.0, NOW), (TTFT,), BRIEF, law.initial())
    proposals, _ = law.propose(view(ok(2.0), 30.0, NOW + 15.0), (TTFT,), BRIEF, state)

    assert proposals[0].value == 30.0


def test_within_the_dead_band_nothing_moves() -> None:
    assert {value for _, value in run([ok(2.0 * 1.05), ok(2.0 / 1.05)] * 10, dead_band=0.1)} == {10.0}


def test_ramping_latency_adds_whole_replicas_and_carries_the_rest() -> None:
    values = [value for _, value in run([ok(2.0), *[ok(3.0)] * 80], quantum=1.0)]

    assert all(value == int(value) for value in values)
    assert values[-1] > 10.0
    assert values == sorted(values)


def test_noise_around_a_half_replica_does_not_flip_it() -> None:
    values = [value for _, value in run([ok(2.6), ok(1.6)] * 60, quantum=1.0)]
    turns = sum(a != b for a, b in pairwise(values))

    assert turns <= 2


@pytest.mark.parametrize(
    ("reading", "why"),
    [
        (Reading(State.MISSING), Why.MISSING),
        (Reading(State.STALE), Why.STALE),
        (Reading(State.UNSUPPORTED), Why.UNSUPPORTED),
        (Reading(State.CENSORED), Why.UNDERFILLED),
    ],
)
def test_silence_is_a_floor_and_forgets_the_slope(reading: Reading, why: Why) -> None:
    """aperture: derivative over a gap was NaN and stayed."""
    proposals = run([ok(2.0), reading, ok(2.0), ok(2.0)], quantum=1.0)

    assert (proposals[1][0].ask, proposals[1][0].value, proposals[1][0].why) == (Ask.AT_LEAST, 10.0, why)
    assert proposals[-1][1] == 10.0


def test_a_lower_bound_is_enough_to_protect_and_never_to_relax() -> None:
    saturated = Reading(State.SATURATED_TOP, lo=10.0)
    partial = Reading(State.PARTIAL, 0.1)

    assert run([ok(2.0), saturated])[-1][1] > 10.0
    assert run([ok(2.0), *[partial] * 50], quantum=1.0)[-1][0].ask == Ask.AT_LEAST


def test_derivative_answers_to_the_change_of_slope_and_not_to_a_constant() -> None:
    """Aperture's D term had the wrong sign."""
    rising = [ok(2.0), ok(2.4), ok(2.4)]
    plain = [value for _, value in run(rising, gain=0.4, **PLAIN)]
    ahead = [value for _, value in run(rising, gain=0.4, derivative_time=60.0, **PLAIN)]

    added = 0.4 * 60.0 * math.log(1.2) / 15.0  # K * Td * the slope, which was none before
    assert math.log(ahead[1] / plain[1]) == pytest.approx(added)
    assert ahead[2] == pytest.approx(plain[2])  # it rises no more, and what was added for that is taken back
    steady = run([ok(4.0)] * 6, derivative_time=60.0, **PLAIN)
    assert steady[-1][1] == pytest.approx(run([ok(4.0)] * 6, **PLAIN)[-1][1])


GATE = Target("llm", Lever.ADMISSION, "concurrency")


def gate_at(objectives: tuple[Objective, ...], wait: float, gap: float, ticks: int = 40) -> tuple[Proposal, float]:
    """Where the default law takes a cap of 64 while first tokens are late and tokens come as they do."""
    law, value = Pid(Pid.Config()), 64.0
    state, told = law.initial(), Proposal(GATE, Ask.HOLD, value, "", Why.STEADY)
    for i in range(ticks):
        pool = PoolReadings(latencies={Signal.TTFT: {"p95": ok(wait)}, Signal.ITL: {"p95": ok(gap)}})
        seen = View(Tick(i, NOW + 15.0 * i), pool, {GATE: TargetState(value)}, {GATE: Limits(1, 64)}, Estimate())
        (told,), state = law.propose(seen, objectives, BRIEF, state)
        value = min(told.value, 64.0)
    return told, value


def test_a_queue_before_the_gate_does_not_close_the_gate() -> None:
    """The default signal was the first promise, TTFT: late, so fewer in flight, so later, down to 16 of 64."""
    itl = Objective("itl", Signal.ITL, 0.08, 0.95, 60.0)

    assert gate_at((TTFT, itl), wait=70.0, gap=0.04)[1] == 64.0
    assert gate_at((TTFT, itl), wait=0.1, gap=0.2)[1] < 50.0  # what the batch does is what the cap is for
    told, value = gate_at((TTFT,), wait=70.0, gap=0.2)
    assert (told.ask, told.why, value) == (Ask.AT_MOST, Why.UNSUPPORTED, 64.0)


def test_a_promise_for_one_class_is_nothing_to_hold_the_quantile_of_all_at() -> None:
    law = Pid(Pid.Config(**PLAIN))  # type: ignore[arg-type]
    strict, seen = Objective("high", Signal.TTFT, 0.1, 0.95, 60.0, "high"), view(ok(2.0), 10.0, NOW)

    assert law.propose(seen, (strict, TTFT), BRIEF, law.initial()) == law.propose(seen, (TTFT,), BRIEF, law.initial())


def test_a_wrong_signal_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"unknown signal 'tftt'; known: .*ttft"):
        Pid(Pid.Config(signal="tftt", target=1.0))


@given(st.lists(st.floats(0.001, 1e6), min_size=2, max_size=40), st.floats(0.1, 3600.0))
def test_the_value_is_finite_positive_and_on_the_side_of_the_error(latencies: list[float], step: float) -> None:
    values = [value for _, value in run([ok(v) for v in latencies], step=step)]

    assert all(math.isfinite(value) and value > 0 for value in values)
    if all(latency > 2.0 for latency in latencies) and latencies == sorted(latencies):
        assert values == sorted(values)


@pytest.mark.parametrize("empty", [ok(0.0), Reading(State.NO_TRAFFIC)])
def test_an_empty_queue_and_a_night_without_traffic_relax(empty: Reading) -> None:
    """A measure of zero has no logarithm; the value stood at 20 for a day."""
    values = [value for _, value in run([ok(2.0), *[empty] * 300], start=20.0, quantum=1.0)]

    assert values[-1] < 10.0


def test_a_night_without_traffic_is_not_called_a_low_latency() -> None:
    """It said that latency was well below its target, measured at 0, of a pool that nobody had asked anything."""
    told = [one for one, _ in run([ok(2.0), *[Reading(State.NO_TRAFFIC)] * 300], start=20.0, quantum=1.0)]
    moved = [one for one in told if one.why is not Why.STEADY]

    assert {one.why for one in moved} == {Why.NO_TRAFFIC}
    assert all("measure" not in one.evidence for one in moved)


def test_a_filter_that_still_remembers_the_calm_relaxes_nothing_in_the_flash() -> None:
    """It lowered at 4 s of 2.5, because latency was "well below its target"."""
    told = run([*[ok(0.3)] * 40, *[ok(4.0)] * 40], start=20.0, filter_time=120.0)
    flash = [value for _, value in told[39:]]

    assert flash == sorted(flash)
    assert flash[-1] > flash[0]
    assert all(one.why is not Why.LATENCY_LOW for one, _ in told[40:])


def test_what_is_taken_back_above_the_target_does_not_say_that_latency_is_low() -> None:
    """The part in proportion goes as the measure falls, at three times the target too."""
    policy = Pid(Pid.Config(filter_time=0.0))
    target, value, state = Target("llm", Lever.ADMISSION, "deadline"), 0.6, policy.initial()
    told = list[tuple[bool, Why]]()
    for i, measured in enumerate((3.0, 8.0, 5.0, 1.0)):
        pool = PoolReadings(latencies={Signal.TTFT: {"p95": ok(measured)}})
        seen = View(
            Tick(i, NOW + 15.0 * i), pool, {target: TargetState(value)}, {target: Limits(0.1, 1, 0.0)}, Estimate()
        )  # fmt: skip
        (made,), state = policy.propose(seen, (TTFT,), BRIEF, state)
        told.append((made.value > value, made.why))
    assert told[1:] == [(False, Why.LATENCY_HIGH), (True, Why.LATENCY_FALLS), (True, Why.LATENCY_LOW)]


def test_the_evidence_names_the_signal_that_is_held() -> None:
    """ "latency is above its target: measure 145, target 5" was told of a queue."""
    pool = PoolReadings(signals={Signal.QUEUE_DEPTH: ok(145.0)})
    seen = View(Tick(1, NOW), pool, {TARGET: TargetState(4.0)}, {TARGET: Limits(0, 100, 1.0)}, Estimate())
    law = Pid(Pid.Config(signal="queue_depth", target=5.0))
    made, _ = law.propose(seen, (TTFT,), BRIEF, law.initial())

    assert made[0].evidence["queue_depth"] == made[0].evidence["measure"] == 145.0
    assert run([ok(3.0)])[0][0].evidence["ttft"] == 3.0
