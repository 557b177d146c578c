"""Real and replayed /metrics pages outside the repository, and the names that a version had by the release matrices."""

import gzip
import json
from functools import cache

import pytest

from sources.exposition import Exposition, parse
from tests.support.repository import ROOT

METRICS = ROOT.parent / "shared" / "data" / "metrics"
ABSENT = not METRICS.is_dir()
needs_dumps = pytest.mark.skipif(ABSENT, reason="../shared/data/metrics is not here")


@cache
def page(name: str) -> Exposition:
    """One page, by its path below the metrics folder."""
    return parse(text(name))


def text(name: str) -> str:
    path = METRICS / name
    if not path.is_file():
        pytest.skip("../shared/data/metrics is not here")
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes()).decode()
    return path.read_text(encoding="utf-8")


def pages(pattern: str) -> list[str]:
    """Paths below the metrics folder. Where that is absent one stands in for all, to be skipped with the reason."""
    if ABSENT:
        return ["absent"]
    return sorted(str(path.relative_to(METRICS)) for path in METRICS.glob(pattern))


@cache
def matrix(engine: str) -> dict[str, frozenset[str]]:
    """Per released version the names that its source creates, as they are on the wire."""
    path = METRICS / "contracts" / f"{engine}_version_matrix.json"
    if ABSENT:
        return {"absent": frozenset()}
    versions: dict[str, set[str]] = {}
    for name, entry in json.loads(path.read_text(encoding="utf-8")).items():
        counter = "ounter" in entry["class"] and not name.endswith("_total")
        for version in entry["versions"]:
            versions.setdefault(version, set()).add(f"{name}_total" if counter else name)
    return {version: frozenset(names) for version, names in versions.items()}


def number(version: str) -> tuple[int, ...]:
    """ "0.5.0rc2" as (0, 5, 0): release candidates count as their release."""
    return tuple(int("".join(c for c in part.split("rc")[0] if c.isdigit())) for part in version.split("."))
