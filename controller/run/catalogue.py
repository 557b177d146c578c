"""The catalogue of Governor's own metrics: the one place that knows their names, labels and meaning.

Pure data. The exposition refuses a name that is not here, ``docs/metrics.md`` is generated from here, and the dashboard
and alert rules are tested against it. A metric is renamed here or nowhere.
"""

import sys
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Prometheus metric types in use."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `help` gives the unit where the name does not."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    group: str

    @property
    def series(self) -> tuple[str, ...]:
        """Names as they appear in a scrape."""
        if self.kind is Kind.HISTOGRAM:
            return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")
        return (self.name,)


_SIGNAL = ("pool", "signal", "stat")
_OBJECTIVE = ("pool", "objective")
_VERSION = ("pool", "version")
_TARGET = ("pool", "lever", "member")


def _metrics() -> tuple[Metric, ...]:
    out: list[Metric] = []

    def add(group: str, kind: Kind, name: str, labels: tuple[str, ...], text: str) -> None:
        out.append(Metric(f"governor_{name}", kind, labels, text, group))

    gauge, counter, histogram = Kind.GAUGE, Kind.COUNTER, Kind.HISTOGRAM

    # fmt: off
    group = "What was read"
    add(group, gauge, "signal", _SIGNAL,
        "Value of a canonical signal in its own unit (docs: signals). Absent when there is no number, never 0 or NaN. "
        "stat is p50, p95, p99 ... or mean for latencies, value otherwise.")
    add(group, gauge, "signal_lower_bound", _SIGNAL, "The true value of the signal is at least this.")
    add(group, gauge, "signal_upper_bound", _SIGNAL, "The true value of the signal is at most this.")
    add(group, gauge, "signal_state", (*_SIGNAL, "state"),
        "1 for the state that the reading is in: ok, no_traffic, missing, stale, partial, underfilled, saturated_top, "
        "below_first, censored or unsupported. Other states have no series.")
    add(group, gauge, "pool_partial", ("pool",), "1 when the backend warned that its answer for the pool is partial.")
    add(group, gauge, "source_up", (), "1 when the newest tick could read its source.")
    add(group, counter, "source_errors_total", (), "Ticks at which the source gave nothing at all.")

    group = "Promises"
    add(group, gauge, "objective_target", (*_OBJECTIVE, "signal", "stat", "class"),
        "Target of the objective in the unit of its signal.")
    add(group, gauge, "objective_share", _OBJECTIVE,
        "Share of offered requests that must meet the target. Absent for an objective on a mean.")
    add(group, gauge, "attainment_ratio", _OBJECTIVE, "Share of offered requests that met the target, best estimate.")
    add(group, gauge, "attainment_lower_bound", _OBJECTIVE, "At least this share met the target.")
    add(group, gauge, "attainment_upper_bound", _OBJECTIVE, "At most this share met the target.")
    add(group, gauge, "attainment_state", (*_OBJECTIVE, "state"), "1 for the state of the attainment reading.")
    add(group, gauge, "burn_rate", (*_OBJECTIVE, "window"),
        "Speed at which the error budget is spent; 1 spends exactly all of it over the budget's period.")

    group = "What was learned"
    add(group, gauge, "estimate", ("pool", "quantity"),
        "What Governor believes about a pool. demand, forecast and backlog in replica-equivalents; offered and "
        "unit_rate in requests per second; horizon in seconds; hit_rate and margin as ratios; kappa as a factor.")
    for name, labels, text in (
        ("estimate_trusted", ("pool",), "1 when the estimate may justify lowering capacity."),
        ("budget_burning", ("pool",), "1 while the error budget burns fast enough that nothing is lowered."),
        ("version_unit_rate", _VERSION, "Requests per second of one replica, by what it runs, where versions differ."),
        ("version_worse", _VERSION, "1 while this version fails or lags where the others do not."),
    ):
        add(group, gauge, name, labels, text)

    group = "Levers"
    add(group, gauge, "target_current", _TARGET, "Accepted value of the target as read back, in its unit.")
    add(group, gauge, "target_final", _TARGET, "Value that the newest plan wants for the target.")
    add(group, gauge, "target_ready", _TARGET, "What serves now (replicas only).")
    add(group, gauge, "target_pending", (*_TARGET, "phase"), "Capacity that was asked for and does not serve yet.")
    add(group, gauge, "target_pending_oldest_seconds", _TARGET, "Age of the oldest pending capacity.")
    add(group, gauge, "target_limit", ("pool", "lever", "bound"), "Configured hard bound; bound is min or max.")
    add(group, gauge, "lever_mode", ("pool", "lever", "mode"),
        "1 for the configured mode: off, observe, protect or auto.")
    add(group, gauge, "target_unreadable", _TARGET, "1 while the target cannot be read, else 0.")
    add(group, gauge, "target_foreign_writer", (*_TARGET, "writer"), "1 while somebody else changes this target.")
    add(group, gauge, "target_drift", (*_TARGET, "kind"),
        "1 while it is news that the target holds another value than the one last seen or set there; kind is stale (an "
        "older value of Governor's), foreign (somebody else's) or restarted (the target began anew and forgot).")
    add(group, gauge, "target_pin", _TARGET, "Value that a person pinned.")
    add(group, gauge, "target_pin_until_timestamp_seconds", _TARGET, "When the pin ends, unix time.")
    add(group, gauge, "pin_problems", (),
        "Pins that cannot be honoured, because their file cannot be read or their target does not exist.")
    add(group, gauge, "target_outcome", (*_TARGET, "outcome"),
        "1 for what became of the newest write: done, dry_run, refused, failed or unknown; waits where the actuator "
        "put it off, because it keeps its writes apart.")

    group = "Decisions"
    add(group, gauge, "decision_reason", (*_TARGET, "why"), "1 for the reason of the newest decision on the target.")
    add(group, counter, "decisions_total", ("pool", "lever", "why"), "Decisions by reason, one per target and tick.")
    add(group, counter, "steps_total", ("pool", "lever", "by", "why"),
        "Changes made on the way from the current to the final value, by policy or guard.")
    add(group, counter, "outcomes_total", ("pool", "lever", "outcome"), "Writes by outcome.")

    group = "Governor itself"
    add(group, gauge, "build_info", ("version", "python"), "Always 1.")
    add(group, gauge, "run_mode", ("mode",), "1 for the mode of this process: live or dry_run.")
    add(group, gauge, "start_timestamp_seconds", (), "When this process began, unix time.")
    add(group, gauge, "interval_seconds", (), "Configured seconds between two ticks.")
    add(group, counter, "ticks_total", (), "Ticks that ran to their end.")
    add(group, counter, "ticks_missed_total", (), "Slots that passed without a tick. They are never caught up.")
    add(group, counter, "tick_errors_total", (), "Ticks that ended in an error of Governor's own.")
    add(group, histogram, "tick_seconds", ("phase",),
        "Duration of a tick by phase: observe, measure, decide, act, record and total.")
    add(group, gauge, "last_tick_timestamp_seconds", (), "Slot of the newest tick that ran to its end, unix time.")
    add(group, gauge, "ledger_writable", (), "0 while the ledger refuses records and relaxing moves are held.")
    add(group, gauge, "config_valid", (), "0 while the config on disk is invalid and the previous one is in force.")
    add(group, gauge, "config_info", ("hash",), "1 for the hash of the config in force.")
    add(group, gauge, "config_loaded_timestamp_seconds", (), "When the config in force was loaded, unix time.")
    add(group, counter, "config_reloads_total", ("result",), "Reloads by result: done or invalid.")
    # fmt: on
    return tuple(out)


