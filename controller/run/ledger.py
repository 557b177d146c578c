"""Ledger: what was seen, decided and done, one record a tick, in a directory of compressed JSON lines.

A file begins with its format and config, the states of all laws and a full record; the records after it tell only what
changed. The first key of a line is its kind, so that who needs only the small ones (``resume``) can skip the large:

    format   mode, version, config_hash and config of all that follows
    states   memory of the laws, before the tick that follows; at a clean end after the last one
    memo     decisions that are about to be sent and those that are open; now and then the values of all targets
    full     snapshot and plan of a tick; or delta, what changed of them
    applied  what became of the plan

Files are rotated by size and the oldest dropped when all together pass the cap. Each record is flushed
before the plan is applied, so that after a crash the plan without outcomes tells what must be verified; where the
world is a recording there is nothing to verify, and records are packed in passing. A file without its mark of the end
is what a crash leaves, and no damage; one that ends in the middle of a record has lost some, and whoever reads is told.
"""

import errno
import gzip
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from controller.core.model import Applied, Plan, Snapshot
from controller.core.ports import LedgerFull
from controller.run import codec, lock
from controller.run.packed import Packed, PackedBehind, ends_whole

FORMAT = 2
SUFFIX = ".ledger.gz"
_STATES_EVERY = 20  # records between memories of the laws: so many a restart after a crash decides again
_LINE = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS  # signals are keys, and more than a string
_KEY_EVERY = 240  # records between full ones: bounds what one damaged record can hide


class LedgerError(Exception):
    """A ledger cannot be opened or read. The message names the file and the mend."""


class _Torn(LedgerError):
    """A file ends in the middle of a record. What stands before it is good."""


@dataclass(frozen=True, slots=True)
class Record:
    """One tick as it was recorded. `states` on the first record of a file and on some of those after it; `applied` is
    empty when the process died between plan and outcomes (`complete` False)."""

    at: float
    snapshot: Snapshot
    plan: Plan
    applied: tuple[Applied, ...] = ()
    complete: bool = True
    config_hash: str = ""
    version: str = ""
    mode: str = ""
    states: Mapping[str, Any] | None = None
    config: Mapping[str, Any] | None = None
    ledger_ok: bool = True  # False when it was decided while the ledger could not be written


