"""Explanations: what a person reads at three in the morning must be the chain that was decided, and nothing else."""

from pathlib import Path

from controller.core.model import Applied, Mode, Outcome, Plan, Step
from controller.core.why import Why
from controller.explain import asked, decision_json, explain, held_by, reason, reasons_page, sentence
from tests.support.build import REPLICAS, decision

LATE = 1_767_276_135.0  # 14:02:15 UTC
CHAIN = (Step("capacity", 8, 22, Why.FORECAST), Step("guards", 22, 12, Why.RATE))


def test_a_limited_rise_names_who_asked_what_and_which_guard_stood_in_the_way() -> None:
    one = decision(8, 12, Why.RATE, *CHAIN, evidence={"demand": 18.4, "forecast": 21.2})
    assert sentence(one, LATE) == (
        "14:02:15 llama/replicas 8 → 12: capacity asked 22 (the load expected when new capacity would be warm needs "
        "it: demand 18.4, forecast 21.2); the rate limit held it at 12"
    )
    assert asked(one) == 22
    assert held_by(one) is Why.RATE


def test_a_guard_that_lifts_is_not_said_to_hold() -> None:
    one = decision(1, 2, Why.MIN_BOUND, Step("capacity", 1, 0, Why.SURPLUS), Step("guards", 0, 2, Why.MIN_BOUND))
    assert reason(one) == "capacity asked 0 (less capacity is enough); the configured minimum raised it to 2"


def test_steady_is_not_reported_as_held() -> None:
    assert held_by(decision()) is None
    assert reason(decision(evidence={"demand": 3.0})) == "nothing needs to change: demand 3"


def test_missing_data_without_a_step_still_has_a_reason() -> None:
    one = decision(4, 4, Why.MISSING)
    assert held_by(one) is Why.MISSING
    assert sentence(one, LATE) == "14:02:15 llama/replicas 4: data is missing, so nothing is relaxed"


def test_a_rounding_step_is_not_reported_as_held() -> None:
    one = decision(4, 5, Why.QUANTUM, Step("pid", 4, 4.6, Why.TRIM), Step("guards", 4.6, 5, Why.QUANTUM))
    assert held_by(one) is None
    assert asked(one) == 4.6


def test_an_unknown_current_value_is_a_question_mark_not_a_zero() -> None:
    assert "? → 3" in sentence(decision(None, 3, Why.DEMAND), LATE)


def test_what_the_actuator_said_stands_under_its_decision() -> None:
    one = decision(8, 9, Why.DEMAND, Step("capacity", 8, 9, Why.DEMAND))
    lines = explain(Plan(LATE, (one,)), [Applied(REPLICAS, Outcome.REFUSED, "an HPA owns it")])
    assert lines[1] == "    refused: an HPA owns it"
    assert explain(Plan(LATE, ())) == []


def test_observe_mode_says_that_nothing_was_sent() -> None:
    one = decision(8, 9, Why.DEMAND)
    observed = type(one)(one.target, 8, 9, Why.DEMAND, mode=Mode.OBSERVE)
    assert reason(observed).endswith("not sent: the lever only observes")


def test_json_carries_catalogue_names_for_machines() -> None:
    value = decision_json(decision(8, 12, Why.RATE, *CHAIN))
    assert value["why"] == "rate"
    assert value["held_by"] == "rate"
    assert value["steps"][0]["why"] == "forecast"  # type: ignore[index]


def test_every_reason_has_a_chapter_and_the_page_equals_its_generator() -> None:
    page = reasons_page()
    for why in Why:
        assert page.count(f"### {why.value}\n") == 1
    assert (Path(__file__).parents[2] / "docs" / "reasons.md").read_text(encoding="utf-8") == page
