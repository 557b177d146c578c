"""The console script as a real process, in a pipe or on a terminal."""

import os
import pty
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-c", "from controller.cli import main; main()")


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without what would change colours or width."""
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "TERM")}
    return {**kept, "TERM": "xterm-256color", "COLUMNS": "120", **(extra or {})}


def governor(*words: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    """Run `governor words...` in a pipe, with `text` as its standard input."""
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        env=environment(),
        check=False,
    )


def on_terminal(*words: str | Path, extra: Mapping[str, str] | None = None) -> str:
    """What `governor words...` shows on a terminal."""
    primary, secondary = pty.openpty()
    with subprocess.Popen(
        [*COMMAND, *map(str, words)], stdin=secondary, stdout=secondary, stderr=secondary, env=environment(extra)
    ) as process:
        os.close(secondary)
        shown = bytearray()
        while True:
            try:
                chunk = os.read(primary, 65536)
            except OSError:  # the last writer is gone
                break
            if not chunk:
                break
            shown += chunk
        process.wait(timeout=120)
    os.close(primary)
    return shown.decode()
