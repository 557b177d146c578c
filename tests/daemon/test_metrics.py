"""What the exposition says, and above all what it does not say."""

import math
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from controller.core.model import (
    Applied,
    Lever,
    Mode,
    Outcome,
    Plan,
    PoolReadings,
    Snapshot,
    Step,
    Target,
    TargetState,
    Tick,
)
from controller.core.ports import Estimate
from controller.core.reading import Reading, State, ok, unsupported
from controller.core.signals import Signal
from controller.core.why import Why
from controller.core.worse import Worse
from controller.run.catalogue import BY_NAME, METRICS, SERIES, Kind, markdown
from controller.run.metrics import Metrics
from controller.run.settings import LeverSettings, Settings
from tests.support.build import REPLICAS, TTFT, decision, readings
from tests.support.toy_loop import result

ROOT = Path(__file__).parents[2]
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def settings(*pools: str) -> Settings:
    levers = {pool: {Lever.REPLICAS: LeverSettings(Mode.PROTECT, 1, 8)} for pool in pools}
    return Settings(15, 10, "127.0.0.1:0", "abc", dict.fromkeys(pools, (TTFT,)), levers)


def scrape(metrics: Metrics) -> Series:
    body, _ = metrics.render()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
        if not sample.name.startswith("process_")
    }


def value(series: Series, name: str, **labels: str) -> float | None:
    return series.get((f"governor_{name}", frozenset(labels.items())))


@pytest.fixture
def metrics() -> Metrics:
    metrics = Metrics(version="1.2", mode="live")
    metrics.configured(settings("llama"), at=5)
    return metrics


def test_unknown_is_exported_as_zero(metrics: Metrics) -> None:
    signals = {
        Signal.QUEUE_DEPTH: Reading(State.MISSING),
        Signal.KV_USAGE: unsupported("no such gauge"),
        Signal.QUEUE_DELAY: Reading(State.SATURATED_TOP, lo=10.0),
        Signal.RUNNING: ok(0.0),
    }
    metrics.ticked(result(Snapshot(Tick(1, 15), {"llama": PoolReadings(signals=signals)})))
    series = scrape(metrics)
    for signal in ("queue_depth", "kv_usage", "queue_delay"):
        assert value(series, "signal", pool="llama", signal=signal, stat="value") is None
    assert value(series, "signal", pool="llama", signal="running", stat="value") == 0
    assert value(series, "signal_lower_bound", pool="llama", signal="queue_delay", stat="value") == 10
    assert value(series, "signal_upper_bound", pool="llama", signal="queue_delay", stat="value") is None
    states = {
        dict(labels)["signal"]: dict(labels)["state"] for name, labels in series if name == "governor_signal_state"
    }
    assert states == {
        "queue_depth": "missing", "kv_usage": "unsupported", "queue_delay": "saturated_top", "running": "ok",
    }  # fmt: skip


def test_a_number_that_is_no_number_breaks_every_query_over_it(metrics: Metrics) -> None:
    metrics.ticked(result(Snapshot(Tick(1, 15), {"llama": readings(queue_depth=3)})))
    assert all(math.isfinite(number) for number in scrape(metrics).values())


def test_promises_learned_and_levers_are_all_there(metrics: Metrics) -> None:
    state = TargetState(8.0, ready=7.0, last_outcome=Outcome.DONE)
    pool = PoolReadings(
        attainment={TTFT.name: ok(0.98, lo=0.97, hi=0.99)},
        burn={TTFT.name: {"1h": ok(2.0), "3d": Reading(State.UNDERFILLED, value=0.5)}},
    )
    metrics.ticked(
        result(
            Snapshot(Tick(1, 15), {"llama": pool}, {REPLICAS: state}),
            Plan(15, (decision(8, 9, Why.RATE, Step("capacity", 8, 12, Why.DEMAND), Step("rate", 12, 9, Why.RATE)),)),
            {"llama": Estimate(demand=11.5, trusted=True, versions={"v1": 2.6, "v2": 1.4}, worse=Worse("v3"))},
            (Applied(REPLICAS, Outcome.UNKNOWN, "timed out"),),
        )
    )
    series = scrape(metrics)
    assert value(series, "version_unit_rate", pool="llama", version="v2") == 1.4
    told = {version: value(series, "version_worse", pool="llama", version=version) for version in ("v1", "v2", "v3")}
    assert told == {"v1": 0.0, "v2": 0.0, "v3": 1.0}
    objective = {"pool": "llama", "objective": TTFT.name}
    place = {"pool": "llama", "lever": "replicas"}
    target = {**place, "member": ""}
    assert value(series, "objective_target", **objective, signal="ttft", stat="p99", **{"class": ""}) == 2.0
    assert value(series, "objective_share", **objective) == 0.99
    assert value(series, "attainment_lower_bound", **objective) == 0.97
    assert value(series, "attainment_upper_bound", **objective) == 0.99
    assert value(series, "burn_rate", **objective, window="1h") == 2.0
    assert value(series, "burn_rate", **objective, window="3d") == 0.5
    assert value(series, "estimate", pool="llama", quantity="demand") == 11.5
    assert value(series, "estimate", pool="llama", quantity="forecast") is None
    assert value(series, "target_current", **target) == 8
    assert value(series, "target_final", **target) == 9
    assert value(series, "target_ready", **target) == 7
    assert value(series, "target_limit", **place, bound="max") == 8
    assert value(series, "lever_mode", **place, mode="protect") == 1
    assert value(series, "decision_reason", **target, why="rate") == 1
    assert value(series, "decisions_total", **place, why="rate") == 1
    assert value(series, "steps_total", **place, by="capacity", why="demand") == 1
    assert value(series, "outcomes_total", **place, outcome="unknown") == 1
    assert value(series, "target_outcome", **target, outcome="unknown") == 1, "this tick's outcome is the newest"
    assert value(series, "target_outcome", **target, outcome="done") is None


