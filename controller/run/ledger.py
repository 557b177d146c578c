"""Ledger: what was seen, decided and done, one record a tick, in a directory of compressed JSON lines.

A file begins with a full record, the states of all laws and the config; the records after it tell only what changed.
Files are rotated by size and the oldest dropped when all together pass the cap. Each record is flushed
before the plan is applied, so that after a crash the plan without outcomes tells what must be verified. A truncated
last record, the mark of a crash, is skipped.
"""

import gzip
import io
import json
import os
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from controller.core.model import Applied, Plan, Snapshot
from controller.core.ports import LedgerFull
from controller.run import codec, lock

FORMAT = 2
SUFFIX = ".ledger.gz"
_STATES_EVERY = 20  # records between memories of the laws: what a restart may forget
# Made once, and without the look for cycles, which plain data of ours does not have: both cost time at each record.
_TEXT = json.JSONEncoder(separators=(",", ":"), allow_nan=False, ensure_ascii=False, check_circular=False).encode
_KEY_EVERY = 240  # records between full ones: bounds what one damaged record can hide


class LedgerError(Exception):
    """A ledger cannot be opened or read. The message names the file and the mend."""


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


@dataclass(frozen=True, slots=True)
class Raw:
    """One tick as plain data. `body` has snapshot, plan (decisions by target), config_hash, version, mode, ledger_ok;
    `applied` is None when the process died before it was written; `open` on the first record of a file: the decisions
    whose outcomes were unknown before it."""

    at: float
    body: Mapping[str, Any]
    applied: Sequence[Mapping[str, Any]] | None = None
    states: Mapping[str, Any] | None = None
    config: Mapping[str, Any] | None = None
    open: Sequence[Mapping[str, Any]] | None = None


class FileLedger:
    """Writes records. Not thread-safe: one loop, one ledger, and one process for one directory."""

    def __init__(self, directory: Path, *, max_size: int, rotate_size: int) -> None:
        self.directory, self.max_size, self.rotate_size = directory, max_size, rotate_size
        try:
            directory.mkdir(parents=True, exist_ok=True)
            probe = directory / ".writable"
            probe.touch()
            probe.unlink()
            self._lock: Path | None = lock.acquire(directory)
        except lock.Taken as taken:
            raise LedgerError(
                f"ledger {directory}: {taken} writes there; stop it, or give each Governor a ledger.path of its own"
            ) from taken
        except OSError as error:
            raise LedgerError(
                f"ledger {directory}: {error.strerror or error}; make the directory writable, or set ledger.path"
            ) from error
        self._file: io.BufferedIOBase | None = None
        self._path: Path | None = None
        self._packer: Any = None
        self._last: dict[str, Any] = {}
        self._since_key = 0
        self._whole = 0  # records in the present file
        self.bytes_written = 0

    def needs_key(self) -> bool:
        """Whether the next record will be a full one and wants states and config."""
        return self._file is None or self._since_key >= _KEY_EVERY or self._size() >= self.rotate_size

    def needs_states(self) -> bool:
        """Whether the next record wants the states of the laws."""
        return self.needs_key() or self._since_key % _STATES_EVERY == 0

    def plan(self, record: Mapping[str, Any]) -> None:
        """Write the plan of a tick before it is applied. `record` has at, snapshot, plan, config_hash, version, mode,
        and on a full record states, config and open. Raises LedgerFull when the disk is full or gone."""
        body = {
            "snapshot": codec.encode(record["snapshot"]),
            "plan": _by_target(codec.encode(record["plan"])),
            "config_hash": record["config_hash"],
            "version": record["version"],
            "mode": record["mode"],
            "ledger_ok": record.get("ledger_ok", True),
        }
        try:
            if self.needs_key():
                self._rotate(record["at"])
                line = {"at": record["at"], "full": body}
            else:
                line = {"at": record["at"], "delta": codec.diff(self._last, body)}
            line.update({k: record[k] for k in ("states", "config", "open") if k in record})
            self._write(line)
            self._whole += 1
        except OSError as error:
            self._abandon()
            raise LedgerFull(f"ledger {self.directory}: {error.strerror or error}") from error
        self._last = body
        self._since_key += 1

    def outcomes(self, at: float, applied: Sequence[Applied]) -> None:
        """Write what became of the plan. Raises LedgerFull."""
        try:
            self._write({"at": at, "applied": [codec.encode(a) for a in applied]})
        except OSError as error:
            self._abandon()
            raise LedgerFull(f"ledger {self.directory}: {error.strerror or error}") from error

    def close(self) -> None:
        self._finish()
        if self._lock is not None:
            lock.release(self._lock)
            self._lock = None

    def _finish(self) -> None:
        if self._file is not None and self._packer is not None:
            try:
                self._file.write(self._packer.flush())
                self._file.close()
            except OSError:
                self._abandon()
        self._file = None

    def _write(self, line: Mapping[str, Any]) -> None:
        if self._file is None:
            return
        data = self._packer.compress(_TEXT(line).encode() + b"\n") + self._packer.flush(zlib.Z_SYNC_FLUSH)
        self._file.write(data)
        self._file.flush()
        self.bytes_written += len(data)

    def _size(self) -> int:
        return self._file.tell() if self._file is not None else 0

    def _rotate(self, at: float) -> None:
        self._finish()
        self._make_room()
        path = self.directory / f"{int(at):011d}-{os.getpid()}{SUFFIX}"
        while path.exists():
            path = path.with_name(path.name.replace(SUFFIX, f"x{SUFFIX}"))
        self._file, self._path = path.open("wb"), path
        self._packer = zlib.compressobj(3, zlib.DEFLATED, 31)
        self._since_key = self._whole = 0
        self._write({"format": FORMAT})

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
            with suppress(
                OSError
            ):  # that it cannot be written is being reported; the descriptor is closed all the same
                self._file.close()
            if not self._whole and self._path is not None:
                with suppress(OSError):  # as above
                    self._path.unlink()
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

    def close(self) -> None:
        """Nothing to close."""


