"""`min: 0` where nothing tells that a request came would be for ever, so it is refused with its place and its mend."""

import pytest

from controller.config import ConfigError, loads
from controller.config.terms import fleet_rules
from controller.core.model import Lever
from tests.support.written import pool, written

GAIE = "gateway: {engine: gaie, selector: {model_name: chat}}"
LITELLM = "gateway: {engine: litellm, selector: {model: chat}}"
CAPACITY = "{kind: capacity}"
QUEUE = "{kind: threshold, signal: queue_depth, per_replica: true, upper: 4, lower: 0.5}"
OFFERED = "{kind: threshold, signal: offered_rate, per_replica: true, upper: 4, lower: 0.5}"


def text(gateway: str = "", law: str = CAPACITY, least: int = 0, mode: str = "auto") -> str:
    lever = f"replicas: {{mode: {mode}, min: {least}, max: 8, policy: {law}}}"
    return written(pool("chat", "objectives: [{signal: ttft, percentile: p95, target: 2s}]", gateway, levers=[lever]))


@pytest.mark.parametrize(
    ("gateway", "law", "expected"),
    [
        ("", CAPACITY, "without a replica nothing tells that a request came; write min: 1, or gateway: "),
        (LITELLM, CAPACITY, "litellm does not tell who comes or waits while no replica runs; write min: 1, or a gate"),
        (GAIE, QUEUE, "threshold goes by queue_depth, which nobody tells while no replica runs; write min: 1, or sig"),
        (GAIE, "{kind: pid}", "pid goes by a latency, which nobody tells while no replica runs; write min: 1, or sig"),
    ],
)
@pytest.mark.parametrize("mode", ["observe", "protect", "auto"])
def test_zero_from_which_nothing_leads_back_is_refused(gateway: str, law: str, expected: str, mode: str) -> None:
    whole = text(gateway, law, mode=mode)
    with pytest.raises(ConfigError) as caught:
        loads(whole)

    (found,) = caught.value.problems
    assert found.path == "pools.chat.levers.replicas.min"
    assert whole.splitlines()[(found.line or 0) - 1].lstrip().startswith("replicas: ")
    assert f"0 would be for ever: {expected}" in str(found)


@pytest.mark.parametrize(
    ("gateway", "law", "least", "mode"),
    [
        (GAIE, CAPACITY, 0, "auto"), (GAIE, OFFERED, 0, "auto"), (GAIE, QUEUE, 1, "auto"), ("", CAPACITY, 1, "auto"),
        ("", CAPACITY, 0, "off"),
    ],
)  # fmt: skip
def test_what_can_be_woken_or_never_sleeps_is_taken(gateway: str, law: str, least: int, mode: str) -> None:
    rules = fleet_rules(loads(text(gateway, law, least, mode)))

    (lever,) = rules.pools[0].levers
    assert lever.lever is Lever.REPLICAS
    assert lever.unwoken is (mode == "off")
