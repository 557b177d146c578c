"""A rehearsal as JSON: one line per tick, then one line of summary. Unknown numbers are null, never NaN."""

import json
from typing import TextIO

from controller.core.model import Plan, PoolReadings, Snapshot
from controller.core.reading import Reading
from controller.explain import decision_json
from controller.rehearse.summary import ObjectiveSummary, Summary, TargetSummary


def write_line(out: TextIO, value: object) -> None:
    """One compact JSON value and a newline."""
    out.write(json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False) + "\n")


def tick_json(snapshot: Snapshot, plan: Plan) -> dict[str, object]:
    """What was seen and decided at one tick. Readings that were not there to be read are left out."""
    return {
        "type": "tick",
        "at": snapshot.tick.at,
        "error": snapshot.error,
        "pools": {name: _pool(pool) for name, pool in snapshot.pools.items()},
        "decisions": [decision_json(decision) for decision in plan.decisions],
        "summary": plan.summary,
    }


def summary_json(summary: Summary) -> dict[str, object]:
    """The closing line."""
    return {
        "type": "summary",
        "start": summary.start,
        "end": summary.end,
        "ticks": summary.ticks,
        "step": summary.step,
        "source_errors": summary.errors,
        "source_error": summary.error,
        "open_loop": True,
        "pools": {
            pool.pool: {
                "objectives": [_objective(objective) for objective in pool.objectives],
                "targets": [_target(target, pool.gpus) for target in pool.targets],
            }
            for pool in summary.pools
        },
    }


def reading_json(reading: Reading) -> dict[str, object]:
    """A reading without its empty fields."""
    fields: dict[str, object] = {"state": reading.state.value}
    for name in ("value", "lo", "hi", "count", "age", "window"):
        number = getattr(reading, name)
        if number is not None:
            fields[name] = number
    if reading.note:
        fields["note"] = reading.note
    return fields


def _pool(pool: PoolReadings) -> dict[str, object]:
    signals = {signal.value: reading_json(reading) for signal, reading in pool.signals.items()}
    for signal, stats in pool.latencies.items():
        for stat, reading in stats.items():
            signals[f"{signal.value}.{stat}"] = reading_json(reading)
    return {
        "signals": signals,
        "attainment": {name: reading_json(reading) for name, reading in pool.attainment.items()},
    }


def _objective(one: ObjectiveSummary) -> dict[str, object]:
    return {
        "name": one.name, "signal": one.signal, "stat": one.stat, "class": one.klass, "target": one.target,
        "share": one.share, "attained_lo": one.lo, "attained_hi": one.hi, "verdict": one.verdict, "seen": one.seen,
        "count": one.count,
    }  # fmt: skip


def _target(one: TargetSummary, gpus: int) -> dict[str, object]:
    return {
        "target": str(one.target), "recorded_hours": one.recorded_hours, "proposed_hours": one.proposed_hours,
        "compared": one.compared, "gpus_per_replica": gpus, "lowest": one.lowest, "highest": one.highest,
        "rises": one.ups, "falls": one.downs, "reversals": one.turns, "recorded_reversals": one.recorded_turns,
        "held": {why.value: ticks for why, ticks in one.held.items()}, "ticks": one.ticks,
    }  # fmt: skip
