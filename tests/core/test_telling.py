"""Sentences that misled a fresh user: each tells now what it is about, and the same thing has one name everywhere."""

from dataclasses import replace

import pytest

from controller.core.decide import DecideState, decide
from controller.core.model import Decision, Lever, Mode, Pin, Plan, Snapshot, Step, Target, TargetState, Tick
from controller.core.ports import Limits
from controller.core.rules import FleetRules, LeverRules, PoolRules
from controller.core.summary import sentence
from controller.core.telling import because
from controller.core.why import Why
from controller.explain import asked, chain, decision_json, explain, held_by, reason
from tests.support.build import START, decision

BREAKER = Target("chat", Lever.BREAKER, "chat-0")
CAP = Target("chat", Lever.TENANT_CAP, "acme")


def gate(member: str, current: float, final: float, why: Why) -> Decision:
    target = Target("chat", Lever.ADMISSION, member)
    return Decision(target, current, final, why, (Step("gate", current, final, why),))


def observed(one: Decision) -> Decision:
    return one._replace(mode=Mode.OBSERVE, send=False)


# --- which signal ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("why", "evidence", "told"),
    [
        (
            Why.LATENCY_LOW, {"measure": 0.129, "kv_usage": 0.129, "target": 0.5},
            "kv_usage is well below its target: kv_usage 12.9 %, target 50 %",
        ),
        (
            Why.LATENCY_HIGH, {"measure": 145.0, "queue_depth": 145.0, "target": 5.0},
            "queue_depth is above its target: queue_depth 145 requests, target 5 requests",
        ),
        (
            Why.LATENCY_HIGH, {"measure": 2.41, "ttft": 2.41, "target": 0.5},
            "ttft is above its target: ttft 2.41 s, target 500 ms",
        ),
        (
            Why.ABOVE_THRESHOLD, {"measure": 12.0, "queue_depth": 36.0, "upper": 10.0, "lower": 2.0},
            "queue_depth per replica is above its upper threshold",
        ),
    ],
)  # fmt: skip
def test_a_queue_that_is_held_at_a_target_is_no_latency(why: Why, evidence: dict[str, float], told: str) -> None:
    """ "latency is above its target: measure 145, target 5" """
    one = decision(4, 5, why, Step("law", 4, 5, why), evidence=evidence)

    assert told in reason(one)
    assert because(one) in sentence((one,), holding=False)


def test_a_smoothed_latency_is_told_as_such_where_the_newest_one_contradicts_it() -> None:
    """ "ttft is well below its target: ttft 2.62 s, target 2.5 s" """
    for why, measure, told in (
        (Why.LATENCY_LOW, 2.62, "smoothed ttft is well below"), (Why.LATENCY_HIGH, 2.4, "smoothed ttft is above"),
        (Why.LATENCY_LOW, 0.4, "(ttft is well below"), (Why.LATENCY_FALLS, 2.62, "(ttft is above its target and falls"),
    ):  # fmt: skip
        evidence = {"measure": measure, "ttft": measure, "target": 2.5}
        assert told in reason(decision(3, 2, why, Step("pid", 3, 2, why), evidence=evidence))


@pytest.mark.parametrize(
    ("why", "clause"),
    [
        (Why.MAX_BOUND, "it may not be above the configured maximum"), (Why.PIN, "a person pinned it"),
        (Why.MIN_BOUND, "it may not be below the configured minimum"),
        (Why.QUANTUM, "it is rounded to what the target can take"),
        (Why.STANDING_CAP, "the tenant's standing cap is the highest of"),
    ],
)  # fmt: skip
def test_what_follows_because_has_a_verb(why: Why, clause: str) -> None:
    """ "lowers 3 of big/tenant_cap to 40,000 because the configured maximum" """
    assert f" because {clause}" in sentence((decision(9, 8, why, Step("bounds", 9, 8, why)),), holding=False)


