"""Summaries: the numbers by which somebody decides to let Governor act."""

import json
import math
from dataclasses import replace

import pytest

from controller.core.model import Plan, Step, TargetState
from controller.core.reading import Reading, State, ok
from controller.core.why import Why
from controller.core.words import percent, quantity
from controller.rehearse.lines import summary_json
from controller.rehearse.summary import Summary, moves, reversals, summarise
from controller.rehearse.trace import Trace
from controller.rehearse.words import attained, duration, hours
from tests.support.build import REPLICAS, START, TTFT, day, decision, readings, snapshot


def rehearse(rows: list[tuple[Reading, float | None, float]], step: float = 15.0) -> Summary:
    """`rows` of (attainment, ready, proposed)."""
    trace = Trace.begin(step, {"llama": [TTFT]}, {})
    for i, (share, ready, proposed) in enumerate(rows):
        at = START + i * step
        states = {REPLICAS: TargetState(ready, ready=ready)}
        one = decision(ready, proposed, Why.DEMAND)
        trace.append(snapshot(i, at, {"llama": readings(attained=share)}, states), Plan(at, (one,)))
    trace.finish()
    return summarise(trace)


def test_attainment_weighs_requests_not_ticks() -> None:
    quiet, busy = ok(0.0, lo=0.0, hi=0.0, count=1), ok(1.0, lo=0.9, hi=1.0, count=99)
    objective = rehearse([(quiet, 1, 1), (busy, 1, 1)]).pools[0].objectives[0]
    assert objective.lo == pytest.approx(0.891)
    assert objective.hi == pytest.approx(0.99)
    assert objective.verdict == "cannot tell"


def test_bounds_on_both_sides_of_the_promise_are_not_a_verdict() -> None:
    objective = rehearse([(ok(0.99, lo=0.98, hi=0.995, count=10), 1, 1)]).pools[0].objectives[0]
    assert objective.verdict == "cannot tell"
    assert attained(objective) == "98 % to 99.5 % of requests (promised 99 %)"


def test_an_upper_bound_below_the_promise_is_broken_though_the_lower_is_unknown() -> None:
    objective = rehearse([(Reading(State.CENSORED, hi=0.5, count=10), 1, 1)]).pools[0].objectives[0]
    assert (objective.lo, objective.hi, objective.verdict) == (0.0, 0.5, "broken")


def test_missing_data_is_no_evidence_for_a_kept_promise() -> None:
    objective = rehearse([(Reading(State.MISSING), 1, 1)]).pools[0].objectives[0]
    assert (objective.lo, objective.verdict, objective.seen) == (None, "no data", 0.0)


def test_no_traffic_is_told_from_no_data() -> None:
    objective = rehearse([(Reading(State.NO_TRAFFIC), 1, 1)]).pools[0].objectives[0]
    assert objective.verdict == "no traffic"


def test_hours_are_replicas_times_time_and_a_hole_counts_one_step_only() -> None:
    trace = Trace.begin(60.0, {"llama": [TTFT]}, {})
    for i, at in enumerate((0.0, 60.0, 7200.0)):
        states = {REPLICAS: TargetState(4, ready=4)}
        trace.append(snapshot(i, START + at, {"llama": readings()}, states), Plan(START + at, (decision(4, 6),)))
    trace.finish()
    target = summarise(trace).pools[0].targets[0]
    assert target.recorded_hours == pytest.approx(4 * (60 + 120 + 60) / 3600)
    assert target.proposed_hours == pytest.approx(6 * 240 / 3600)
    assert "+50 %" in hours(target)


def test_unknown_recorded_replicas_are_not_counted_as_zero_hours() -> None:
    target = rehearse([(ok(1.0, count=1), None, 3)]).pools[0].targets[0]
    assert target.recorded_hours is None
    assert hours(target).startswith("not comparable")


def test_changes_of_direction_are_seen_across_plateaus() -> None:
    assert moves([4, 5, 5, 6, 6, 5, 5, 6]) == (3, 1, 2)
    assert moves([4, math.nan, 4]) == (0, 0, 0)


def test_falling_back_to_the_recorded_value_is_no_reversal_but_wanting_less_is() -> None:
    assert reversals([5, 4, 5, 4, 5], [4, 4, 4, 4, 4]) == 0
    assert reversals([5, 4, 3, 4, 5], [4, 4, 4, 4, 4]) == 2
    assert reversals([5, math.nan, 3], [4, 4, math.nan]) == 0


def test_a_held_decision_is_counted_at_every_tick_that_it_lasts() -> None:
    trace = Trace.begin(15.0, {"llama": [TTFT]}, {})
    held = decision(4, 4, Why.COOLDOWN, Step("capacity", 4, 3, Why.SURPLUS), Step("guards", 3, 4, Why.COOLDOWN))
    for i, one in enumerate((held, held, held, decision(4, 4), held)):
        at = START + 15 * i
        trace.append(snapshot(i, at, {"llama": readings()}), Plan(at, (one,)))
    trace.finish()
    assert summarise(trace).pools[0].targets[0].held == {Why.COOLDOWN: 4}


def test_a_proposal_that_stands_beside_an_unmoved_recording_is_one_change_not_one_a_tick() -> None:
    trace = Trace.begin(15.0, {"llama": [TTFT]}, {})
    for i in range(10):
        at = START + 15 * i
        trace.append(snapshot(i, at, {"llama": readings()}), Plan(at, (decision(4, 6, Why.DEMAND),)))
    trace.finish()
    assert len(list(trace.pools["llama"].targets[REPLICAS].changes())) == 1


def test_a_target_that_vanishes_and_a_pool_that_comes_late_keep_all_columns_aligned() -> None:
    trace = Trace.begin(15.0, {"llama": [TTFT]}, {})
    for i in range(6):
        at = START + 15 * i
        plan = Plan(at, (decision(4, 5, Why.DEMAND),) if 2 <= i < 4 else ())
        trace.append(snapshot(i, at, {"llama": readings()} if i > 1 else {}, error="" if i else "no Prometheus"), plan)
    trace.finish()
    pool = trace.pools["llama"]
    assert {len(column.value) for column in pool.columns.values()} == {6}
    lane = pool.targets[REPLICAS]
    assert [math.isnan(v) for v in lane.proposed] == [True, True, False, False, True, True]
    assert summarise(trace).errors == 1


def test_summary_json_has_no_nan_even_when_nothing_is_known() -> None:
    trace = Trace.begin(15.0, {"pool-00": [TTFT], "empty": []}, {})
    for seen, plan in day(ticks=60):
        trace.append(seen, plan)
    trace.finish()
    value = json.loads(json.dumps(summary_json(summarise(trace)), allow_nan=False))
    assert value["open_loop"] is True
    assert value["pools"]["pool-00"]["targets"][0]["reversals"] >= 1
    assert value["pools"]["empty"] == {"objectives": [], "targets": []}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.25, "250ms"), (15, "15s"), (60, "1m"), (125, "2m 5s"), (3600, "1h"), (12000, "3h 20m"), (187200, "2d 4h")],
)
def test_durations_read_as_people_write_them(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_share_just_below_everything_is_not_printed_as_everything() -> None:
    assert percent(0.9999999) == ">99.99 %"
    assert percent(1.0) == "100 %"
    assert quantity(0.297, "s") == "297 ms"


def test_a_change_that_rounds_to_nothing_is_not_below_zero() -> None:
    """ "(-0 %)" """
    target = rehearse([(ok(1.0, count=1), 4, 4)]).pools[0].targets[0]
    assert "(0 %)" in hours(replace(target, recorded_hours=100.0, proposed_hours=99.8))
