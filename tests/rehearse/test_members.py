"""Thirty replicas and twenty tenants on one page: nobody finds the one breaker that opened among fifty plots."""

import io

import pytest
from rich.console import Console

from controller.core.model import Applied, Decision, Lever, Mode, Outcome, Pin, Plan, Step, Target, TargetState
from controller.core.summary import sentence
from controller.core.why import Why
from controller.core.words import number
from controller.explain import explain
from controller.rehearse.report import Origin, render
from controller.rehearse.summary import summarise
from controller.rehearse.table import show
from controller.rehearse.trace import Trace
from tests.support.build import START, TTFT, decision, readings, snapshot

NO_LIMIT = 1e12


def trace(ticks: int = 40) -> Trace:
    """30 weights of which 7 move, 20 caps of which one comes down from no limit and goes back, and the replicas."""
    made = Trace.begin(15.0, {"llama": [TTFT]}, {})
    for tick in range(ticks):
        decisions = [decision(8, 9, Why.DEMAND, Step("capacity", 8, 9, Why.DEMAND))]
        for i in range(30):
            final = 1.0 - 0.01 * (tick % (i + 2)) if i < 7 else 1.0
            weight = Target("llama", Lever.WEIGHT, f"pod-{i:02d}")
            step = Step("weights", 1.0, final, Why.LATENCY_HIGH)
            decisions.append(decision(1.0, final, Why.LATENCY_HIGH if final < 1 else Why.STEADY, step, target=weight))
        for i in range(20):
            cap = Target("llama", Lever.TENANT_CAP, f"tenant-{i:02d}")
            final = 4000.0 if i == 3 and 10 <= tick < 20 else NO_LIMIT
            decisions.append(decision(NO_LIMIT, final, Why.DEMAND if final < NO_LIMIT else Why.STEADY, target=cap))
        plan = Plan(START + 15.0 * tick, tuple(sorted(decisions, key=lambda one: one.target)))
        states = {one.target: TargetState(one.current) for one in decisions}
        made.append(snapshot(tick, plan.at, {"llama": readings(offered_rate=5.0)}, states), plan)
    made.finish()
    return made


def test_the_page_has_a_plot_for_a_lever_and_not_for_each_member() -> None:
    made = trace()
    text = render(made, summarise(made), Origin("Rehearsal", {}))

    assert text.count(": recorded and proposed") == 1
    assert "weight: proposed for 30 members" in text
    assert "tenant_cap: proposed for 20 members" in text
    assert "weight: 30 members, 23 never moved, 2 more moved" in text
    assert "tenant_cap: 20 members, 19 never moved" in text
    assert "weight/pod-00" in text
    assert "weight/pod-29" not in text
    assert "lowest limit proposed: 4,000" in text
    assert "1,000,000,000,000" not in text
    assert len(text) < 300_000


def test_the_changes_of_all_members_stand_in_the_order_of_time() -> None:
    """Sorted by target, the first replica alone would have filled the list."""
    made = trace()
    text = render(made, summarise(made), Origin("Rehearsal", {}))
    changes = text[text.index("Proposed changes and their reasons") :]
    assert changes.index("tenant_cap/tenant-03") < changes.index("00:05:00")


def test_the_table_on_the_terminal_is_as_short() -> None:
    made = trace()
    out = io.StringIO()
    show(Console(file=out, width=160), made, summarise(made), limit=0)
    lines = [line for line in out.getvalue().splitlines() if line.startswith("  ")]

    assert sum("tenant_cap" in line for line in lines) == 2
    assert sum("weight" in line for line in lines) == 6
    assert any("mean recorded 1, proposed 0.9" in line for line in lines)


def members(lever: Lever, moves: dict[str, float], still: int) -> tuple[Decision, ...]:
    moved = [
        decision(1.0, final, Why.LATENCY_HIGH, Step("weights", 1.0, final, Why.LATENCY_HIGH),
                 target=Target("llama", lever, name))
        for name, final in moves.items()
    ]  # fmt: skip
    rest = [decision(1.0, 1.0, target=Target("llama", lever, f"still-{i:02d}")) for i in range(still)]
    return tuple(sorted([*moved, *rest], key=lambda one: one.target))


def test_the_sentence_of_a_plan_tells_members_together() -> None:
    many = members(Lever.WEIGHT, {"a": 0.4, "b": 0.8, "c": 0.6}, 3)
    one = members(Lever.BREAKER, {"a": 0.0}, 3)

    assert sentence((*one, *many), holding=False) == (
        "lowers llama/breaker/a 1 → 0 because latency is above its target; "
        "lowers 3 of llama/weight to 0.4 ... 0.8 because latency is above its target"
    )
    assert sentence(members(Lever.WEIGHT, {"a": 0.4, "b": 0.4}, 0), holding=False).startswith(
        "lowers 2 of llama/weight to 0.4 because"
    )
    assert sentence((), holding=False) == "keeps everything as it is"


def test_an_explanation_folds_what_stays_and_tells_what_moves() -> None:
    plan = Plan(START, members(Lever.WEIGHT, {"a": 0.4}, 29))
    folded = explain(plan)
    whole = explain(plan, folded=False)

    assert len(folded) == 2
    assert folded[0].startswith("00:00:00 llama/weight/a 1 → 0.4: weights asked 0.4")
    assert folded[1] == "00:00:00 llama/weight: 29 members stay at 1: nothing needs to change"
    assert len(whole) == 30


def test_a_member_with_an_outcome_is_never_folded_away() -> None:
    plan = Plan(START, members(Lever.WEIGHT, {}, 9))
    failed = Target("llama", Lever.WEIGHT, "still-04")
    lines = explain(plan, [Applied(failed, Outcome.FAILED, "503")])

    assert "    failed: 503" in lines
    assert any("llama/weight/still-04 1" in line for line in lines)
    assert any("8 members stay" in line for line in lines)


def test_a_pin_is_told_with_its_end_and_its_reason() -> None:
    target = Target("llama", Lever.REPLICAS)
    plan = Plan(START, (decision(4, 4, Why.PIN, target=target),))
    lines = explain(plan, states={target: TargetState(4.0, pin=Pin(4.0, START + 7200, "launch day"))})

    assert lines[1] == "    pinned at 4 until 2026-01-01 02:00:00 UTC: launch day"


@pytest.mark.parametrize(("value", "text"), [(1e12, "no limit"), (999.0, "999"), (0.25, "0.25")])
def test_no_limit_is_not_printed_as_a_number(value: float, text: str) -> None:
    assert number(value) == text


def test_modes_are_not_folded_together() -> None:
    kept = [
        Decision(Target("llama", Lever.WEIGHT, f"{mode}-{i}"), 1.0, 1.0, Why.STEADY, mode=mode)
        for mode in (Mode.OBSERVE, Mode.AUTO)
        for i in range(4)
    ]
    assert len(explain(Plan(START, tuple(kept)))) == 2
