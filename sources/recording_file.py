"""The recording file: one gzip file of JSON lines, so that ``zcat`` shows what is in it.

The first line is the header. Each further line is one frame, delta-encoded against the one before:

    {"t": 1795963558.71, "new": [["up", {"job": "vllm"}], ...], "set": [[0, 4, 7], [1, 0.25, 12]], "gone": [3]}

``new`` gives the next free numbers to series, ``set`` holds numbers and their new values, ``gone`` the series that
vanished. What is not named is unchanged. Values are exact.
"""

import gzip
import json
import math
import os
import zlib
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
import orjson

from controller.core.errors import InputError
from sources.frames import Frame, Layout, Values, labels

FORMAT = "governor-recording"
VERSION = 1


class RecordingError(InputError):
    """A recording that cannot be read. The message says what is wrong, where, and what can be done."""


@dataclass(frozen=True, slots=True)
class Header:
    """The first line. `kind` is "series" (raw series, read by metric contracts) or "facts" (imported columns).

    `interval` is the usual distance of frames in seconds; `created` an ISO 8601 time, informative; `facts` tells, for a
    recording of facts, what each fact was read from, and `late` which of them are known only at a request's end.
    """

    kind: str
    interval: float
    created: str = ""
    source: str = ""
    comment: str = ""
    engines: tuple[str, ...] = ()
    facts: dict[str, str] = field(default_factory=dict)
    late: tuple[str, ...] = ()


class RecordingWriter:
    """Writes frames in the order of their times. The file gets its name only when all went well. Raises RecordingError
    when it cannot be written, and before a device or a pipe would be replaced."""

    def __init__(self, path: Path, header: Header) -> None:
        self._path = path
        if not path.name or (path.exists() and not path.is_file()):
            raise RecordingError(f"{path}: is not a plain file; name one that may be replaced")
        self._part = path.with_name(path.name + ".part")
        try:
            self._raw: IO[bytes] = self._part.open("wb")
        except OSError as error:
            raise self._unwritable(error) from error
        # No name and no time in the gzip header: the same frames make the same file.
        self._file = gzip.GzipFile(filename="", mode="wb", fileobj=self._raw, mtime=0)
        self._numbers: dict[int, int] = {}  # of the layout -> in the file
        self._layout: Layout | None = None
        self._last: Values = np.empty(0)
        self._at = -math.inf
        self.frames = 0
        self._line({"format": FORMAT, "version": VERSION, **asdict(header)})

    def write(self, frame: Frame) -> None:
        """Append one frame. All frames must share a layout. Raises ValueError when it is not newer than the last."""
        if frame.at <= self._at:
            raise ValueError(f"frame of {frame.at:.3f} is not newer than the one before, {self._at:.3f}")
        if self._layout is None:
            self._layout = frame.layout
        elif frame.layout is not self._layout:
            raise ValueError("the frames of one recording must share their layout")
        last = np.full(len(frame.values), np.nan)
        last[: len(self._last)] = self._last
        now = frame.values
        changed = np.flatnonzero((now != last) & ~np.isnan(now)).tolist()
        gone = np.flatnonzero(np.isnan(now) & ~np.isnan(last)).tolist()
        new = [number for number in changed if number not in self._numbers]
        for number in new:
            self._numbers[number] = len(self._numbers)
        line: dict[str, Any] = {"t": _plain(frame.at)}
        if new:
            line["new"] = [[frame.layout.keys[number][0], dict(frame.layout.keys[number][1])] for number in new]
        if changed:
            line["set"] = [[self._numbers[n] for n in changed], [_plain(v) for v in now[changed].tolist()]]
        if gone:
            line["gone"] = [self._numbers[number] for number in gone]
        self._line(line)
        self._last, self._at = now, frame.at
        self.frames += 1

    def _line(self, content: dict[str, Any]) -> None:
        try:
            self._file.write(json.dumps(content, separators=(",", ":"), allow_nan=False).encode() + b"\n")
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> RecordingError:
        return RecordingError(f"{self._path}: cannot be written: {error.strerror or error}; check its folder and space")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            # The raw file is closed whatever becomes of the last bytes of the packed one.
            with self._raw:
                self._file.close()
            if kind is None:
                os.replace(self._part, self._path)
        except OSError as problem:
            if error is None:  # else what went wrong first is told
                raise self._unwritable(problem) from problem
        finally:
            self._part.unlink(missing_ok=True)


