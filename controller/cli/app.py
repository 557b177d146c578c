"""`governor`: the commands by name, and what becomes of their errors."""

import sys
from typing import Annotated, NoReturn

import typer

from controller.cli import (
    commands_actuators,
    commands_calibrate,
    commands_config,
    commands_doctor,
    commands_fleet,
    commands_ledger,
    commands_pin,
    commands_recording,
    commands_rehearse,
    commands_run,
    commands_simulate,
)
from controller.cli.stdout import ReaderGone, all_written
from controller.cli.terminal import WRONG_INPUT, warn
from controller.config import ConfigError
from controller.core.errors import InputError
from controller.registry import InstallationError, PluginError, check_installation
from controller.run.assembly import AssemblyError
from controller.run.ledger import LedgerError

app = typer.Typer(
    name="governor",
    help="Keeps the latency promises of LLM inference fleets at the lowest cost.\n\n"
    "Begin with `governor init`, look with `governor doctor`, rehearse with `governor dry-run`, then `governor run`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # a traceback is a bug report, and reads best as Python writes it
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
for room in (
    commands_run, commands_rehearse, commands_simulate, commands_fleet, commands_calibrate, commands_config,
    commands_recording, commands_doctor, commands_ledger, commands_pin, commands_actuators,
):  # fmt: skip
    room.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        commands_config.version()
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """What stands before the command."""


def main() -> NoReturn:
    """The console script. Exit codes: 0 well, 1 the answer is no (a failed test, a divergence), 2 wrong input, 130
    interrupted, 141 the reader of the output went away."""
    try:
        with all_written():
            check_installation()
            app(prog_name="governor")
    except ConfigError as error:
        sys.stderr.write(error.render() + "\n")
    except (InputError, PluginError, InstallationError, AssemblyError, LedgerError) as error:
        warn(str(error))
    except ReaderGone:
        sys.exit(141)  # nobody is left to tell
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(WRONG_INPUT)
