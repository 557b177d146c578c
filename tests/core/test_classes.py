"""A promise for one request class is judged on that class: not on everybody, and not on a guess."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.classes import spent
from controller.core.facts import Fact
from controller.core.meter import Meter, PoolSpec
from controller.core.observation import Facts, HistogramIncrement
from controller.core.reading import State
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.tally import Span, class_endings, count, endings, tally
from controller.core.windows import Entry
from tests.support.world import EDGES, POOL, Watch, hist

ALL = Objective("all", Signal.TTFT, 1.0, 0.5, 60.0)
HIGH = Objective("high", Signal.TTFT, 1.0, 0.99, 60.0, "high")
LOW = Objective("low", Signal.TTFT, 1.0, 0.99, 60.0, "low")
E2E = Objective("e2e_low", Signal.E2E, 1.0, 0.99, 60.0, "low")
ERRORS = Objective("errors_low", Signal.ERROR_RATIO, 0.1, 0.9, 60.0, "low")
FAST, SLOW = (0.2,) * 8, (4.0,) * 4


def watch(*objectives: Objective) -> Watch:
    return Watch(objectives, class_label="priority")


def both(fast: tuple[float, ...] = FAST, slow: tuple[float, ...] = SLOW) -> dict[str, Facts]:
    return {"high": Facts({Fact.TTFT: hist(*fast)}), "low": Facts({Fact.TTFT: hist(*slow)})}


def test_a_class_that_breaks_its_promise_is_not_hidden_by_one_that_keeps_it() -> None:
    seen = watch(ALL, HIGH, LOW).fill(6, histograms={Fact.TTFT: hist(*FAST, *SLOW)}, classes=both())

    found = {name: (r.state, r.value, r.count) for name, r in seen.attainment.items()}
    assert found == {"all": (State.OK, pytest.approx(2 / 3), 48), "high": (State.OK, 1, 32), "low": (State.OK, 0, 16)}
    assert seen.burn["high"]["5m"].value == 0
    assert seen.burn["low"]["5m"].value == pytest.approx(100)
    assert seen.latency(Signal.TTFT, "p99").count == 48, "latencies stay those of the pool"


def test_a_class_that_was_never_seen_has_no_traffic_rather_than_no_data() -> None:
    seen = watch(HIGH, LOW).fill(6, histograms={Fact.TTFT: hist(*FAST)}, classes={"high": both()["high"]})

    assert seen.attainment["low"].state is State.NO_TRAFFIC
    assert seen.burn["low"]["5m"].state in (State.NO_TRAFFIC, State.MISSING)


def test_a_queue_may_hide_a_class_that_starves() -> None:
    """With priorities the low class waits while others are served: nothing observed is not nothing there."""
    high = {"high": both()["high"]}
    seen = watch(LOW).fill(6, histograms={Fact.TTFT: hist(*FAST)}, classes=high, running=8.0, waiting=3.0)
    assert seen.attainment["low"].state is State.CENSORED
    assert "3 requests in flight may be of it" in seen.attainment["low"].note

    seen = watch(LOW).fill(6, histograms={Fact.TTFT: hist(*FAST)}, classes=high, running=8.0, waiting=0.0)
    assert seen.attainment["low"].state is State.NO_TRAFFIC, "who runs has had its first token, or will at once"

    served = {"high": Facts({Fact.E2E: hist(*FAST)})}
    seen = watch(E2E).fill(6, histograms={Fact.E2E: hist(*FAST)}, classes=served, running=8.0)
    assert seen.attainment["e2e_low"].state is State.CENSORED, "who runs has not ended"


def test_the_first_requests_of_a_class_are_judged_in_the_tick_of_its_birth() -> None:
    w = watch(LOW)
    w.fill(6, histograms={Fact.TTFT: hist(*FAST)}, classes={"high": both()["high"]})
    seen = w.see(histograms={Fact.TTFT: hist(*FAST, *SLOW)}, classes=both())

    assert (seen.attainment["low"].value, seen.attainment["low"].count) == (0.0, 4.0)


def test_a_query_by_class_that_failed_is_missing_and_the_pool_is_still_judged() -> None:
    w = watch(ALL, LOW)
    w.fill(6, histograms={Fact.TTFT: hist(*FAST, *SLOW)}, classes=both())
    seen = w.see(histograms={Fact.TTFT: hist(*FAST, *SLOW)}, class_failed={Fact.TTFT: "503"})

    assert (seen.attainment["low"].state, seen.attainment["low"].note) == (State.MISSING, "by priority: 503")
    assert seen.attainment["all"].state is State.OK

    seen = w.see(histograms={}, failed={Fact.TTFT: "timed out"})
    assert (seen.attainment["low"].state, seen.attainment["low"].note) == (State.MISSING, "timed out")


def test_a_metric_without_the_label_is_not_taken_for_the_class() -> None:
    """A promise for a class was once judged on all requests, and nobody noticed."""
    seen = watch(LOW).fill(6, histograms={Fact.TTFT: hist(*FAST)}, sources={Fact.TTFT: "vllm:ttft"})

    assert seen.attainment["low"].state is State.UNSUPPORTED
    assert seen.attainment["low"].note == "vllm:ttft does not carry the label priority"
    assert "low" not in {name for name, of in seen.burn.items() if of["5m"].value is not None}


def test_an_idle_pool_has_no_traffic_in_any_class() -> None:
    empty = HistogramIncrement((), (), 0.0, 0.0)
    seen = watch(LOW).fill(6, histograms={Fact.TTFT: empty}, sources={Fact.TTFT: "vllm:ttft"})

    assert seen.attainment["low"].state is State.NO_TRAFFIC


def test_losses_that_name_no_class_widen_the_bounds_of_each() -> None:
    """15 errors a tick may be anybody's: of 8 requests seen, 8 to 23 were offered."""
    w = watch(HIGH)
    seen = w.fill(6, histograms={Fact.TTFT: hist(*FAST)}, classes=both(), counters={Fact.ERRORS: 15.0})
    reading = seen.attainment["high"]
    assert reading.lo == pytest.approx(8 / 23)
    assert reading.hi == 1.0


