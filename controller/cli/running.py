"""The Governor that a command is about: the one of a config file."""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from controller.cli.terminal import warn
from controller.config import ConfigError, GovernorConfig, load, tree
from controller.config.models import LedgerConfig
from controller.core.errors import InputError
from controller.run.laws import recorded
from controller.run.ledger import LedgerError, head_of, ledger_files

USUAL = Path("/etc/governor/governor.yaml")  # where the manifests put it
CONFIG = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", envvar="GOVERNOR_CONFIG",
        help=f"The config of the running Governor; without it {USUAL}.",
    ),
]  # fmt: skip
_LEDGER = re.compile(r"^ledger:.*(?:\n(?:[ \t#].*)?)*", re.MULTILINE)  # that part of a file, whatever the rest is


def load_config(config: Path | None) -> GovernorConfig:
    """The config that was named, or the usual one. Raises InputError and ConfigError."""
    return load(named(config))


def named(config: Path | None) -> Path:
    """The file that was named, or the usual one. Raises InputError."""
    if config is None and not USUAL.exists():
        raise InputError("--config: is missing; name the config of the running Governor, or set GOVERNOR_CONFIG")
    return config if config is not None else USUAL


def config_in_force(config: Path | None) -> GovernorConfig:
    """As ``load_config``, for who must act now: a file that does not load changes nothing for the running Governor, so
    the config that it goes on with is taken from its ledger, which is said. Raises as ``load_config`` where there is
    none."""
    path = named(config)
    try:
        return load(path)
    except ConfigError as error:
        folder, found = next(_of_ledger(path), (None, None))
        if found is None:
            raise
        wrong = f"{len(error.problems)} mistake{'s' if len(error.problems) > 1 else ''}"
        warn(
            f"{path}: does not load ({wrong}, which `governor check` tells), so the config in force is taken from the "
            f"ledger {folder}"
        )
        return found


def _of_ledger(path: Path) -> Iterator[tuple[Path, GovernorConfig]]:
    """The folder of the ledger that a file names, as far as it can be read, and the newest config in it that this
    version takes."""
    with suppress(OSError):
        if path.is_file():
            folder = Path(_ledger_path(path.read_text(encoding="utf-8", errors="replace")))
            for file in reversed(ledger_files(folder)):
                with suppress(LedgerError, ConfigError):
                    config = head_of(file).get("config")
                    if config:
                        yield folder, recorded(config, file)


def _ledger_path(text: str) -> str:
    """Where the ledger is by a file that may be broken anywhere; the default where it does not say so."""
    whole = tree.parse(text).data
    part = _LEDGER.search(text)
    for data in (whole, tree.parse(part[0]).data if part is not None else None):
        ledger = data.get("ledger") if isinstance(data, dict) else None
        said = ledger.get("path") if isinstance(ledger, dict) else None
        if isinstance(said, str) and said:
            return said
    return str(LedgerConfig.model_fields["path"].default)
