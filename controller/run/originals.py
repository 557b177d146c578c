"""Originals: what each target held before Governor's first write, kept in the ledger's folder.

`governor release --restore` puts these values back, each where it was found: what A held is nothing for B, to which an
address may have moved. The file is replaced before the first write of a target, so that a crash between the two leaves
a value that was true; one that cannot be written stops nothing but is told, and the next tick tries again. Replicas
come and go, and nothing can be put back where one is gone: those that were not there for a day are forgotten, else the
file would grow with every pod that there ever was.
"""

import json
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.core.errors import InputError
from controller.core.model import Decision, Target
from controller.core.rules import PER_REPLICA
from controller.run import codec

NAME = "originals.json"
VERSION = 1
FORGET = 86_400.0  # seconds after which a replica that is gone is no more expected back


@dataclass(frozen=True, slots=True)
class Original:
    """A value, in the unit of its lever, and when it was found (unix seconds); the `place` it was found at, as
    ``sameplace.place_of`` has it, None where nobody told, as in files of older versions."""

    value: float
    at: float
    place: Mapping[str, Any] | None = None


Places = Callable[[Target], Mapping[str, Any] | None]  # where what is sent to a target goes


def _nowhere(_: Target) -> None:
    """Who does not tell where values go."""


class OriginalsError(InputError):
    """The file cannot be read. The message names it and the mend."""


class Originals:
    """The originals of one Governor; `path` None where nothing is kept, `previous` what the loop before a reload knew.
    `problem` says why the newest are not on disk, "" when they are."""

    def __init__(self, path: Path | None, previous: "Originals | None" = None) -> None:
        self._path = self._place = path
        self.problem = ""
        self._known: dict[Target, Original] = {}
        self._seen: dict[Target, float] = {}  # when a replica's target was decided on last
        if path is None:
            return
        try:
            self._known = read(path)
        except OriginalsError as error:
            # Values found now would be Governor's own: better none than a wrong one, and the file is left alone.
            self._path, self.problem = None, str(error)
        if previous is not None:
            self._adopt(previous)

    def _adopt(self, previous: "Originals") -> None:
        place, known, seen = previous._place, previous._known, previous._seen  # noqa: SLF001 - one class
        if place != self._place:
            return
        self._seen = seen
        if self._path is not None and known and previous.problem:
            # What could not be written then is true still; a value that is read now is none from before.
            self._known, self.problem = {**known, **self._known}, previous.problem

    def before(self, decisions: Sequence[Decision], at: float, places: Places = _nowhere) -> None:
        """Of these decisions, those that say so are about to be sent to their `places`."""
        if self._path is None:
            return
        found = {
            d.target: Original(d.current, at, places(d.target))
            for d in decisions
            if d.send and d.current is not None and d.target not in self._known and d.final != d.current
        }
        self._seen.update((d.target, at) for d in decisions if d.target.lever in PER_REPLICA)
        if not (found or self.problem or (self._known and not self._path.exists())):
            return  # one that somebody removed is written again: what would be found now is Governor's own
        self._forget(at)
        self._known.update(found)
        try:
            write(self._path, self._known)
            self.problem = ""
        except OSError as error:
            self.problem = f"{self._path}: {error.strerror or error}; `governor release` could not put values back"

    def _forget(self, at: float) -> None:
        """Replicas that are gone for good. One that this process never saw is gone from when it first looked."""
        for target in [t for t in self._known if t.lever in PER_REPLICA]:
            if at - self._seen.setdefault(target, at) > FORGET:
                del self._known[target]
        self._seen = {target: seen for target, seen in self._seen.items() if at - seen <= FORGET}


def file_of(ledger: Path) -> Path:
    """Where the originals of the Governor with this ledger are."""
    return ledger / NAME


def read(path: Path) -> dict[Target, Original]:
    """What a file holds; nothing when there is none. Raises OriginalsError."""
    try:
        plain = json.loads(path.read_bytes())
        if plain["version"] != VERSION:
            raise ValueError(f"version {plain['version']!r}")
        return {codec.target_of(name): _original(name, one) for name, one in plain["originals"].items()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise OriginalsError(f"{path}: cannot be read ({error.strerror}); check the rights on it") from error
    except codec.FOREIGN as error:
        raise OriginalsError(f"{path}: is no file of originals ({error}); mend it, or move it away") from error


def _original(name: str, plain: Mapping[str, Any]) -> Original:
    value, at, place = codec.decode(float, plain["value"]), codec.decode(float, plain["at"]), plain.get("place")
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"{name} was never {value:g}")
    if place is not None and not isinstance(place, dict):
        raise ValueError(f"{name} was found at no place")
    return Original(value, at, place)


def _plain(one: Original) -> dict[str, Any]:
    plain: dict[str, Any] = {"value": one.value, "at": one.at}
    return plain if one.place is None else {**plain, "place": one.place}


def write(path: Path, originals: Mapping[Target, Original]) -> None:
    """Replace the file as a whole. Raises OSError."""
    plain = {"version": VERSION, "originals": {str(t): _plain(one) for t, one in sorted(originals.items())}}
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".originals-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(plain, file, indent=2, allow_nan=False)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
