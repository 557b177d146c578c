"""make bench: measure a tick against a real Prometheus, a day's rehearsal, a simulated engine, decisions of routing,
deciding with all levers, and from decision to effect of actuators; write docs/performance.md.

python -m benchmarks [--only tick|day|engine|routing|levers|actuators] [--keep-page]
"""

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from benchmarks import actuators, engine, levers, page, routing
from benchmarks.day import Rehearsal, rehearse
from benchmarks.fleet import Shape, config
from benchmarks.stand import stand
from benchmarks.tick import Measured

SMALL, LARGE = Shape(100, 8), Shape(1000, 8)
DAY = Shape(20, 8, per_replica=False)
TICKS, LARGE_TICKS = 7, 5
T = TypeVar("T")
PARTS = ("tick", "day", "engine", "routing", "levers", "actuators")


def ticks(shape: Shape, *, rules: tuple[bool, ...], count: int) -> Iterator[page.Ticks]:
    """Ticks with and without the recording rules, on one Prometheus. A process of its own measures each."""
    with tempfile.TemporaryDirectory(prefix="governor-bench-") as name:
        folder = Path(name)
        with stand(folder, shape, count + 5, rules=any(rules)) as url:
            for ruled in rules:
                file = folder / "governor.yaml"
                # So long that no tick is cut short: what it costs is to be seen.
                file.write_text(config(shape, url, rules=ruled, interval=60), encoding="utf-8")
                command = (sys.executable, "-m", "benchmarks.tick", str(file), url, str(count))
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
                yield page.Ticks(shape, ruled, tuple(Measured(**row) for row in json.loads(done.stdout)))


def day() -> Rehearsal:
    """Twenty pools for 24 hours."""
    with tempfile.TemporaryDirectory(prefix="governor-bench-") as name:
        return rehearse(Path(name), DAY)


def told(measure: Callable[[], Iterable[T]], line: Callable[[T], str]) -> list[T]:
    """All that is measured, each said when it is known."""
    out = []
    for one in measure():
        out.append(one)
        print(line(one), flush=True)
    return out


def main() -> None:
    """Everything, in less than ten minutes on two quiet cores."""
    words = argparse.ArgumentParser(prog="make bench", description=__doc__)
    words.add_argument(
        "--only",
        choices=PARTS,
        help="measure a part; of the page, only those of engines, of routing, of levers and of actuators are written",
    )
    words.add_argument("--keep-page", action="store_true", help="print the numbers, leave docs/performance.md alone")
    chosen = words.parse_args()
    wanted = {chosen.only} if chosen.only else set(PARTS)
    missing = [tool for tool in ("prometheus", "promtool") if shutil.which(tool) is None]
    if missing and "tick" in wanted:
        sys.exit(f"{' and '.join(missing)} not found; Debian has both in its package prometheus")
    measured: list[page.Ticks] = []
    rehearsed: Rehearsal | None = None
    speeds = told(engine.measure, engine.line) if "engine" in wanted else []
    decisions = told(routing.measure, routing.line) if "routing" in wanted else []
    deciding = told(levers.measure, levers.line) if "levers" in wanted else []
    effects = told(actuators.measure, actuators.line) if "actuators" in wanted else []
    if "tick" in wanted:
        # A thousand pools with rules would have promtool evaluate them for minutes before anything is measured.
        for shape, rules, count in ((SMALL, (False, True), TICKS), (LARGE, (False,), LARGE_TICKS)):
            for one in ticks(shape, rules=rules, count=count):
                measured.append(one)
                print(page.line(one), flush=True)
    if "day" in wanted:
        rehearsed = day()
        print(page.day_line(rehearsed), flush=True)
    if chosen.keep_page or not (speeds or decisions or deciding or effects):
        return
    known = page.PAGE.read_text("utf-8") if rehearsed is None or not measured else page.text(measured, rehearsed)
    if speeds:
        known = engine.replaced(known, engine.section(speeds))
    if decisions:
        known = page.replaced(known, routing.HEADING, routing.section(decisions), engine.HEADING)
    if deciding:
        known = page.replaced(known, levers.HEADING, levers.section(deciding), routing.HEADING)
    if effects:
        known = page.replaced(known, actuators.HEADING, actuators.section(effects), levers.HEADING)
    page.PAGE.write_text(known, encoding="utf-8")
    print(f"wrote {page.PAGE}")


if __name__ == "__main__":
    main()
