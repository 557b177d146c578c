"""Behind a router that divides what is in flight: less for who is slow by itself or fails, exactly 1 for the others."""

import json

import pytest

from controller.core.model import Ask, Lever
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why
from controller.run.codec import decode, encode
from policies.weights import Weights
from tests.support.rotation import BASE, Rotation, Seen, named

PROMISE = 0.05
STRAGGLER = Seen(slow=3.0)
FAILS = Seen(errors=1.0, ended=60.0, batch=1.0)
# 0.21: the batch of one three times as slow over that of a healthy one, each as large as the promise allows.
IN_TIME = round((0.75 * PROMISE / 3.0 - BASE) / (0.75 * PROMISE - BASE), 2)


def rotation(count: int = 4, *, promise: float | None = PROMISE, router: str = "least_loaded") -> Rotation:
    law = Weights(Weights.Config(router=router))
    objectives = () if promise is None else (Objective("tpot", Signal.TPOT, promise, 0.99, 60.0),)
    return Rotation(law, Lever.WEIGHT, named(count), objectives=objectives)


def test_a_straggler_gets_as_many_at_a_time_as_the_others_and_all_of_them_late() -> None:
    fleet = rotation()
    fleet.run(900.0, r1=STRAGGLER)

    assert fleet.factors == {"r0": 1.0, "r1": IN_TIME, "r2": 1.0, "r3": 1.0}
    assert fleet.last["r1"].evidence == pytest.approx({"pace": 3.0, "share": IN_TIME}, abs=0.01)


def test_what_the_breaker_has_to_see_is_hidden_from_it_by_a_small_share() -> None:
    """It finds a straggler within a minute, by steps that are longer as they stand."""
    fleet = rotation()
    fleet.run(90.0, r1=STRAGGLER)
    assert fleet.factors["r1"] == 1.0
    fleet.run(30.0, r1=STRAGGLER)
    assert fleet.factors["r1"] < 1.0


def test_who_is_held_out_comes_back_to_a_small_share() -> None:
    """The few sequences of a probe, or of one that empties, are slow for as long as it is out."""
    fleet = rotation()
    fleet.run(45.0, r1=STRAGGLER)
    fleet.run(900.0, r1=Seen(slow=3.0, batch=2.0))

    assert set(fleet.factors.values()) == {1.0}


def test_a_straggler_that_is_well_again_has_its_share_in_two_minutes() -> None:
    fleet = rotation()
    fleet.run(900.0, r1=STRAGGLER)

    assert fleet.until("r1", 1.0, 120.0) <= 90.0


def test_the_noise_of_a_healthy_fleet_is_a_move() -> None:
    """What the law without stragglers says is what `load_aware` says, to the byte."""
    fleet, neutral = rotation(), rotation(router="load_aware")
    for number in range(240):
        seen = {"r1": Seen(slow=1.25 if number % 3 else 0.8), "r2": Seen(slow=2.2 if number % 20 == 0 else 1.0)}
        assert fleet.tick(**seen) == neutral.tick(**seen)


def test_half_a_fleet_that_is_slow_is_no_minority_that_a_breaker_takes() -> None:
    """It takes as many as its cap allows, and the rest would answer late."""
    fleet = rotation(8)
    slow = {f"r{number}": STRAGGLER for number in range(4)}
    fleet.run(900.0, **slow)

    assert {fleet.factors[name] for name in slow} == {IN_TIME}
    assert {fleet.factors[f"r{number}"] for number in range(4, 8)} == {1.0}


def test_where_all_queue_inside_what_a_straggler_holds_slows_down_the_others() -> None:
    fleet = rotation()
    fleet.run(900.0, Seen(waiting=20.0), r1=Seen(slow=3.0, waiting=20.0))
    assert set(fleet.factors.values()) == {1.0}

    fleet.run(300.0, r1=STRAGGLER)
    assert fleet.factors["r1"] == IN_TIME
    fleet.run(120.0, Seen(waiting=20.0), r1=STRAGGLER)
    assert fleet.factors["r1"] == 1.0


def test_a_slow_answer_that_nobody_promised_is_no_reason() -> None:
    """Without a promise there is no batch that is too large, and the router gives a slow one fewer by itself."""
    fleet = rotation(promise=None)
    fleet.run(900.0, r1=STRAGGLER)

    assert set(fleet.factors.values()) == {1.0}


def test_who_fails_at_once_looks_idle_and_gets_all() -> None:
    fleet = rotation()
    fleet.run(60.0)
    assert fleet.until("r1", 0.01, 60.0, r1=FAILS) <= 45.0
    assert fleet.last["r1"].why is Why.FAILING_REPLICA


def test_the_errors_of_before_the_breaker_took_it_are_blamed_on_it_after() -> None:
    """A reading looks back; only requests that are all of later than the first sight of it count."""
    fleet = rotation()
    fleet.run(60.0)
    fleet.tick(r1=FAILS)
    assert set(fleet.factors.values()) == {1.0}
    fleet.run(30.0, r1=Seen(traffic=False, ended=0.0))

    assert set(fleet.factors.values()) == {1.0}


def test_one_that_failed_is_tried_again_and_gone_at_the_third_error() -> None:
    fleet = rotation()
    fleet.until("r1", 0.01, 90.0, r1=FAILS)
    fleet.run(150.0, r1=Seen(traffic=False, ended=0.0))
    assert fleet.factors["r1"] > 0.01
    fleet.tick(r1=Seen(errors=1.0, ended=3.0, batch=1.0))
    assert fleet.factors["r1"] == 0.01


def test_one_that_answers_again_has_its_share_in_two_minutes() -> None:
    fleet = rotation()
    fleet.until("r1", 0.01, 90.0, r1=FAILS)

    assert fleet.until("r1", 1.0, 120.0, r1=Seen(ended=4.0)) <= 90.0


def test_a_straggler_that_gets_nothing_at_night_is_never_measured_again() -> None:
    fleet = rotation()
    fleet.run(900.0, r1=STRAGGLER)
    fleet.run(240.0, r1=Seen(traffic=False, ended=0.0))

    assert fleet.factors["r1"] == 1.0


def test_a_page_that_is_not_read_is_taken_for_a_recovery() -> None:
    fleet = rotation()
    fleet.run(900.0, r1=STRAGGLER)
    fleet.run(900.0, r1=Seen(up=False))

    assert fleet.factors["r1"] == IN_TIME
    assert (fleet.last["r1"].ask, fleet.last["r1"].why) == (Ask.AT_MOST, Why.MISSING)


def test_its_memory_outlives_the_process() -> None:
    fleet = rotation()
    fleet.run(300.0, r1=STRAGGLER, r2=FAILS)

    assert decode(Weights.State, json.loads(json.dumps(encode(fleet.state)))) == fleet.state
