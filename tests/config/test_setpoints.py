"""Set-points of admission: who is asked for one is told at `check` whether it has it, not at the first overload."""

import pytest

from controller.config import ConfigError, Problem, loads, pool_needs
from controller.config.terms import estimator_specs, fleet_rules
from controller.core.facts import Fact
from controller.core.model import Lever
from controller.core.ports import Limits
from controller.core.setpoints import OWN
from controller.core.sizes import Band
from tests.support.levers import POOLS, config

GATE = "policy: {kind: gate}"


def mistakes(lever: str) -> list[str]:
    """Each with its place below the pools and its mend."""
    problems: tuple[Problem, ...] = ()
    try:
        config(lever)
    except ConfigError as error:
        problems = error.problems
    assert all(one.mend for one in problems)
    return [str(one) for one in problems]


def admission(setpoints: str, more: str = GATE) -> list[str]:
    return mistakes(f"admission: {{setpoints: [{setpoints}], {more}}}")


def test_each_keeps_its_own_bounds_beside_those_of_the_lever() -> None:
    """A cap of 64 requests is no factor of 64."""
    made = config(f"admission: {{setpoints: [concurrency, deadline, priority], max: 64, {GATE}}}")
    rules = fleet_rules(made).pools[0].levers[0]

    assert rules.members == ("concurrency", "deadline", "priority")
    assert rules.of_member("concurrency").limits == Limits(1.0, 64.0, 1.0)
    assert {name: rules.of_member(name).limits for name in OWN} == dict(OWN)


def test_a_pin_of_no_member_is_not_measured_by_bounds_that_may_not_be_its_own() -> None:
    pin = "pin: {value: 0.5, until: 2099-01-01T00:00:00Z, reason: r}"
    found = admission("concurrency, deadline", f"{pin}, {GATE}")
    assert len(found) == 1
    assert "pin one of them with `governor pin chat/admission/MEMBER`" in found[0]


def test_a_config_that_names_none_moves_what_it_moved() -> None:
    rules = fleet_rules(config(f"admission: {{{GATE}}}")).pools[0].levers[0]
    assert (rules.lever, rules.members) == (Lever.ADMISSION, ("concurrency", "longest_prompt"))


@pytest.mark.parametrize(
    ("setpoints", "more", "expected"),
    [
        ("deadline", f"max: 0.5, {GATE}", "max: means nothing for deadline, which goes from 0.1 to 1; remove it"),
        ("deadline, deadline", GATE, "setpoints: names one set-point twice"),
        ("priority", "max: 3, policy: {kind: pid}", "pid knows no ranks and cannot drive priority"),
        (
            "concurrency, deadline",
            "max: 64, policy: {kind: pid, signal: itl, target: 0.05}",
            "would move concurrency and deadline alike, which are not counted in the same unit",
        ),
        (
            "deadline",
            "policy: {kind: pid, signal: ttft, target: 2, raise_when_high: true}",
            "raise_when_high: a longer deadline makes those that wait wait longer",
        ),
    ],
)
def test_what_cannot_be_is_refused(setpoints: str, more: str, expected: str) -> None:
    found = admission(setpoints, more)
    assert any(expected in one for one in found), found


@pytest.mark.parametrize(("rank", "good"), [(99, True), (100, False), (150, False)])
def test_a_rank_that_the_gateway_keeps_out_where_every_rank_is_meant_is_refused(rank: int, good: bool) -> None:
    """A priority of 100 is no limit to the law; a gateway that takes it for a number turns rank 150 away for good."""
    body = POOLS.format(lever=f"admission: {{setpoints: [concurrency, priority], {GATE}}}")
    body = body.replace("{rank: 1, sheddable", f"{{rank: {rank}, sheddable")
    if good:
        loads(body)
        return
    with pytest.raises(ConfigError, match=r"pools\.chat\.classes\.batch\.rank: .*write ranks below 100"):
        loads(body)


def test_one_first_value_for_set_points_of_different_units_is_refused() -> None:
    """1 request in flight, 1 token, and the deadlines as they are: no number is at rest for all of them."""
    hook = "kind: webhook, url: 'http://127.0.0.1:1', quantum: 0.05, honours_expiry: true"
    acts = f"mode: auto, {GATE}, actuator: {{{hook}"
    found = admission("concurrency, deadline", f"{acts}, initial: 1}}")
    assert any("actuator.initial: 1 would stand for concurrency, deadline alike" in one for one in found), found
    assert admission("deadline", f"{acts}, initial: 1}}") == []
    assert admission("concurrency, deadline", f"{acts}, initial: 1, read_url: 'http://127.0.0.1:1'}}") == []


