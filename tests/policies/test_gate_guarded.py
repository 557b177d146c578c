"""The gate as it stands: law and guards together, tick by tick. What the law wants alone is not what happens."""

from dataclasses import replace
from itertools import pairwise

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
from controller.core.setpoints import DEADLINE, EVERY_RANK, OWN, PRIORITY
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.tenancy import ClassRules
from policies.gate import Gate
from tests.support.cases import NOW, healthy

GATE = Target("llm", Lever.ADMISSION, CONCURRENCY)
USUAL = DEFAULTS[Lever.ADMISSION]
LIMITS = Limits(1.0, 1e12, 1.0)
RULES = LeverRules(
    Lever.ADMISSION, "gate", "none", limits=LIMITS, rate_up=USUAL.rate_up, rate_down=USUAL.rate_down,
    stabilise=USUAL.stabilise, own=OWN,
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


def back(member: str, value: float, every: float, ranks: tuple[int, ...] = (0, 1, 2)) -> list[tuple[float, float]]:
    """The way of a set-point in half an hour, (minutes, value), after an overload of which nothing is left."""
    law, held, target = Gate(Gate.Config()), GuardState(), Target("llm", Lever.ADMISSION, member)
    state, rules = law.initial(), RULES.of_member(member)
    classes = {f"c{rank}": ClassRules(rank) for rank in ranks}
    readings = replace(
        healthy(queue_delay=ok(0.0)), latencies={Signal.TTFT: {"p95": ok(0.3)}}, filled_since=NOW - 9e5
    )  # fmt: skip
    promise = (Objective("ttft", Signal.TTFT, 2.0, 0.95, 60.0),)
    estimate = Estimate(demand=1.0, unit_sequences=90.0, trusted=True)
    way = list[tuple[float, float]]()
    for number in range(int(1800 / every)):
        at = NOW + number * every
        owner, tick = TargetState(value), Tick(number + 5, at, every)
        seen = View(tick, readings, {target: owner}, {target: rules.limits}, estimate, classes=classes)
        balance = Balance(1.0, 4.0, by_class=dict.fromkeys(classes, 0.3))
        (proposal,), state = law.propose(seen, promise, Brief(balance, 0.0), state)
        held = observe(held, rules, owner, at)
        common = Common(rules, tick, readings, estimate, 60.0)
        case = Case(common, owner, held, held.changes, value, member)
        value, _, sought = guards.run(case, proposal.value)
        held = guards.remember(case, sought)
        way.append((at / 60.0 - NOW / 60.0, value))
    return way


@pytest.mark.parametrize("every", [5.0, 15.0])
@pytest.mark.parametrize("ranks", [(0, 1, 2), (0, 10, 20)])
def test_ranks_that_were_kept_out_come_back_at_half_a_rank_a_minute(every: float, ranks: tuple[int, ...]) -> None:
    """The last rank was refused for an hour after a flash of three minutes, while places were free: each wish was a
    step from what a guard had held, and a share of rank 0 is none."""
    way = back(PRIORITY, 0.0, every, ranks)
    values = [value for _, value in way]

    assert values == sorted(values)
    home = next(minutes for minutes, value in way if value == EVERY_RANK)
    assert 4.0 <= home <= 5.5  # two ranks, and the minute in which all wishes have to say so
    assert next(minutes for minutes, value in way if value >= ranks[1]) == pytest.approx(3.0, abs=0.5)
    assert all(value == EVERY_RANK or value < ranks[2] for value in values)  # no ranks that nobody has
    assert max(after - before for before, after in pairwise(values) if after < ranks[2]) < 9.2


@pytest.mark.parametrize("every", [5.0, 15.0])
def test_deadlines_come_back_at_a_tenth_a_minute(every: float) -> None:
    home = next(minutes for minutes, value in back(DEADLINE, 0.4, every) if value == 1.0)
    assert 6.0 <= home <= 7.5
