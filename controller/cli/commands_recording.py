"""`governor record` and `import`: getting metrics in.

What these commands do lives in the wings and is reached by the registry; here is only what a person types.
"""

import dataclasses
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from controller import registry
from controller.cli.outputs import to_file, to_file_or_folder
from controller.cli.terminal import out, progress, say, warn
from controller.cli.times import parse_duration, parse_time
from controller.config import GovernorConfig, load, pool_needs
from controller.core.errors import InputError
from controller.rehearse.words import duration

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


def register(app: typer.Typer) -> None:
    """Add the commands of this room."""
    app.command(short_help="Record a Prometheus range into one file.")(record)
    app.command("import", short_help="Make a recording of exposition text or CSV.")(import_)


def record(
    config: Annotated[Path, typer.Option("--config", "-c", metavar="FILE", help="What it needs is what is recorded.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The recording to write.")],
    prometheus: Annotated[
        str | None, typer.Option(metavar="URL", help="The Prometheus, if not the one of the config.")
    ] = None,
    since: Annotated[
        str, typer.Option("--from", metavar="TIME", help="Begin: 2026-01-01T12:00:00Z, unix seconds, or 6h (ago).")
    ] = "6h",
    until: Annotated[str, typer.Option("--to", metavar="TIME", help="End.")] = "now",
    step: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Distance of samples. Default: the interval of the config.")
    ] = None,
) -> None:
    """Records from a Prometheus range what the config needs, into one compact file."""
    settings = load(config)
    to_file(output, "--output", config)
    width = parse_duration(step, "--step") if step is not None else settings.interval
    now = time.time()
    record_range(
        settings, prometheus, parse_time(since, "--from", now), parse_time(until, "--to", now), output, step=width
    )
    out().print(f"{output}: {output.stat().st_size / 1024:,.0f} KiB", soft_wrap=True)


def record_range(
    config: GovernorConfig, prometheus: str | None, start: float, end: float, path: Path, *, step: float | None = None
) -> None:
    """Record into `path`, with a bar on a terminal. Raises InputError, and what the `record` tool raises."""
    if end <= start:
        raise InputError("--to: is not later than --from; the range is empty")
    needs = pool_needs(config)
    reach = prometheus_settings(config, prometheus)
    say(f"asking {prometheus or 'the Prometheus of the config'}")
    with progress("recording") as bar:
        task = bar.add_task("", total=None) if bar is not None else None

        def on_progress(done: int, total: int) -> None:
            if bar is not None and task is not None:
                bar.update(task, completed=done, total=total)

        done = registry.tool("record")(reach, needs, start, end, step or config.interval, path, progress=on_progress)
    for note in done.notes:
        warn(note)


def prometheus_settings(config: GovernorConfig, url: str | None) -> object:
    """How to reach the Prometheus: the config's own settings, at `url` where one is given."""
    own = config.source.settings if config.source.kind == "prometheus" else None
    if url is None:
        if own is None:
            raise InputError(f"--prometheus: is needed, for the source of the config is {config.source.kind!r}")
        return own
    try:
        if own is not None:
            return dataclasses.replace(own, url=url)
        return registry.source("prometheus").Config(url=url)
    except ValueError as error:
        raise InputError(f"--prometheus: {error}") from error


def import_(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Exposition text with times, or CSV tables (with --mapping)."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The recording; a folder where the CSV is split.")
    ],
    mapping: Annotated[
        Path | None,
        typer.Option(
            "--mapping", "-m", metavar="FILE", help="Which CSV column is which fact; makes this a CSV import."
        ),
    ] = None,
    group: Annotated[str, typer.Option(metavar="VALUE", help="CSV: import only this value of the group column.")] = "",
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="Exposition: the engine, where its names do not prove it.")
    ] = "",
    label: Annotated[
        list[str] | None,
        typer.Option("--label", "-l", metavar="NAME=VALUE", help="Exposition: add a label, repeatable."),
    ] = None,
    everything: Annotated[bool, typer.Option(help="Exposition: keep metrics that nothing reads, too.")] = False,
) -> None:
    """Turns timestamped exposition text or CSV tables into a recording."""
    (to_file if mapping is None or group else to_file_or_folder)(output, "--output", *files, mapping)
    if mapping is not None:
        done = registry.tool("import-csv")(files, mapping, output, group=group)
    elif len(files) == 1:
        extra = _labels(label or ())
        tool = registry.tool("import-exposition")
        done = (tool(files[0], output, engine=engine, extra=extra, everything=everything),)
    else:
        raise InputError("import: exposition text is one file at a time; CSV tables need --mapping")
    for one in done:
        span = duration(max(0.0, one.end - one.start))
        console = out()
        console.print(f"{one.path}: {one.frames:,} frames over {span}, {one.series:,} series", soft_wrap=True)
        for note in one.notes:
            console.print(f"  note: {note}", soft_wrap=True)


def _labels(given: Sequence[str]) -> dict[str, str]:
    labels: dict[str, str] = {}
    for text in given:
        name, found, value = text.partition("=")
        if not found or not name:
            raise InputError(f"--label {text}: write name=value")
        if not _LABEL.fullmatch(name) or name == "__name__":
            raise InputError(f"--label {text}: {name!r} is not a label name; use letters, digits and _")
        if name in labels:
            raise InputError(f"--label {text}: {name} is given twice; keep one of them")
        labels[name] = value
    return labels
