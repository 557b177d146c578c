"""The gateway as a whole: the order of its laws, what each does to a request, and what is counted."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from routing.actions import Action, Cancel, Drop, Fail, Reason, Redirect, Reject, Send
from routing.gateway import Gateway
from routing.knobs import Admission, Breaker, Concurrency, Downgrade, Klass, Knobs, Queue, Retries, Tenant
from routing.model import Ability, Replica, Request
from routing.strategies import make

CAPPED = Knobs(concurrency=Concurrency(per_slot=1.0))


def gateway(knobs: Knobs = CAPPED, replicas: int = 2, slots: int = 2, **ability: Any) -> Gateway:
    made = Gateway(knobs, make("least-loaded"))
    for i in range(replicas):
        assert made.joined(Replica(f"r{i}", Ability(**ability), slots=slots), 0.0) == []
    return made


def request(id_: int, **more: Any) -> Request:
    return Request(id_, **{"prompt_tokens": 100, "max_tokens": 100, **more})


def fill(made: Gateway, count: int, now: float = 0.0, start: int = 0, **more: Any) -> list[Action]:
    return [action for i in range(start, start + count) for action in made.arrive(request(i, **more), now)]


def only(actions: Sequence[Action]) -> Action:
    assert len(actions) == 1, actions
    return actions[0]


def reason(actions: Sequence[Action]) -> Reason:
    action = only(actions)
    assert isinstance(action, Reject | Drop | Cancel)
    return action.reason


def trained(made: Gateway, seconds: float, count: int = 30) -> Gateway:
    """It has seen requests stay for so many seconds."""
    for i in range(count):
        made.arrive(request(-1 - i), 0.0)
        made.finished(-1 - i, 50, seconds)
    return made


def test_with_all_laws_off_everything_is_sent_at_once() -> None:
    made = gateway(Knobs(), replicas=3)
    actions = fill(made, 300)

    assert all(isinstance(action, Send) for action in actions)
    assert [made.replicas[f"r{i}"].inflight for i in range(3)] == [100, 100, 100]
    assert made.next_at == float("inf")
    assert made.cap == float("inf")


def test_what_the_engines_cannot_run_waits_here_and_goes_as_places_fall_free() -> None:
    made = gateway()
    sent = fill(made, 6)
    assert [action.id for action in sent] == [0, 1, 2, 3]
    assert (made.inflight, made.queued, made.cap) == (4, 2, 4)

    assert only(made.finished(2, 10, 1.0)).id == 4
    assert [action.id for action in made.joined(Replica("r2", slots=2), 2.0)] == [5]


def test_the_books_of_a_replica_are_kept_to_the_token() -> None:
    made = gateway(Knobs(expected_output=40.0), replicas=1)
    made.arrive(request(0), 0.0)
    made.arrive(request(1, max_tokens=10), 0.0)
    replica = made.replicas["r0"]
    assert (replica.inflight, replica.inflight_tokens) == (2, 100 + 40 + 100 + 10)

    made.first_token(0, 1.0)
    assert replica.inflight_tokens == 40 + 100 + 10
    made.finished(0, 77, 2.0)
    assert (replica.inflight, replica.inflight_tokens) == (1, 110)
    made.gone(1, 3.0)
    assert (replica.inflight, replica.inflight_tokens) == (0, 0.0)


def test_prefill_and_decode_replicas_each_have_their_part_in_flight() -> None:
    made = Gateway(
        Knobs(expected_output=40.0, breaker=Breaker(on=True)), make("prefill-decode", {"decode_prefills": False})
    )
    made.joined(Replica("p", Ability(role="prefill"), slots=4), 0.0)
    made.joined(Replica("d", Ability(role="decode"), slots=4), 0.0)
    sent = only(made.arrive(request(0), 0.0))
    assert isinstance(sent, Send)
    assert (sent.replica, sent.prefill) == ("d", "p")
    prefill, decode = made.replicas["p"], made.replicas["d"]
    assert (prefill.inflight, prefill.inflight_tokens) == (1, 100.0)
    assert (decode.inflight, decode.inflight_tokens) == (1, 40.0)

    made.first_token(0, 1.0, "p")
    assert (prefill.inflight, prefill.inflight_tokens) == (0, 0.0)
    assert made.finished(0, 10, 2.0, "p") == []  # its part is over; that is old news
    made.finished(0, 10, 2.0, "d")
    assert made.counts().total.finished == 1


def test_a_fleet_without_decode_is_no_capacity() -> None:
    made = gateway(CAPPED, role="prefill")

    assert reason(made.arrive(request(0), 0.0)) is Reason.NO_CAPACITY


def test_a_prefill_replica_is_probed_beside_others() -> None:
    """Alone it could not answer, and whoever tried it would find nobody."""
    knobs = Knobs(breaker=Breaker(on=True, least=5))
    made = Gateway(knobs, make("prefill-decode", {"decode_prefills": False}))
    for name, role in (("p0", "prefill"), ("p1", "prefill"), ("d", "decode")):
        made.joined(Replica(name, Ability(role=role)), 0.0)
    now, failed = 0.0, 0
    for i in range(600):
        now += 0.1
        made.poll(now)
        for action in made.arrive(request(i), now):
            assert isinstance(action, Send)
            if action.prefill == "p1" and now < 8.0:
                failed += 1
                made.failed(i, now, "500", "p1")
            else:
                made.first_token(i, now, action.prefill)
                made.finished(i, 10, now, "d")

    assert failed > 10
    assert made.counts().opened == {"p1": 1}
    assert made.counts().total.finished == 600 - failed
    assert made.replicas["p1"].weight == 1.0


def test_a_prompt_too_long_for_the_fleet_s_peace_is_refused_for_good() -> None:
    made = gateway(Knobs(longest_prompt=1000))

    assert only(made.arrive(request(0, prompt_tokens=1001), 0.0)) == Reject(0, Reason.PROMPT_TOO_LONG, None)
    assert isinstance(only(made.arrive(request(1, prompt_tokens=1000), 0.0)), Send)


def test_what_nobody_here_can_serve_is_told_so_even_when_there_is_a_queue() -> None:
    made = gateway(model="llama")
    fill(made, 5)

    refused = only(made.arrive(request(9, model="mistral"), 0.0))
    assert refused == Reject(9, Reason.NO_MATCH, None)
    assert made.queued == 1


def test_capability_match_comes_first_of_all() -> None:
    """What could never be served costs its tenant nothing, and counts in no share of what is shed."""
    caps = Tenant(tokens_per_s=1.0, token_burst=150.0)
    made = gateway(Knobs(other_tenants=caps, longest_prompt=50), model="llama")

    assert reason(made.arrive(request(0, model="mistral", tenant="t"), 0.0)) is Reason.NO_MATCH
    assert made.tenant_levels(0.0) == {}
    assert made.counts().total.rejected == {Reason.NO_MATCH: 1}


def test_no_replica_refuses_unless_told_to_hold() -> None:
    made = gateway(CAPPED, replicas=0)
    assert reason(made.arrive(request(0), 0.0)) is Reason.NO_CAPACITY

    holding = gateway(replace(CAPPED, queue=Queue(hold=True)), replicas=0)
    assert fill(holding, 3) == []
    assert holding.next_at == 60.0
    assert [action.id for action in holding.joined(Replica("r0", slots=2), 30.0)] == [0, 1]
    assert reason(holding.poll(60.0)) is Reason.WAITED


def test_all_weights_zero_is_no_capacity_and_no_division_by_zero() -> None:
    made = gateway(replace(CAPPED, weights={"r0": 0.0, "r1": 0.0}))
    assert reason(made.arrive(request(0), 0.0)) is Reason.NO_CAPACITY
    made.tune(replace(CAPPED, weights={"r0": 0.0}), 1.0)
    sent = [action for action in fill(made, 10, 1.0) if isinstance(action, Send)]
    assert {action.replica for action in sent} == {"r1"}


def test_a_replica_that_drains_gets_nothing_and_finishes_what_it_has() -> None:
    made = gateway()
    sent = fill(made, 4)
    made.drain("r0", 1.0)
    assert made.cap == 2
    there = [action.id for action in sent if isinstance(action, Send) and action.replica == "r0"]
    others = [action.id for action in sent if isinstance(action, Send) and action.replica == "r1"]
    made.arrive(request(9), 1.0)
    assert made.finished(there[0], 1, 1.0) == []
    assert only(made.finished(others[0], 1, 2.0)) == Send(9, "r1")  # what still drains takes no place of the others
    assert made.finished(there[1], 1, 2.0) == []
    assert made.replicas["r0"].inflight == 0


def test_the_queue_is_bounded_in_length_and_in_time() -> None:
    made = gateway(replace(CAPPED, queue=Queue(length=2, wait=10.0)))
    fill(made, 6)
    refused = only(made.arrive(request(6), 0.0))
    assert isinstance(refused, Reject)
    assert refused.reason is Reason.QUEUE_FULL
    assert refused.retry_after is not None

    assert made.next_at == 10.0
    assert [action.id for action in made.poll(10.0)] == [4, 5]
    assert made.queued == 0


def test_a_host_that_polls_late_still_sends_nothing_whose_time_is_over() -> None:
    made = gateway(replace(CAPPED, queue=Queue(wait=10.0)))
    fill(made, 5)

    assert reason(made.finished(0, 1, 10.5)) is Reason.WAITED


def test_a_full_queue_makes_room_for_a_higher_class() -> None:
    classes = {"critical": Klass(rank=0), "batch": Klass(rank=2)}
    made = gateway(replace(CAPPED, queue=Queue(length=2, fair=True), classes=classes))
    fill(made, 6, klass="batch")
    actions = made.arrive(request(9, klass="critical"), 0.0)

    assert isinstance(only(actions), Drop)
    assert reason(actions) is Reason.QUEUE_FULL
    assert actions[0].id == 5
    assert only(made.finished(0, 1, 1.0)).id == 9


def test_a_tenant_over_its_caps_is_refused_with_the_time_to_come_again() -> None:
    caps = {"t": Tenant(tokens_per_s=100.0, token_burst=400.0)}
    made = gateway(Knobs(tenants=caps, expected_output=100.0))
    assert [type(action) for action in fill(made, 3, tenant="t")] == [Send, Send, Reject]
    refused = only(made.arrive(request(7, tenant="t"), 0.0))
    assert isinstance(refused, Reject)
    assert refused.reason is Reason.TENANT_TOKENS
    assert refused.retry_after is not None
    assert 2.0 <= refused.retry_after <= 3.0
    assert isinstance(only(made.arrive(request(8, tenant="other"), 0.0)), Send)

    made.finished(0, 10, 0.0)  # 90 fewer than expected
    made.finished(1, 10, 0.0)
    assert made.tenant_levels(0.0)["t"] == (None, 180.0)


def test_who_is_refused_by_a_later_law_gets_its_tokens_back() -> None:
    made = gateway(replace(CAPPED, other_tenants=Tenant(tokens_per_s=1.0, token_burst=1e4), queue=Queue(length=1)))
    fill(made, 5, tenant="t")
    level = made.tenant_levels(0.0)["t"]
    assert reason(made.arrive(request(9, tenant="t"), 0.0)) is Reason.QUEUE_FULL
    assert made.tenant_levels(0.0)["t"] == level

    made.poll(60.0)  # the one in the queue waited too long
    assert made.tenant_levels(0.0)["t"][1] == pytest.approx((level[1] or 0.0) + 200.0 + 60.0)


def test_low_classes_are_shed_by_load_before_high_ones_wait() -> None:
    classes = {
        "batch": Klass(rank=2, load_lo=0.5, load_hi=1.0),
        "critical": Klass(rank=0, load_lo=1.05, load_hi=1.25),
    }
    made = gateway(replace(CAPPED, classes=classes), replicas=10, slots=10)
    fill(made, 75, klass="critical")
    batch = [made.arrive(request(1000 + i, klass="batch", tenant="t"), 0.0)[0] for i in range(10)]

    shed = [action for action in batch if isinstance(action, Reject)]
    assert {action.reason for action in shed} == {Reason.SHED}
    assert 4 <= len(shed) <= 7
    assert all(isinstance(action, Send) for action in fill(made, 15, start=200, klass="critical"))


def test_a_class_is_shed_by_the_delay_that_is_predicted_for_it() -> None:
    """Cap 4, 10 s each: with 8 in the queue a newcomer waits for 22.5 s."""
    classes = {"batch": Klass(rank=2, target=10.0, delay_lo=0.25, delay_hi=1.0), "critical": Klass(rank=0)}
    made = trained(gateway(replace(CAPPED, classes=classes, queue=Queue(fair=True))), 10.0)
    fill(made, 12, 20.0, klass="critical")

    refused = only(made.arrive(request(50, klass="batch"), 20.0))
    assert isinstance(refused, Reject)
    assert refused.reason is Reason.SHED
    assert refused.retry_after is not None
    assert refused.retry_after >= 20.0
    assert made.arrive(request(51, klass="critical"), 20.0) == []


def test_a_deadline_that_cannot_be_met_is_refused_at_once() -> None:
    made = trained(gateway(replace(CAPPED, admission=Admission(deadlines=True))), 10.0)
    fill(made, 8, 20.0)

    assert reason(made.arrive(request(50, deadline=25.0), 20.0)) is Reason.DEADLINE
    assert made.arrive(request(51, deadline=60.0), 20.0) == []
    off = trained(gateway(CAPPED), 10.0)
    fill(off, 8, 20.0)
    assert off.arrive(request(50, deadline=25.0), 20.0) == []


def test_late_work_is_dropped_before_it_wastes_capacity() -> None:
    """In the queue by its deadline; on its way out when the prefill alone would make it late; at the replica, too."""
    made = gateway(replace(CAPPED, admission=Admission(deadlines=True, prefill_rate=100.0)), replicas=1, slots=1)
    fill(made, 1)
    made.arrive(request(1, deadline=5.0), 0.0)
    made.arrive(request(2, deadline=8.0), 0.0)
    made.arrive(request(3, deadline=30.0), 0.0)
    assert reason(made.poll(5.0)) is Reason.LATE
    made.first_token(0, 7.0)
    dropped, sent = made.finished(0, 1, 7.5)  # the second needs 1 s of prefill
    assert isinstance(dropped, Drop)
    assert (dropped.id, dropped.reason) == (2, Reason.LATE)
    assert isinstance(sent, Send)
    assert sent.id == 3

    assert made.next_at == 30.0
    assert only(made.poll(30.0)) == Cancel(3, "r0", Reason.LATE)
    assert made.inflight == 0
    assert made.first_token(3, 31.0) == made.finished(3, 5, 32.0) == []


def test_an_answer_that_has_begun_is_not_cancelled_at_its_deadline() -> None:
    made = gateway(replace(CAPPED, admission=Admission(deadlines=True)), replicas=1)
    made.arrive(request(0, deadline=5.0), 0.0)
    made.first_token(0, 4.0)

    assert made.next_at == float("inf")
    assert made.poll(5.0) == []
    assert made.inflight == 1


def test_a_share_goes_to_a_smaller_model_with_consent() -> None:
    rule = Downgrade("small", 0.5, frozenset({"t"}), frozenset({"batch"}))
    made = gateway(Knobs(downgrade=(rule,)))
    actions = fill(made, 20, tenant="t", klass="batch")

    assert sum(action == Redirect(action.id, "small") for action in actions) == 10
    assert all(isinstance(action, Send) for action in fill(made, 20, start=100, tenant="t", klass="critical"))
    assert made.counts().total.redirected == 10


def test_a_failure_is_tried_again_elsewhere_and_not_for_ever() -> None:
    made = gateway(Knobs(retries=Retries(attempts=2)), replicas=3)
    first = only(made.arrive(request(0), 0.0))
    assert isinstance(first, Send)
    second = only(made.failed(0, 1.0, "connection reset", first.replica))
    assert isinstance(second, Send)
    assert second.attempt == 1
    third = only(made.failed(0, 2.0, "connection reset", second.replica))
    assert isinstance(third, Send)
    assert len({first.replica, second.replica, third.replica}) == 3

    last = only(made.failed(0, 3.0, "connection reset", third.replica))
    assert isinstance(last, Fail)
    assert last.kind == "connection reset"
    assert made.inflight == 0
    total = made.counts().total
    assert (total.sent, total.retried, total.failed, total.ended) == (3, 2, 1, 1)


def test_old_news_of_an_earlier_attempt_is_recognised() -> None:
    made = gateway(Knobs(retries=Retries(attempts=1)))
    first = only(made.arrive(request(0), 0.0))
    assert isinstance(first, Send)
    made.failed(0, 1.0, "500", first.replica)

    assert made.failed(0, 1.1, "500", first.replica) == []
    assert made.finished(0, 5, 1.2, first.replica) == []
    assert made.inflight == 1


def test_an_answer_that_has_begun_is_not_begun_again() -> None:
    made = gateway(Knobs(retries=Retries(attempts=2)))
    made.arrive(request(0), 0.0)
    made.first_token(0, 1.0)

    assert isinstance(only(made.failed(0, 2.0, "crash")), Fail)


def test_a_crash_costs_no_request_while_the_budget_lasts() -> None:
    made = gateway(Knobs(retries=Retries(attempts=1, budget=0.0, spare=3.0)))
    fill(made, 10)
    actions = made.left("r0", 1.0)

    assert [type(action) for action in actions] == [Send] * 3 + [Fail] * 2
    assert {action.replica for action in actions if isinstance(action, Send)} == {"r1"}
    assert made.inflight == 8


def test_a_restart_under_the_same_name_is_an_empty_replica() -> None:
    made = gateway(Knobs(), replicas=1)
    fill(made, 3)
    actions = made.joined(Replica("r0", slots=2), 5.0)

    assert [type(action) for action in actions] == [Fail] * 3
    assert made.replicas["r0"].inflight == 0


def test_a_storm_of_clients_retries_is_cut_to_a_share_of_first_tries() -> None:
    made = gateway(Knobs(retries=Retries(client_budget=0.1, spare=2.0)))
    fill(made, 100)
    retried = fill(made, 100, start=1000, attempt=1)

    passed = sum(isinstance(action, Send) for action in retried)
    assert passed == 2
    assert {action.reason for action in retried if isinstance(action, Reject)} == {Reason.CLIENT_RETRIES}
    assert all(action.retry_after for action in retried if isinstance(action, Reject))


def test_the_breaker_takes_a_failing_replica_out_of_the_gateway_and_back() -> None:
    made = gateway(replace(CAPPED, breaker=Breaker(on=True, least=10)), replicas=4, slots=100)
    now, sick, used = 0.0, "r2", []
    for i in range(1200):
        now += 0.1
        made.poll(now)
        for action in made.arrive(request(i), now):
            assert isinstance(action, Send)
            if action.replica == sick and now < 30.0:
                made.failed(i, now, "500", sick)
            else:
                made.first_token(i, now)
                made.finished(i, 10, now)
            used.append((now, action.replica))

    assert any(name == sick for at, name in used if at < 10.0)
    assert sum(name == sick for at, name in used if 12.0 < at < 30.0) <= 5  # probes
    assert sum(name == sick for at, name in used if at > 110.0) >= 20
    assert made.counts().opened[sick] >= 1
    assert made.cap == 400


def test_a_slow_starter_counts_with_its_weight_in_the_cap() -> None:
    made = gateway(replace(CAPPED, slow_start=100.0), replicas=2, slots=100)
    assert made.cap == 10
    while made.next_at < float("inf"):
        made.poll(made.next_at)
    assert made.cap == 200


def test_set_points_change_while_requests_wait() -> None:
    made = gateway(replace(CAPPED, queue=Queue(fair=True)))
    fill(made, 10)
    actions = made.tune(replace(CAPPED, concurrency=Concurrency(limit=7)), 1.0)
    assert [action.id for action in actions] == [4, 5, 6]
    assert made.tune(CAPPED, 1.0) == []  # lowered below what is in flight: nothing new until it has fallen
    assert made.finished(0, 1, 2.0) == []
    assert len(made.tune(Knobs(), 3.0)) == 3


def test_tokens_in_flight_are_given_back_to_the_memory_s_limit() -> None:
    made = Gateway(Knobs(concurrency=Concurrency(kv=0.9), expected_output=100.0), make("least-loaded"))
    made.joined(Replica("r0", kv_tokens=1000), 0.0)
    sent = fill(made, 10)
    assert len(sent) == 6  # of 150 each
    made.first_token(0, 1.0)
    assert only(made.finished(0, 100, 2.0)).id == 6
    assert only(made.failed(1, 3.0, "500")[1:]).id == 7
    for id_ in range(2, 10):
        made.gone(id_, 4.0)
    assert len(fill(made, 10, 5.0, start=20)) == 6


def test_a_wrong_set_point_changes_nothing() -> None:
    made = gateway()
    with pytest.raises(ValueError, match=r"strategy: .*; "):
        made.tune(replace(CAPPED, strategy="least-loded"), 1.0)
    with pytest.raises(ValueError, match="; "):
        made.tune(replace(CAPPED, parameters={"nonsense": 1.0}), 1.0)
    assert made.knobs == CAPPED
    assert len(fill(made, 2)) == 2


def test_the_strategy_is_switched_while_requests_flow() -> None:
    made = gateway(Knobs(), replicas=3)
    fill(made, 6)
    made.tune(Knobs(strategy="round-robin"), 1.0)
    assert [action.replica for action in fill(made, 3, start=10) if isinstance(action, Send)] == ["r0", "r1", "r2"]
    made.tune(Knobs(strategy="prefix-tree"), 2.0)
    for id_ in (*range(6), 10, 11, 12):
        made.first_token(id_, 3.0)
        made.finished(id_, 5, 3.0)
    assert made.inflight == 0


def test_what_is_counted_is_by_class_and_tenant_and_stays_as_it_was_read() -> None:
    ticks = iter(range(1000))
    made = Gateway(Knobs(longest_prompt=500), make("least-loaded"), clock=lambda: next(ticks) * 1e-5)
    made.joined(Replica("r0"), 0.0)
    fill(made, 4, tenant="a", klass="critical")
    fill(made, 2, start=10, tenant="b", klass="batch", prompt_tokens=501)
    before = made.counts()
    made.finished(0, 30, 1.0)

    assert before.streams.keys() == {("critical", "a"), ("batch", "b")}
    assert before.streams["critical", "a"].sent == 4
    assert before.streams["batch", "b"].rejected == {Reason.PROMPT_TOO_LONG: 2}
    assert before.total.finished == 0
    assert made.counts().total.finished == 1
    assert made.counts().total.output_tokens == 30
    decisions = before.decisions
    assert decisions.count == 6
    assert decisions.seconds == pytest.approx(6e-5)
    assert decisions.longest == pytest.approx(1e-5)
    assert sum(decisions.buckets) == 6


def test_the_hit_rate_is_skipped_over_all_prompt_tokens() -> None:
    made = Gateway(Knobs(), make("prefix-affinity"))
    made.joined(Replica("r0"), 0.0)
    for i in range(2):
        made.arrive(request(i, prompt_tokens=128, prefix=(11, 12), block=64), 0.0)
        made.first_token(i, 1.0)
        made.finished(i, 5, 1.0)

    total = made.counts().total
    assert total.prompt_tokens == 256
    assert 0.0 < total.hit_rate <= 0.5
