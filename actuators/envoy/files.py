"""Files that Envoys watch, one for each resource, and one of Governor's own with the values behind them.

Envoy takes a file when another is moved onto it, so each is written beside and renamed. Values that Envoy merges, such
as a weight and a breaker, could not be told apart again from its files: hence the own one, from which a new Governor
goes on.
"""

import json
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from actuators.atomic import replace_file
from actuators.envoy.admin import Admin, AdminError
from actuators.envoy.book import Book, Entry
from actuators.envoy.resources import Key, Kind, Resource
from actuators.envoy.transport import Verdict
from controller.core.model import Lever, Outcome, Target
from controller.core.ports import ActuatorError

VALUES = "governor-values.json"
_PREFIX = {Kind.ENDPOINTS: "endpoints", Kind.RUNTIME: "runtime", Kind.FILTER: "filter"}
_VERSION = {
    Kind.ENDPOINTS: "cluster.{}",
    Kind.FILTER: "extension_config_discovery.http_filter.{}",
}
_AGAIN = 0.002  # seconds between two looks at whether Envoy has taken a file


class FilesTransport:
    """Writes the files, but for a `dry` run, and, where admin pages are told, waits until their Envoys have taken
    them."""

    def __init__(self, folder: str, admins: Sequence[Admin], *, dry: bool = False) -> None:
        self.folder, self._admins, self._dry = Path(folder), admins, dry
        self._written: dict[Key, tuple[str, Resource]] = {}  # version and content of what was written last
        self._failed: dict[Key, str] = {}
        self._refusals: dict[tuple[str, Key], int] = {}  # by admin page, as counted before the last write
        self._began = time.time_ns()  # two Governors never write the same version
        self._count = 0
        self._closed = threading.Event()

    def open(self) -> None:
        """See ``Transport``."""
        if not self.folder.is_dir():
            raise ActuatorError(f"{self.folder} is no folder; make it, and let Envoy watch it")

    def envoys(self) -> int:
        """See ``Transport``. A folder does not tell who reads it: those whose admin pages are told are counted."""
        return max(1, len(self._admins))

    def tell(self, resources: Mapping[Key, Resource], changed: Collection[Key]) -> None:
        """See ``Transport``."""
        if self._dry:
            return
        self._count += 1
        version = f"{self._began:x}-{self._count}"
        for key in sorted(changed, key=str):
            self._failed.pop(key, None)
            self._count_refusals(key)
            try:
                replace_file(self._path(key), _document(version, resources[key]))
            except OSError as error:
                self._failed[key] = f"{self._path(key)} is unchanged: {error.strerror or error}"
            else:
                self._written[key] = (version, resources[key])

    def verdicts(self, keys: Collection[Key], within: float) -> dict[Key, Verdict]:
        """See ``Transport``."""
        return {key: self._verdict(key, time.monotonic() + within) for key in keys}

    def verdict_of_written(self, key: Key, within: float) -> Verdict | None:
        """What became of what this process wrote last; None when it wrote nothing."""
        return self._verdict(key, time.monotonic() + within) if key in self._written else None

    def close(self) -> None:
        """Ends a wait; nothing is held open."""
        self._closed.set()

    # --- what is in the folder -------------------------------------------------------------------------------------

    def body(self, key: Key) -> Mapping[str, Any] | None:
        """A resource as its file has it, None when there is none; raises ActuatorError when it is spoiled."""
        path = self._path(key)
        try:
            document = json.loads(path.read_bytes())
            (resource,) = document["resources"]
            return {name: part for name, part in resource.items() if name != "@type"}
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ActuatorError(f"cannot read {path}: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ActuatorError(f"{path} is not what Governor wrote; remove it") from error

    def there(self, resource: Resource) -> bool:
        """Whether there is a file of a resource that a new Governor should leave as it is: a stranger's values in it
        are read and yielded to, but replicas that moved must be told."""
        try:
            body = self.body(resource.key)
        except ActuatorError:
            return False
        return body is not None and (resource.key.kind is not Kind.ENDPOINTS or _hosts(body) == _hosts(resource.body))

    def load(self) -> Book:
        """The values behind the files, as the last Governor left them."""
        path = self.folder / VALUES
        try:
            rows = json.loads(path.read_bytes())["values"]
            return Book(dict(_entry(row) for row in rows))
        except FileNotFoundError:
            return Book()
        except OSError as error:
            raise ActuatorError(f"cannot read {path}: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise ActuatorError(f"{path} is not what Governor wrote; remove it") from error

    def save(self, book: Book) -> None:
        """Keep the values for the next Governor; raises OSError. Not flushed to disk: should power fail in the same
        second, what the other files say is taken for a stranger's, and yielded to."""
        rows = [
            {"pool": t.pool, "lever": t.lever.value, "member": t.member, "value": e.value, "until": _wall(e.until)}
            for t, e in sorted(book.items())
        ]
        path = self.folder / VALUES
        beside = path.with_suffix(".tmp")
        beside.write_bytes(json.dumps({"values": rows}, indent=1).encode())
        beside.replace(path)

    def _path(self, key: Key) -> Path:
        return self.folder / f"{_PREFIX[key.kind]}-{key.name}.json"

    # --- whether Envoy took it -------------------------------------------------------------------------------------

    def _verdict(self, key: Key, end: float) -> Verdict:
        if key in self._failed:
            return Verdict(Outcome.FAILED, self._failed[key])
        if key not in self._written:
            return Verdict(Outcome.FAILED, f"there is nothing to tell of {key.name}: no replica is known")
        version, resource = self._written[key]
        for admin in self._admins:
            verdict = self._taken(admin, key, version, resource, end)
            if verdict.outcome is not Outcome.DONE:
                return verdict
        who = f"{len(self._admins)} Envoys took it" if self._admins else "nobody told whether Envoy took it"
        return Verdict(Outcome.DONE, f"{self._path(key)} written; {who}")

    def _count_refusals(self, key: Key) -> None:
        for admin in self._admins:
            with suppress(AdminError):
                self._refusals[admin.url, key] = _refusals(admin, key)

    def _taken(self, admin: Admin, key: Key, version: str, resource: Resource, end: float) -> Verdict:
        """Waits until an Envoy runs this version. A refusal is told by a counter and by nothing else."""
        before = self._refusals.get((admin.url, key))
        try:
            while not _runs(admin, key, version, resource):
                if before is not None and _refusals(admin, key) > before:
                    return Verdict(Outcome.REFUSED, f"{admin.url} refused {key.name}; its log says why")
                if time.monotonic() >= end:
                    return Verdict(Outcome.UNKNOWN, f"{admin.url} has not taken {key.name} yet")
                self._closed.wait(min(_AGAIN, max(0.0, end - time.monotonic())))
        except AdminError as error:
            return Verdict(Outcome.UNKNOWN, f"written, but nobody tells whether Envoy took it: {error}")
        return Verdict(Outcome.DONE, f"{admin.url} took it")


def _runs(admin: Admin, key: Key, version: str, resource: Resource) -> bool:
    if key.kind is not Kind.RUNTIME:
        name = f"{_VERSION[key.kind].format(key.name)}.version_text"
        return admin.stats(name.replace(".", r"\.")).get(name) == version
    layer, keys = resource.body["name"], resource.body["layer"]
    there = admin.runtime()
    said = {name: key.said[layer] for name, key in there.items() if layer in key.said}
    return bool(said == keys)


def _refusals(admin: Admin, key: Key) -> int:
    stem = "runtime" if key.kind is Kind.RUNTIME else _VERSION[key.kind].format(key.name)
    counts = admin.stats(f"{stem}.update_(rejected|failure)".replace(".", r"\."))
    return sum(value for value in counts.values() if isinstance(value, int))


def _document(version: str, resource: Resource) -> bytes:
    body = dict(resource.body)
    if resource.key.kind is Kind.ENDPOINTS and resource.until is not None:
        left = max(0.001, resource.until - time.monotonic())
        body["policy"] = {**body.get("policy", {}), "endpoint_stale_after": f"{left:.3f}s"}
    row = {"@type": resource.key.kind.value, **body}
    return json.dumps({"version_info": version, "resources": [row]}).encode()


def _hosts(body: Mapping[str, Any]) -> list[str]:
    rows = [row for group in body.get("endpoints", []) for row in group.get("lb_endpoints", [])]
    return sorted(json.dumps(row.get("endpoint"), sort_keys=True) for row in rows)


def _wall(until: float | None) -> float | None:
    return None if until is None else time.time() + until - time.monotonic()


def _entry(row: Mapping[str, Any]) -> tuple[Target, Entry]:
    until = row["until"]
    end = None if until is None else time.monotonic() + until - time.time()
    return Target(row["pool"], Lever(row["lever"]), row["member"]), Entry(float(row["value"]), end)
