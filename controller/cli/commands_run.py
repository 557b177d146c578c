"""`governor run`: the daemon."""

from pathlib import Path
from typing import Annotated

import typer


def register(app: typer.Typer) -> None:
    """Add the commands of this room."""
    app.command(short_help="Run the daemon.")(run)


def run(
    config: Annotated[
        Path,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            envvar="GOVERNOR_CONFIG",
            help="The config; watched, and reloaded when it changes.",
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and decide as always, but write to no target.")
    ] = False,
) -> None:
    """Runs until told to stop: reads, decides, acts and records, tick by tick. SIGHUP reloads the config."""
    from controller.run import daemon

    raise typer.Exit(daemon.run(config, dry_run))
