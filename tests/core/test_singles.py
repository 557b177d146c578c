"""Single replicas and tenants: what each did over the window, and what is not known of it."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from controller.core.facts import Fact
from controller.core.meter import GatewaySpec, Meter, PoolSpec
from controller.core.model import PoolReadings, Scope
from controller.core.observation import Facts, HistogramIncrement, Observation, PoolFacts, ReplicaFacts
from controller.core.reading import State
from controller.core.signals import Signal

SPEC = PoolSpec("llm", 60.0, singles=True)
GAUGES = {Fact.RUNNING: 4.0, Fact.WAITING: 0.0}
SOURCES = dict.fromkeys(Fact, "x")


def mean(value: float, count: float) -> HistogramIncrement:
    return HistogramIncrement((), (), count, value * count)


def pod(itl: float = 0.02, gaps: float = 100.0, age: float = 1.0, **counters: float) -> ReplicaFacts:
    counted = {Fact.GENERATION_TOKENS: 100.0, Fact.FINISHED: 10.0} | {Fact(f): n for f, n in counters.items()}
    return ReplicaFacts({Fact.ITL: mean(itl, gaps)}, counted, GAUGES, age=age, started_at=500.0)


def watch(spec: PoolSpec, ticks: Mapping[int, PoolFacts | dict[str, PoolFacts]]) -> PoolReadings:
    """One observation at each time, in seconds; the readings at the last."""
    meter, since, seen = Meter([spec]), None, PoolReadings()
    for at, facts in ticks.items():
        pools = facts if isinstance(facts, dict) else {"llm": facts}
        seen = meter.update(Observation(float(at), since, pools))["llm"]
        since = float(at)
    return seen


def fleet(*, untold: Mapping[Fact, str] | None = None, **replicas: ReplicaFacts) -> PoolFacts:
    counters = {Fact.FINISHED: 20.0, Fact.GENERATION_TOKENS: 200.0}
    return PoolFacts(counters=counters, gauges=GAUGES, replicas=replicas, sources=SOURCES, unsupported=untold or {})


def minutes(facts: PoolFacts, ticks: int = 5) -> dict[int, PoolFacts | dict[str, PoolFacts]]:
    return {15 * n: facts for n in range(ticks)}


def test_a_slow_replica_is_told_by_its_own_pace_and_not_by_that_of_all() -> None:
    slow, fast = pod(0.09, gaps=25.0), pod(0.02)
    seen = watch(SPEC, minutes(fleet(a=slow, b=fast)))
    pace = seen.replicas["a"].latency(Signal.ITL, "mean")
    assert pace.value == pytest.approx(0.09)
    assert (pace.state, pace.count, pace.window) == (State.OK, 25.0, 15.0)
    assert seen.replicas["b"].latency(Signal.ITL, "mean").value == pytest.approx(0.02)
    assert seen.replicas["a"].get(Signal.FINISHED_RATE).value == pytest.approx(40.0 / 60.0)
    assert seen.started == {"a": 500.0, "b": 500.0}


def test_a_replica_that_fails_fast_is_told_by_its_errors_and_how_many_there_were() -> None:
    bad = pod(errors=30.0, timeouts=10.0, finished=10.0)
    errors = watch(SPEC, minutes(fleet(a=bad, b=pod()))).replicas["a"].get(Signal.ERROR_RATIO)
    assert errors.value == pytest.approx(0.8)
    assert errors.count == 200.0


def test_errors_that_the_engine_cannot_tell_are_not_none() -> None:
    """An engine without an error counter would be the healthiest of all."""
    seen = watch(SPEC, minutes(fleet(a=pod(), untold={Fact.ERRORS: "not exposed"})))
    assert seen.replicas["a"].get(Signal.ERROR_RATIO).value is None
    told = watch(SPEC, minutes(fleet(a=pod()))).replicas["a"].get(Signal.ERROR_RATIO)
    assert (told.value, told.count) == (0.0, 40.0)


def test_restarts_that_nobody_scrapes_are_not_none() -> None:
    kept: dict[Fact, str] = {
        fact: "x" for fact in Fact if fact not in (Fact.RESTARTS, Fact.OOM_RESTARTS, Fact.XID_ERRORS)
    }
    facts = replace(fleet(a=pod()), sources=kept)
    mine = watch(SPEC, minutes(facts)).replicas["a"]
    for signal in (Signal.OOM_RESTARTS, Signal.CRASH_RESTARTS, Signal.XID_ERRORS):
        assert mine.get(signal).value is None
    counted = watch(SPEC, minutes(fleet(a=pod(restarts=1.0, oom_restarts=1.0, xid_errors=2.0)))).replicas["a"]
    assert counted.get(Signal.OOM_RESTARTS).value == 4.0
    assert counted.get(Signal.CRASH_RESTARTS).value == 0.0
    assert counted.get(Signal.XID_ERRORS).value == 8.0


def test_a_replica_that_has_just_come_is_underfilled_and_one_that_stopped_answering_is_stale() -> None:
    ticks = minutes(fleet(a=pod()))
    ticks[75] = fleet(a=pod(age=200.0), b=pod())
    seen = watch(SPEC, ticks)
    young = seen.replicas["b"].get(Signal.FINISHED_RATE)
    old = seen.replicas["a"].latency(Signal.ITL, "mean")
    assert (young.state, young.window) == (State.UNDERFILLED, 15.0)
    assert old.state is State.STALE
    assert not young.trusted


def test_a_replica_that_turns_slow_is_told_by_its_newest_interval() -> None:
    """Over the window it would be two and a half times as slow after 48 s, and a breaker must act within 60."""
    ticks = minutes(fleet(a=pod(0.02)))
    ticks[75] = fleet(a=pod(0.08, gaps=25.0))

    assert watch(SPEC, ticks).replicas["a"].latency(Signal.ITL, "mean").value == pytest.approx(0.08)


def test_ticks_between_scrapes_belong_to_the_interval_of_the_scrape_and_make_nothing_new() -> None:
    scraped, between = pod(0.02, age=1.0), replace(pod(age=6.0), histograms={})
    ticks = {5 * n: fleet(a=scraped if n % 3 == 0 else between) for n in range(14)}
    pace = watch(SPEC, ticks).replicas["a"].latency(Signal.ITL, "mean")

    assert (pace.count, pace.window, pace.age) == (100.0, 15.0, 6.0)


def test_without_a_lever_on_replicas_nothing_of_this_is_made() -> None:
    seen = watch(PoolSpec("llm", 60.0), minutes(fleet(a=pod())))
    assert not seen.replicas["a"].latencies
    assert Signal.FINISHED_RATE not in seen.replicas["a"].signals


def test_a_replica_without_finished_requests_has_no_pace_and_no_errors() -> None:
    idle = ReplicaFacts({Fact.ITL: mean(0.0, 0.0)}, {Fact.FINISHED: 0.0}, GAUGES)
    mine = watch(SPEC, minutes(fleet(a=idle))).replicas["a"]
    assert mine.latency(Signal.ITL, "mean").state is State.MISSING
    assert mine.get(Signal.ERROR_RATIO).value is None
    assert mine.get(Signal.FINISHED_RATE).value == 0.0


# --- tenants -----------------------------------------------------------------------------------------------------

TENANTS = PoolSpec("llm", 60.0, tenants=("acme", "quiet"), gateway=GatewaySpec("llm@gateway", tenants=True))
ENGINES = PoolFacts(
    counters={Fact.FINISHED: 20.0}, gauges=GAUGES, replicas={"a": ReplicaFacts(gauges=GAUGES)}, sources=SOURCES
)


def front(up: bool = True, **tenants: Mapping[Fact, float]) -> PoolFacts:
    if not up:
        return PoolFacts(replicas={"g": ReplicaFacts(up=False)}, targets_up=0, targets_down=1)
    return PoolFacts(
        counters={Fact.ARRIVED: 30.0, Fact.REJECTED: 3.0, Fact.ERRORS: 0.0}, gauges={Fact.HELD: 7.0},
        replicas={"g": ReplicaFacts()}, tenants={name: Facts(counters=of) for name, of in tenants.items()},
        unsupported={Fact.RETRIES: "not counted"},
    )  # fmt: skip


def sides(gateway: PoolFacts, ticks: int = 5, first: int = 0) -> dict[int, PoolFacts | dict[str, PoolFacts]]:
    return {15 * n: {"llm": ENGINES, "llm@gateway": gateway} for n in range(first, first + ticks)}


ACME = {
    Fact.ARRIVED: 30.0, Fact.RETRIES: 6.0, Fact.FINISHED: 20.0, Fact.REJECTED: 3.0, Fact.PROMPT_TOKENS: 3000.0,
    Fact.GENERATION_TOKENS: 900.0,
}  # fmt: skip


def test_a_tenant_is_read_over_the_window_and_its_retries_are_no_demand() -> None:
    acme = watch(TENANTS, sides(front(acme=ACME))).tenants["acme"]
    offered = acme.get(Signal.OFFERED_RATE)
    assert offered.value == pytest.approx(1.6)
    assert offered.hi == pytest.approx(2.0)
    assert offered.state is State.OK
    assert offered.window == 60.0
    assert acme.get(Signal.REJECTED_RATE).value == pytest.approx(0.2)
    assert acme.get(Signal.PROMPT_TOKEN_RATE).value == pytest.approx(200.0)
    assert acme.get(Signal.GENERATION_TOKEN_RATE).value == pytest.approx(60.0)


def test_a_tenant_that_never_came_asks_for_nothing_while_others_are_told() -> None:
    quiet = watch(TENANTS, sides(front(acme=ACME))).tenants["quiet"].get(Signal.OFFERED_RATE)
    assert (quiet.value, quiet.state) == (0.0, State.OK)


def test_what_no_series_tells_by_tenant_is_unsupported_and_no_zero() -> None:
    untold: dict[Fact, float] = {fact: n for fact, n in ACME.items() if fact is not Fact.PROMPT_TOKENS}
    acme = watch(TENANTS, sides(front(acme=untold))).tenants["acme"]
    assert acme.get(Signal.PROMPT_TOKEN_RATE).state is State.UNSUPPORTED


def test_a_silent_gateway_tells_of_no_tenant_that_it_asks_for_nothing() -> None:
    """The cap of a tenant that seems to ask for nothing would be given to others."""
    ticks = sides(front(acme=ACME))
    ticks |= sides(front(up=False), ticks=1, first=5)
    seen = watch(TENANTS, ticks)
    for name in ("acme", "quiet"):
        # Its tokens are of no use either, though the engines tell those of the pool.
        for signal in (Signal.OFFERED_RATE, Signal.PROMPT_TOKEN_RATE):
            reading = seen.tenants[name].get(signal)
            assert reading.state is State.MISSING
            assert "does not answer" in reading.note
    ticks |= sides(front(acme=ACME), ticks=2, first=6)
    again = watch(TENANTS, ticks).tenants["acme"].get(Signal.OFFERED_RATE)
    assert again.state is State.UNDERFILLED
    # The interval in which it came back is not counted either: nobody knows since when.
    assert again.value == pytest.approx(1.6)


def test_a_mad_number_of_a_tenant_stops_nobody_and_is_said() -> None:
    ticks = sides(front(acme=ACME))
    mad = {"llm": replace(ENGINES, tenants={"acme": Facts(counters={Fact.ARRIVED: float("nan")})})}
    seen = watch(replace(TENANTS, gateway=None), {**ticks, 75: mad})
    assert "acme" in seen.partial
    assert isinstance(seen.tenants["acme"], Scope)


# --- retries -----------------------------------------------------------------------------------------------------


def offered(**more: float) -> PoolReadings:
    counted = {Fact.ARRIVED: 60.0, Fact.FINISHED: 30.0, **{Fact(name): n for name, n in more.items()}}
    untold = {} if "retries" in more else {Fact.RETRIES: "nobody counts them"}
    facts = PoolFacts(counters=counted, gauges=GAUGES, replicas={"a": ReplicaFacts()}, unsupported=untold)
    return watch(PoolSpec("llm", 60.0), minutes(facts))


def test_retries_that_are_counted_are_no_demand() -> None:
    reading = offered(retries=15.0, rejected=20.0).get(Signal.OFFERED_RATE)
    assert (reading.value, reading.lo, reading.hi) == (3.0, None, 4.0)
    assert offered(retries=15.0).get(Signal.RETRY_SHARE).value == 0.25


def test_where_nobody_counts_them_each_failure_may_have_come_again_once() -> None:
    reading = offered(rejected=20.0, errors=5.0, timeouts=5.0).get(Signal.OFFERED_RATE)
    assert (reading.value, reading.lo, reading.hi) == (4.0, 2.0, None)
