"""Standard output whose failures are told as what they are: a full disk behind `>` is no mistake of the program."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from controller.core.errors import InputError


class OutputFailed(InputError):
    """Standard output takes nothing more. A reader that went away is ReaderGone instead."""


class ReaderGone(Exception):
    """Whoever read standard output does so no more. No OSError: the libraries that print catch the one of a broken
    pipe, and end the process by exit code 1, which is an answer."""


class _Raw(io.FileIO):
    def write(self, data: Any) -> int:  # Any: any buffer, which has no name before Python 3.12
        try:
            return super().write(data)
        except BrokenPipeError as error:
            raise ReaderGone from error
        except OSError as error:
            text = f"standard output: {error.strerror or error}; what was printed is not complete"
            raise OutputFailed(text) from error


@contextmanager
def all_written() -> Iterator[None]:
    """At the end all of standard output has been written, or it raises OutputFailed or ReaderGone. What replaced
    standard output, as a test does, is left alone."""
    old = sys.__stdout__
    if old is None or sys.stdout is not old:
        if sys.stdout is None:  # closed by whoever started us
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - open to the end
        yield
        return
    raw = _Raw(old.fileno(), "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=old.encoding, errors=old.errors, line_buffering=old.isatty()
    )
    try:
        try:
            yield
        finally:  # typer ends a command that went well by SystemExit
            sys.stdout.flush()
    except (OutputFailed, ReaderGone):
        # What could not be written stays in the buffer: Python tries again at exit, and would complain again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), old.fileno())
        raise
