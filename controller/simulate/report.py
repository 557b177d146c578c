"""The HTML report of a simulation: one file that needs nothing else."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from controller.config import config_hash
from controller.core.words import number
from controller.rehearse.words import duration
from controller.simulate.board import Board, by_tenant, tenants
from controller.simulate.crew import Results
from controller.simulate.live import offset
from controller.simulate.load import Study
from controller.simulate.plots import draw
from controller.simulate.table import best, of_tenants, over_oracle, reasons
from controller.simulate.words import cell, contender, foot, share

ROWS = 200  # decisions that are listed
TENANTS = 30


def write_report(path: Path, study: Study, board: Board, results: Results, remarks: Sequence[str] = ()) -> int:
    """Write the report and return its size in bytes; `remarks` are lines that stand before all else. Raises OSError
    when it cannot be written."""
    text = render(study, board, results, remarks)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return len(text.encode())


def render(study: Study, board: Board, results: Results, remarks: Sequence[str] = ()) -> str:
    """The report as text."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    own, shared = files("controller.simulate"), files("controller.rehearse")
    template = environment.from_string(own.joinpath("report.html.j2").read_text(encoding="utf-8"))
    style = shared.joinpath("report.css").read_text(encoding="utf-8") + own.joinpath("report.css").read_text(
        encoding="utf-8"
    )
    scenario = study.scenario
    mine, named = results.of("governor"), tenants(results)
    changes = mine[0].changes if mine else ()
    scored = f"{offset(scenario.warm_up)} to {offset(scenario.duration - scenario.cool_down)}"
    return template.render(
        title=f"{scenario.name}: Governor on the fleet twin",
        about=scenario.about,
        remarks="\n".join(remarks),
        facts=f"{duration(scenario.duration)} of virtual time, scored from {scored}; a decision every "
        f"{duration(study.config.interval)}. {_promises(study)}",
        seeds=len(results.seeds),
        names=[contender(row.contender) for row in board.rows],
        rows=_rows(board),
        notes=[row.note for row in board.rows],
        over=over_oracle(board),
        foot=foot(results.contenders, board.open),
        missed=[(contender(name), reasons(results, name)) for name in results.contenders if results.of(name)],
        by_tenant=_rows(by_tenant(results, named[:TENANTS])),
        of_tenants=of_tenants(len(named), TENANTS).capitalize(),
        tenants=_tenants(results),
        plots=draw(scenario, results),
        events=", ".join(event.name for event in scenario.events),
        first=results.seeds[0],
        changes=[
            {
                "at": offset(one.at - scenario.start),
                "target": one.target,
                "was": number(one.before),
                "now": number(one.after),
                "way": "rise" if one.after > one.before else "fall",
                "why": one.why,
            }
            for one in changes[:ROWS]
        ],
        more=max(0, (mine[0].changed if mine else 0) - ROWS),
        origin={
            "scenario": study.origin.name,
            "config": f"{_where(study)} ({config_hash(study.config)[:12]})",
            "seeds": f"{results.seeds[0]} to {results.seeds[-1]}" if len(results.seeds) > 1 else str(results.seeds[0]),
        },
        style=Markup(style),  # noqa: S704 - our own file
        script=Markup(shared.joinpath("report.js").read_text(encoding="utf-8")),  # noqa: S704 - our own file
    )


def _rows(board: Board) -> list[dict[str, Any]]:
    rows = []
    for place, measure in enumerate(board.measures):
        winners = best(board, place)
        cells = [
            {"text": cell(measure, row.cells[place]), "best": number_ in winners}
            for number_, row in enumerate(board.rows)
        ]
        rows.append({"title": measure.title, "cells": cells})
    return rows


def _tenants(results: Results) -> list[tuple[str, list[str]]]:
    """The tenants that fared worst with Governor first."""
    lowest: dict[str, dict[str, float]] = {}
    for name in results.contenders:
        for run in results.of(name):
            for tenant, part in run.score.fairness.items():
                by_name = lowest.setdefault(tenant, {})
                by_name[name] = min(part, by_name.get(name, part))
    ranked = sorted(lowest.items(), key=lambda item: (item[1].get("governor", 2.0), item[0]))[:TENANTS]
    return [
        (tenant or "(none)", [share(found[name]) if name in found else "" for name in results.contenders])
        for tenant, found in ranked
    ]


def _promises(study: Study) -> str:
    told = []
    for name, promise in study.scenario.promises.items():
        parts = [
            f"{word} ≤ {duration(target)}"
            for word, target in (("ttft", promise.ttft), ("tpot", promise.tpot), ("e2e", promise.e2e))
            if target is not None
        ]
        told.append(f"{name}: {', '.join(parts)}")
    return f"Promised: {'; '.join(told)}."


def _where(study: Study) -> str:
    if study.origin.config:
        return study.origin.config
    given = study.scenario.governor
    return given if isinstance(given, str) else "in the scenario"
