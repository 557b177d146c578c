"""States instead of NaN: what each kind of silence means."""

import pytest

from controller.core.facts import Fact
from controller.core.observation import ReplicaFacts
from controller.core.reading import State
from controller.core.signals import Signal
from controller.core.slo import Objective
from tests.support.world import Watch, hist

TTFT = Objective("ttft_p99", Signal.TTFT, 2.5, 0.99, 60.0)
E2E = Objective("e2e_p90", Signal.E2E, 5.0, 0.9, 60.0)
ERRORS = Objective("error_ratio", Signal.ERROR_RATIO, 0.01, 0.99, 60.0)


def test_an_idle_pool_is_no_traffic_and_its_gauges_are_a_known_zero() -> None:
    seen = Watch().fill(6)

    assert seen.get(Signal.TTFT).state == State.NO_TRAFFIC
    assert seen.get(Signal.QUEUE_DEPTH).state == State.OK
    assert seen.get(Signal.QUEUE_DEPTH).value == 0.0
    assert seen.get(Signal.OFFERED_RATE).value == 0.0


def test_work_in_flight_and_nothing_finished_is_censored_not_idle() -> None:
    seen = Watch().fill(6, running=4.0, waiting=2.0)

    assert seen.get(Signal.TTFT).state == State.CENSORED
    assert seen.get(Signal.E2E).state == State.CENSORED


def test_a_failed_query_is_missing_not_zero() -> None:
    """dynamo#14765, aibrix#2592: an unreadable request count became 0 and fabricated an idle window."""
    watch = Watch()
    watch.fill(6)
    seen = watch.see(counters={}, failed={Fact.FINISHED: "timed out"}, running=None, waiting=None)

    for signal in (Signal.FINISHED_RATE, Signal.OFFERED_RATE, Signal.QUEUE_DEPTH):
        reading = seen.get(signal)
        assert reading.state in (State.MISSING, State.UNSUPPORTED), signal
        assert reading.value is None


def test_a_backend_that_answers_nothing_gives_a_pool_without_readings() -> None:
    watch = Watch()
    watch.fill(6)
    seen = watch.fail()

    assert not seen.signals
    assert seen.get(Signal.TTFT).state == State.MISSING
    assert seen.filled_since is None


def test_after_an_outage_ranges_read_low_and_say_so() -> None:
    """keda#965, mimir#7691: on recovery, short ranges read low and the fleet was scaled down."""
    watch = Watch()
    watch.fill(6, counters={Fact.FINISHED: 30.0})
    watch.since = None  # the source lost the thread: the outage was longer than it bridges
    watch.see(counters={Fact.FINISHED: 0.0}, after=600.0)
    seen = watch.see(counters={Fact.FINISHED: 30.0})

    assert seen.get(Signal.FINISHED_RATE).state == State.UNDERFILLED
    assert seen.get(Signal.FINISHED_RATE).value == pytest.approx(2.0)


def test_an_error_counter_that_never_appeared_is_zero_while_the_scrape_is_healthy() -> None:
    """k8s#119788: an absent error counter was unknown, and unknown was stuck at the maximum."""
    seen = Watch((ERRORS,)).fill(6, counters={Fact.FINISHED: 30.0})

    assert seen.get(Signal.ERROR_RATIO).value == 0.0
    assert seen.attainment["error_ratio"].value == 1.0


def test_the_same_counter_is_missing_when_the_query_failed() -> None:
    watch = Watch((ERRORS,))
    watch.fill(6, counters={Fact.FINISHED: 30.0})
    seen = watch.see(counters={Fact.FINISHED: 30.0}, failed={Fact.ERRORS: "503"})

    assert seen.get(Signal.ERROR_RATIO).state == State.MISSING


def test_one_target_down_makes_the_pool_partial() -> None:
    watch = Watch()
    watch.fill(6, counters={Fact.FINISHED: 30.0})
    seen = watch.see(counters={Fact.FINISHED: 15.0}, targets_down=1)

    assert seen.get(Signal.FINISHED_RATE).state == State.PARTIAL
    assert seen.get(Signal.QUEUE_DEPTH).state == State.PARTIAL
    assert not seen.get(Signal.QUEUE_DEPTH).trusted


def test_old_samples_are_stale_whatever_they_say() -> None:
    watch = Watch()
    watch.fill(6, counters={Fact.FINISHED: 30.0})
    seen = watch.see(counters={Fact.FINISHED: 0.0}, age=300.0)

    assert seen.get(Signal.QUEUE_DEPTH).state == State.STALE
    assert seen.get(Signal.QUEUE_DEPTH).usable is None


def test_aborts_are_responses_without_a_finished_request() -> None:
    """vLLM counts an aborted stream as 2xx and nowhere else (vllm#31503)."""
    seen = Watch().fill(
        6, counters={Fact.FINISHED: 10.0, Fact.RESPONSES: 14.0}, unsupported={Fact.ABORTED: "not counted"}
    )

    assert seen.get(Signal.ABORTS).value == pytest.approx(16.0)  # four ticks in the window


