"""Running a command of the operator: without a shell, without Governor's secrets, and never longer than its time."""

import os
import signal
import subprocess
from collections.abc import Sequence

_WORDS = 300  # characters of a command's own words that are worth a log line
_ENVIRONMENT = ("PATH", "HOME", "LANG", "TZ")  # the command gets these and none of Governor's secrets


class CommandFailed(Exception):
    """The command could not be run, or ended with an error; the message holds its own last words."""


class CommandHung(Exception):
    """The command did not end in time and was killed."""


def run(command: Sequence[str], timeout: float) -> None:
    """Run to the end in a process group of its own, so that a hung command is ended with all that it started."""
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    try:
        process = subprocess.Popen(  # noqa: S603 - the command is the operator's own, given as a list
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandFailed(f"{command[0]} cannot be run: {error.strerror or error}") from error
    with process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise CommandHung(f"{command[0]} did not end within {timeout:g} s and was killed") from None
    if process.returncode != 0:
        words = output.decode(errors="replace").strip()[-_WORDS:]
        raise CommandFailed(f"{command[0]} ended with {process.returncode}: {words}")
