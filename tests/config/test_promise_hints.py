"""A pool that promises nothing was sized for full batches, however late those are, and nobody said so."""

from datetime import UTC, datetime

import pytest

from controller.config import hints, loads
from controller.config.errors import dotted
from tests.support.written import pool, written

NOW = datetime(2026, 11, 30, tzinfo=UTC)
REPLICAS = "replicas: {min: 1, max: 8, policy: {kind: capacity}}"
GATE = "admission: {policy: {kind: gate}}"
WATCHED = "replicas: {min: 1, max: 8, policy: {kind: threshold, signal: kv_usage, upper: 0.8, lower: 0.4}}"
HELD = "replicas: {min: 1, max: 8, policy: {kind: pid, signal: queue_depth, target: 2}}"
BREAKER = "breaker: {policy: {kind: breaker}}"
LEAST = "weight: {policy: {kind: weights, router: least_loaded}}"
TTFT = "{signal: ttft, percentile: p99, target: 2s}"
ITL = "{signal: itl, statistic: mean, target: 50ms}"
ERRORS = "{signal: error_ratio, target: 1%}"


def told(*levers: str, promises: str = "", keys: tuple[str, ...] = ()) -> list[str]:
    body = written(pool("chat", *keys, f"objectives: [{promises}]" if promises else "", levers=levers))
    return [f"{dotted(one.path)}: {one.mistake}; {one.mend}" for one in hints(loads(body), NOW)]


@pytest.mark.parametrize("promises", ["", ERRORS])
@pytest.mark.parametrize(
    ("levers", "named"), [((REPLICAS,), "replicas goes"), ((REPLICAS, GATE, BREAKER), "replicas, admission go")]
)
def test_laws_that_size_by_promises_are_told_where_no_latency_is_promised(
    levers: tuple[str, ...], named: str, promises: str
) -> None:
    (said,) = told(*levers, promises=promises)
    assert said == (
        "pools.chat.objectives: promise no latency, so a replica counts as good for all that its engine takes at once, "
        f"however late that is, and {named} by that; add an objective on ttft and one on itl"
    )


@pytest.mark.parametrize("promises", [TTFT, ITL])
def test_any_promise_on_a_latency_is_one_to_size_by(promises: str) -> None:
    assert told(REPLICAS, GATE, promises=promises) == []


@pytest.mark.parametrize("lever", [WATCHED, HELD, BREAKER, REPLICAS.replace("min", "mode: off, min")])
def test_laws_that_ask_for_no_promise_need_none(lever: str) -> None:
    assert told(lever) == []


OF_A_CLASS = "{signal: itl, percentile: p99, target: 50ms, class: fast}"


@pytest.mark.parametrize("promises", ["", TTFT, OF_A_CLASS])
def test_a_straggler_that_would_never_get_less_is_told(promises: str) -> None:
    """Whoever chose the router for stragglers saw weights of 1 for ever."""
    (said,) = told(LEAST, promises=promises, keys=("labels: {class: priority}",))
    assert said == (
        "pools.chat.levers.weight.policy.router: least_loaded leaves a slow replica what it serves within a promise on "
        "itl or tpot to all classes, and there is none, so only one that fails gets less; add an objective on itl "
        "without a class"
    )


@pytest.mark.parametrize(
    "lever", [LEAST.replace("least_loaded", "weighted"), LEAST.replace("{policy", "{mode: off, policy")]
)
def test_weights_that_compare_replicas_with_each_other_need_no_promise(lever: str) -> None:
    assert told(lever) == []
    assert told(LEAST, promises=ITL) == []