def test_a_budget_takes_its_part_of_the_losses_without_a_name() -> None:
    """Were all taken, a class of few requests would burn by the aborts of all others, and never rest."""
    seen = watch(HIGH, LOW).fill(
        6, histograms={Fact.TTFT: hist(*FAST, *SLOW)}, classes=both(), counters={Fact.ERRORS: 15.0}
    )
    assert seen.burn["high"]["5m"].value == pytest.approx(100 * 10 / 18)
    assert seen.burn["high"]["5m"].count == pytest.approx(5 * 18)
    assert seen.burn["low"]["5m"].count == pytest.approx(5 * 9)


def test_losses_that_name_their_class_widen_nothing() -> None:
    classes = both()
    classes["low"] = replace(classes["low"], counters={Fact.ERRORS: 15.0})
    w = watch(HIGH, LOW)
    seen = w.fill(6, histograms={Fact.TTFT: hist(*FAST, *SLOW)}, classes=classes, counters={Fact.ERRORS: 15.0})
    assert (seen.attainment["high"].lo, seen.attainment["high"].hi) == (1.0, 1.0)
    assert seen.attainment["low"].count == 4 * (4 + 15)


def test_losses_of_others_are_not_held_against_a_class_without_traffic() -> None:
    high = {"high": both()["high"]}
    seen = watch(HIGH, LOW).fill(
        6, histograms={Fact.TTFT: hist(*FAST)}, classes=high, counters={Fact.ERRORS: 3.0, Fact.FINISHED: 8.0}
    )
    assert seen.attainment["low"].state is State.MISSING
    assert "12 lost requests of the pool may be of it" in seen.attainment["low"].note
    assert seen.burn["low"]["5m"].value is None


def test_the_errors_of_a_class_are_counted_where_its_endings_are_told() -> None:
    classes = {
        "high": Facts(counters={Fact.FINISHED: 90.0}),
        "low": Facts(counters={Fact.FINISHED: 5.0, Fact.ERRORS: 5.0}),
    }
    pool = {Fact.FINISHED: 95.0, Fact.ERRORS: 5.0}
    told = watch(ERRORS).fill(6, counters=pool, classes=classes).attainment["errors_low"]
    assert (told.lo, told.hi) == (0.5, 0.5)

    classes["low"] = Facts(counters={Fact.FINISHED: 5.0})
    unnamed = watch(ERRORS).fill(6, counters=pool, classes=classes).attainment["errors_low"]
    assert (unnamed.lo, unnamed.hi) == (0.5, 1.0), "the 5 errors may be anybody's"

    bare = watch(ERRORS).fill(6, counters=pool, sources={Fact.FINISHED: "vllm:finished"}).attainment["errors_low"]
    assert (bare.state, bare.note) == (State.UNSUPPORTED, "vllm:finished does not carry the label priority")


