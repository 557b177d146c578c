"""Watches a config file for changed content, and puts what is wrong with it into lines.

Content, not times: a ConfigMap update swaps a symlink two folders up, editors replace the file, and coarse clocks give
two versions the same mtime. The file is small, so reading it every few seconds is the cheapest thing that is right.
"""

import hashlib
from pathlib import Path

from controller.config.errors import ConfigError


def problems_of(problem: Exception) -> tuple[str, ...]:
    """One line per mistake, never empty."""
    if isinstance(problem, ConfigError) and problem.problems:
        return tuple(str(one) for one in problem.problems)
    return (f"{type(problem).__name__}: {problem}",)


class ConfigWatch:
    """Tells when the file has changed and come to rest. An unreadable file counts as content of its own, so that a
    vanished config is reported rather than overlooked."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._loaded = self._seen = self._digest()

    def changed(self) -> bool:
        """True once per change, when two looks in a row saw the same new content: a file that is being written may
        well be valid YAML halfway through, with half of the pools."""
        digest = self._digest()
        rested = digest == self._seen
        self._seen = digest
        if rested and digest != self._loaded:
            self._loaded = digest
            return True
        return False

    def accept(self) -> None:
        """The content as it is now has been dealt with by other means (a signal)."""
        self._loaded = self._seen = self._digest()

    def _digest(self) -> str:
        try:
            return hashlib.sha256(self._path.read_bytes()).hexdigest()
        except OSError as problem:
            return f"unreadable: {problem.strerror}"
