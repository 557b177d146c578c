"""The lever on the router's affinity in a config: its defaults, and what is refused before it does nothing."""

import pytest

from controller.config import ConfigError, loads
from controller.config.terms import fleet_rules
from controller.core.model import Lever, Target
from controller.core.ports import Limits
from controller.core.rules import neutral
from tests.support.levers import POOLS, config


def test_a_bare_lever_gives_the_cache_away() -> None:
    """By default no law goes below a half, from where on balance costs more than it brings."""
    rules = fleet_rules(config("routing: {policy: {kind: affinity}}")).pools[0]
    lever = rules.levers[0]

    assert rules.of_lever(Lever.ROUTING) == (Target("chat", Lever.ROUTING, "affinity"),)
    assert lever.limits == Limits(0.5, 1.0, 0.05)
    assert (neutral(lever), lever.expiry, lever.relax_down) == (1.0, 300.0, False)


def test_a_lower_ceiling_is_taken_for_rest() -> None:
    """1 is what the router was configured for; a value below it is renewed, and dropped when nobody does."""
    lever = fleet_rules(config("routing: {max: 0.9, policy: {kind: affinity}}")).pools[0].levers[0]
    assert (lever.limits.max, neutral(lever)) == (0.9, 1.0)


@pytest.mark.parametrize("kind", ["pid", "threshold, signal: kv_usage_max, upper: 0.9, lower: 0.6"])
def test_the_laws_for_every_dial_drive_it_too(kind: str) -> None:
    made = config(f"routing: {{policy: {{kind: {kind}}}}}")
    assert made.pools["chat"].levers[Lever.ROUTING].policy.kind == kind.partition(",")[0]


@pytest.mark.parametrize(
    ("lever", "message"),
    [
        ("routing: {policy: {kind: weights}}", "weights cannot drive routing; it drives weight"),
        ("weight: {policy: {kind: affinity}}", "affinity cannot drive weight; it drives routing"),
        ("routing: {policy: {kind: pid, signal: ttft}}", "target: is missing; .*or leave signal out to hold a promise"),
        ("routing: {max: 2, policy: {kind: affinity}}", "2 is beyond all sense for routing"),
        ("routing: {policy: {kind: affinity, ease: 2}}", "ease: must be below bound"),
        ("routing: {setpoints: [concurrency], policy: {kind: affinity}}", "setpoints: means nothing for routing"),
        (
            "routing: {mode: auto, policy: {kind: affinity}, actuator: {kind: kubernetes, namespace: chat}}",
            "kubernetes cannot move routing",
        ),
    ],
)
def test_what_would_never_do_anything_is_refused(lever: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        config(lever)


def test_replicas_that_nothing_tells_apart_look_even_for_ever() -> None:
    body = POOLS.format(lever="routing: {policy: {kind: affinity}}")
    body = body.replace(
        "labels: {tenant: user, class: priority}", 'labels: {replica: "", tenant: user, class: priority}'
    )
    with pytest.raises(ConfigError, match="nothing tells which replica has more work"):
        loads(body)
