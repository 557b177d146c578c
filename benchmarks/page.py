"""The numbers as lines for the terminal and as docs/performance.md."""

import os
import platform
import timeit
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

from benchmarks.day import Rehearsal
from benchmarks.fleet import Shape
from benchmarks.tick import FILLED, THREADS, Measured

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"
_MIB = 2**20

HEAD = """\
# Performance

What a tick costs, and what a rehearsal of a day costs. This page is written by `make bench`, which measures anew.

## Method

A real Prometheus on loopback holds a few minutes of a made-up vLLM fleet, of which it keeps the families that the
config needs: 86 series a replica. Its scrapes are 15 s apart, each target at its own moment. promtool wrote them into
blocks, and evaluated the shipped recording rules for the columns that say so. Governor runs beside it, on the same
cores, in a process of its own: the loop of `governor run --dry-run` with TTFT, ITL and error objectives in every pool,
the capacity policy and a ledger on disk. Before anything is measured, {filled} ticks fill the windows.

After each tick a bare client (prometheus-api-client, {threads} threads, as the source has) sends the very queries of
that tick and decodes the answers. "Times bare" is the tick over that. "Own CPU" is the CPU time of the process in the
tick minus that of the bare client, whose HTTP and JSON nobody can save. "Peak memory" is the resident memory of the
process. Numbers are medians, over {ticks} ticks with 100 pools and {few} with 1,000.

Measured {when} on {cores} cores ({machine}), Python {python}, Governor {version}. {load} To compare machines and
interpreters: `sum(i * i for i in range(1_000_000))` took {yard:.0f} ms. A Python that was built without profile-guided
optimisation is a third slower; those of Debian and of the container image are not.
"""

TICK = """
## One tick

| | wanted | {heads} |
| --- | --- | {rule} |
"""

DAY = """
## A day in rehearsal

`governor dry-run` over a recording of 24 hours of 20 pools (one sample every 15 s, one target per pool, {ticks:,}
ticks), with `--ledger` and `--report`, from start to exit:

| | wanted | measured |
| --- | --- | --- |
"""

LEDGER = """
## The ledger

With 100 pools of 8 replicas the ledger takes {bytes:,.0f} bytes a tick on disk, {day:.0f} MiB a day at 15 s;
`ledger.max_size` (256 MiB by default) then holds {hours:.0f} hours. A pool without replicas of its own takes
{small:,.0f} bytes a tick in the rehearsal above.
"""


@dataclass(frozen=True, slots=True)
class Ticks:
    """What one process measured."""

    shape: Shape
    rules: bool
    rows: tuple[Measured, ...]

    def median(self, of: Callable[[Measured], float]) -> float:
        """Over all ticks."""
        return median(of(row) for row in self.rows)

    @property
    def large(self) -> bool:
        return self.shape.pools > 100

    @property
    def own_cpu(self) -> float:
        """Seconds."""
        return self.median(lambda row: row.cpu - row.bare_cpu)

    @property
    def times_bare(self) -> float:
        return self.median(lambda row: row.wall / row.bare_wall)


def line(one: Ticks) -> str:
    """One line for the terminal."""
    rules = " with recording rules" if one.rules else ""
    return (
        f"{one.shape.pools} x {one.shape.replicas}{rules}: tick {one.median(lambda r: r.wall):.2f} s, "
        f"bare client {one.median(lambda r: r.bare_wall):.2f} s, times bare {one.times_bare:.2f}, "
        f"own CPU {one.own_cpu * 1000:.0f} ms, deciding {one.median(lambda r: r.phases['decide']) * 1000:.0f} ms, "
        f"peak {max(row.peak for row in one.rows) / _MIB:.0f} MiB"
    )


def day_line(one: Rehearsal) -> str:
    """One line for the terminal."""
    return f"24 h of 20 pools: {one.wall:.0f} s ({one.cpu:.0f} s CPU), ledger {one.ledger / _MIB:.0f} MiB"


