"""Promised: a law that knows no tenants takes from none what it was promised."""

import pytest

from controller.core.model import Lever, Target, TargetState, Tick
from controller.core.ports import Balance, Brief, Estimate, Limits, Policy, View
from controller.core.reading import ok
from controller.core.signals import Signal
from controller.core.tenancy import TenantRules
from policies.pid import Pid
from policies.threshold import Threshold
from tests.support.cases import NOW, healthy

BRIEF = Brief(Balance(0.0, 0.0), 0.0)
ANN, BOB = (Target("llm", Lever.TENANT_CAP, name) for name in ("ann", "bob"))
LAWS = [
    Pid(Pid.Config(signal="kv_usage", target=0.5)),
    Threshold(Threshold.Config(signal="kv_usage", upper=0.6, lower=0.2, step_up=2000.0)),
]


@pytest.mark.parametrize("law", LAWS, ids=["pid", "threshold"])
def test_who_keeps_to_its_promise_is_cut_with_who_floods(law: Policy[object]) -> None:
    caps, state = {ANN: 40_000.0, BOB: 40_000.0}, law.initial()
    for tick in range(400):
        view = View(
            Tick(tick, NOW + 15.0 * tick, 15.0), healthy(**{Signal.KV_USAGE: ok(0.95)}),
            {target: TargetState(cap) for target, cap in caps.items()},
            {target: Limits(0.0, 40_000.0, 1.0) for target in caps}, Estimate(),
            {"ann": TenantRules(25_000.0), "bob": TenantRules()},
        )  # fmt: skip
        proposals, state = law.propose(view, (), BRIEF, state)
        caps |= {one.target: one.value for one in proposals}

    assert caps[ANN] == 25_000.0
    assert caps[BOB] < 10_000.0


@pytest.mark.parametrize("law", LAWS, ids=["pid", "threshold"])
def test_what_a_person_cut_below_its_promise_is_cut_no_further_and_may_come_back(law: Policy[object]) -> None:
    view = View(
        Tick(1, NOW, 15.0), healthy(**{Signal.KV_USAGE: ok(0.95)}), {ANN: TargetState(9_000.0)},
        {ANN: Limits(0.0, 40_000.0, 1.0)}, Estimate(), {"ann": TenantRules(25_000.0)},
    )  # fmt: skip
    proposals, _ = law.propose(view, (), BRIEF, law.initial())

    assert proposals[0].value == 9_000.0
