"""What the commands print to, and how they refuse. Results go to standard output, everything else to standard error."""

import gzip
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from controller.core.errors import InputError

WRONG_INPUT = 2
FAILED = 1


def out() -> Console:
    """Standard output; colours on a terminal only, never with NO_COLOR. What is printed is text: no markup, and `:x:`
    in a name is no picture."""
    return Console(highlight=False, markup=False, emoji=False)


def err() -> Console:
    """Standard error."""
    return Console(stderr=True, highlight=False, markup=False, emoji=False)


def say(text: str) -> None:
    """A remark for a person at a terminal; silent in a pipe."""
    console = err()
    if console.is_terminal:
        console.print(text, style="dim")


def warn(text: str) -> None:
    """Something the reader must know, in a pipe too."""
    err().print(f"governor: {text}", soft_wrap=True)


@contextmanager
def progress(label: str) -> Iterator[Progress | None]:
    """A bar on standard error, None where nobody looks."""
    console = err()
    if not console.is_terminal:
        yield None
        return
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        yield bar


def read_text(path: str) -> str:
    """The text of a file, plain or gzip, or of standard input for `-`. Raises InputError."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: is damaged gzip ({error}); pack it again") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; check the path and its rights") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8 text") from error
    return text.replace("\r\n", "\n")  # as text mode reads it


@contextmanager
def about(path: str) -> Iterator[None]:
    """What is wrong with a text is said with the name of its file."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{'standard input' if path == '-' else path}: {error}") from error


def write_text(path: str, text: str) -> None:
    """Write a file, or standard output for `-`. Raises InputError."""
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}; check the path, rights and space") from error
