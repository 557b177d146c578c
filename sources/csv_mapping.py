"""The mapping file of ``governor import``: which column of a CSV table is which fact, in which unit, read how.

    format: governor-import
    version: 1
    tables:
      - time: {column: ts_utc}              # ISO 8601, or unix seconds; with `start` seconds since then
        group: experiment                   # optional: one recording per value of this column
        replica: pod                        # optional: each row is about this replica
        labels: {model_name: llama-3.1-8b}  # constants, or {column: name}
        facts:
          waiting: {column: queue_len}
          finished: {column: arrival_rpm, kind: rate, per: 60}
          ttft: {column: ttft_ms, kind: mean, scale: 0.001, count: {column: arrival_rpm, per: 60}, "null": [0]}

Every further table adds facts to the rows of the first one, matched by group and time. With `apart: 5` beside `tables`,
a row less than 5 seconds after the one before is taken for a repetition and left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from controller.core.errors import InputError
from controller.core.facts import Fact, Kind

_VERSION = 1


class MappingError(InputError):
    """A mapping file that is wrong. The message names the file, the place and the mend."""


@dataclass(frozen=True, slots=True)
class Column:
    """How one number is read from a row: `column`, times the column `times`, times `scale`. Numbers in `null` mean "not
    measured"; whole numbers above `thousandths_above` are Kubernetes quantities in thousandths that lost their "m".
    `per` seconds is what a rate refers to."""

    column: str
    times: str = ""
    scale: float = 1.0
    per: float = 1.0
    null: tuple[float, ...] = ()
    thousandths_above: float | None = None


@dataclass(frozen=True, slots=True)
class FactColumn:
    """One fact. `kind`: gauge; counter (cumulative); rate (events per `per` seconds); mean (of `count` events, which
    are a rate). `late` when the number moves only as requests end, so that it does not show work in progress."""

    fact: Fact
    kind: str
    value: Column
    count: Column | None = None
    late: bool = False

    @property
    def origin(self) -> str:
        return f"{self.value.column} x {self.value.times}" if self.value.times else self.value.column


@dataclass(frozen=True, slots=True)
class Table:
    """One CSV file. `start` is added to a time in seconds."""

    time: str
    facts: tuple[FactColumn, ...]
    start: str | float = 0.0
    group: str = ""
    replica: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    label_columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> frozenset[str]:
        """Every column that must be there."""
        named = [self.time, self.group, self.replica, *self.label_columns.values()]
        for one in self.facts:
            for column in (one.value, one.count):
                named += [column.column, column.times] if column else []
        return frozenset(name for name in named if name)


@dataclass(frozen=True, slots=True)
class ImportMapping:
    """The whole file. `replica_label` is the label that names the replica in the recording; of rows less than `apart`
    seconds apart only the first is taken."""

    tables: tuple[Table, ...]
    comment: str = ""
    replica_label: str = "pod"
    apart: float = 0.0


def load_mapping(path: Path) -> ImportMapping:
    """Read and check a mapping file, YAML or JSON. Raises MappingError."""
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
        _keys(raw, {"format", "version", "comment", "replica_label", "apart", "tables"}, "the file")
        if raw.get("format") != "governor-import" or raw.get("version") != _VERSION:
            raise ValueError(f"it must begin with `format: governor-import` and `version: {_VERSION}`")
        if not raw.get("tables"):
            raise ValueError("it names no tables; write one under `tables:`")
        tables = tuple(_table(table, f"tables[{i}]") for i, table in enumerate(raw["tables"]))
        if len({bool(table.group) for table in tables}) > 1:
            raise ValueError("either every table has a `group` or none has")
        label, apart = str(raw.get("replica_label", "pod")), _number(raw, "apart", 0.0, "the file")
        return ImportMapping(tables, str(raw.get("comment", "")), label, apart)
    except OSError as error:
        raise MappingError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, yaml.YAMLError) as error:
        raise MappingError(f"{path}: {error}") from error


def _table(raw: Any, place: str) -> Table:
    _keys(raw, {"time", "group", "replica", "labels", "facts"}, place)
    time = raw.get("time")
    _keys(time, {"column", "start"}, f"{place}.time")
    labels = raw.get("labels", {})
    _keys(labels, None, f"{place}.labels")
    columns = {}
    for name, value in labels.items():
        if isinstance(value, dict):
            _keys(value, {"column"}, f"{place}.labels.{name}")
            columns[name] = _text(value, "column", f"{place}.labels.{name}")
    facts = raw.get("facts")
    _keys(facts, None, f"{place}.facts")
    if not facts:
        raise ValueError(f"{place}.facts: maps no column to a fact")
    return Table(
        time=_text(time, "column", f"{place}.time"),
        start=time.get("start", 0.0),
        group=str(raw.get("group", "")),
        replica=str(raw.get("replica", "")),
        labels={name: str(value) for name, value in labels.items() if name not in columns},
        label_columns=columns,
        facts=tuple(_fact(name, value, f"{place}.facts.{name}") for name, value in facts.items()),
    )


def _fact(name: str, raw: Any, place: str) -> FactColumn:
    if name not in set(Fact):
        raise ValueError(f"{place}: there is no such fact; there are {', '.join(sorted(Fact))}")
    fact = Fact(name)
    _keys(raw, {"column", "times", "scale", "per", "null", "thousandths_above", "kind", "count", "late"}, place)
    allowed = {Kind.GAUGE: ("gauge",), Kind.COUNTER: ("rate", "counter"), Kind.HISTOGRAM: ("mean",)}[fact.kind]
    kind = raw.get("kind", allowed[0])
    if kind not in allowed:
        raise ValueError(f"{place}.kind: a {fact.kind} is read from {' or '.join(allowed)}, not from {kind!r}")
    if (kind == "mean") != ("count" in raw):
        raise ValueError(f"{place}: a mean needs the `count` of what it is the mean of, and nothing else has one")
    count = _column(raw["count"], f"{place}.count") if kind == "mean" else None
    if not isinstance(late := raw.get("late", False), bool):
        raise ValueError(f"{place}.late: must be true or false")
    return FactColumn(fact, kind, _column(raw, place), count, late)


def _column(raw: Any, place: str) -> Column:
    _keys(raw, {"column", "times", "scale", "per", "null", "thousandths_above", "kind", "count", "late"}, place)
    per = _number(raw, "per", 1.0, place)
    if per <= 0:
        raise ValueError(f"{place}.per: must be seconds above 0")
    above = _number(raw, "thousandths_above", float("nan"), place)
    blanks = raw.get("null", [])
    if not isinstance(blanks, list) or not all(isinstance(blank, int | float) for blank in blanks):
        raise ValueError(f'{place}: "null" (in quotes) must be a list of numbers that mean "not measured"')
    return Column(
        column=_text(raw, "column", place),
        times=str(raw.get("times", "")),
        scale=_number(raw, "scale", 1.0, place),
        per=per,
        null=tuple(float(blank) for blank in blanks),
        thousandths_above=None if above != above else above,  # noqa: PLR0124 - NaN stands for "not given"
    )


def _text(raw: Mapping[str, Any], key: str, place: str) -> str:
    if not isinstance(value := raw.get(key), str) or not value:
        raise ValueError(f"{place}.{key}: must name a column")
    return value


def _number(raw: Mapping[str, Any], key: str, default: float, place: str) -> float:
    value = raw.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{place}.{key}: must be a number, not {value!r}")
    return float(value)


def _keys(raw: Any, known: set[str] | None, place: str) -> None:
    if not isinstance(raw, dict):
        raise ValueError(f"{place}: must be a mapping")
    if None in raw:
        raise ValueError(f'{place}: write "null" in quotes, YAML reads it as nothing otherwise')
    if known is not None and (unknown := sorted(map(str, raw.keys() - known))):
        raise ValueError(f"{place}: unknown key {', '.join(unknown)}; known are {', '.join(sorted(known))}")
