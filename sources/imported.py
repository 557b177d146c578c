"""What every import and recording answers, and how it fails."""

from dataclasses import dataclass
from pathlib import Path

from controller.core.errors import InputError


class ImportFailed(InputError):
    """Something that cannot be imported. The message names the file, the place and the mend."""


@dataclass(frozen=True, slots=True)
class Imported:
    """One recording that was written, from `start` to `end` (unix seconds). `group` is "" when not split; `notes`
    tell what was left out."""

    path: Path
    group: str
    frames: int
    series: int
    start: float
    end: float
    interval: float
    notes: tuple[str, ...] = ()