def test_a_law_that_holds_latency_alone_still_says_so() -> None:
    one = gate("concurrency", 90.0, 66.0, Why.LATENCY_HIGH)._replace(evidence={"aim": 66.5, "trim": -0.2})

    assert reason(one).startswith("gate asked 66 (latency is above its target: aim 66.5, trim -0.2")


# --- what is not sent --------------------------------------------------------------------------------------------


def test_what_is_not_sent_does_not_read_as_done() -> None:
    """ "lowers chat/breaker/chat-0 1 → 0 because ...", at every tick, of a lever that only observes."""
    one = Decision(BREAKER, 1.0, 0.0, Why.PIN, (Step("pin", 1.0, 0.0, Why.PIN),), send=True)
    rise = decision(2, 4, Why.DEMAND, Step("capacity", 2, 4, Why.DEMAND))

    assert sentence((one, rise), holding=False).startswith("lowers chat/breaker/chat-0 1 → 0")
    told = sentence((observed(one), observed(rise)), holding=False)
    assert told.startswith("would lower chat/breaker/chat-0 1 → 0 because a person pinned it")
    assert "; would raise llama/replicas 2 → 4" in told


# --- one name for one thing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [None, CAP, Target("chat", Lever.ADMISSION, "concurrency")])
def test_the_table_names_a_guard_as_the_sentence_does(target: Target | None) -> None:
    for why in (Why.STABILISE, Why.IN_FLIGHT, Why.COOLDOWN, Why.RATE, Why.MIN_BOUND, Why.REPLICAS_OUT):
        one = decision(8, 8, why, Step("law", 8, 4, Why.SURPLUS), Step("guard", 4, 8, why))
        one = one if target is None else one._replace(target=target)
        assert chain(one)[-1][3] in reason(one)


def test_a_cap_does_not_follow_the_needs_of_capacity() -> None:
    cap = Decision(CAP, 8.0, 8.0, Why.STABILISE)

    assert because(cap) == "the most careful value of the recent past still counts"
    assert because(decision(8, 8, Why.STABILISE)).startswith("the highest need of the recent past")


def test_set_points_of_different_units_are_not_told_together() -> None:
    """ "lowers 2 of big/admission to 0.45 ... 67", "4 members stay at 1 ... no limit" """
    made = (gate("concurrency", 90.0, 67.0, Why.LATENCY_HIGH), gate("deadline", 1.0, 0.45, Why.LATENCY_HIGH))

    told = sentence(made, holding=False)
    assert told == "lowers chat/admission concurrency 90 → 67, deadline 1 → 0.45 because latency is above its target"
    still = [gate(name, 1.0, 1.0, Why.STEADY)._replace(steps=()) for name in ("a", "b", "c", "d")]
    assert len(explain(Plan(START, tuple(still)))) == 4


# --- what reads as something else --------------------------------------------------------------------------------


def test_a_queue_that_clears_is_a_wish_and_no_hand_that_lowers() -> None:
    """ "lowered to 1: requests wait, and are served before a new replica would be warm" """
    one = decision(2, 1, Why.QUEUE_CLEARS, Step("capacity", 2, 1, Why.QUEUE_CLEARS), evidence={"waiting": 3.0})

    assert reason(one).startswith("capacity asked 1 (those who wait are served before")
    assert (asked(one), held_by(one)) == (1.0, None)


def test_a_longest_prompt_that_rises_is_not_told_the_reason_to_fall() -> None:
    """ "raises longest_prompt 312,265 → 345,072 because a longer prompt would take too much" """
    one = gate("longest_prompt", 312_265.0, 345_072.0, Why.PROMPT_FITS)

    assert "too much" not in sentence((one,), holding=False)


def test_a_pool_that_was_scaled_to_zero_is_no_incident() -> None:
    """ "only part of the fleet answered, so nothing is relaxed", at every tick of a night."""
    assert reason(decision(0, 0, Why.PARTIAL)) == "there is no replica that could answer"
    assert "only part of the fleet" in reason(decision(3, 3, Why.PARTIAL))


