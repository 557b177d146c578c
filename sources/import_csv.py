"""Import CSV tables as recordings of facts.

Rates and means become counters that grow between two rows by what the rate says for that time, so a recording of them
is read by the same arithmetic as a scrape. The first row of a series therefore adds nothing.
"""

import csv
import gzip
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from statistics import median

from sources import facts
from sources.csv_mapping import Column, FactColumn, ImportMapping, Table, load_mapping
from sources.frames import Labels, Layout, Sample, labels
from sources.imported import Imported, ImportFailed
from sources.recording_file import Header, RecordingWriter

JOB = "import"


@dataclass(slots=True)
class _Run:
    """The rows of one group: per time the samples, and what was counted so far."""

    samples: dict[float, list[Sample]] = field(default_factory=dict)
    totals: dict[tuple[str, Labels], float] = field(default_factory=dict)
    last: dict[tuple[int, Labels], float] = field(default_factory=dict)  # (table, labels) -> time of its last row
    newest: float = -math.inf
    repeated: int = 0
    orphans: int = 0


def import_csv(csvs: Sequence[Path], mapping: Path, out: Path, *, group: str = "") -> tuple[Imported, ...]:
    """Import `csvs` (plain or gzip), one per table of the mapping and in its order. With a `group` column `out` is a
    folder that gets one recording per group, or the file of the one `group` asked for. Raises ImportFailed or
    MappingError."""
    plan = load_mapping(mapping)
    if len(csvs) != len(plan.tables):
        raise ImportFailed(
            f"{mapping} maps {len(plan.tables)} tables and {len(csvs)} CSV files were given, in its order"
        )
    runs: dict[str, _Run] = {}
    for number, (path, table) in enumerate(zip(csvs, plan.tables, strict=True)):
        _read(path, number, table, plan, runs, group)
    if not runs or not any(run.samples for run in runs.values()):
        wanted = f" with {plan.tables[0].group} = {group!r}" if group else ""
        raise ImportFailed(f"{csvs[0]}: has no rows{wanted}")
    if plan.tables[0].group and not group:
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ImportFailed(f"{out}: cannot be a folder, one file per group: {error.strerror}") from error
        places = {name: out / f"{_slug(name)}.jsonl.gz" for name in runs}
        if len(set(places.values())) < len(places):
            raise ImportFailed(f"{csvs[0]}: two values of {plan.tables[0].group} make the same file name")
    else:
        places = dict.fromkeys(runs, out)
    return tuple(_write(places[name], name, run, plan, csvs) for name, run in runs.items() if run.samples)


def _read(path: Path, number: int, table: Table, plan: ImportMapping, runs: dict[str, _Run], only: str) -> None:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ImportFailed(f"{path}: cannot be read: {error}") from error
    rows = csv.DictReader(io.StringIO(text, newline=""))
    header = frozenset(rows.fieldnames or ())
    if missing := sorted(table.columns - header):
        shown = ", ".join(rows.fieldnames or ()) or "none, the file is empty"
        raise ImportFailed(f"{path}: has no column {', '.join(missing)}; its columns are {shown}")
    origin = _moment(table.start, f"{path}: start")
    for line, row in enumerate(rows, 2):
        place = f"{path}, line {line}"
        name = row[table.group] if table.group else ""
        if only and name != only:
            continue
        run = runs.setdefault(name, _Run()) if number == 0 else runs.get(name)
        at = origin + _moment(row[table.time], f"{place}, column {table.time}")
        if run is None:
            continue
        if number > 0 and at not in run.samples:
            run.orphans += 1
            continue
        if number == 0 and 0 < at - run.newest < plan.apart:
            run.repeated += 1
            continue
        run.newest = at
        _row(place, number, table, plan, run, row, at)