METRICS = _metrics()
BY_NAME = {metric.name: metric for metric in METRICS}
SERIES = frozenset(name for metric in METRICS for name in metric.series)

# A tick must fit its interval (15 s by default) and shares it with up to 10 s of reading.
TICK_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0)


def markdown() -> str:
    """The text of ``docs/metrics.md``."""
    lines = [
        "# Metrics of Governor itself",
        "",
        "Scraped from `/metrics`. Generated from the catalogue by `python -m controller.run.catalogue`.",
        "The standard `process_*` metrics of the process are there too.",
        "",
        "**Series.** A target has about five: current, final, unreadable, outcome and reason, and more while it is",
        "pinned or pending. Replicas are one target per pool; weights and breakers have one per replica that is seen,",
        "tenant caps one per tenant of the config, the gate two, a downgrade one per receiving pool. So a pool of 30",
        "replicas and 20 tenants with all levers has 84 targets and some 420 series. A replica that goes takes its",
        "series along; counters have no `member`. Tenants that are not in the config have no series at all.",
    ]
    for group in dict.fromkeys(metric.group for metric in METRICS):
        lines += ["", f"## {group}", "", "| metric | type | labels | meaning |", "| --- | --- | --- | --- |"]
        for metric in METRICS:
            if metric.group == group:
                labels = ", ".join(f"`{label}`" for label in metric.labels)
                lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(markdown())
