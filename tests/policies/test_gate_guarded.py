"""The gate as it stands: law and guards together, tick by tick. What the law wants alone is not what happens."""

from dataclasses import replace

import pytest

from controller.config.levers import DEFAULTS
from controller.core import guards
from controller.core.case import Case, Common
from controller.core.guard_state import GuardState, observe
from controller.core.model import Lever, Target, TargetState, Tick
from controller.core.operating import CONCURRENCY
from controller.core.ports import Balance, Brief, Estimate, Limits, View
from controller.core.reading import ok
from controller.core.rules import LeverRules
from policies.gate import Gate
from tests.support.cases import NOW, healthy

GATE = Target("llm", Lever.ADMISSION, CONCURRENCY)
USUAL = DEFAULTS[Lever.ADMISSION]
LIMITS = Limits(1.0, 1e12, 1.0)
RULES = LeverRules(
    Lever.ADMISSION, "gate", "none", limits=LIMITS, rate_up=USUAL.rate_up, rate_down=USUAL.rate_down,
    stabilise=USUAL.stabilise,
)  # fmt: skip


@pytest.mark.parametrize("every", [1.0, 5.0, 15.0])
@pytest.mark.parametrize("start", [4.0, 8.0, 20.0, 40.0])
def test_a_gate_that_came_down_once_rises_again(every: float, start: float) -> None:
    """One bad spell halves it, and the fleet stands idle behind it for good: the wish fell back by a rounding at each
    second tick, and the guard that follows the lowest wish of a minute never saw a higher one."""
    law, held, value = Gate(Gate.Config()), GuardState(), start
    state = law.initial()
    readings = replace(healthy(running=ok(4.0)), filled_since=NOW - 9e5)
    estimate = Estimate(demand=1.0, unit_sequences=90.0, trusted=True, evidence={"serving": 4.0})
    for number in range(int(3600 / every)):
        at = NOW + number * every
        owner, tick = TargetState(value), Tick(number + 5, at, every)
        seen = View(tick, readings, {GATE: owner}, {GATE: LIMITS}, estimate)
        (proposal,), state = law.propose(seen, (), Brief(Balance(1.0, 4.0), 0.0), state)
        held = observe(held, RULES, owner, at)
        common = Common(RULES, tick, readings, estimate, 60.0)
        case = Case(common, owner, held, held.changes, value, CONCURRENCY)
        value, _, sought = guards.run(case, proposal.value)
        held = guards.remember(case, sought)

    assert value > 2 * start or value >= 90.0
