"""Done when 1: the real one-second vLLM recording, read as its clients lived it.

48 requests at once on an engine with four slots, then clients that all go away, then an engine that is stopped while
its health check answers. Every test runs on the shipped recording and through a real Prometheus.
"""

import json
from collections.abc import Callable, Mapping, Sequence

import pytest

from controller.config import GovernorConfig
from controller.config.terms import pool_specs
from controller.core.facts import Fact
from controller.core.meter import Meter, PoolSpec
from controller.core.model import PoolReadings
from controller.core.observation import Observation
from controller.core.ports import PoolNeeds, Source
from controller.core.reading import State
from controller.core.signals import Signal
from controller.core.slo import Objective
from tests.support.streams import shared
from tests.support.vllm_clients import Phase, phases

Opener = Callable[[Sequence[PoolNeeds]], Source]
Ticks = Mapping[float, PoolReadings]  # by seconds since the recording began

POOL = "tiny"
BEGAN = phases()["idle"].start
STOPPED, RESUMED = 179.4, 205.4  # when the engine process was stopped and continued, seconds since the beginning
ROUNDING = 1e-9  # of a count over a count


@pytest.fixture(scope="module")
def ticks(open_source: Opener, needs: Sequence[PoolNeeds], config: GovernorConfig, times: Sequence[float]) -> Ticks:
    """Readings at every second."""
    source, meter = open_source(needs), Meter(pool_specs(config))
    seen: dict[float, PoolReadings] = {}
    for at in times:
        observation = source.observe(at, 20.0)
        assert observation.error == ""
        seen[at - BEGAN] = meter.update(observation)[POOL]
    return seen


@pytest.fixture(scope="module")
def cuts(ticks: Ticks) -> Mapping[str, tuple[float, float]]:
    """First and last second of each phase, cut at the idle scrape nearest to each change of phase."""
    idle = [second for second, seen in ticks.items() if _in_flight(seen) == 0]
    names = list(phases())
    starts = [min(idle, key=lambda second: abs(second - (phases()[name].start - BEGAN))) for name in names]
    return dict(zip(names, zip(starts, [*starts[1:], max(ticks)], strict=True), strict=True))


def test_an_idle_engine_is_known_to_be_idle_and_not_unknown(
    ticks: Ticks, cuts: Mapping[str, tuple[float, float]]
) -> None:
    start, end = cuts["idle"]
    inside = [seen for second, seen in ticks.items() if start < second <= end]
    assert len(inside) == 5
    for seen in inside:
        for signal in (Signal.TTFT, Signal.TPOT, Signal.E2E, Signal.QUEUE_TIME):
            assert {r.state for r in seen.latencies[signal].values()} == {State.NO_TRAFFIC}, signal
        for signal in (Signal.QUEUE_DEPTH, Signal.KV_USAGE):
            assert (seen.get(signal).state, seen.get(signal).value) == (State.OK, 0.0), signal


def test_work_in_flight_and_none_finished_is_censored_and_not_fast(ticks: Ticks) -> None:
    """Whoever has not finished has no latency in any histogram; silence is not good news."""
    checked = 0
    for second, seen in list(ticks.items())[1:]:
        if _in_flight(seen) and (seen.get(Signal.FINISHED_RATE).count or 0) == 0:
            for signal in (Signal.TPOT, Signal.E2E, Signal.QUEUE_TIME):
                assert seen.get(signal).state is State.CENSORED, (second, signal)
            checked += 1
    assert checked > 20  # the first seconds of light load, the clients that left, the engine that was stopped


def test_p99_of_the_finished_says_a_third_of_a_second_while_a_hundred_seconds_are_to_come(ticks: Ticks) -> None:
    overload = phases()["overload"]
    ends = overload.last.start + (overload.last.ttft or 0.0)
    window = {s: seen for s, seen in ticks.items() if 8 <= s - (overload.start - BEGAN) <= 12}
    assert len(window) >= 4
    for second, seen in window.items():
        remaining = ends - (BEGAN + second)
        delay = seen.get(Signal.QUEUE_DELAY)
        assert delay.state is State.OK
        assert delay.value is not None
        assert remaining / 1.5 <= delay.value <= remaining * 1.5, (second, delay.value, remaining)
        finished = seen.latency(Signal.QUEUE_TIME, "p99")
        assert finished.value == pytest.approx(0.297), second


def test_no_abort_is_seen_before_the_clients_leave_and_all_sixteen_after(
    ticks: Ticks, cuts: Mapping[str, tuple[float, float]]
) -> None:
    """The series of responses is born with the first response; nobody went away before it, and that is a zero."""
    start, _ = cuts["client_abort"]
    before = {second: seen.get(Signal.ABORTS) for second, seen in ticks.items() if min(ticks) < second <= start}
    assert len(before) > 150
    assert {second: (r.state, r.value) for second, r in before.items() if r.value != 0} == {}
    gone = [seen.get(Signal.ABORTS).value for second, seen in ticks.items() if second > start]
    assert max(value for value in gone if value is not None) == 16
    assert gone[-1] == 0  # it is a window; the clients of a minute ago are history


