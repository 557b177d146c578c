"""`governor check`, `schema`, `init` and `version`: the config file before anything runs."""

import json
import sys
from datetime import UTC, datetime
from importlib.metadata import version as installed
from pathlib import Path
from typing import Annotated

import typer

from controller.cli.findings import tell
from controller.cli.outputs import to_file
from controller.cli.terminal import WRONG_INPUT, about, out, read_text, say, warn, write_text
from controller.config import ConfigError, GovernorConfig, hints, json_schema, load, without_actuator
from controller.core.errors import InputError
from controller.registry import DISTRIBUTION
from controller.run.assembly import refused


def register(app: typer.Typer) -> None:
    """Add the commands of this room."""
    app.command(short_help="Name every mistake in a config.")(check)
    app.command(short_help="Print the JSON Schema of the config.")(schema)
    app.command(short_help="Write a starter config from a scrape or a Prometheus.")(init)
    app.command(short_help="Print the version.")(version)


def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="The config files.")],
) -> None:
    """Checks configs and names every mistake in them at once: line, path, mistake, mend. Exits 2 if there is one."""
    wrong = False
    for file in files:
        try:
            config = load(file)
            problems = refused(config)
            for problem in problems:
                warn(f"{file}: {problem}")
            if not problems:
                _good(file, config)
            wrong = wrong or bool(problems)
        except ConfigError as error:
            sys.stderr.write(error.render() + "\n")
            wrong = True
    if wrong:
        raise typer.Exit(WRONG_INPUT)


def _good(file: Path, config: GovernorConfig) -> None:
    levers = sum(len(pool.levers) for pool in config.pools.values())
    promises = sum(len(pool.objectives) for pool in config.pools.values())
    tell(file, without_actuator(config), unless=" (not needed to rehearse)")
    tell(file, hints(config, datetime.now(UTC)))
    counts = (_count(len(config.pools), "pool"), _count(promises, "objective"), _count(levers, "lever"))
    out().print(f"{file}: good: {', '.join(counts)}", soft_wrap=True)


def schema() -> None:
    """Prints the JSON Schema of the config, for editors."""
    sys.stdout.write(json.dumps(json_schema(), indent=2) + "\n")


def init(
    exposition: Annotated[
        str | None,
        typer.Option(
            "--exposition", "-e", metavar="FILE", help="A /metrics page of one replica; - for standard input."
        ),
    ] = None,
    prometheus: Annotated[str | None, typer.Option(metavar="URL", help="A Prometheus that scrapes the fleet.")] = None,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="Where to write it; - for standard output.")
    ] = "-",
    force: Annotated[bool, typer.Option(help="Overwrite the file.")] = False,
) -> None:
    """Writes a commented starter config from what a replica or a Prometheus exposes."""
    from controller import init as starter

    if (exposition is None) == (prometheus is None):
        raise InputError("init: give either --exposition FILE (or -) or --prometheus URL")
    if output != "-":
        to_file(Path(output), "--output", Path(exposition) if exposition is not None else None)
        if Path(output).exists() and not force:
            raise InputError(f"{output}: exists; choose another --output, or overwrite it with --force")
    if exposition is not None:
        page = read_text(exposition)
        with about(exposition):
            text = starter.from_exposition(page)
    else:
        text = starter.from_prometheus(str(prometheus))
    write_text(output, text)
    if output != "-":
        say(f"{output} written; now: governor check {output}")


def version() -> None:
    """Prints the version."""
    sys.stdout.write(f"governor {installed(DISTRIBUTION)}\n")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