class FileLedger:
    """Writes records. Not thread-safe: one loop, one ledger, and one process for one directory. With `behind` records
    are on disk when it is closed, not when they are written: that is for loops that move nothing."""

    def __init__(self, directory: Path, *, max_size: int, rotate_size: int, behind: bool = False) -> None:
        self.directory, self.max_size, self.rotate_size = directory, max_size, rotate_size
        self._open: type[Packed] = PackedBehind if behind else Packed
        try:
            make_folder(directory)
            probe = directory / ".writable"
            probe.touch()
            probe.unlink()
            self._lock: Path | None = lock.acquire(directory)
        except lock.Taken as taken:
            raise LedgerError(
                f"ledger {directory}: {taken} writes there; stop it, or give each Governor a ledger.path of its own"
            ) from taken
        except OSError as error:
            mend = mend_of(error, "make the directory writable")
            raise LedgerError(f"ledger {directory}: {error.strerror or error}; {mend}, or set ledger.path") from error
        self._file: Packed | None = None
        self._last: dict[str, Any] = {}
        self._since_key = 0
        self._whole = 0  # records in the present file
        self._bytes_before = 0  # in files that are closed

    @property
    def bytes_written(self) -> int:
        """Bytes on disk, in all files that were begun."""
        return self._bytes_before + self._size()

    def needs_key(self) -> bool:
        """Whether the next record will be a full one and wants states and config."""
        return self._file is None or self._since_key >= _KEY_EVERY or self._size() >= self.rotate_size

    def needs_states(self) -> bool:
        """Whether the next record wants the states of the laws."""
        return self.needs_key() or self._since_key % _STATES_EVERY == 0

    def plan(self, record: Mapping[str, Any]) -> None:
        """Write the plan of a tick before it is applied. `record` has at, snapshot, plan, config_hash, version, mode,
        perhaps memo and states, and on a full record config. Raises LedgerFull when the disk is full or gone, or when
        what was written before is no longer at its place; the next record then begins anew."""
        self._still_there()
        at = record["at"]
        body = {
            "snapshot": record["snapshot"],
            "plan": _by_target(record["plan"]),
            "ledger_ok": record.get("ledger_ok", True),
        }
        lines = [{kind: record[kind], "at": at} for kind in ("states", "memo") if record.get(kind)]
        try:
            if self.needs_key():
                self._rotate(at, {key: record.get(key) for key in ("mode", "version", "config_hash", "config")})
                lines.append({"full": codec.encode(body), "at": at})
            else:
                lines.append({"delta": codec.diff(self._last, body), "at": at})
            self._write(*lines)
            self._whole += 1
        except OSError as error:
            self._abandon()
            raise LedgerFull(f"ledger {self.directory}: {error.strerror or error}") from error
        self._last = body
        self._since_key += 1

    def outcomes(self, at: float, applied: Sequence[Applied]) -> None:
        """Write what became of the plan. Raises LedgerFull."""
        try:
            self._write({"applied": [codec.encode(a) for a in applied], "at": at})
        except OSError as error:
            self._abandon()
            raise LedgerFull(f"ledger {self.directory}: {error.strerror or error}") from error

    def remember(self, at: float, states: Mapping[str, Any]) -> None:
        """Write the states of the laws after the last tick, which was at `at`. Raises LedgerFull."""
        self._still_there()
        try:
            self._write({"states": states, "at": at})
        except OSError as error:
            self._abandon()
            raise LedgerFull(f"ledger {self.directory}: {error.strerror or error}") from error

    def turn(self) -> None:
        """The next record begins a file."""
        with suppress(OSError):  # what it still had to write is lost, and the next write will tell
            self._finish()

    def close(self) -> None:
        """Raises LedgerError when records that were still to be written cannot be."""
        try:
            self._finish()
        except OSError as error:
            raise LedgerError(
                f"ledger {self.directory}: {error.strerror or error}; its last records are lost: make room, try again"
            ) from error
        finally:
            if self._lock is not None:
                lock.release(self._lock)
                self._lock = None

    def _finish(self) -> None:
        if self._file is not None:
            file, self._file = self._file, None
            try:
                file.close()
            finally:
                self._bytes_before += file.size

    def _write(self, *lines: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        # Line by line: of a large fleet one record is ten megabytes of text.
        self._file.write(orjson.dumps(line, option=_LINE) for line in lines)

    def _size(self) -> int:
        return self._file.size if self._file is not None else 0

    def _still_there(self) -> None:
        """A folder that is removed or moved away takes the open file along: all that is written goes with it, and no
        write fails. Raises LedgerFull."""
        if self._file is None or self._file.in_place():
            return
        name = self._file.path.name
        self._file.abandon()
        self._bytes_before += self._file.size
        self._file = None
        raise LedgerFull(
            f"ledger {self.directory}: {name} was removed or moved away while it was written, with all that was in "
            "it; a new file is begun as soon as that can be"
        )

    def _rotate(self, at: float, head: Mapping[str, Any]) -> None:
        self._finish()
        make_folder(self.directory)
        if self._lock is not None:
            try:
                self._lock = lock.renew(self._lock, self.directory)
            except lock.Taken as taken:
                raise LedgerFull(f"ledger {self.directory}: {taken} writes there now") from taken
        self._make_room()
        # The files are read in the order of their names, also where the clock was set back.
        begun = max([int(at), *(_begun(file) + 1 for file in ledger_files(self.directory)[-1:] if _begun(file) > at)])
        path = self.directory / f"{begun:011d}-{os.getpid()}{SUFFIX}"
        while path.exists():
            path = path.with_name(path.name.replace(SUFFIX, f"x{SUFFIX}"))
        self._file = self._open(path)
        self._since_key = self._whole = 0
        self._write({"format": FORMAT, **head})

    def _make_room(self) -> None:
        files = ledger_files(self.directory)
        total = sum(f.stat().st_size for f in files)
        while files and total > self.max_size - self.rotate_size:
            oldest = files.pop(0)
            total -= oldest.stat().st_size
            oldest.unlink()

    def _abandon(self) -> None:
        """After a failed write the stream may end in half a record: begin a new file next time. A file that got not one
        record goes, or a disk that is full for a night would be left with one for each tick."""
        if self._file is not None:
            self._file.abandon()
            self._bytes_before += self._file.size
            if not self._whole:
                with suppress(OSError):  # that it cannot be written is being reported
                    self._file.path.unlink()
        self._file = None


@dataclass(slots=True)
class MemoryLedger:
    """Keeps nothing: for rehearsals that were not asked for a ledger."""

    records: int = field(default=0)

    def needs_key(self) -> bool:
        return False

    def needs_states(self) -> bool:
        return False

    def plan(self, record: Mapping[str, Any]) -> None:
        self.records += 1

    def outcomes(self, at: float, applied: Sequence[Applied]) -> None:
        """Nothing to keep."""

    def remember(self, at: float, states: Mapping[str, Any]) -> None:
        """Nothing to remember."""

    def turn(self) -> None:
        """There are no files."""

    def close(self) -> None:
        """Nothing to close."""


def make_folder(directory: Path) -> None:
    """Make it where it is not there. Raises OSError, also where something else is in its way."""
    if directory.exists() and not directory.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(directory))
    directory.mkdir(parents=True, exist_ok=True)


