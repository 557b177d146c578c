"""The HTML report: one file that needs nothing else, for people who decide whether Governor may act."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from controller.core.why import SENTENCE
from controller.core.words import clock, number, percent
from controller.explain import held_by, is_replicas
from controller.rehearse.members import rows, short_name
from controller.rehearse.plots import STRIP_NAMES, draw_pool, sparkline
from controller.rehearse.summary import PoolSummary, Summary
from controller.rehearse.trace import PoolTrace, Trace
from controller.rehearse.words import OPEN_LOOP, attained, duration, hours, promise, why_changed

ROWS = 150  # changes listed per pool; the rest is counted and named


@dataclass(frozen=True, slots=True)
class Origin:
    """What the report says of itself: `about` names input and config in rows of the head."""

    title: str
    about: Mapping[str, str]


def write_report(path: Path, trace: Trace, summary: Summary, origin: Origin) -> int:
    """Write the report and return its size in bytes. Raises OSError when it cannot be written."""
    text = render(trace, summary, origin)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return len(text.encode())


def render(trace: Trace, summary: Summary, origin: Origin) -> str:
    """The report as text."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    place = files("controller.rehearse")
    template = environment.from_string(place.joinpath("report.html.j2").read_text(encoding="utf-8"))
    return template.render(
        origin=origin,
        style=Markup(place.joinpath("report.css").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        script=Markup(place.joinpath("report.js").read_text(encoding="utf-8")),  # noqa: S704 - our own file
        open_loop=OPEN_LOOP,
        summary=summary,
        span=f"{clock(summary.start, date=True)} to {clock(summary.end, date=True)} UTC",
        length=duration(max(0.0, summary.end - summary.start)),
        step=duration(summary.step),
        strips=[(i, name) for i, name in enumerate(STRIP_NAMES) if name],
        pools=[_pool(trace, trace.pools[pool.pool], pool) for pool in summary.pools],
        totals=_totals(summary),
    )


def _pool(trace: Trace, pool: PoolTrace, summary: PoolSummary) -> dict[str, object]:
    dated = clock(trace.at[0], date=True)[:10] != clock(trace.at[-1], date=True)[:10] if trace.at else False
    changes = [
        {
            "at": clock(trace.at[tick], date=dated),
            "target": short_name(target),
            "recorded": number(decision.current),
            "was": number(was),
            "now": number(decision.final),
            "up": (decision.final or 0) > was,
            "held": held_by(decision) is not None,
            "reason": why_changed(decision),
        }
        for tick, target, was, decision in sorted(
            (
                (tick, target, was, decision)
                for target, lane in pool.targets.items()
                for tick, was, decision in lane.changes()
            ),
            key=lambda change: change[:2],
        )
    ]
    svg, absent = draw_pool(pool, trace.at, trace.step) if trace.at else (Markup(""), [])
    lane = next((lane for target, lane in sorted(pool.targets.items()) if is_replicas(target)), None)
    return {
        "name": summary.pool,
        "objectives": [
            {"promise": promise(one), "verdict": one.verdict, "attained": attained(one), "seen": percent(one.seen)}
            for one in summary.objectives
        ],
        "targets": [
            {
                "name": row.name,
                "hours": hours(one),
                "changes": f"{one.ups} up, {one.downs} down",
                "turns": one.turns,
                "recorded_turns": one.recorded_turns,
                "held": [(why.value, ticks, SENTENCE[why]) for why, ticks in one.held.items()],
                "held_total": sum(one.held.values()),
                "ticks": one.ticks,
            }
            for row in rows(summary.targets)
            for one in (row.one,)
        ],
        "replicas": [hours(one) for one in summary.targets if is_replicas(one.target)],
        "turns": sum(one.turns for one in summary.targets),
        "held": sum(sum(one.held.values()) for one in summary.targets),
        "changes": changes[:ROWS],
        "more": max(0, len(changes) - ROWS),
        "changed": len(changes),
        "svg": svg,
        "spark": sparkline(lane, trace.at, trace.step) if lane is not None and trace.at else "",
        "absent": absent,
    }


def _totals(summary: Summary) -> str:
    """GPU-hours of all pools, in one phrase; empty when nothing can be compared."""
    recorded = proposed = 0.0
    compared = missing = 0
    for pool in summary.pools:
        for one in pool.targets:
            if not is_replicas(one.target):
                continue
            if one.recorded_hours is None or one.proposed_hours is None:
                missing += 1
                continue
            recorded += one.recorded_hours * pool.gpus
            proposed += one.proposed_hours * pool.gpus
            compared += 1
    if not compared:
        return ""
    change = f" ({(proposed / recorded - 1) * 100:+.0f} %)" if recorded > 0 else ""
    left = f"; {missing} pools cannot be compared" if missing else ""
    return f"GPU-hours of ready replicas: recorded {number(recorded)}, proposed {number(proposed)}{change}{left}"
