"""The scoreboard counts what was offered, costs what was paid, and cannot be gamed by refusing, hiding or waiting."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.model import Lever, Target
from controller.simulate import fairness
from controller.simulate.moves import Moves, summed
from controller.simulate.recovery import bad, recovered_after
from controller.simulate.score import Score, Share, Span, score
from controller.simulate.verdicts import judge
from simulator.scenario import Event, Promise
from tests.support.truths import Truth, Try

SPAN = Span(start=0.0, begin=60.0, end=660.0)
PROMISES = {"default": Promise(ttft=2.0)}
FLASH = Event(name="flash", begin=120.0, end=240.0)


def scored(*tries: Try, moves: Moves | None = None) -> Score:
    return score(
        judge(Truth(*tries), PROMISES, 720.0), SPAN, [FLASH],
        good_minute=0.95, gpu_hours=2.0, moves=moves or Moves(),
    )  # fmt: skip


def test_warm_up_and_cool_down_are_not_scored() -> None:
    found = scored(Try(0, 59.9, ttft=9.0), Try(1, 60.0), Try(2, 659.9, ttft=9.0), Try(3, 660.0, ttft=9.0))
    assert (found.all.offered, found.all.good) == (2, 1)
    assert found.attempts == 2


def test_refused_and_lost_requests_stay_in_the_denominator() -> None:
    tries = [
        Try(0, 100), Try(1, 100, "rejected", None, 0.0), Try(2, 100, "aborted", None, 1.0),
        Try(3, 100, "timed_out", None, 5.0), Try(4, 100, "failed", None, 1.0), Try(5, 100, ttft=3.0),
    ]  # fmt: skip
    found = scored(*tries)
    assert found.all.attainment == pytest.approx(1 / 6)
    assert found.all.missed == {"rejected": 1, "timed_out": 1, "aborted": 1, "failed": 1, "late": 1}


def test_a_retry_is_no_new_offer() -> None:
    lost = Try(0, 100, "rejected", None, 0.0, retried=True)
    found = scored(lost, Try(0, 101, attempt=1), Try(1, 100))
    assert (found.all.offered, found.all.good, found.attempts) == (2, 2, 3)


def test_degraded_answers_are_a_third_column() -> None:
    found = scored(Try(0, 100, degraded=True), Try(1, 100), Try(2, 100, ttft=9.0), Try(3, 100))
    assert found.all.attainment == 0.5
    assert found.all.degraded_share == 0.25


def test_what_is_open_at_the_end_is_told_and_not_counted() -> None:
    truth = Truth(Try(0, 100), Try(1, 659.0, "", None, None))
    found = score(judge(truth, PROMISES, 660.5), SPAN, [], good_minute=0.95, gpu_hours=2.0, moves=Moves())
    assert (found.all.offered, found.all.open) == (1, 1)


def test_events_are_scored_by_the_arrivals_in_them_and_by_class() -> None:
    found = scored(Try(0, 119.9, ttft=9.0), Try(1, 120.0), Try(2, 239.9, ttft=9.0, klass="b"), Try(3, 240.0, ttft=9.0))
    flash = found.events["flash"]
    assert flash.all.attainment == 0.5
    assert flash.classes[""].attainment == 1.0
    assert flash.classes["b"].attainment == 0.0


def test_tenants_are_counted_as_all_requests_are() -> None:
    tries = [
        Try(0, 59.0, tenant="a", ttft=9.0), Try(1, 100, tenant="a"), Try(2, 100, tenant="b", ttft=9.0),
        Try(3, 100, "rejected", None, 0.0, tenant="b"), Try(4, 100, tenant="b"), Try(5, 100, tenant="b", degraded=True),
        Try(6, 700.0, tenant="late"),
    ]  # fmt: skip
    found = scored(*tries).tenants
    assert list(found) == ["a", "b"], "of whom nothing was scored nothing is told"
    assert found["a"] == Share(1, 1, 0, 0, {})
    assert found["b"] == Share(4, 1, 1, 0, {"late": 1, "rejected": 1})
    assert scored(Try(0, 100, tenant="a"), Try(1, 100, tenant="a")).tenants == {}, "of one tenant all is told already"


def test_goodput_hit_rate_and_cost() -> None:
    found = scored(*(Try(i, 100 + i, cached=25) for i in range(300)))
    assert found.goodput == 0.5
    assert found.hit_rate == 0.25
    assert found.good_per_gpu_hour == 150.0


@pytest.mark.parametrize(
    ("minutes", "after"),
    [
        ([1.0, 1.0, 1.0], 0.0),
        ([1.0, 0.5, 1.0, 1.0, 1.0], 120.0),
        ([0.5, 1.0, 0.5, 1.0, None, 1.0], 180.0),  # one good minute between two bad ones is no recovery
        ([0.5, 0.5, 1.0, 1.0], 120.0),  # as many good ones as there are
        ([0.5, 0.5], None),
        ([1.0, 0.94], None),
    ],
)
def test_time_to_recover(minutes: list[float | None], after: float | None) -> None:
    assert recovered_after(minutes, 0.95) == after


def test_a_minute_without_requests_is_not_bad() -> None:
    assert bad([None, 0.94, 0.95, 1.0], 0.95) == 1


@dataclass(frozen=True)
class Move:
    at: float
    target: Target
    before: float
    after: float


def test_travel_and_reversals_are_those_of_the_scored_part() -> None:
    chat, code = Target("chat", Lever.REPLICAS), Target("code", Lever.REPLICAS)
    found = summed(
        [Move(10, chat, 2, 6), Move(70, chat, 6, 4), Move(80, code, 1, 2), Move(90, chat, 4, 5), Move(700, chat, 5, 9)],
        60.0, 660.0,
    )  # fmt: skip
    assert found.travel == {"replicas": 4.0}
    assert found.reversals == {"replicas": 2}  # the first one reverses a rise that was not scored


def test_max_min_by_hand() -> None:
    assert fairness.max_min(10.0, {"a": 2.0, "b": 8.0, "c": 8.0}) == {"a": 2.0, "b": 4.0, "c": 4.0}
    assert fairness.max_min(9.0, {"a": 9.0, "b": 9.0}, {"a": 2.0}) == pytest.approx({"a": 6.0, "b": 3.0})
    assert fairness.max_min(0.0, {"a": 1.0}) == {"a": 0.0}


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.floats(0.1, 100.0), min_size=1),
    st.floats(0.0, 300.0),
)
def test_max_min_gives_all_there_is_and_nobody_more_than_it_asked_for(asked: dict[str, float], supply: float) -> None:
    given_ = fairness.max_min(supply, asked)
    assert sum(given_.values()) == pytest.approx(min(supply, sum(asked.values())))
    assert all(0 <= given_[name] <= asked[name] for name in asked)
    short = [given_[name] for name in asked if given_[name] < asked[name] - 1e-6]
    assert all(least == pytest.approx(max(given_.values())) for least in short)


def test_a_starved_tenant_has_no_share_and_a_satisfied_one_is_not_in_it() -> None:
    flood = [Try(i, 100 + i / 10, tenant="flooder") for i in range(80)]
    starved = [Try(100 + i, 100 + i, "rejected", None, 0.0, tenant="small") for i in range(10)]
    served = [Try(200 + i, 101 + i, tenant="calm") for i in range(10)]
    found = scored(*flood, *starved, *served).fairness
    assert found == {"small": 0.0}


def test_what_another_pool_serves_is_nobody_s_share_here() -> None:
    """A tenant that got all that its pool had left was told to have got seven tenths of its part: of two pools."""
    own = [Try(i, 100 + i / 10, tenant="greedy") for i in range(0, 40, 2)]
    own += [Try(i, 100 + i / 10, "rejected", None, 0.0, tenant="greedy") for i in range(1, 40, 2)]
    there = [Try(100 + i, 100 + i / 10, tenant="elsewhere", pool=1) for i in range(40)]

    assert scored(*own, *there).fairness == {"greedy": pytest.approx(1.0)}