def _begun(file: Path) -> int:
    """When a file was begun, by its name (unix seconds); 0 for a name that is none of ours."""
    number = file.name.partition("-")[0]
    return int(number) if number.isascii() and number.isdecimal() else 0


def mend_of(error: OSError, otherwise: str) -> str:
    """What to do about a folder or file that cannot be made or written."""
    match error.errno:
        case errno.ENOTDIR | errno.EEXIST:
            return "move away the file that stands where a folder must be"
        case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
            return "make room"
    return otherwise


def ledger_files(path: Path) -> list[Path]:
    """The files of a ledger, oldest first; `path` may be one file."""
    return [path] if path.is_file() else sorted(path.glob(f"*{SUFFIX}"))


def read_ledger(path: Path, damage: list[LedgerError] | None = None) -> Iterator[Record]:
    """Records in order. Raises LedgerError when there is nothing to read, or a file is damaged or no ledger; with
    `damage` what is wrong with files is put there, also of one that was cut, and all that can be read is given."""
    files = ledger_files(path)
    if not files:
        raise LedgerError(f"no ledger at {path}; give the directory that ledger.path names, or one {SUFFIX} file")
    for file in files:
        try:
            yield from _read_file(file)
        except _Torn as error:
            if damage is not None:
                damage.append(error)
        except LedgerError as error:
            if damage is None:
                raise
            damage.append(error)


def kinds(file: Path) -> Iterator[tuple[str, str]]:
    """The kind and the text of each line of one file: much faster than reading them, for who looks at a few. The first
    is of kind format. Raises LedgerError."""
    with suppress(_Torn):
        for number, line in enumerate(_lines(file)):
            kind, quote, _ = line[2:].partition('"')
            if not number:
                _head(file, line)
            if not line.startswith('{"') or not quote:
                raise _damaged(file, number + 1, ValueError("no kind"))
            yield kind, line


def head_of(file: Path) -> Mapping[str, Any]:
    """What a file begins with: mode, version, config_hash and config of all that follows. Raises LedgerError."""
    for _, line in kinds(file):
        return _head(file, line)
    raise LedgerError(f"{file}: holds not one whole record; read the other files")


def records_after(file: Path, line: int) -> Iterator[Record]:
    """The records of one file that stand after a line of it, counted from 1; what stands before is not decoded, which
    takes most of the time. Raises LedgerError, after all that can be read."""
    return _read_file(file, line)


