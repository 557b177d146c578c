"""`governor doctor`: what is wrong, before it hurts. The looking is done in the wings, here is the asking."""

import json
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer
from rich.text import Text

from controller import registry
from controller.cli.commands_recording import prometheus_settings
from controller.cli.terminal import FAILED, about, out, read_text
from controller.config import GovernorConfig, load, pool_needs
from controller.core.errors import InputError
from controller.core.ports import Finding
from controller.core.signals import INFO
from controller.core.words import quantity
from controller.run.look import look

_STYLE = {"error": "red", "warning": "yellow", "info": "dim"}


class Diagnosis(Protocol):
    """What the `diagnose-exposition` tool answers."""

    @property
    def failed(self) -> bool: ...
    def render(self) -> str: ...
    def to_json(self) -> dict[str, Any]: ...


def register(app: typer.Typer) -> None:
    """Add the commands of this room."""
    app.command(short_help="Tell what is wrong before it hurts.")(doctor)


def doctor(
    config: Annotated[
        Path | None,
        typer.Option("--config", "-c", metavar="FILE", help="Look at the Prometheus of this config, for its pools."),
    ] = None,
    exposition: Annotated[
        str | None,
        typer.Option(
            "--exposition", "-e", metavar="FILE", help="Look at this /metrics page, offline; - for standard input."
        ),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --exposition: the engine, where its names do not prove it.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="With --config: ask the targets too: reachable, allowed, anybody else's?")
    ] = False,
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="The Prometheus, if not the one of the config.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Tells what is wrong before it hurts: names, buckets, windows, labels. Exits 1 when something would mislead.

    With --exposition it needs no network; a --config next to it has its targets compared with the page's buckets. With
    --live every target is read once, and nothing is written."""
    if live and (config is None or exposition is not None):
        raise InputError("doctor --live: needs --config FILE alone, for it asks the actuators of a config")
    settings = load(config) if config is not None else None
    if exposition is not None:
        failed = _page(exposition, engine, settings, as_json=as_json)
    elif settings is not None:
        findings: Sequence[Finding] = registry.tool("diagnose-prometheus")(
            prometheus_settings(settings, prometheus),
            pool_needs(settings),
            window=min(pool.window for pool in settings.pools.values()),
        )
        if live:
            findings = [*findings, *look(settings)]
        failed = any(one.level == "error" for one in findings)
        if as_json:
            _write_json({"findings": [_plain(one) for one in findings], "failed": failed})
        else:
            _tell(findings, nothing="nothing is wrong that can be seen from here")
    else:
        raise InputError("doctor: give --config FILE to look at a Prometheus, or --exposition FILE to look at a page")
    if failed:
        raise typer.Exit(FAILED)


def _page(path: str, engine: str | None, config: GovernorConfig | None, *, as_json: bool) -> bool:
    text = read_text(path)
    with about(path):
        diagnosis: Diagnosis = registry.tool("diagnose-exposition")(text, engine)
    data = diagnosis.to_json()
    edges = {one["fact"]: one["edges"] for one in data["histograms"]}
    notes = list(between_buckets(config, edges)) if config is not None else []
    if as_json:
        data["findings"] += [_plain(one) for one in notes]
        _write_json(data)
    else:
        sys.stdout.write(diagnosis.render())
        _tell(notes)
    return diagnosis.failed


def between_buckets(config: GovernorConfig, edges: Mapping[str, Sequence[float]]) -> Iterator[Finding]:
    """Objectives whose target is no edge of its histogram: their attainment is known between bounds only. `edges` are
    the finite bounds in seconds, ascending, by the name of the fact."""
    for name, pool in config.pools.items():
        for one in pool.to_objectives():
            bounds = edges.get(one.signal.value)
            if one.share is None or not INFO[one.signal].latency or not bounds or one.target in bounds:
                continue
            at = bisect_left(bounds, one.target)
            near = [quantity(edge, "s") for edge in bounds[max(0, at - 1) : at + 1]]
            target = quantity(one.target, "s")
            if at == len(bounds):
                text = f"the target {target} is above the last bucket ({near[0]}): that it is met can never be shown"
                yield Finding("warning", f"{name}/{one.name}", f"{text}; choose {near[0]} or less")
            elif at == 0:
                text = f"the target {target} is below the first bucket ({near[0]}): that it is met can never be shown"
                yield Finding("warning", f"{name}/{one.name}", f"{text}; choose {near[0]} or more")
            else:
                text = f"the target {target} lies between two buckets, so attainment has bounds instead of a value"
                yield Finding("warning", f"{name}/{one.name}", f"{text}; {near[0]} and {near[1]} are exact")


def _tell(findings: Iterable[Finding], nothing: str = "") -> None:
    console = out()
    told = False
    for one in findings:
        line = Text(f"{one.level}: ", style=_STYLE.get(one.level, ""))
        line.append(f"{one.subject}: {one.text}" if one.subject else one.text, style="default")
        console.print(line, soft_wrap=True)
        told = True
    if not told and nothing:
        console.print(nothing)


def _plain(one: Finding) -> dict[str, str]:
    return {"level": str(one.level), "subject": one.subject, "text": one.text}


def _write_json(data: object) -> None:
    sys.stdout.write(json.dumps(data, indent=2, allow_nan=False) + "\n")
