"""Files of recorded traffic, read whole into columns. A file that cannot be used is an InputError with its line."""

import csv
import datetime
import functools
import gzip
import json
import math
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn, TypeAlias, TypeVar

import numpy as np

from controller.core.errors import InputError
from simulator.traffic.chance import Floats, Ints

Format: TypeAlias = Literal["azure", "mooncake", "requests", "agentic"]

_MOST_TOKENS = 10_000_000
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests in order of time. `at` in seconds from the beginning of the trace, `tenant` an index into `tenants`
    (empty where the file has none). `ids` are all block ids, those of request i from `bounds[i]` to `bounds[i + 1]`;
    `group` are requests that belong together (-1 where the file does not tell). In a trace of sessions, `at` runs from
    the beginning of the session, and a session's requests stand together, in order."""

    at: Floats
    prompt: Ints
    answer: Ints
    tenant: Ints
    tenants: tuple[str, ...]
    ids: Ints
    bounds: Ints
    group: Ints
    block: int

    @property
    def end(self) -> float:
        """When its last request comes, seconds."""
        return float(self.at.max()) if len(self.at) else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Windows:
    """One row per client and window, in order of the file: when it begins (s), requests/s, cv of the gaps, the law."""

    client: tuple[str, ...]
    at: Floats
    rate: Floats
    cv: Floats
    weibull: tuple[bool, ...]


_Read = TypeVar("_Read", Trace, Windows)


def read(form: Format, file: str) -> Trace:
    """The requests of a file."""
    return _once(_READERS[form], file)


def read_windows(file: str) -> Windows:
    """The client windows of a ServeGen file."""
    return _once(_windows, file)


def _once(reader: Callable[[str], _Read], file: str) -> _Read:
    """Read once for all the streams and seeds of a process, and again when the file has changed."""
    try:
        state = Path(file).stat()
    except OSError as error:
        _unreadable(file, error)
    return _cached(reader, file, state.st_mtime_ns, state.st_size)  # type: ignore[return-value]


@functools.lru_cache(maxsize=8)
def _cached(reader: Callable[[str], Trace | Windows], file: str, _changed: int, _size: int) -> Trace | Windows:
    return reader(file)


def _unreadable(file: str, error: Exception) -> NoReturn:
    if isinstance(error, FileNotFoundError):
        raise InputError(f"{file}: no such trace; write its path, absolute or relative to where you are") from error
    words = error.strerror if isinstance(error, OSError) and error.strerror else str(error) or type(error).__name__
    raise InputError(f"{file}: cannot be read: {words}; give a text file, plain or gzip") from error


def _lines(file: str) -> Iterator[str]:
    try:
        with Path(file).open("rb") as raw:
            packed = raw.read(2) == _GZIP
        with gzip.open(file, "rt", encoding="utf-8") if packed else Path(file).open(encoding="utf-8") as text:
            yield from text
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        _unreadable(file, error)


def _bad(file: str, line: int, mistake: str, mend: str = "mend the line or cut it out") -> NoReturn:
    raise InputError(f"{file}:{line}: {mistake}; {mend}")