class Recording:
    """An existing recording. Opening reads the header alone; raises RecordingError.

    `damaged` allows reading up to the damage of a truncated or corrupt file; otherwise damage is an error.
    """

    def __init__(self, path: Path, *, damaged: bool = False) -> None:
        self.path = path
        self._damaged = damaged
        first = next(self._lines(), None)
        if first is None:
            raise RecordingError(f"{path}: is empty; record or import it again")
        self.header = self._header(first[1])

    def times(self) -> tuple[float, ...]:
        """The times of all frames, unix seconds. Raises RecordingError at the damage, if there is some: whoever asks
        for them is told before the work and not at the end of it."""
        return tuple(frame.at for frame in self.frames())

    def frames(self, layout: Layout | None = None) -> Generator[Frame, None, None]:
        """All frames, in order, sharing one layout. Raises RecordingError at the damage, if there is some."""
        layout = Layout() if layout is None else layout
        numbers: list[int] = []
        values = np.full(0, np.nan)
        at = -math.inf
        for line_number, line in self._body():
            try:
                row = orjson.loads(line)
                if not isinstance(row, dict) or "t" not in row:
                    raise ValueError("no time")
                for name, pairs in row.get("new", ()):
                    numbers.append(layout.number((name, labels(pairs.items()))))
                grown = np.full(len(layout), np.nan)
                grown[: len(values)] = values
                values = grown
                (where, what), gone = row.get("set", ((), ())), row.get("gone", ())
                if len(where) != len(what) or min(where, default=0) < 0 or min(gone, default=0) < 0:
                    raise ValueError("numbers and values do not match")
                if (highest := max(max(where, default=-1), max(gone, default=-1))) >= len(numbers):
                    raise ValueError(f"series {highest} was never declared")
                values[[numbers[n] for n in gone]] = np.nan
                values[[numbers[n] for n in where]] = what
                if np.isinf(values).any():
                    raise ValueError("a value is infinite")
                if not at < row["t"] < math.inf:
                    raise ValueError("time does not move forward")
                at = float(row["t"])
            except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
                if self._damaged:
                    return
                why = str(error) if isinstance(error, ValueError) else "it is no frame"  # others speak of Python
                raise self._broken(line_number, why) from error
            yield Frame(at, layout, values)

    def _body(self) -> Iterator[tuple[int, bytes]]:
        return ((number, line) for number, line in self._lines() if number > 1)

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        number = 0
        try:
            with self.path.open("rb") as raw:
                packed = raw.read(2) == b"\x1f\x8b"
                raw.seek(0)
                stream: Iterable[bytes] = gzip.GzipFile(fileobj=raw) if packed else raw
                for number, line in enumerate(stream, 1):
                    if not line.endswith(b"\n"):
                        raise EOFError("the last line is not complete")
                    yield number, line
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            if not (self._damaged and number):
                raise self._broken(number + 1, str(error)) from error
        except OSError as error:
            raise RecordingError(f"{self.path}: cannot be read: {error.strerror or error}") from error

    def _broken(self, line: int, why: str) -> RecordingError:
        if line <= 1:
            return RecordingError(f"{self.path}: damaged in its first line ({why}); record or import it again")
        return RecordingError(
            f"{self.path}: damaged in line {line} ({why}), after {max(0, line - 2)} good frames; record or import it "
            "again, or write `source: {kind: recording, path: FILE, damaged: true}` in the config to read up to there"
        )

    def _header(self, line: bytes) -> Header:
        try:
            content = json.loads(line)
            if content["format"] != FORMAT:
                raise ValueError("no format line")
        except (ValueError, KeyError, TypeError) as error:
            raise RecordingError(
                f"{self.path}: is not a recording of Governor; `governor import` makes one of exposition text or CSV"
            ) from error
        if content.get("version") != VERSION:
            raise RecordingError(
                f"{self.path}: has version {content.get('version')!r} of the format and this Governor reads version "
                f"{VERSION}; record or import it again, or use the Governor that wrote it"
            )
        known = {entry.name for entry in fields(Header)}
        try:
            header = Header(**{name: value for name, value in content.items() if name in known})
            header = replace(header, engines=tuple(header.engines), late=tuple(header.late))
        except TypeError as error:
            raise self._broken(1, str(error)) from error
        if header.kind not in ("series", "facts"):
            raise RecordingError(f"{self.path}: its kind is {header.kind!r}, neither series nor facts; import it again")
        interval = content.get("interval")
        if not (isinstance(interval, int | float) and 0 < interval < math.inf):
            raise RecordingError(f"{self.path}: its interval {interval!r} is not a number of seconds above 0")
        return header


def _plain(value: float) -> float | int:
    """Whole numbers without ``.0``: shorter, and the same value."""
    return int(value) if float(value).is_integer() and abs(value) < 2**53 else value