# --- until when, and who -----------------------------------------------------------------------------------------


def test_a_replica_that_is_out_says_when_it_is_tried_again() -> None:
    """Only pins told until when."""
    step = Step("breaker", 1, 0, Why.SLOW_REPLICA)
    out = [
        Decision(BREAKER._replace(member=f"chat-{i}"), 1.0, 0.0, Why.SLOW_REPLICA, (step,), {"tried_at": START + i})
        for i in (9, 8)
    ]  # fmt: skip

    assert reason(out[0]).endswith("; tried again at about 00:00:09 UTC")
    assert decision_json(out[0])["holds_until"] == START + 9
    assert sentence(out[:1], holding=False).endswith("at a like batch, tried again at about 00:00:09 UTC")
    assert sentence(out, holding=False).endswith("the first of them tried again at about 00:00:08 UTC")


def test_a_target_that_is_left_to_somebody_else_says_to_whom_and_until_when() -> None:
    """ "somebody else changed this target" """
    one = decision(4, 4, Why.FOREIGN_WRITER)
    person = TargetState(4.0, foreign_writer="uid 0", foreign_until=START + 900)
    scaler = TargetState(4.0, foreign_writer="HPA chat")

    assert reason(one, person) == "uid 0 changed this target, so it is left alone until 00:15:00 UTC"
    assert decision_json(one, person)["holds_until"] == START + 900
    assert reason(one, scaler) == "HPA chat writes this target too, so it is left alone"
    (line,) = explain(Plan(START, (one,)), states={one.target: person})
    assert "uid 0" in line


def planned(state: TargetState) -> str:
    """The sentence of the plan for a pool whose replicas are in this state."""
    lever = LeverRules(Lever.REPLICAS, "wants", "none", limits=Limits(1, 50))
    target = Target("chat", Lever.REPLICAS)
    rules = FleetRules((PoolRules("chat", (), (lever,), (target,)),))
    return decide(Snapshot(Tick(9, START, 15.0), {}, {target: state}), {}, rules, {}, DecideState())[0].summary


def test_the_plan_itself_says_until_when_a_pin_holds_and_to_whom_a_target_is_left() -> None:
    """ "keeps everything as it is", while a target was not Governor's for a quarter of an hour."""
    pinned = TargetState(4.0, 4.0, pin=Pin(8.0, START + 3600, "launch"))
    taken = TargetState(4.0, 4.0, foreign_writer="uid 0", foreign_until=START + 900)

    assert planned(pinned) == "raises chat/replicas 4 → 8 because a person pinned it, until 01:00:00 UTC"
    assert planned(taken) == "leaves chat/replicas to uid 0 until 00:15:00 UTC"
    assert planned(replace(taken, foreign_until=None)) == "leaves chat/replicas to uid 0"


# --- what decides ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words"),
    [("of_guarantee", "its guarantee"), ("of_use", "its busiest use"), ("of_spare", "what it uses now")],
)
def test_a_standing_cap_says_what_it_stands_at(name: str, words: str) -> None:
    """ "its guarantee, twice its busiest use, or most of what is spare", and never which."""
    step = Step("fair_share", 9e3, 8e3, Why.STANDING_CAP)
    one = Decision(CAP, 9e3, 8e3, Why.STANDING_CAP, (step,), {"demand": 1.0, name: 8e3})
    other = one._replace(target=Target("chat", Lever.TENANT_CAP, "birch"), evidence={"demand": 1.0, "of_least": 8e3})

    assert f"because the tenant's standing cap is {words}" in sentence((one,), holding=False)
    assert f"the tenant's standing cap is {words}" in reason(one)
    assert "is the highest of" in sentence((one, other), holding=False), "what is true of one is not true of both"
