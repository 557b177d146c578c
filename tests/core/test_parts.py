"""Whose demand it is. A flood of long prompts looks like any other tenant when requests are counted."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.model import Scope
from controller.core.parts import split
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


def test_equal_requests_are_equal_parts_and_the_nameless_are_no_ones() -> None:
    assert split(8.0, 4.0, {"ann": scope(1.0), "bob": scope(2.0)}, PROFILE, SHAPE) == {"ann": 2.0, "bob": 4.0}


def test_a_tenant_is_charged_for_its_long_prompts() -> None:
    parts = split(8.0, 2.0, {"long": scope(1.0, 1.0, 8000, 200), "short": scope(1.0, 1.0, 500, 200)}, PROFILE, SHAPE)

    assert parts["long"] > 3 * parts["short"]
    assert math.fsum(parts.values()) == pytest.approx(8.0)


def test_one_odd_request_does_not_make_a_tenant_expensive() -> None:
    odd = scope(1.0, 0.05, 30000, 4000)  # three finished in the window

    assert split(8.0, 2.0, {"odd": odd, "usual": scope(1.0)}, PROFILE, SHAPE) == {"odd": 4.0, "usual": 4.0}


def test_a_tenant_that_is_not_read_has_no_part_and_nobody_gets_its_share() -> None:
    lost = Scope(signals={Signal.OFFERED_RATE: Reading(State.MISSING)})

    assert split(8.0, 4.0, {"ann": scope(1.0), "lost": lost}, PROFILE, SHAPE) == {"ann": 2.0}


def test_a_pool_without_traffic_has_no_parts() -> None:
    assert split(0.0, 0.0, {"ann": scope(0.0)}, PROFILE, SHAPE) == {}


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