def test_an_unknown_outcome_vanishes_because_the_blocked_target_is_not_written_again(metrics: Metrics) -> None:
    state = TargetState(8.0, last_outcome=Outcome.UNKNOWN)
    metrics.ticked(result(Snapshot(Tick(2, 30), {}, {REPLICAS: state})))
    assert value(scrape(metrics), "target_outcome", pool="llama", lever="replicas", member="", outcome="unknown") == 1


def test_a_pool_that_left_the_config_is_alerted_on_for_ever(metrics: Metrics) -> None:
    metrics.configured(settings("llama", "gone"), at=6)
    gone = Target("gone", Lever.REPLICAS)
    plan = Plan(15, (decision(), decision(target=gone)))
    targets = {REPLICAS: TargetState(8.0), gone: TargetState(2.0)}
    estimates = {"llama": Estimate(), "gone": Estimate()}
    applied = (Applied(gone, Outcome.FAILED),)
    metrics.ticked(
        result(Snapshot(Tick(1, 15), {"llama": readings(), "gone": readings()}, targets), plan, estimates, applied)
    )
    assert any(("pool", "gone") in labels for _, labels in scrape(metrics))
    metrics.configured(settings("llama"), at=7)
    series = scrape(metrics)
    assert not any(("pool", "gone") in labels for _, labels in series)
    assert value(series, "decisions_total", pool="llama", lever="replicas", why="steady") == 1, "others keep counting"


def test_the_first_event_is_lost_because_its_counter_was_not_there(metrics: Metrics) -> None:
    series = scrape(metrics)
    for name in ("ticks_missed_total", "tick_errors_total", "source_errors_total"):
        assert value(series, name) == 0
    for outcome in Outcome:
        assert value(series, "outcomes_total", pool="llama", lever="replicas", outcome=outcome.value) == 0
    assert value(series, "config_reloads_total", result="invalid") == 0


def test_reloads_and_errors_are_counted(metrics: Metrics) -> None:
    metrics.reloaded("invalid")
    assert value(scrape(metrics), "config_valid") == 0
    metrics.configured(settings("llama"), at=8)
    metrics.reloaded("done")
    metrics.missed(3)
    metrics.failed()
    series = scrape(metrics)
    assert value(series, "config_valid") == 1
    assert value(series, "config_reloads_total", result="invalid") == 1
    assert value(series, "ticks_missed_total") == 3
    assert value(series, "tick_errors_total") == 1


def test_a_tick_of_exactly_one_edge_falls_into_the_next_bucket(metrics: Metrics) -> None:
    for seconds in (0.005, 0.3, 99.0):
        metrics.ticked(result(Snapshot(Tick(1, 15)), seconds={"total": seconds}))
    series = scrape(metrics)
    assert value(series, "tick_seconds_bucket", phase="total", le="0.005") == 1
    assert value(series, "tick_seconds_bucket", phase="total", le="0.25") == 1
    assert value(series, "tick_seconds_bucket", phase="total", le="0.5") == 2
    assert value(series, "tick_seconds_bucket", phase="total", le="+Inf") == 3
    assert value(series, "tick_seconds_sum", phase="total") == pytest.approx(99.305)


def test_a_full_ledger_is_visible(metrics: Metrics) -> None:
    metrics.ticked(result(Snapshot(Tick(1, 15)), Plan(15, (decision(),))))
    assert value(scrape(metrics), "ledger_writable") == 1
    metrics.ticked(result(Snapshot(Tick(2, 30)), ledger_ok=False))
    assert value(scrape(metrics), "ledger_writable") == 0


def test_openmetrics_is_given_to_those_who_ask(metrics: Metrics) -> None:
    body, content_type = metrics.render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")


def test_the_catalogue_is_well_formed() -> None:
    assert len(BY_NAME) == len(METRICS), "a name is there twice"
    for metric in METRICS:
        assert (metric.kind is Kind.COUNTER) == metric.name.endswith("_total")
        assert metric.help.endswith(".")


def test_every_series_of_a_scrape_is_in_the_catalogue(metrics: Metrics) -> None:
    metrics.ticked(result(Snapshot(Tick(1, 15), {"llama": readings(queue_depth=3)}), Plan(15, (decision(),))))
    assert {name for name, _ in scrape(metrics)} <= SERIES


def test_the_docs_name_metrics_that_do_not_exist() -> None:
    text = (ROOT / "docs/metrics.md").read_text()
    assert text == markdown(), "run: python -m controller.run.catalogue > docs/metrics.md"
