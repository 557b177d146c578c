"""Pins set by hand while Governor runs: `governor pin` writes them to a file in the ledger's folder, the loop looks at
it at every tick.

The file is replaced as a whole, so that a reader sees the old or the new one and never half of one. One that cannot be
read stops nothing: the last pins that could be read stay in force, over a restart those that the ledger tells, and the
problem is told. A pin of this file wins
over one of the config while it lasts: it is the later word, given by somebody who looks at the fleet.
"""

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from controller.config.errors import BadValue
from controller.config.units import unix
from controller.core.errors import InputError
from controller.core.model import Pin, Target
from controller.core.rest import NO_LIMIT
from controller.run import codec
from controller.run.ledger import make_folder, mend_of

NAME, _LOCK = "pins.json", ".pins.lock"
VERSION = 1
_LARGEST = 1 << 20  # bytes; thousands of pins are no file of ours
Stamp = tuple[int, int, int] | None
_MEND = "run this where the ledger is, as the user who may write there"
_NEVER = (0, 0, -1)  # the stamp of no file: what is known was not read from one


@dataclass(frozen=True, slots=True)
class Entry:
    """One pin of the file, and when it was set (unix seconds)."""

    pin: Pin
    since: float


class PinError(InputError):
    """The file cannot be read or written. The message names it and the mend."""


class Pins:
    """What a loop knows of pins. `config` those of the config, `path` the file, None where there is none; `before` what
    the loop before a reload knew. `problem` says what is wrong with the file, "" when nothing is; `gone` are the pins
    that were in force in a file that was removed since, for as long as there is none."""

    def __init__(self, config: Mapping[Target, Pin], path: Path | None = None, before: "Pins | None" = None) -> None:
        self._config, self.path = config, path
        self.problem = ""
        self.gone: tuple[Target, ...] = ()
        self._stamp: Stamp = None
        self._file: Mapping[Target, Entry] = {}
        if before is not None and before.path == path:
            self.problem, self._stamp, self._file = before.problem, before._stamp, before._file  # noqa: SLF001 - one class

    def at(self, now: float) -> dict[Target, Pin]:
        """The pins in force at `now` (unix seconds), looked up anew where the file has changed."""
        if self.path is not None:
            self._look(self.path, now)
        pins = {**self._config, **{target: entry.pin for target, entry in self._file.items() if entry.pin.until > now}}
        return {target: pin for target, pin in pins.items() if pin.until > now}

    @property
    def of_file(self) -> dict[Target, Pin]:
        """Those of the file, as last read."""
        return {target: entry.pin for target, entry in self._file.items()}

    def inherit(self, pins: Mapping[Target, Pin]) -> None:
        """What the process before this one read of the file, in force until it is read again."""
        self._file, self._stamp = {target: Entry(pin, 0.0) for target, pin in pins.items()}, _NEVER

    def _look(self, path: Path, now: float) -> None:
        try:
            stamp = _stamp(path)
            if stamp == self._stamp and not self.problem:
                return
            found = read(path) if stamp is not None else {}
            lost = [target for target, entry in self._file.items() if entry.pin.until > now] if stamp is None else []
            self._file, self.gone = found, tuple(sorted(lost))
            self._stamp, self.problem = stamp, ""
        except PinError as error:
            self.problem = f"{error}; until then the last pins that could be read stay in force"
        except OSError as error:
            self.problem = f"{path}: {error.strerror or error}; until it can be read the last pins stay in force"


def file_of(ledger: Path) -> Path:
    """Where the pins of the Governor with this ledger are."""
    return ledger / NAME


