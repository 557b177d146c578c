"""The stand: a real Prometheus on loopback that holds a few minutes of a made-up fleet."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from benchmarks.fleet import Fleet, Shape
from sources.prometheus.rulefile import document
from tests.support.prometheus import prometheus

SCRAPE = 15.0
BEGIN = 1_790_000_000 // 7200 * 7200 + 3600.0  # within one block of two hours


@contextmanager
def stand(folder: Path, shape: Shape, scrapes: int, *, rules: bool) -> Iterator[str]:
    """The address of a Prometheus with this many scrapes of the fleet from BEGIN on, and what the shipped recording
    rules make of them if `rules`. Raises RuntimeError when promtool refuses."""
    storage = folder / "tsdb"
    exposition = folder / "fleet.om"
    _write(exposition, Fleet(shape, BEGIN), scrapes)
    _promtool("create-blocks-from", "openmetrics", "-q", str(exposition), str(storage))
    exposition.unlink()
    if rules:
        with prometheus(storage) as url:
            _record(folder, url, BEGIN + scrapes * SCRAPE, storage)
    with prometheus(storage) as url:
        yield url


def _write(path: Path, fleet: Fleet, scrapes: int) -> None:
    """OpenMetrics text, each target at its own moment of the interval."""
    heads = [name + "{" + ",".join(f'{label}="{value}"' for label, value in pairs) + "}" for name, pairs in fleet.keys]
    late = fleet.phases(SCRAPE)
    with path.open("w", encoding="ascii") as out:
        for scrape in range(scrapes):
            fleet.advance(BEGIN + (scrape + 1) * SCRAPE)
            stamps = BEGIN + scrape * SCRAPE + late
            rows = zip(heads, fleet.values.tolist(), stamps.tolist(), strict=True)
            out.writelines(f"{head} {value!r} {at:.3f}\n" for head, value, at in rows)
        out.write("# EOF\n")


def _record(folder: Path, url: str, end: float, storage: Path) -> None:
    """Evaluate the shipped rules of vLLM over what is there; groups of engines that do not run here record nothing."""
    groups = [g for g in yaml.safe_load(document())["groups"] if g["name"].endswith("-vllm")]
    file = folder / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": groups}), encoding="utf-8")
    span = (f"--start={BEGIN:.0f}", f"--end={end:.0f}", f"--eval-interval={SCRAPE:.0f}s")
    _promtool("create-blocks-from", "rules", f"--url={url}", *span, f"--output-dir={storage}", str(file))


def _promtool(*words: str) -> None:
    done = subprocess.run(["promtool", "tsdb", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"promtool {words[1]} failed: {done.stderr[-2000:]}")
