"""A lever that something before it leaves nothing is told at `check`: it looks like one that has nothing to do."""

from datetime import UTC, datetime

import pytest

from controller.config import loads
from controller.config.errors import dotted
from controller.config.reach_checks import hints
from tests.support.levers import POOLS

NOW = datetime(2026, 1, 1, tzinfo=UTC)
GATE = "policy: {kind: gate}"


def told(levers: str, engine: str = "vllm") -> dict[str, str]:
    """By the place below the levers of the pool."""
    body = POOLS.format(lever=levers).replace("engine: vllm", f"engine: {engine}", 1)
    return {dotted(one.path[3:]): f"{one.mistake}; {one.mend}" for one in hints(loads(body), NOW)}


def downgrade(prompt: str, gate: str) -> str:
    less = f"downgrade: {{receivers: [small], prompt: {prompt}, policy: {{kind: downgrade}}}}"
    return f"{less}, admission: {{{gate}, {GATE}}}"


@pytest.mark.parametrize("own", ["deadline", "priority", "deadline, priority", "longest_prompt, priority"])
def test_a_gate_that_nobody_has_to_wait_for_turns_nobody_away(own: str) -> None:
    (said,) = told(f"admission: {{setpoints: [{own}], {GATE}}}").values()
    assert "none waits where nothing limits those in flight; add concurrency" in said


@pytest.mark.parametrize("own", ["concurrency, deadline, priority", "longest_prompt", "concurrency"])
def test_a_gate_with_its_cap_is_no_doubt(own: str) -> None:
    assert told(f"admission: {{setpoints: [{own}], {GATE}}}") == {}


def test_prompts_that_the_gate_refuses_before_they_can_be_downgraded_are_no_relief() -> None:
    said = told(downgrade("{min: 20000}", "setpoints: [longest_prompt], max: 10000"))
    assert list(said) == ["downgrade.prompt.min"]
    assert (
        "up to 10000 tokens, and those of 20000 and more may be downgraded, so nobody is"
        in said["downgrade.prompt.min"]
    )
    assert told(downgrade("{min: 10000}", "setpoints: [longest_prompt], max: 10000")) == {}
    assert told(downgrade("{min: 20000}", "setpoints: [concurrency], max: 100")) == {}


def test_a_downgrade_by_sizes_that_nobody_tells_sends_nothing() -> None:
    lever = downgrade("{max: 4000}", "setpoints: [concurrency]")
    said = told(lever, engine="tensorrt_llm")
    assert said["downgrade.prompt"].startswith(
        "tensorrt_llm tells no lengths of prompts, so nothing is sent; remove it"
    )
    assert "sglang" in said["downgrade.prompt"]
    assert told(lever) == {}