def read(path: Path) -> dict[Target, Entry]:
    """The pins in a file, also those that have ended; none when there is no file. Raises PinError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return {}
    except OSError as error:
        what = f"cannot be read ({error.strerror or type(error).__name__})"
        raise PinError(f"{path}: {what}; check ledger.path and the rights on it") from error
    mend = "mend it, or move it away and pin anew"
    if len(data) > _LARGEST:
        raise PinError(f"{path}: is too large for a file of pins; {mend}")
    try:
        plain = _mapping(json.loads(data.decode("utf-8-sig"), parse_constant=_refuse))
        if plain["version"] != VERSION:
            raise PinError(f"{path}: is of version {plain['version']!r}, which this Governor does not know; {mend}")
        return dict(_entry(*one) for one in _mapping(plain["pins"], "pins: ").items())
    except (ValueError, KeyError, RecursionError) as error:
        raise PinError(f"{path}: is no file of pins ({_words(error)}); {mend}") from error


def _words(error: Exception) -> str:
    """What is wrong, without a word of Python: people edit this file."""
    match error:
        case json.JSONDecodeError():
            return f"no JSON: {error.msg}, line {error.lineno}"
        case UnicodeDecodeError():
            return "no UTF-8 text"
        case KeyError():
            return f"{error.args[0]!r} is missing"
        case RecursionError():
            return "no JSON: nested too deep"
    return str(error)


@contextmanager
def edit(path: Path) -> Iterator[dict[Target, Entry]]:
    """The pins of a file, to be changed and written back when the block ends well; one editor at a time. Raises
    PinError."""
    try:
        make_folder(path.parent)
        with (path.parent / _LOCK).open("a") as lock:
            with suppress(OSError):  # a file system without locks: the replacement is whole all the same
                fcntl.flock(lock, fcntl.LOCK_EX)
            entries = read(path)
            yield entries
            _write(path, entries)
    except OSError as error:
        raise PinError(f"{path}: {error.strerror or error}; {mend_of(error, _MEND)}") from error


def _write(path: Path, entries: Mapping[Target, Entry]) -> None:
    plain = {
        "version": VERSION,
        "pins": {
            str(target): {
                "value": entry.pin.value, "until": _moment(entry.pin.until), "reason": entry.pin.reason,
                "since": _moment(entry.since),
            }
            for target, entry in sorted(entries.items())
        },
    }  # fmt: skip
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".pins-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(plain, file, indent=2, ensure_ascii=False, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _mapping(plain: object, place: str = "") -> Mapping[str, Any]:
    if not isinstance(plain, dict):
        raise ValueError(f"{place}no mapping")
    return plain


def _entry(text: str, found: object) -> tuple[Target, Entry]:
    """A target and its pin. Raises ValueError, which names the target."""
    try:
        target = codec.target_of(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is no target") from error
    plain = _mapping(found, f"{text}: ")
    for key in ("value", "reason", "until", "since"):
        if key not in plain:
            raise ValueError(f"{text}: {key!r} is missing")
    value, reason = plain["value"], plain["reason"]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{text}: the value {value!r} is not a number")
    if not abs(value) <= NO_LIMIT:  # a whole number of JSON may be larger than floats are
        raise ValueError(f"{text}: the value is larger than any value can be")
    if not isinstance(reason, str):
        raise ValueError(f"{text}: the reason is not text")
    until, since = (_seconds(plain[key], text) for key in ("until", "since"))
    return target, Entry(Pin(float(value), until, reason), since)


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat()


def _seconds(written: object, place: str) -> float:
    try:
        moment = datetime.fromisoformat(written) if isinstance(written, str) else None
    except ValueError:
        moment = None
    if moment is None:
        raise ValueError(f"{place}: {written!r} is no moment")
    if moment.tzinfo is None:
        raise ValueError(f"{place}: {written} has no time zone")
    try:
        return unix(moment)
    except BadValue as error:
        raise ValueError(f"{place}: {error.mistake}") from error


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not a number")


def _stamp(path: Path) -> Stamp:
    """What changes when the file does; None when there is none. Raises OSError."""
    try:
        seen = path.stat()
    except FileNotFoundError:
        return None
    return seen.st_mtime_ns, seen.st_ino, seen.st_size
