"""No request is counted twice, none is forgotten, and the clock's end flatters nobody."""

import pytest

from controller.simulate.verdicts import DEGRADED, GOOD, MISSED, OPEN, Verdicts, judge
from simulator.scenario import Promise
from tests.support.truths import Truth, Try

PROMISES = {"default": Promise(ttft=2.0, tpot=0.1, e2e=60.0), "batch": Promise(e2e=600.0)}
NOW = 1000.0


def verdicts(*tries: Try) -> Verdicts:
    return judge(Truth(*tries), PROMISES, NOW)


def one(*tries: Try) -> tuple[int, str]:
    found = verdicts(*tries)
    assert len(found.result) == 1
    why = int(found.why[0])
    return int(found.result[0]), found.reasons[why] if why >= 0 else ""


@pytest.mark.parametrize(
    ("tries", "result"),
    [
        ([Try(0, 10)], (GOOD, "")),
        ([Try(0, 10, ttft=2.1, e2e=4)], (MISSED, "late")),
        ([Try(0, 10, ttft=1, e2e=30)], (MISSED, "slow")),
        ([Try(0, 10, ttft=1, e2e=61, output=2000)], (MISSED, "long")),
        ([Try(0, 10, ttft=30, e2e=61, klass="batch")], (GOOD, "")),  # nothing is promised about its first token
        ([Try(0, 10, degraded=True)], (DEGRADED, "")),
        ([Try(0, 10, ttft=2.1, degraded=True)], (MISSED, "late")),
        ([Try(0, 10, "rejected", None, 0.0)], (MISSED, "rejected")),
        ([Try(0, 10, "timed_out", None, 9.0)], (MISSED, "timed_out")),
        ([Try(0, 10, "aborted", 0.5, 3.0)], (MISSED, "aborted")),
        ([Try(0, 10, "failed", 0.5, 3.0)], (MISSED, "failed")),
        # Under way when the clock stops.
        ([Try(0, 999, "", None, None)], (OPEN, "")),
        ([Try(0, 997, "", None, None)], (MISSED, "late")),
        ([Try(0, 950, "", 1.0, None)], (OPEN, "")),
        ([Try(0, 930, "", 1.0, None)], (MISSED, "long")),
        # Refused, and its client comes again after the end.
        ([Try(0, 999.5, "rejected", None, 0.0, retried=True)], (OPEN, "")),
        ([Try(0, 990, "rejected", None, 0.0, retried=True)], (MISSED, "late")),
        # A retry that is served counts from the first arrival on.
        ([Try(0, 10, "rejected", None, 0.0, retried=True), Try(0, 11, attempt=1)], (GOOD, "")),
        ([Try(0, 10, "rejected", None, 0.0, retried=True), Try(0, 12, attempt=1)], (MISSED, "late")),
        (
            [Try(0, 10, "rejected", None, 0.0, retried=True), Try(0, 11, "failed", None, 1.0, attempt=1)],
            (MISSED, "failed"),
        ),
        ([Try(0, 998.9, "rejected", None, 0.0, retried=True), Try(0, 999.5, "", None, None, attempt=1)], (OPEN, "")),
    ],
)
def test_each_request_has_the_verdict_that_its_client_would_give(tries: list[Try], result: tuple[int, str]) -> None:
    assert one(*tries) == result


def test_equal_ids_of_two_streams_are_two_requests() -> None:
    found = verdicts(Try(0, 10, stream=0), Try(0, 10, stream=1, ttft=9.0))
    assert sorted(found.result.tolist()) == [GOOD, MISSED]


def test_the_order_in_which_attempts_ended_does_not_matter() -> None:
    tries = [
        Try(0, 10, "rejected", None, 0.0, retried=True),
        Try(1, 5, ttft=9.0),
        Try(0, 11, attempt=1),
        Try(2, 7, "aborted", None, 1.0),
    ]
    assert verdicts(*tries).result.tolist() == verdicts(*tries[::-1]).result.tolist() == [MISSED, MISSED, GOOD]


def test_a_class_without_a_promise_is_good_when_it_is_answered() -> None:
    found = judge(Truth(Try(0, 10, ttft=99.0, e2e=500.0), Try(1, 20, "", None, None)), {}, NOW)
    assert found.result.tolist() == [GOOD, OPEN]


def test_nothing_offered_is_no_division_by_zero() -> None:
    assert len(verdicts().result) == 0