def test_one_absurd_class_does_not_stop_the_pool() -> None:
    w = watch(ALL, HIGH)
    pool = {Fact.TTFT: hist(*FAST)}
    w.fill(6, histograms=pool, classes=both())
    absurd = {"high": Facts({Fact.TTFT: HistogramIncrement(EDGES, (math.nan,) * 6, math.nan, 1.0)})}
    seen = w.see(histograms=pool, classes=absurd)
    assert seen.attainment["high"].state is State.MISSING
    assert seen.attainment["all"].state is State.OK


def test_another_label_begins_another_budget() -> None:
    old = watch(HIGH)
    old.fill(6, histograms={Fact.TTFT: hist(*SLOW)}, classes={"high": Facts({Fact.TTFT: hist(*SLOW)})})
    for label, kept in (("priority", True), ("tier", False)):
        new = Meter([PoolSpec(POOL, 60.0, (HIGH,), class_label=label)])
        new.adopt(old.meter)
        assert (new.pools[POOL].budgets["high"] is old.meter.pools[POOL].budgets["high"]) is kept


PART = st.tuples(
    st.lists(st.sampled_from((0.2, 0.4, 0.9, 2.0, 4.0, 9.0, 20.0)), max_size=12),
    st.fixed_dictionaries({fact: st.integers(0, 9) for fact in (Fact.ERRORS, Fact.REJECTED, Fact.ABORTED)}),
)


@given(st.lists(PART, min_size=1, max_size=4), st.sampled_from(EDGES), st.booleans())
def test_classes_that_partition_the_traffic_add_up_to_the_pool(
    parts: list[tuple[list[float], dict[Fact, int]]], target: float, labelled: bool
) -> None:
    pool = {fact: float(sum(counters[fact] for _, counters in parts)) for fact in parts[0][1]}
    samples = [s for of, _ in parts for s in of]
    for signal, fact in ((Signal.TTFT, Fact.TTFT), (Signal.E2E, Fact.E2E)):
        objective = Objective("o", signal, target, 0.9, 60.0)
        offered, hits = tally(objective, {fact: hist(*samples)}, endings(pool))
        seen = [_part(objective, of, counters, pool, labelled=labelled) for of, counters in parts]
        assert sum(h.lo for _, h in seen) == hits.lo
        assert sum(h.hi for _, h in seen) == hits.hi
        if labelled and signal is Signal.E2E:
            assert (sum(o.lo for o, _ in seen), sum(o.hi for o, _ in seen)) == (offered.lo, offered.hi)
        for (one, _), (of, counters) in zip(seen, parts, strict=True):
            truth = len(of) + sum(counters.values())
            assert one.lo <= truth <= one.hi
        assert sum(o.hi for o, _ in seen) >= offered.hi
        classes = {str(i): Facts({fact: hist(*of)}) for i, (of, _) in enumerate(parts)}
        entry = Entry(0, 15, {fact: hist(*samples)}, pool, {}, {}, classes, frozenset({fact}))
        budgets = [spent(replace(objective, klass=name), entry) for name in classes]
        if samples:
            assert sum(o.hi for o, _ in budgets) == pytest.approx(offered.hi)


def _part(
    objective: Objective, samples: list[float], own: Mapping[Fact, int], pool: Mapping[Fact, float], *, labelled: bool
) -> tuple[Span, Span]:
    if labelled:
        ended = class_endings({f: float(n) for f, n in own.items()}, frozenset(own), pool)
    else:
        ended = class_endings({}, frozenset(), pool)
    return count(objective, hist(*samples), ended)


def test_a_single_class_is_the_pool() -> None:
    counters = {Fact.ERRORS: 2.0, Fact.RESPONSES: 30.0, Fact.FINISHED: 25.0}
    assert class_endings(counters, frozenset(counters), counters) == endings(counters)