def test_one_failed_query_does_not_end_what_all_the_others_tell() -> None:
    """The pool was not measured at all: its offered rate took its state from what was missing."""
    watch = Watch()
    watch.fill(6, counters={Fact.FINISHED: 10.0, Fact.RESPONSES: 10.0})
    seen = watch.see(counters={Fact.RESPONSES: 10.0}, failed={Fact.FINISHED: "503"})
    offered = seen.get(Signal.OFFERED_RATE)

    assert offered.state == State.PARTIAL
    assert offered.value == pytest.approx(10.0 / 15.0)
    assert seen.get(Signal.QUEUE_DEPTH).trusted


def test_attainment_counts_the_requests_that_never_reached_the_histogram() -> None:
    counters = {Fact.FINISHED: 8.0, Fact.RESPONSES: 8.0, Fact.REJECTED: 2.0}
    seen = Watch((E2E,)).fill(6, histograms={Fact.E2E: hist(*[1.0] * 8)}, counters=counters)

    assert seen.get(Signal.E2E).value is not None
    assert seen.attainment["e2e_p90"].value == pytest.approx(0.8)


def test_an_abort_after_the_first_token_is_neither_counted_twice_nor_forgotten() -> None:
    counters = {Fact.FINISHED: 0.0, Fact.RESPONSES: 4.0}
    seen = Watch((TTFT,)).fill(
        6, histograms={Fact.TTFT: hist(1.0)}, counters=counters, unsupported={Fact.ABORTED: "not counted"}
    )

    attained = seen.attainment["ttft_p99"]
    assert attained.lo == pytest.approx(1 / 5)
    assert attained.hi == pytest.approx(1 / 4)


def test_offered_load_counts_what_waits_and_not_only_what_finished() -> None:
    """Scaling on completions hides the queue: while it builds, completions fall."""
    watch = Watch()
    watch.fill(5, counters={Fact.FINISHED: 15.0})
    for waiting in (15.0, 30.0, 45.0):
        watch.see(counters={Fact.FINISHED: 15.0}, waiting=waiting)
    seen = watch.see(counters={Fact.FINISHED: 15.0}, waiting=60.0)

    assert seen.get(Signal.FINISHED_RATE).value == pytest.approx(1.0)
    assert seen.get(Signal.OFFERED_RATE).value == pytest.approx(2.0)


def test_an_engine_that_holds_work_and_moves_nothing_is_stuck() -> None:
    """/health said 200 for 25 s while the engine core was stopped."""
    watch = Watch(interval=1.0, window=10.0)

    def tick(tokens: float, running: float) -> float | None:
        pod = ReplicaFacts(counters={Fact.GENERATION_TOKENS: tokens}, gauges={Fact.RUNNING: running, Fact.WAITING: 0.0})
        return watch.see(replicas={"pod-0": pod}, running=running).get(Signal.STUCK).value

    assert [tick(50.0, 4.0) for _ in range(6)][-1] == 0.0
    stopped = [tick(0.0, 4.0) for _ in range(5)]
    assert stopped[-1] == 1.0
    assert stopped.index(1.0) == 3
    assert tick(50.0, 4.0) == 0.0
    assert [tick(0.0, 0.0) for _ in range(6)][-1] == 0.0


def test_one_hot_replica_shows_beside_a_calm_mean() -> None:
    """gaie#599: a pool mean hides a full replica."""
    pods = {
        f"pod-{i}": ReplicaFacts(gauges={Fact.KV_USAGE: usage, Fact.WAITING: 0.0})
        for i, usage in enumerate((0.1, 0.1, 0.99))
    }
    watch = Watch()
    watch.fill(5)
    seen = watch.see(replicas=pods)

    assert seen.get(Signal.KV_USAGE_MAX).value == 0.99


def test_a_rate_divides_by_the_time_that_was_seen() -> None:
    """Late ticks must not look like a burst."""
    watch = Watch()
    watch.fill(5, counters={Fact.FINISHED: 15.0})
    seen = watch.see(counters={Fact.FINISHED: 120.0}, after=120.0)

    assert seen.get(Signal.FINISHED_RATE).value == pytest.approx(1.0)


def test_budget_burn_over_an_hour_needs_no_query_for_an_hour() -> None:
    watch = Watch((E2E,))
    good, bad = hist(*[1.0] * 10), hist(*[1.0] * 7, *[9.0] * 3)
    watch.fill(200, histograms={Fact.E2E: good}, counters={Fact.FINISHED: 10.0})
    seen = watch.fill(50, histograms={Fact.E2E: bad}, counters={Fact.FINISHED: 10.0})

    burn = seen.burn["e2e_p90"]
    assert burn["5m"].value == pytest.approx(3.0)
    assert burn["1h"].value == pytest.approx(3.0 * 50 / 240, rel=0.1)
    assert burn["3d"].state == State.UNDERFILLED


def test_scrapes_with_jitter_fill_a_window_all_the_same() -> None:
    """Samples 60.03 s apart never gave 240 of 240 seconds, and nothing was ever lowered."""
    seen = Watch(window=240.0).fill(8, counters={Fact.FINISHED: 60.0}, after=60.03)

    assert seen.get(Signal.FINISHED_RATE).state == State.OK
    assert seen.get(Signal.FINISHED_RATE).value == pytest.approx(1.0, rel=1e-3)


