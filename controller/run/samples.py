"""Turns one tick and one config into gauge samples. Pure: what is not in the tick has no series, so a pool that left
the config, or a number that is not known, disappears from the exposition by itself."""

from collections.abc import Iterator, Mapping

from controller.core.model import Decision, PoolReadings, Target, TargetState
from controller.core.ports import Estimate
from controller.core.reading import Reading
from controller.run.loop import TickResult
from controller.run.settings import Settings

Sample = tuple[str, tuple[str, ...], float]  # name without prefix, label values in the catalogue's order, value

_QUANTITIES = ("offered", "demand", "forecast", "backlog", "unit_rate", "hit_rate", "kappa", "horizon", "margin")


def of_settings(settings: Settings) -> Iterator[Sample]:
    """What the config alone tells."""
    yield "interval_seconds", (), settings.interval
    yield "config_info", (settings.config_hash,), 1.0
    for pool, objectives in settings.objectives.items():
        for promise in objectives:
            labels = (pool, promise.name, promise.signal.value, promise.stat, promise.klass)
            yield "objective_target", labels, promise.target
            if promise.share is not None:
                yield "objective_share", (pool, promise.name), promise.share
    for pool, levers in settings.levers.items():
        for lever, one in levers.items():
            yield "lever_mode", (pool, lever.value, one.mode.value), 1.0
            for bound, number in (("min", one.min), ("max", one.max)):
                if number is not None:
                    yield "target_limit", (pool, lever.value, bound), number


def of_tick(result: TickResult, pools: frozenset[str]) -> Iterator[Sample]:
    """What the newest tick tells of `pools`; it may be older than the config and know pools that are gone."""
    snapshot = result.snapshot
    yield "last_tick_timestamp_seconds", (), snapshot.tick.at
    yield "source_up", (), float(not snapshot.error)
    for pool in sorted(pools & snapshot.pools.keys()):
        yield from _pool(pool, snapshot.pools[pool])
    for pool in sorted(pools & result.estimates.keys()):
        yield from _estimate(pool, result.estimates[pool])
    for target, state in snapshot.targets.items():
        if target.pool in pools:
            yield from _target(target, state, snapshot.tick.at)
    for decision in result.plan.decisions:
        if decision.target.pool in pools:
            yield from _decision(decision)
    yield "ledger_writable", (), float(result.ledger_ok)
    yield "pin_problems", (), float(len(result.pin_problems))
    yield from _outcomes(result, pools)


def _pool(pool: str, readings: PoolReadings) -> Iterator[Sample]:
    yield "pool_partial", (pool,), float(bool(readings.partial))
    for signal, reading in readings.signals.items():
        yield from _signal((pool, signal.value, "value"), reading)
    for signal, stats in readings.latencies.items():
        for stat, reading in stats.items():
            yield from _signal((pool, signal.value, stat), reading)
    for objective, reading in readings.attainment.items():
        labels = (pool, objective)
        yield "attainment_state", (*labels, reading.state.value), 1.0
        yield from _numbers(labels, reading, "attainment_ratio", "attainment")
    for objective, windows in readings.burn.items():
        for window, reading in windows.items():
            if reading.usable is not None:
                yield "burn_rate", (pool, objective, window), reading.usable


def _signal(labels: tuple[str, ...], reading: Reading) -> Iterator[Sample]:
    yield "signal_state", (*labels, reading.state.value), 1.0
    yield from _numbers(labels, reading, "signal", "signal")


def _numbers(labels: tuple[str, ...], reading: Reading, name: str, stem: str) -> Iterator[Sample]:
    for metric, number in ((name, reading.value), (f"{stem}_lower_bound", reading.lo),
                           (f"{stem}_upper_bound", reading.hi)):  # fmt: skip
        if number is not None:
            yield metric, labels, number


def _estimate(pool: str, estimate: Estimate) -> Iterator[Sample]:
    for quantity in _QUANTITIES:
        number: float | None = getattr(estimate, quantity)
        if number is not None:
            yield "estimate", (pool, quantity), number
    yield "estimate_trusted", (pool,), float(estimate.trusted)
    yield "budget_burning", (pool,), float(estimate.burning)
    worse = {one.version for one in (estimate.worse, *estimate.also_worse) if one is not None}
    for version, rate in estimate.versions.items():
        yield "version_unit_rate", (pool, version), rate
    for version in sorted(estimate.versions.keys() | worse):  # one that is out serves nothing, and is still worse
        yield "version_worse", (pool, version), float(version in worse)


def _target(target: Target, state: TargetState, at: float) -> Iterator[Sample]:
    labels = (target.pool, target.lever.value, target.member)
    yield "target_unreadable", labels, float(bool(state.error))
    for metric, number in (("target_current", state.accepted), ("target_ready", state.ready)):
        if number is not None:
            yield metric, labels, number
    phases: dict[str, int] = {}
    for pending in state.pending:
        phases[pending.phase.value] = phases.get(pending.phase.value, 0) + pending.count
    for phase, count in phases.items():
        yield "target_pending", (*labels, phase), float(count)
    if state.pending:
        yield "target_pending_oldest_seconds", labels, max(0.0, at - min(p.since for p in state.pending))
    if state.foreign_writer:
        yield "target_foreign_writer", (*labels, state.foreign_writer), 1.0
    if state.drift is not None:
        yield "target_drift", (*labels, state.drift.value), 1.0
    if state.pin is not None:
        yield "target_pin", labels, state.pin.value
        yield "target_pin_until_timestamp_seconds", labels, state.pin.until


def _decision(decision: Decision) -> Iterator[Sample]:
    target = decision.target
    labels = (target.pool, target.lever.value, target.member)
    yield "decision_reason", (*labels, decision.why.value), 1.0
    if decision.final is not None:
        yield "target_final", labels, decision.final


def _outcomes(result: TickResult, pools: frozenset[str]) -> Iterator[Sample]:
    """The outcome of this tick's write, else of the last one: an outcome of `unknown` must not vanish from the
    exposition because the target, being blocked, is not written again."""
    newest: dict[Target, str] = {
        target: state.last_outcome.value
        for target, state in result.snapshot.targets.items()
        if state.last_outcome is not None
    }
    newest.update({applied.target: applied.word for applied in result.applied})
    for target, outcome in newest.items():
        if target.pool in pools:
            yield "target_outcome", (target.pool, target.lever.value, target.member, outcome), 1.0


def counted(result: TickResult) -> Mapping[tuple[str, tuple[str, ...]], int]:
    """What one tick adds to the counters, by name without prefix and label values."""
    counts: dict[tuple[str, tuple[str, ...]], int] = {("ticks_total", ()): 1}

    def add(name: str, *labels: str) -> None:
        counts[name, labels] = counts.get((name, labels), 0) + 1

    if result.snapshot.error:
        add("source_errors_total")
    for decision in result.plan.decisions:
        place = (decision.target.pool, decision.target.lever.value)
        add("decisions_total", *place, decision.why.value)
        for step in decision.steps:
            add("steps_total", *place, step.by, step.why.value)
    for applied in result.applied:
        add("outcomes_total", applied.target.pool, applied.target.lever.value, applied.word)
    return counts
