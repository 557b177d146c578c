"""The Governor that a command is about: the one of a config file."""

from pathlib import Path
from typing import Annotated

import typer

from controller.config import GovernorConfig, load
from controller.core.errors import InputError

USUAL = Path("/etc/governor/governor.yaml")  # where the manifests put it
CONFIG = Annotated[
    Path | None,
    typer.Option(
        "--config", "-c", metavar="FILE", envvar="GOVERNOR_CONFIG",
        help=f"The config of the running Governor; without it {USUAL}.",
    ),
]  # fmt: skip


def load_config(config: Path | None) -> GovernorConfig:
    """The config that was named, or the usual one. Raises InputError and ConfigError."""
    if config is None and not USUAL.exists():
        raise InputError("--config: is missing; name the config of the running Governor, or set GOVERNOR_CONFIG")
    return load(config if config is not None else USUAL)