def test_the_aborts_of_each_phase_are_those_of_its_clients(
    open_source: Opener, needs: Sequence[PoolNeeds], cuts: Mapping[str, tuple[float, float]], times: Sequence[float]
) -> None:
    found = {}
    for name, (start, end) in cuts.items():
        *_, seen = _phase(open_source(needs), start, end, times, ())
        found[name] = seen.get(Signal.ABORTS).value
    gone = {name: sum(not r.finished for r in phase.requests) for name, phase in phases().items()}
    assert found == gone
    assert found["client_abort"] == 16


def test_a_stopped_engine_is_found_within_five_seconds_and_forgiven_within_five(ticks: Ticks) -> None:
    stuck = [second for second, seen in ticks.items() if seen.get(Signal.STUCK).value == 1]
    assert STOPPED < stuck[0] <= STOPPED + 5
    assert RESUMED - 1 < stuck[-1] <= RESUMED + 5
    assert stuck == [second for second in ticks if stuck[0] <= second <= stuck[-1]]  # without a gap, and nowhere else


@pytest.mark.parametrize("signal", [Signal.TTFT, Signal.TPOT, Signal.E2E])
def test_attainment_bounds_contain_the_clients_truth_at_every_edge_in_every_phase(
    open_source: Opener,
    needs: Sequence[PoolNeeds],
    cuts: Mapping[str, tuple[float, float]],
    times: Sequence[float],
    signal: Signal,
) -> None:
    """Over offered requests: one whose client left counts, and it met what it had seen met before it left."""
    edges = _edges(open_source(needs), Fact(signal.value), times)
    assert len(edges) >= 19
    checked, most = 0, 0.0
    for name, (start, end) in cuts.items():
        objectives = tuple(Objective(f"{edge!r}", signal, edge, 0.95, end - start) for edge in edges)
        observation, seen = _phase(open_source(needs), start, end, times, objectives)
        requests = phases()[name].requests
        if not requests:
            assert {r.state for r in seen.attainment.values()} == {State.NO_TRAFFIC}, name
            continue
        if (name, signal) == ("client_abort", Signal.E2E):
            continue  # nobody waited for the end, so there is no truth about it
        for edge, objective in zip(edges, objectives, strict=True):
            reading = seen.attainment[objective.name]
            truth = _met(phases()[name], signal, edge)
            assert reading.lo is not None, (name, edge, reading)
            assert reading.hi is not None, (name, edge, reading)
            assert reading.lo - ROUNDING <= truth <= reading.hi + ROUNDING, (name, edge, reading, truth)
            if name != "client_abort":
                most = max(most, reading.hi - reading.lo)
            checked += 1
        assert observation.since is not None
    assert checked == len(edges) * (3 if signal is Signal.E2E else 4)
    assert most == pytest.approx(0.0)  # at an edge nothing is left to guess, except for those who left


def test_the_shipped_truth_is_that_of_the_clients_own_log() -> None:
    log = json.loads(shared("metrics/vllm-0.32.0-cpu_client_ground_truth.json").read_text())
    ours = [request for phase in phases().values() for request in phase.requests]
    theirs = sorted(log["requests"], key=lambda row: (row["start"], row["i"]))
    for request, row in zip(ours, theirs, strict=True):
        assert request.finished == (row["status"] == 200)
        for name in ("start", "ttft", "tpot", "e2e"):
            assert getattr(request, name) == pytest.approx(row.get(name), abs=1e-4)
    for phase, (start, name) in zip(phases().values(), log["phases"], strict=True):
        assert phase.name == name
        assert phase.start == pytest.approx(start, abs=1e-4)


def _phase(
    source: Source, start: float, end: float, times: Sequence[float], objectives: tuple[Objective, ...]
) -> tuple[Observation, PoolReadings]:
    """A phase in one observation, read by somebody who knows nothing of before."""
    meter = Meter([PoolSpec(POOL, end - start, objectives)])
    first, last = (min(times, key=lambda at: abs(at - BEGAN - second)) for second in (start, end))
    meter.update(source.observe(first, 20.0))
    observation = source.observe(last, 20.0)
    assert observation.error == ""
    return observation, meter.update(observation)[POOL]


def _edges(source: Source, fact: Fact, times: Sequence[float]) -> tuple[float, ...]:
    source.observe(times[0], 20.0)
    return source.observe(times[-1], 20.0).pools[POOL].histograms[fact].edges


def _met(phase: Phase, signal: Signal, edge: float) -> float:
    took = [request.took(signal.value) for request in phase.requests]
    return sum(seconds is not None and seconds <= edge for seconds in took) / len(took)


def _in_flight(seen: PoolReadings) -> float | None:
    running, waiting = seen.get(Signal.RUNNING).value, seen.get(Signal.QUEUE_DEPTH).value
    return None if running is None or waiting is None else running + waiting
