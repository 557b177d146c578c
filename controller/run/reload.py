"""Watches a config file for changed content, puts what is wrong with it into lines, and knows when to try again.

Content, not times: a ConfigMap update swaps a symlink two folders up, editors replace the file, and coarse clocks give
two versions the same mtime. The file is small, so reading it every few seconds is the cheapest thing that is right.
"""

import hashlib
from pathlib import Path

from controller.config.errors import ConfigError

_LONGEST = 300.0  # seconds between two tries


def problems_of(problem: Exception) -> tuple[str, ...]:
    """One line per mistake, never empty."""
    if isinstance(problem, ConfigError) and problem.problems:
        return tuple(problem.render().splitlines())
    return (f"{type(problem).__name__}: {problem}",)


class Retry:
    """When a reload that failed for a reason that may pass (an address that is taken, a disk that is full) is tried
    again: after 2, 4, 8, ... looks, at last every 5 minutes."""

    def __init__(self, look: float) -> None:
        self._look = look
        self._wait = 0.0
        self._at: float | None = None

    def due(self, now: float) -> bool:
        """Whether it is time; monotonic seconds."""
        return self._at is not None and now >= self._at

    def failed(self, now: float) -> None:
        self._wait = min(max(2 * self._wait, 2 * self._look), _LONGEST)
        self._at = now + self._wait

    def forget(self) -> None:
        """It worked, or there is another config to try."""
        self._wait, self._at = 0.0, None


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