def test_bounds_that_mean_nothing_are_told_once() -> None:
    found = admission("deadline", "max: 1, policy: {kind: pid, signal: ttft, target: 2}")
    assert len(found) == 1
    assert "max: means nothing for deadline" in found[0]


def test_whoever_lets_a_dial_move_the_whole_gate_is_told_to_name_one_set_point() -> None:
    """A largest value for requests and tokens alike is not to be had, so a mend that asks for one leads nowhere."""
    found = mistakes("admission: {policy: {kind: threshold, signal: itl, upper: 0.05, lower: 0.03}}")
    assert any("name one set-point, as in setpoints: [concurrency]" in one for one in found), found


def test_a_pid_may_hold_a_promise_by_the_deadlines_alone() -> None:
    assert admission("deadline", "policy: {kind: pid, signal: ttft, target: 2}") == []


@pytest.mark.parametrize(
    ("actuator", "expected"),
    [
        (
            "{kind: dynamo, frontends: ['http://127.0.0.1:1'], pools: {chat: {model: llama, tokens_per_request: 900}}}",
            "setpoints: dynamo has no deadline; remove it; it has concurrency",
        ),
        (
            "{kind: webhook, url: 'http://127.0.0.1:1', read_url: 'http://127.0.0.1:1', honours_expiry: true}",
            "quantum: 1 is too coarse for deadline, which moves by 0.05; write quantum: 0.05",
        ),
    ],
)
def test_an_actuator_that_has_no_such_knob_is_named_before_anything_runs(actuator: str, expected: str) -> None:
    found = admission("concurrency, deadline", f"mode: auto, fail_static: true, {GATE}, actuator: {actuator}")
    assert any(expected in one for one in found), found


def downgrade(more: str) -> list[str]:
    return mistakes(f"downgrade: {{receivers: [small], policy: {{kind: downgrade}}, {more}}}")


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("prompt: {}", "prompt: says no size; write max: 4000"),
        ("prompt: {min: 10, max: 5}", "prompt.min: 10 is above max 5"),
        (
            "prompt: {max: 4000}, actuator: {kind: haproxy, socket: /a, map: /b, pools: {chat: {backend: b}}}",
            "haproxy sends requests elsewhere whatever the size of their prompts",
        ),
    ],
)
def test_a_downgrade_by_size_that_cannot_be_is_refused(more: str, expected: str) -> None:
    found = downgrade(more)
    assert any(expected in one for one in found), found


def test_a_downgrade_by_size_reads_the_sizes_and_another_does_not() -> None:
    """The buckets of one more histogram are read from every engine, so only who needs them pays."""
    by_size = config("downgrade: {receivers: [small], policy: {kind: downgrade}, prompt: {min: 10, max: 4000}}")
    usual = config("downgrade: {receivers: [small], policy: {kind: downgrade}}")

    assert Fact.PROMPT_LENGTHS in pool_needs(by_size)[0].facts
    assert Fact.PROMPT_LENGTHS not in pool_needs(usual)[0].facts
    assert estimator_specs(by_size)[0].band == Band(10.0, 4000.0, frozenset({"acme"}), frozenset({"batch"}))
    assert estimator_specs(usual)[0].band is None
    redis = "actuator: {kind: redis, url: 'redis://127.0.0.1:1/0'}"
    assert downgrade(f"mode: auto, prompt: {{max: 4000}}, {redis}") == []
    assert any(
        "prompt: means nothing for admission" in one for one in mistakes(f"admission: {{{GATE}, prompt: {{max: 9}}}}")
    )


def test_a_gateway_that_reads_redis_may_have_all_of_them() -> None:
    redis = "actuator: {kind: redis, url: 'redis://127.0.0.1:1/0'}"
    assert admission("concurrency, longest_prompt, deadline, priority", f"mode: auto, {GATE}, {redis}") == []


def test_who_has_no_promise_on_first_tokens_and_no_ranks_has_nothing_to_move_them_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would stand at rest for ever and look as if it were needed by nobody."""
    from tests.support import levers

    bare = levers.POOLS.replace(
        "signal: ttft, percentile: p95, target: 2s", "signal: itl, percentile: p95, target: 50ms"
    )
    monkeypatch.setattr(levers, "POOLS", bare.replace("rank: 1, sheddable", "rank: 0, sheddable"))
    found = admission("deadline, priority")
    assert any("no promise to all classes is on queue_time or ttft" in one for one in found), found
    assert any("no class is below another" in one for one in found), found
