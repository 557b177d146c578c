"""A cap on requests in flight does not fall below the operating point while promises to those let in are kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from controller.core.decide import DecideState, decide
from controller.core.model import Ask, Lever, Mode, Pin, PoolReadings, Proposal, Snapshot, Target, TargetState, Tick
from controller.core.operating import CONCURRENCY, GROWS_WITH_BATCH, GROWS_WITH_WAIT
from controller.core.ports import Brief, Estimate, Limits, View
from controller.core.reading import Reading, State, ok
from controller.core.rules import FleetRules, LeverRules, PoolRules
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why
from policies.pid import Pid
from tests.support.cases import NOW, healthy

GATE = Target("llm", Lever.ADMISSION, CONCURRENCY)
ITL = Objective("itl", Signal.ITL, 0.08, 0.95, 60.0)
TTFT = Objective("ttft", Signal.TTFT, 2.0, 0.95, 60.0)


@dataclass(frozen=True)
class Nothing:
    """No memory."""


class Wishes:
    """Any law, also one that nobody here wrote: a share of what there is."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def initial(self) -> Nothing:
        return Nothing()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: Nothing
    ) -> tuple[Sequence[Proposal], Nothing]:
        return [
            Proposal(t, Ask.SET, (owner.accepted or 0.0) * self.factor, "knob", Why.ABOVE_THRESHOLD)
            for t, owner in sorted(view.targets.items())
        ], state


def follow(
    law: object, gap: Reading, start: float, ticks: int = 40, *, holds: float | None = 40.0, pin: Pin | None = None,
    objectives: Sequence[Objective] = (TTFT, ITL), member: str = CONCURRENCY,
) -> float:  # fmt: skip
    """Where a law takes the cap while first tokens are late."""
    target = Target("llm", Lever.ADMISSION, member)
    lever = LeverRules(Lever.ADMISSION, "knob", "none", mode=Mode.AUTO, limits=Limits(1, 64), stabilise=60.0)
    rules = FleetRules((PoolRules("llm", tuple(objectives), (lever,), (target,)),))
    estimate = Estimate(demand=9.0, unit_sequences=holds, unit_rate=1.0, trusted=True, evidence={"serving": 8.0})
    state, value = DecideState(), start
    for number in range(ticks):
        at = NOW + 15.0 * number
        latencies: Mapping[Signal, Mapping[str, Reading]] = {
            Signal.ITL: {"p95": gap}, Signal.TTFT: {"p95": ok(70.0)}
        }  # fmt: skip
        calm = healthy(queue_delay=ok(70.0), queue_depth=ok(900.0))
        pool = PoolReadings(signals=calm.signals, latencies=latencies, filled_since=NOW - 3600.0)
        snapshot = Snapshot(Tick(number + 5, at, 15.0), {"llm": pool}, {target: TargetState(value, pin=pin)})
        plan, state = decide(snapshot, {"llm": estimate}, rules, {"llm/admission": law}, state)  # type: ignore[dict-item]
        (made,) = plan.decisions
        value = made.final if made.final is not None else value
    return value


def test_whoever_drives_it_a_cap_stays_at_the_operating_point_while_tokens_come_in_time() -> None:
    """thr.yaml: a threshold on the queue's delay took the cap from 64 to 1 and kept it there; 11.6 % attained."""
    assert follow(Wishes(0.9), ok(0.05), 64.0) == 40.0


def test_a_cap_below_the_operating_point_is_not_lowered_further() -> None:
    assert follow(Wishes(0.9), ok(0.05), 12.0) == 12.0


@pytest.mark.parametrize("gap", [ok(0.09), Reading(State.MISSING), Reading(State.CENSORED, 0.01)])
def test_a_cap_may_fall_on_where_the_promise_is_broken_or_not_read(gap: Reading) -> None:
    """Missing data is never a veto on protection."""
    assert follow(Wishes(0.9), gap, 64.0) < 20.0


def test_without_an_operating_point_or_a_promise_the_law_has_its_way() -> None:
    assert follow(Wishes(0.9), ok(0.05), 64.0, holds=None) < 20.0
    assert follow(Wishes(0.9), ok(0.05), 64.0, objectives=(TTFT,)) < 20.0


def test_a_person_and_the_longest_prompt_are_no_business_of_it() -> None:
    pin = Pin(5.0, NOW + 1e6, "trial")
    assert follow(Wishes(1.0), ok(0.05), 64.0, pin=pin) == 5.0
    assert follow(Wishes(0.9), ok(0.05), 64.0, member="longest_prompt") < 20.0


def test_a_cap_that_fell_finds_its_way_back() -> None:
    """By the default PID, under the same queue, as soon as tokens come in time again."""
    low = follow(Pid(Pid.Config()), ok(0.3), 64.0, ticks=60)

    assert low < 40.0
    assert follow(Pid(Pid.Config()), ok(0.03), low, ticks=240) > 50.0


def test_no_signal_grows_both_with_the_batch_and_with_the_wait() -> None:
    assert not GROWS_WITH_BATCH & GROWS_WITH_WAIT
