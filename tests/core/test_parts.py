"""Whose demand it is. A flood of long prompts looks like any other tenant when requests are counted."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.model import Scope
from controller.core.parts import FOLLOW, followed, split
from controller.core.reading import Reading, State, ok
from controller.core.signals import Signal
from controller.core.step_model import Profile, Shape, capacity, charges

SHAPE = Shape(1000.0, 200.0)
PROFILE = Profile()


def scope(rate: float, finished: float = 0.0, prompt: float = 0.0, output: float = 0.0) -> Scope:
    signals = {Signal.OFFERED_RATE: ok(rate)}
    if finished:
        signals[Signal.FINISHED_RATE] = ok(finished, count=finished * 60)
        signals[Signal.PROMPT_TOKEN_RATE] = ok(prompt * finished)
        signals[Signal.GENERATION_TOKEN_RATE] = ok(output * finished)
    return Scope(signals=signals)


def parts(demand: float, offered: float, scopes: dict[str, Scope]) -> dict[str, float]:
    """The parts by what the window tells."""
    return split(demand, offered, scopes, followed(scopes, {}, 0.0), PROFILE, SHAPE)


def test_equal_requests_are_equal_parts_and_the_nameless_are_no_ones() -> None:
    assert parts(8.0, 4.0, {"ann": scope(1.0), "bob": scope(2.0)}) == {"ann": 2.0, "bob": 4.0}


def test_a_tenant_is_charged_for_its_long_prompts() -> None:
    made = parts(8.0, 2.0, {"long": scope(1.0, 1.0, 8000, 200), "short": scope(1.0, 1.0, 500, 200)})

    assert made["long"] > 3 * made["short"]
    assert math.fsum(made.values()) == pytest.approx(8.0)


def test_one_odd_request_does_not_make_a_tenant_expensive() -> None:
    odd = scope(1.0, 0.05, 30000, 4000)  # three finished in the window

    assert parts(8.0, 2.0, {"odd": odd, "usual": scope(1.0)}) == {"odd": 4.0, "usual": 4.0}


def test_a_flooder_that_is_being_cut_is_not_taken_for_cheap() -> None:
    """Of twelve a second that were let in, one a second is now: twelve end and one begins. By that window it sent a
    twelfth of its prompts, its victims were charged for the rest, and a smaller model answered them."""
    calm = {"flood": scope(14.0, 12.0, 1000, 200), "victim": scope(2.0, 2.0, 1000, 200)}
    done = followed(calm, {}, 0.0)
    cutting = {"flood": scope(14.0, 12.0, 1000 / 12, 200), "victim": scope(2.0, 2.0, 1000, 200)}
    true = split(8.0, 16.0, calm, done, PROFILE, SHAPE)["victim"]
    for _ in range(2):
        done = followed(cutting, done, 15.0)

    assert split(8.0, 16.0, cutting, done, PROFILE, SHAPE)["victim"] < 1.1 * true
    assert parts(8.0, 16.0, cutting)["victim"] > 1.5 * true


def test_a_tenant_whose_prompts_get_longer_is_charged_for_them_within_minutes() -> None:
    done = followed({"ann": scope(1.0, 1.0, 500, 200)}, {}, 0.0)
    longer = {"ann": scope(1.0, 1.0, 8000, 200)}
    for _ in range(40):
        done = followed(longer, done, FOLLOW / 10)

    assert done["ann"].prompt / done["ann"].finished == pytest.approx(8000, rel=0.05)


def test_a_tenant_that_is_not_read_for_a_while_is_not_forgotten() -> None:
    done = followed({"ann": scope(1.0, 1.0, 8000, 200)}, {}, 0.0)

    assert followed({"ann": scope(1.0)}, done, 60.0) == done
    assert followed({}, done, 60.0) == {}


def test_a_tenant_that_is_not_read_has_no_part_and_nobody_gets_its_share() -> None:
    lost = Scope(signals={Signal.OFFERED_RATE: Reading(State.MISSING)})

    assert parts(8.0, 4.0, {"ann": scope(1.0), "lost": lost}) == {"ann": 2.0}


def test_a_pool_without_traffic_has_no_parts() -> None:
    assert parts(0.0, 0.0, {"ann": scope(0.0)}) == {}


@given(st.floats(100, 8000), st.floats(20, 1000), st.floats(0, 0.9), st.floats(0.5, 2.0))
def test_the_cost_of_a_request_is_its_part_of_a_replica_at_the_operating_point(
    prompt: float, output: float, hits: float, kappa: float
) -> None:
    """charges() and capacity() are one model seen from two sides."""
    shape, profile = Shape(prompt, output, hits), Profile(max_num_seqs=1e9)
    target = 0.05
    at = capacity(profile, shape, kappa, target, None)
    if at.sequences > 1.0:  # below one the operating point is clamped
        steps = 1.0 - kappa * profile.a / (0.75 * target)  # the part of a step that its sequences take
        assert kappa * charges(profile, hits)(prompt, output) / steps * at.rate == pytest.approx(1.0)