class _Cells:
    """Checks values and says where they stand."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.line = 1

    def number(self, name: str, value: object, *, least: float = 0.0) -> float:
        try:
            number = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            self.bad(f"{name} is {value!r}, not a number")
        if isinstance(value, bool) or not math.isfinite(number) or number < least:
            self.bad(f"{name} is {value!r}, not a number of {least:g} or more")
        return number

    def tokens(self, name: str, value: object) -> int:
        number = self.number(name, value)
        if number > _MOST_TOKENS or number != int(number):
            self.bad(f"{name} is {value!r}, not a whole number of tokens up to {_MOST_TOKENS}")
        return int(number)

    def ids(self, name: str, value: object) -> list[int]:
        if not isinstance(value, list) or not all(type(part) is int and abs(part) < 2**63 for part in value):
            self.bad(f"{name} is not a list of whole numbers")
        return value

    def bad(self, mistake: str) -> NoReturn:
        _bad(self.file, self.line, mistake)


def _table(file: str, columns: Sequence[str], cells: _Cells) -> Iterator[list[str]]:
    """The wanted columns of a CSV file, line by line."""
    rows = csv.reader(_lines(file))
    header = [name.strip().lstrip("\ufeff") for name in next(rows, [])]
    if missing := [name for name in columns if name not in header]:
        has = ", ".join(header) or "nothing"
        _bad(file, 1, f"there is no column {missing[0]}", f"this kind of trace has {', '.join(columns)}; it has {has}")
    places = [header.index(name) for name in columns]
    try:
        for row in rows:
            cells.line = rows.line_num
            if not row:
                continue
            if len(row) != len(header):
                cells.bad(f"{len(row)} columns, but the first line has {len(header)}")
            yield [row[place] for place in places]
    except csv.Error as error:
        _bad(file, rows.line_num, str(error))


def _objects(file: str, cells: _Cells) -> Iterator[Mapping[str, object]]:
    for number, line in enumerate(_lines(file), 1):
        cells.line = number
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            _bad(file, number, f"not JSON: {error}", "each line is one object; mend the line or cut it out")
        if not isinstance(value, dict):
            cells.bad("not an object")
        yield value


def _azure(file: str) -> Trace:
    cells, at, prompt, answer = _Cells(file), [], [], []
    for stamp, read_tokens, made_tokens in _table(file, ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), cells):
        try:
            when = datetime.datetime.fromisoformat(stamp)
        except ValueError:
            cells.bad(f"TIMESTAMP is {stamp!r}, not a date and time")
        # Wall clock of one place without a zone: differences are all that counts.
        at.append((when if when.tzinfo else when.replace(tzinfo=datetime.UTC)).timestamp())
        prompt.append(cells.tokens("ContextTokens", read_tokens))
        answer.append(cells.tokens("GeneratedTokens", made_tokens))
    first = min(at, default=0.0)
    return _trace(file, [t - first for t in at], prompt, answer)


def _requests(file: str) -> Trace:
    cells, at, prompt, answer = _Cells(file), [], [], []
    tenant: list[int] = []
    known: dict[str, int] = {}
    columns = ("arrival_s", "tenant", "input_tokens", "output_tokens")
    for when, name, read_tokens, made_tokens in _table(file, columns, cells):
        at.append(cells.number("arrival_s", when))
        tenant.append(known.setdefault(name, len(known)))
        prompt.append(cells.tokens("input_tokens", read_tokens))
        answer.append(cells.tokens("output_tokens", made_tokens))
    return _trace(file, at, prompt, answer, tenant, tuple(known))


def _mooncake(file: str) -> Trace:
    cells, at, prompt, answer = _Cells(file), [], [], []
    ids: list[list[int]] = []
    group: list[int] = []
    known: dict[tuple[int, ...], int] = {}
    for row in _objects(file, cells):
        at.append(cells.number("timestamp", row.get("timestamp")) / 1000)
        prompt.append(cells.tokens("input_length", row.get("input_length")))
        answer.append(cells.tokens("output_length", row.get("output_length")))
        ids.append(cells.ids("hash_ids", row.get("hash_ids")))
        # The first block is the same for whole populations; who shares the second as well belongs together.
        group.append(known.setdefault(tuple(ids[-1][:2]), len(known)))
    return _trace(file, at, prompt, answer, ids=ids, group=group, block=512)


def _agentic(file: str) -> Trace:
    cells, at, prompt, answer = _Cells(file), [], [], []
    ids: list[list[int]] = []
    group: list[int] = []
    block = 0
    for number, session in enumerate(_objects(file, cells)):
        size = cells.tokens("block_size", session.get("block_size"))
        if size < 1 or block not in (0, size):
            cells.bad(f"block_size is {size}, " + (f"but {block} above" if block else "not 1 or more"))
        block = size
        requests = session.get("requests")
        if not isinstance(requests, list) or not all(isinstance(request, dict) for request in requests):
            cells.bad("requests is not a list of objects")
        for request in sorted(requests, key=lambda part: cells.number("t", part.get("t"))):
            at.append(cells.number("t", request.get("t")))
            prompt.append(cells.tokens("in", request.get("in")))
            answer.append(cells.tokens("out", request.get("out")))
            ids.append(cells.ids("hash_ids", request.get("hash_ids")))
            group.append(number)
    return _trace(file, at, prompt, answer, ids=ids, group=group, block=block, ordered=False)


def _windows(file: str) -> Windows:
    cells = _Cells(file)
    client, at, rate, cv, weibull = [], [], [], [], []
    columns = ("client_id", "t_s", "rate_rps", "cv", "arrival_pattern")
    for name, when, per_second, spread, law in _table(file, columns, cells):
        if law not in ("Gamma", "Weibull", "Exponential", "Poisson"):
            cells.bad(f"arrival_pattern is {law!r}, not Gamma, Weibull or Exponential")
        client.append(name)
        at.append(cells.number("t_s", when))
        rate.append(cells.number("rate_rps", per_second))
        cv.append(cells.number("cv", spread) if law in ("Gamma", "Weibull") else 1.0)
        weibull.append(law == "Weibull")
    if not at:
        _bad(file, 1, "there are no windows below the header", "give a file with at least one")
    return Windows(tuple(client), np.array(at), np.array(rate), np.array(cv), tuple(weibull))


def _trace(
    file: str,
    at: Sequence[float],
    prompt: Sequence[int],
    answer: Sequence[int],
    tenant: Sequence[int] | None = None,
    tenants: tuple[str, ...] = (),
    *,
    ids: Sequence[Iterable[int]] | None = None,
    group: Sequence[int] | None = None,
    block: int = 64,
    ordered: bool = True,
) -> Trace:
    """In order of time, if the file was not."""
    count = len(at)
    if not count:
        _bad(file, 1, "there are no requests in it", "give a file with at least one")
    order = np.argsort(np.array(at), kind="stable") if ordered else np.arange(count)
    per_row = [list(ids[i]) for i in order.tolist()] if ids is not None else []
    lengths = np.array([len(row) for row in per_row] if per_row else [0] * count, dtype=np.int64)
    return Trace(
        np.array(at, dtype=np.float64)[order],
        np.maximum(np.array(prompt, dtype=np.int64)[order], 1),
        np.maximum(np.array(answer, dtype=np.int64)[order], 1),
        np.array(tenant if tenant is not None else [0] * count, dtype=np.int64)[order],
        tenants,
        np.array([part for row in per_row for part in row], dtype=np.int64),
        np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(lengths))),
        np.array(group if group is not None else [-1] * count, dtype=np.int64)[order],
        block,
    )


_READERS: Mapping[Format, Callable[[str], Trace]] = {
    "azure": _azure,
    "mooncake": _mooncake,
    "requests": _requests,
    "agentic": _agentic,
}