def _row(
    place: str, number: int, table: Table, plan: ImportMapping, run: _Run, row: Mapping[str, str], at: float
) -> None:
    replica = row[table.replica] if table.replica else ""
    common = dict(table.labels) | {name: row[column] for name, column in table.label_columns.items()}
    target = {"job": JOB, "instance": replica or "pool"}
    own = labels({**common, **target, plan.replica_label: replica}.items())
    before = run.last.get((number, own))
    if before is not None and at <= before:
        raise ImportFailed(f"{place}: is not later than the row before it; name a `group` or `replica` column")
    run.last[number, own] = at
    passed = 0.0 if before is None else at - before
    samples = run.samples.setdefault(at, [])
    samples.append(Sample("up", labels(target.items()), 1.0))
    for one in table.facts:
        samples.extend(_samples(place, one, run, row, own, passed))


def _samples(
    place: str, one: FactColumn, run: _Run, row: Mapping[str, str], own: Labels, passed: float
) -> Iterable[Sample]:
    value = _number(place, one.value, row)
    if one.kind == "gauge":
        return [] if value is None else [Sample(facts.series_name(one.fact), own, value)]
    if one.kind == "counter":
        name = facts.series_name(one.fact)
        # A blank cell was not measured; leaving the series out would say that it was born again in the next row.
        value = run.totals.get((name, own)) if value is None else value
        if value is None:
            return []
        run.totals[name, own] = value
        return [Sample(name, own, value)]
    if one.kind == "rate":
        added = 0.0 if value is None else value * passed / one.value.per
        return [_grown(run, facts.series_name(one.fact), own, added)]
    count = None if one.count is None else _number(place, one.count, row)
    events = 0.0 if count is None or value is None or one.count is None else count * passed / one.count.per
    total = 0.0 if value is None else value * events
    return [
        _grown(run, facts.series_name(one.fact, "sum"), own, total),
        _grown(run, facts.series_name(one.fact, "count"), own, events),
    ]


def _grown(run: _Run, name: str, own: Labels, added: float) -> Sample:
    total = run.totals[name, own] = run.totals.get((name, own), 0.0) + added
    return Sample(name, own, total)


def _number(place: str, column: Column, row: Mapping[str, str]) -> float | None:
    value = _cell(place, column.column, row)
    if value is None or value in column.null:
        return None
    if column.thousandths_above is not None and value > column.thousandths_above and value.is_integer():
        value /= 1000
    if column.times:
        factor = _cell(place, column.times, row)
        if factor is None:
            return None
        value *= factor
    return value * column.scale


def _cell(place: str, column: str, row: Mapping[str, str]) -> float | None:
    text = row[column].strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        raise ImportFailed(f"{place}, column {column}: {text!r} is not a number") from None
    return value if math.isfinite(value) else None


def _moment(value: object, place: str) -> float:
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    text = str(value).strip()
    try:
        return float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError:
            raise ImportFailed(f"{place}: {text!r} is neither seconds nor an ISO 8601 time") from None
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _write(path: Path, name: str, run: _Run, plan: ImportMapping, csvs: Sequence[Path]) -> Imported:
    times = sorted(run.samples)
    interval = round(median(b - a for a, b in pairwise(times)), 3) if len(times) > 1 else 60.0
    origin = {one.fact.value: one.origin for table in plan.tables for one in table.facts}
    source = ", ".join(path.name for path in csvs) + (f": {name}" if name else "")
    layout = Layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    late = tuple(sorted({one.fact.value for table in plan.tables for one in table.facts if one.late}))
    header = Header("facts", interval, source=source, comment=plan.comment, facts=origin, late=late)
    with RecordingWriter(path, header) as writer:
        for at in times:
            writer.write(layout.frame(at, run.samples[at]))
    notes = []
    if run.repeated:
        notes.append(f"{run.repeated} rows less than {plan.apart:g} s after the one before were left out")
    if run.orphans:
        notes.append(f"{run.orphans} rows of further tables have no row of the first one and were left out")
    return Imported(path, name, len(times), len(layout), times[0], times[-1], interval, tuple(notes))


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).strip("._") or "run"