def _read_file(file: Path, after: int = 0) -> Iterator[Record]:
    """Raises LedgerError, after all that can be read."""
    head: Mapping[str, Any] = {}
    body: Mapping[str, Any] = {}
    states: Mapping[str, Any] | None = None
    open_: Record | None = None
    broken: LedgerError | None = None
    ticks, newest = 0, 0.0
    try:
        for number, line in enumerate(_lines(file), 1):
            try:
                if number == 1:
                    head = _head(file, line)
                    continue
                entry, done = json.loads(line), open_
                kind = next(iter(entry))
                if kind == "states":
                    states, done = entry["states"], None
                elif kind == "memo":
                    done = None
                elif kind == "applied":
                    if open_ is not None:
                        applied = tuple(codec.decode(Applied, one) for one in entry["applied"])
                        done = replace(open_, applied=applied, complete=True)
                    open_ = None
                else:
                    config = head["config"] if not body else None
                    body = entry["full"] if kind == "full" else codec.patch(body, entry["delta"])
                    ticks, newest = ticks + 1, entry["at"]
                    if number > after:
                        open_, states = _record(newest, body, head, states, config), None
            except codec.FOREIGN as error:
                raise _damaged(file, number, error) from error
            if done is not None:
                yield done
    except LedgerError as error:
        broken = error
    if open_ is not None:
        yield open_
    if broken is not None:
        raise type(broken)(f"{broken}; {_read_so_far(ticks, newest)}")


def _read_so_far(ticks: int, newest: float) -> str:
    what = f"{ticks:,} tick{'s' if ticks > 1 else ''} of it {'were' if ticks > 1 else 'was'} read"
    if not ticks:
        return "no tick of it was read"
    with suppress(OverflowError, ValueError, OSError):  # a time that is none
        return f"{what}, the last of {datetime.fromtimestamp(newest, UTC).isoformat(' ', 'seconds')[:19]} UTC"
    return what


def _damaged(file: Path, number: int, error: Exception) -> LedgerError:
    return LedgerError(
        f"{file}, record {number}: not a ledger record ({error}); it may be damaged or of another version of Governor, "
        "read the other files"
    )


def _head(file: Path, line: str) -> Mapping[str, Any]:
    try:
        entry = json.loads(line)
    except ValueError:
        entry = None
    if not isinstance(entry, dict) or entry.get("format") != FORMAT:
        raise LedgerError(f"{file}: not a ledger of format {FORMAT}; it may be of another version of Governor")
    return entry


def _lines(file: Path) -> Iterator[str]:
    """Whole lines; that the mark of the end is missing is the mark of a crash, not an error. What was overwritten is
    one, and so is a file with nothing in it: whoever asks what happened then must not take it for silence. Raises
    LedgerError, after all lines that are whole."""
    number, torn = 0, False
    try:
        with gzip.open(file, "rt", encoding="utf-8") as stream:
            for line in stream:
                if line.endswith("\n"):
                    number += 1
                    yield line
    except EOFError:
        torn = True
    except (zlib.error, OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        if not number and not isinstance(error, zlib.error):
            raise LedgerError(f"{file}: {why}; give a file that Governor wrote") from error
        raise LedgerError(
            f"{file}: damaged after {number} lines ({why}); what comes after them in this file is lost, read the others"
        ) from error
    if not number:
        what = "holds not one whole record" if torn else "is empty"
        raise LedgerError(f"{file}: {what}; it was cut off or overwritten, read the other files")
    if torn and not ends_whole(file):
        raise _Torn(
            f"{file}: ends in the middle of a record, after {number:,} lines; it was cut, or the disk or the machine "
            "failed as it was written, and what came after them in this file is lost"
        )


def _record(
    at: float, body: Mapping[str, Any], head: Mapping[str, Any], states: Mapping[str, Any] | None,
    config: Mapping[str, Any] | None,
) -> Record:  # fmt: skip
    return Record(
        at=at,
        snapshot=codec.decode(Snapshot, body["snapshot"]),
        plan=codec.decode(Plan, _as_list(body["plan"])),
        complete=False,
        config_hash=head["config_hash"],
        version=head["version"],
        mode=head["mode"],
        states=states,
        config=config,
        ledger_ok=body["ledger_ok"],
    )


def _by_target(plan: Plan) -> dict[str, Any]:
    """Decisions keyed by target, so that a delta tells only those that changed."""
    return {"at": plan.at, "decisions": {str(d.target): d for d in plan.decisions}, "summary": plan.summary}


def _as_list(plan: Mapping[str, Any]) -> dict[str, Any]:
    decisions = plan["decisions"]
    return {**plan, "decisions": [decisions[key] for key in sorted(decisions, key=codec.target_of)]}
