"""Results on disk, one file a run, so that a bench that was interrupted goes on where it was.

A file is written under another name and then renamed: what is there is whole. A search that found nothing is kept too.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.control.task import KEY, Counted, Outcome, Within

FOLDER = Path("build") / "bench-control"


class Cache:
    """The folder of results."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder

    def get(self, case: str, key: str) -> tuple[bool, Outcome | None]:
        """(whether it is known, the outcome or None when there is none)."""
        known, data = self.read(case, key)
        return known, None if data is None else outcome(data)

    def put(self, case: str, key: str, found: Outcome | None) -> None:
        """Keep an outcome."""
        self.write(case, key, None if found is None else asdict(found))

    def read(self, case: str, key: str) -> tuple[bool, Any]:
        """The same for any JSON value. A file that is damaged is not known."""
        try:
            return True, json.loads(self._path(case, key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False, None

    def write(self, case: str, key: str, value: Any) -> None:
        """Keep any JSON value."""
        path = self._path(case, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(value), encoding="utf-8")
        fresh.replace(path)

    def forget(self, case: str) -> None:
        """Remove what is kept of a scenario, and nothing else: the folder may be one that holds more."""
        for path in (self.folder / case).glob("*.json"):
            if re.fullmatch(KEY, path.stem):
                path.unlink(missing_ok=True)

    def _path(self, case: str, key: str) -> Path:
        return self.folder / case / f"{key}.json"


def outcome(data: Mapping[str, Any]) -> Outcome:
    """An outcome from its JSON."""
    shares = {name: Counted(**data[name]) for name in ("all", "critical")}
    events = {
        name: Within(Counted(**one["all"]), Counted(**one["critical"]), one["recovered"])
        for name, one in data["events"].items()
    }
    tenants = {name: Counted(**one) for name, one in data["tenants"].items()}
    inside = {event: {name: Counted(**one) for name, one in some.items()} for event, some in data["tenants_in"].items()}
    rows = {pool: tuple((at, paid, ready) for at, paid, ready in some) for pool, some in data["replicas"].items()}
    moves = {
        name: tuple((at, whose, before, after) for at, whose, before, after in data[name])
        for name in ("breaks", "relaxed")
    }
    made = {
        **data, **shares, "events": events, "tenants": tenants, "tenants_in": inside, "replicas": rows,
        "offered": tuple(data["offered"]), "attained": tuple(data["attained"]), **moves,
    }  # fmt: skip
    return Outcome(**made)