def test_a_burst_in_the_first_interval_after_a_start_is_seen() -> None:
    """A restart in the middle of an overload: 34 requests came in the first interval, and the rate said 0.3."""
    watch = Watch()
    watch.see(running=0.0, waiting=0.0)
    seen = watch.see(counters={Fact.FINISHED: 2.0}, running=4.0, waiting=39.0)

    assert seen.get(Signal.OFFERED_RATE).value == pytest.approx((2 + 43) / 15)


def test_a_failed_read_that_the_next_one_bridges_is_no_hole() -> None:
    watch = Watch()
    before = watch.fill(6, counters={Fact.FINISHED: 15.0}).filled_since
    watch.fail()
    seen = watch.see(counters={Fact.FINISHED: 30.0})

    assert seen.filled_since == before
    assert seen.get(Signal.FINISHED_RATE).value == pytest.approx(1.0)


def test_a_fact_that_could_not_be_read_for_a_while_does_not_read_low_on_recovery() -> None:
    """One counter failed for six minutes; on recovery its rate read a quarter of the truth, and ok."""
    watch = Watch()
    watch.fill(6, counters={Fact.FINISHED: 150.0})
    watch.fill(20, counters={}, failed={Fact.FINISHED: "503"})
    seen = watch.see(counters={Fact.FINISHED: 150.0})

    assert seen.get(Signal.FINISHED_RATE).state == State.UNDERFILLED
    assert watch.fill(5, counters={Fact.FINISHED: 150.0}).get(Signal.FINISHED_RATE).state == State.OK


def pods(**held: float | None) -> dict[str, ReplicaFacts]:
    return {
        name: ReplicaFacts(gauges={} if waiting is None else {Fact.WAITING: waiting, Fact.RUNNING: 1.0}, age=1.0)
        for name, waiting in held.items()
    }


def test_a_pod_with_an_empty_page_is_no_empty_queue() -> None:
    """Two of four pods answered with an empty page; their ten waiting requests were gone from the sum, and it was
    ok."""
    watch = Watch()
    watch.fill(6, replicas=pods(a=5.0, b=5.0, c=0.0), waiting=10.0, running=3.0)
    seen = watch.see(replicas=pods(a=None, b=None, c=0.0), waiting=0.0, running=1.0)

    assert seen.get(Signal.QUEUE_DEPTH).state == State.PARTIAL
    assert "a, b" in seen.partial


def test_one_old_replica_makes_the_pool_partial_and_not_blind() -> None:
    watch = Watch()
    watch.fill(6)
    mixed = {"a": ReplicaFacts(gauges={Fact.WAITING: 9.0}, age=500.0), "b": ReplicaFacts(gauges={Fact.WAITING: 9.0})}
    seen = watch.see(replicas=mixed, waiting=18.0)

    assert seen.get(Signal.QUEUE_DEPTH).state == State.PARTIAL
    assert seen.get(Signal.QUEUE_DEPTH).usable == 18.0


def test_a_lost_pod_does_not_read_as_falling_demand_nor_its_return_as_a_burst() -> None:
    watch = Watch()
    both = {name: ReplicaFacts(gauges={Fact.RUNNING: 100.0}) for name in ("a", "b")}
    one = {"a": both["a"]}
    steady = {"counters": {Fact.FINISHED: 150.0}, "waiting": None}
    watch.fill(6, replicas=both, running=200.0, **steady)
    lost = watch.see(replicas=one, running=100.0, **steady)  # type: ignore[arg-type]
    back = watch.see(replicas=both, running=200.0, **steady)  # type: ignore[arg-type]

    assert lost.get(Signal.OFFERED_RATE).value == pytest.approx(10.0)
    assert back.get(Signal.OFFERED_RATE).value == pytest.approx(10.0)


@pytest.mark.parametrize("interval", [15.0, 25.0, 26.0, 45.0, 53.0, 60.0])
def test_every_interval_fills_its_window(interval: float) -> None:
    """A window of 60 s and ticks of 25 s: 50 of 60 seconds seen, for ever, and nothing ever fell."""
    seen = Watch(interval=interval).fill(8, counters={Fact.FINISHED: interval})

    assert seen.get(Signal.FINISHED_RATE).state == State.OK
    assert seen.get(Signal.FINISHED_RATE).value == pytest.approx(1.0)


def test_a_request_that_straddles_a_scrape_is_no_miss_that_burns_the_budget() -> None:
    """Finished before the scrape, answered after it: one tick had a request too many, the next one abort."""
    watch = Watch((E2E,))
    watch.see()
    first = watch.see(histograms={Fact.E2E: hist(1.0)}, counters={Fact.FINISHED: 1.0, Fact.RESPONSES: 0.0})
    second = watch.see(counters={Fact.FINISHED: 0.0, Fact.RESPONSES: 1.0})

    assert first.burn["e2e_p90"]["5m"].value == 0.0
    assert second.burn["e2e_p90"]["5m"].value == 0.0
    assert second.attainment["e2e_p90"].value == 1.0
