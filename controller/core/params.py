"""Parameters of plug-ins, declared as plain dataclass fields so that pure rooms need no pydantic.

A plug-in has a frozen dataclass ``Config`` whose fields are made by ``param``. The config room turns it into a strict
pydantic model: units are parsed ("2s", "80ms", "99%"), bounds checked, unknown keys refused, and the docs and JSON
Schema are generated from the same metadata.
"""

from collections.abc import Callable, Iterable
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Unit(StrEnum):
    """How a parameter is written in the config file, and what the plug-in gets."""

    PLAIN = "plain"
    DURATION = "duration"  # "80ms", "2s", "5m", "6h", "3d" -> seconds
    RATIO = "ratio"  # "99%" or 0.99 -> 0.99
    SECRET = "secret"  # noqa: S105 - {env: NAME} or {file: PATH} -> SecretRef


@dataclass(frozen=True, slots=True)
class SecretRef:
    """Where a secret is read from when it is needed; the secret itself is never in the config, the ledger or a log."""

    env: str | None = None
    file: str | None = None


class Mistakes(ValueError):
    """Several mistakes in one set of parameters, each said as `field: mistake; mend`, as a ValueError says one."""

    def __init__(self, said: Iterable[str]) -> None:
        self.said = tuple(said)
        super().__init__(" and ".join(self.said))


def refuse(said: Iterable[str]) -> None:
    """Raises Mistakes where anything is said, with all of it: whoever is told one at a time mends a file many times."""
    if found := tuple(said):
        raise Mistakes(found)


def param(
    doc: str,
    default: Any = NO_DEFAULT,
    *,
    unit: Unit = Unit.PLAIN,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    lt: float | None = None,
    check: Callable[[Any], object] | None = None,
) -> Any:
    """A config field: its sentence for the docs, default, unit and bounds (in the parsed unit); `check` raises a
    ValueError, as `mistake; mend`, at a value that is none, whatever the other fields are."""
    metadata = {"doc": doc, "unit": unit, "ge": ge, "gt": gt, "le": le, "lt": lt, "check": check}
    if isinstance(default, (dict, list)):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    if default is NO_DEFAULT:
        return field(metadata=metadata)
    return field(default=default, metadata=metadata)