def ledger_files(path: Path) -> list[Path]:
    """The files of a ledger, oldest first; `path` may be one file."""
    return [path] if path.is_file() else sorted(path.glob(f"*{SUFFIX}"))


def read_ledger(path: Path) -> Iterator[Record]:
    """Records in order. Raises LedgerError when there is nothing to read or a file is not a ledger."""
    files = ledger_files(path)
    if not files:
        raise LedgerError(f"no ledger at {path}; give the directory that ledger.path names, or one {SUFFIX} file")
    for file in files:
        yield from _read_file(file)


def raw_records(file: Path) -> Iterator[Raw]:
    """The records of one file as plain data: much faster than decoding them, for who looks at a few. Raises
    LedgerError."""
    body: Mapping[str, Any] = {}
    open_: Raw | None = None
    for number, line in enumerate(_lines(file), 1):
        try:
            entry = json.loads(line)
            if number == 1:
                _check_format(file, entry)
                continue
            done = open_
            if "applied" in entry:
                done, open_ = (replace(open_, applied=entry["applied"]) if open_ is not None else None), None
            else:
                body = entry["full"] if "full" in entry else codec.patch(body, entry["delta"])
                extra = (entry.get(key) for key in ("states", "config", "open"))
                open_ = Raw(entry["at"], body, None, *extra)
        except codec.FOREIGN as error:
            raise _damaged(file, number, error) from error
        if done is not None:
            yield done
    if open_ is not None:
        yield open_


def _read_file(file: Path) -> Iterator[Record]:
    for number, raw in enumerate(raw_records(file), 1):
        try:
            record = _record(raw)
        except codec.FOREIGN as error:
            raise _damaged(file, number, error) from error
        yield record


def _damaged(file: Path, number: int, error: Exception) -> LedgerError:
    return LedgerError(
        f"{file}, record {number}: not a ledger record ({error}); it may be damaged or of another version of Governor, "
        "read the other files"
    )


def _check_format(file: Path, entry: Any) -> None:
    if not isinstance(entry, dict) or entry.get("format") != FORMAT:
        raise LedgerError(f"{file}: not a ledger of format {FORMAT}; it may be of another version of Governor")


def _lines(file: Path) -> Iterator[str]:
    """Whole lines; a torn end is the mark of a crash, not an error."""
    try:
        with gzip.open(file, "rt", encoding="utf-8") as stream:
            for line in stream:
                if line.endswith("\n"):
                    yield line
    except (EOFError, zlib.error):
        return
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise LedgerError(f"{file}: {why}; give a file that Governor wrote") from error


def _record(raw: Raw) -> Record:
    body = raw.body
    return Record(
        at=raw.at,
        snapshot=codec.decode(Snapshot, body["snapshot"]),
        plan=codec.decode(Plan, _as_list(body["plan"])),
        applied=tuple(codec.decode(Applied, a) for a in raw.applied or ()),
        complete=raw.applied is not None,
        config_hash=body["config_hash"],
        version=body["version"],
        mode=body["mode"],
        states=raw.states,
        config=raw.config,
        ledger_ok=body["ledger_ok"],
    )


def _by_target(plan: dict[str, Any]) -> dict[str, Any]:
    """Decisions keyed by target, so that a delta tells only those that changed."""
    return {**plan, "decisions": {d["target"]: d for d in plan.get("decisions", [])}}


def _as_list(plan: Mapping[str, Any]) -> dict[str, Any]:
    decisions = plan["decisions"]
    return {**plan, "decisions": [decisions[key] for key in sorted(decisions, key=codec.target_of)]}
