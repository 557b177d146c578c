"""A simulation as JSON: one object. Unknown numbers are null, and so is what never came; never NaN."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from controller.config import config_hash
from controller.simulate.board import Board, by_tenant, tenants
from controller.simulate.crew import Results
from controller.simulate.load import Study
from controller.simulate.run import Run
from controller.simulate.score import InEvent, Share
from controller.simulate.spread import Spread


def simulation_json(study: Study, board: Board, results: Results) -> dict[str, Any]:
    """Everything that the scoreboard says, and the runs behind it."""
    scenario, parts = study.scenario, by_tenant(results, sorted(tenants(results)))
    return {
        "type": "simulation",
        "scenario": scenario.name,
        "config": config_hash(study.config),
        "seeds": list(results.seeds),
        "duration": scenario.duration,
        "scored": [scenario.warm_up, scenario.duration - scenario.cool_down],
        "over_oracle": _spread(board.oracle),
        "contenders": {
            row.contender: {
                "note": row.note,
                "measures": {
                    measure.key: {"unit": measure.unit, **(_spread(spread) or {})}
                    for measure, spread in zip(board.measures, row.cells, strict=True)
                },
                "tenants": {
                    measure.key: {"unit": measure.unit, **(_spread(spread) or {})}
                    for measure, spread in zip(parts.measures, part.cells, strict=True)
                },
                "runs": [None if run is None else run_json(run) for run in results.runs[row.contender]],
            }
            for row, part in zip(board.rows, parts.rows, strict=True)
        },
    }


def run_json(run: Run) -> dict[str, Any]:
    """One run, with its minutes."""
    score = run.score
    return {
        "seed": run.seed,
        "all": _share(score.all),
        "classes": {name: _share(one) for name, one in score.classes.items()},
        "tenants": {name: _share(one) for name, one in score.tenants.items()},
        "events": {name: _event(one) for name, one in score.events.items()},
        "gpu_hours": score.gpu_hours,
        "goodput": score.goodput,
        "good_per_gpu_hour": score.good_per_gpu_hour,
        "bad_minutes": score.bad_minutes,
        "minutes": score.minutes,
        "reversals": score.reversals,
        "reversals_per_hour": score.reversals_per_hour,
        "travel": dict(score.travel),
        "fairness": dict(score.fairness),
        "hit_rate": score.hit_rate,
        "attempts": score.attempts,
        "output_tokens": score.output_tokens,
        "settings": dict(run.settings),
        "per_minute": {
            name: [_number(value) for value in getattr(run.series, name)]
            for name in ("offered", "attainment", "degraded", "ttft")
        },
        "replicas": {pool: [list(row) for row in rows] for pool, rows in run.series.replicas.items()},
        "changes": [dataclasses.asdict(change) for change in run.changes],
        "changed": run.changed,
    }


def _share(share: Share) -> dict[str, Any]:
    return {
        "offered": share.offered, "good": share.good, "degraded": share.degraded, "open": share.open,
        "attainment": share.attainment, "missed": dict(share.missed),
    }  # fmt: skip


def _event(event: InEvent) -> dict[str, Any]:
    return {
        **_share(event.all),
        "classes": {name: _share(one) for name, one in event.classes.items()},
        "recovered": event.recovered,
    }


def _spread(spread: Spread | None) -> Mapping[str, Any] | None:
    if spread is None:
        return None
    return {
        "mean": _number(spread.mean), "deviation": _number(spread.deviation), "low": _number(spread.low),
        "high": _number(spread.high), "count": spread.count,
    }  # fmt: skip


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