def text(measured: Sequence[Ticks], rehearsed: Rehearsal) -> str:
    """The whole page."""
    small = next(one for one in measured if not one.large)
    written = small.median(lambda row: row.ledger_bytes)
    per_day = written * 86400 / 15
    parts = [
        HEAD.format(
            filled=FILLED, threads=THREADS, ticks=len(small.rows), few=len(measured[-1].rows),
            when=datetime.now(UTC).strftime("%Y-%m-%d"),
            cores=os.cpu_count(), machine=_processor(), python=platform.python_version(),
            version=version("inference-governor"), load=_load(), yard=_yardstick() * 1000,
        ),
        TICK.format(heads=" | ".join(map(_name, measured)), rule=" | ".join("---" for _ in measured)),
        *_table(measured),
        DAY.format(ticks=rehearsed.ticks),
        f"| wall clock | ≤ 60 s | {judged(rehearsed.wall, 60.0, f'{rehearsed.wall:.0f} s')} |\n",
        f"| CPU | | {rehearsed.cpu:.0f} s, {rehearsed.cpu / rehearsed.ticks * 1000:.1f} ms a tick |\n",
        f"| recording | | {rehearsed.recording / _MIB:.1f} MiB |\n",
        f"| ledger | | {rehearsed.ledger / _MIB:.1f} MiB |\n",
        f"| report | | {rehearsed.report / _MIB:.1f} MiB |\n",
        LEDGER.format(
            bytes=written, day=per_day / _MIB, hours=256 * _MIB / per_day * 24,
            small=rehearsed.ledger / rehearsed.ticks / 20,
        ),
    ]  # fmt: skip
    return "".join(parts)


def _table(measured: Sequence[Ticks]) -> Iterator[str]:
    rows: list[tuple[str, str, Callable[[Ticks], str]]] = [
        ("tick, wall clock", "with rules, 100 pools: ≤ 0.5 s", lambda one: _seconds(one, lambda r: r.wall, _most(one))),
        ("bare client, wall clock", "", lambda one: _seconds(one, lambda r: r.bare_wall)),
        ("times bare", "≤ 1.3", _ratio),
        (
            "own CPU", "≤ 150 ms; 1,000 pools: ≤ 1.5 s",
            lambda one: judged(one.own_cpu, 1.5 if one.large else 0.15, f"{one.own_cpu * 1000:,.0f} ms"),
        ),
        (
            "deciding", "≤ 50 ms; 1,000 pools: ≤ 0.5 s",
            lambda one: _seconds(one, lambda r: r.phases["decide"], 0.5 if one.large else 0.05),
        ),
        ("measuring", "", lambda one: _seconds(one, lambda r: r.phases["measure"])),
        ("recording", "", lambda one: _seconds(one, lambda r: r.phases["record"])),
        ("peak memory", "≤ 400 MB", _memory),
        ("queries", "", lambda one: f"{one.median(lambda r: r.queries):.0f}"),
        ("answers", "", lambda one: f"{one.median(lambda r: r.answer_bytes) / _MIB:.1f} MiB"),
        ("ledger", "", lambda one: f"{one.median(lambda r: r.ledger_bytes):,.0f} bytes"),
    ]  # fmt: skip
    for name, wanted, cell in rows:
        yield f"| {name} | {wanted} | {' | '.join(cell(one) for one in measured)} |\n"


def _most(one: Ticks) -> float | None:
    return 0.5 if one.rules and not one.large else None


def _seconds(one: Ticks, of: Callable[[Measured], float], most: float | None = None) -> str:
    value = one.median(of)
    return judged(value, most, f"{value:.2f} s" if value >= 1 else f"{value * 1000:.0f} ms")


def _ratio(one: Ticks) -> str:
    """With the rules the queries cost so little that the ratio is about Governor alone; the tick as a whole counts."""
    return judged(one.times_bare, None if one.rules else 1.3, f"{one.times_bare:.2f}")


def _memory(one: Ticks) -> str:
    peak = max(row.peak for row in one.rows)
    return judged(peak, 400e6, f"{peak / 1e6:.0f} MB")


def judged(value: float, most: float | None, shown: str) -> str:
    """`shown`, and that it is more than wanted when it is."""
    return shown if most is None or value <= most else f"{shown} **(missed)**"


def _name(one: Ticks) -> str:
    return f"{one.shape.pools:,} pools of {one.shape.replicas}{', rules' if one.rules else ''}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((one.partition(":")[2].strip() for one in lines if one.startswith("model name")), platform.machine())


def _yardstick() -> float:
    """Seconds that a plain loop takes: how fast this interpreter is on this machine."""
    return min(timeit.repeat("sum(i * i for i in range(1_000_000))", number=1, repeat=5))


def _load() -> str:
    """What else ran, told by the load average just after: two cores that are ours alone show about 1."""
    return f"The load average at the end was {os.getloadavg()[1]:.1f} (5 minutes)."


def replaced(known: str, heading: str, new: str, before: str) -> str:
    """The page with the part of a heading anew; where there is none yet it goes before another one, or to the end."""
    head, found, rest = known.partition(heading)
    if found:
        tail = rest[rest.index("\n## ") + 1 :] if "\n## " in rest else ""
        return (head + new + tail).rstrip() + "\n"
    head, found, rest = known.partition(before)
    return (head.rstrip() + "\n\n" + new + found + rest).rstrip() + "\n"
