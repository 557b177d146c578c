"""Unit tests of a config: given these series, this must be decided, for that reason. The format of `governor test`."""

import operator
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator, model_validator

from controller import registry
from controller.config import ConfigError, GovernorConfig, Problem, load, loads, pool_needs, tree
from controller.config.errors import BadValue, dotted
from controller.config.report import problems_of
from controller.config.units import duration
from controller.core.errors import InputError
from controller.core.model import Decision, Lever, Target
from controller.core.ports import Source
from controller.core.why import Why
from controller.core.words import clock, number
from controller.explain import held_by, reason
from controller.rehearse.notation import parse_series, parse_values
from controller.rehearse.signal_source import SignalSource, SignalTable
from controller.run.assembly import RunMode, assemble
from controller.run.loop import TickResult

START = 1_767_225_600.0  # 2026-01-01 00:00 UTC: the time 0 of every test

_COMPARE: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<=": operator.le, ">=": operator.ge, "<": operator.lt, ">": operator.gt,
}  # fmt: skip
_CONDITION = re.compile(r"\s*(==|!=|<=|>=|<|>)?\s*([+-]?\d+(?:\.\d+)?)\s*")


@dataclass(frozen=True, slots=True)
class Condition:
    """`4`, `>= 3`, `!= 2`."""

    text: str
    holds: Callable[[float], bool]


def _condition(value: object) -> Condition:
    match = _CONDITION.fullmatch(str(value)) if isinstance(value, (int, float, str)) else None
    if match is None or isinstance(value, bool):
        raise BadValue(f"{value!r} is not a condition", "write 4, '>= 3' or '!= 2'")
    compare, wanted = _COMPARE[match[1] or "=="], float(match[2])
    text = f"{match[1]} {number(wanted)}" if match[1] else number(wanted)
    return Condition(text, lambda actual: compare(actual, wanted))


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _holders(value: object) -> object:
    return [] if value == "nothing" else _listed(value)


def _path_or_config(value: object) -> object:
    if not isinstance(value, (str, dict)):
        raise BadValue(f"{value!r} is no config", "write the path of a config file, or the config itself below it")
    return value


Seconds = Annotated[float, BeforeValidator(duration)]
Conditional = Annotated[Any, BeforeValidator(_condition)]
Reasons = Annotated[list[Why], BeforeValidator(_listed)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class SeriesInput(_Model):
    """One series in promtool's notation; a value each `interval`."""

    series: str
    values: str

    @field_validator("values", mode="before")
    @classmethod
    def _text(cls, value: object) -> object:
        return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else value


class Expectation(_Model):
    """What must be decided of one target at one time. `final` and `current` are conditions, `why` and `held_by` one
    reason or a list of allowed ones, `changed` whether it moves, `says` a part of the explanation."""

    at: Seconds
    pool: str = ""
    lever: Lever = Lever.REPLICAS
    member: str = ""
    current: Conditional = None
    final: Conditional = None
    why: Reasons | None = None
    held_by: Annotated[list[Why] | None, BeforeValidator(_holders)] = None  # empty: by nothing
    changed: bool | None = None
    says: str | None = None

    @model_validator(mode="after")
    def _expects(self) -> "Expectation":
        if all(getattr(self, name) is None for name in ("current", "final", "why", "held_by", "changed", "says")):
            raise BadValue("expects nothing", "write at least one of final, current, why, held_by, changed, says")
        return self


class TestModel(_Model):
    """One test: series of an engine (`input_series`) or signals (`input_signals`), and what to expect."""

    name: str
    interval: Seconds | None = None
    input_series: list[SeriesInput] = []
    input_signals: list[SeriesInput] = []
    expect: Annotated[list[Expectation], Field(min_length=1)]

    @model_validator(mode="after")
    def _one_input(self) -> "TestModel":
        if bool(self.input_series) == bool(self.input_signals):
            raise BadValue(
                "has both kinds of series" if self.input_series else "has no series",
                "give either input_series (the engine's own) or input_signals",
            )
        return self


class FileModel(_Model):
    """The file: the config (a path, relative to it, or the config itself) and the tests."""

    config: Annotated[Any, BeforeValidator(_path_or_config)]
    interval: Seconds | None = None
    tests: Annotated[list[TestModel], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class PolicyTest:
    """One test, ready to run. `interval` in seconds; `place` names the file for messages."""

    place: str
    name: str
    config: GovernorConfig
    interval: float
    model: TestModel


def load_tests(path: Path) -> list[PolicyTest]:
    """All tests of a file. Raises InputError, and ConfigError when its config is wrong."""
    file = _read(path)
    config = _config(file.config, path)
    tests = [
        PolicyTest(str(path), one.name, config, one.interval or file.interval or config.interval, one)
        for one in file.tests
    ]
    for one in tests:
        for number_, expected in enumerate(one.model.expect):
            _target(one, expected, f"{path}: {one.name}: expect[{number_}]")
    return tests


def _read(path: Path) -> FileModel:
    """The file, or a ConfigError with the line, mistake and mend of all that is wrong with it."""
    try:
        found = tree.parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}; check the path") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8 text") from error
    if found.problems:
        raise ConfigError(found.problems, str(path))
    if not isinstance(found.data, dict):
        what = "the file is empty" if found.data is None else "the file must be a mapping of names to values"
        mend = "begin with `config: FILE` and `tests:`, see docs/rehearsing.md"
        raise ConfigError([Problem("", what, mend)], str(path))
    try:
        return FileModel.model_validate(found.data)
    except ValidationError as error:
        problems = [
            Problem(dotted(at), mistake, mend, found.line(at)) for at, mistake, mend in problems_of(error, FileModel)
        ]
        raise ConfigError(problems, str(path)) from error


def run_test(test: PolicyTest) -> list[str]:
    """What is not as expected, as text to print; empty when the test passes. Raises InputError for unusable series."""
    wanted: dict[int, list[Expectation]] = {}
    for expected in test.model.expect:
        wanted.setdefault(int(expected.at / test.interval + 1e-9), []).append(expected)
    results: dict[int, TickResult] = {}
    with tempfile.TemporaryDirectory(prefix="governor-test-") as folder:
        source = _source(test, Path(folder))
        loop = assemble(test.config, mode=RunMode.REPLAY, source=source)
        try:
            for tick in range(max(wanted) + 1):
                result = loop.tick(START + tick * test.interval)
                if tick in wanted:
                    results[tick] = result
        finally:
            loop.close()
    return [
        problem
        for tick, many in sorted(wanted.items())
        for one in many
        for problem in _compare(test, one, results[tick])
    ]


def _compare(test: PolicyTest, expected: Expectation, result: TickResult) -> list[str]:
    target = _target(test, expected, test.place)
    decision = next((one for one in result.plan.decisions if one.target == target), None)
    head = f"  at {clock(result.plan.at)} {target}"
    if decision is None:
        return [f"{head}\n    expected a decision, got none; is the lever in the config?"]
    differing = [
        f"    {name:<9}expected {want}, got {got}" for name, want, got, good in _checks(expected, decision) if not good
    ]
    if not differing:
        return []
    said = f"    decided  {number(decision.current)} → {number(decision.final)}: {reason(decision)}"
    error = [f"    no data  {result.snapshot.error}"] if result.snapshot.error else []
    return ["\n".join([head, *differing, said, *error])]


def _checks(expected: Expectation, decision: Decision) -> list[tuple[str, str, str, bool]]:
    """(name, wanted, got, whether it is so) of everything that is expected."""
    checks: list[tuple[str, str, str, bool]] = []
    for name, actual in (("current", decision.current), ("final", decision.final)):
        condition: Condition | None = getattr(expected, name)
        if condition is not None:
            good = actual is not None and condition.holds(actual)
            checks.append((name, condition.text, "unknown" if actual is None else number(actual), good))
    if expected.changed is not None:
        words = ("no change", "a change")
        checks.append(
            ("changed", words[expected.changed], words[decision.changed], decision.changed is expected.changed)
        )
    if expected.why is not None:
        checks.append(("why", " or ".join(expected.why), decision.why.value, decision.why in expected.why))
    if expected.held_by is not None:
        holder = held_by(decision)
        allowed = expected.held_by
        good = holder is None if not allowed else holder in allowed
        checks.append(("held_by", " or ".join(allowed) or "nothing", holder.value if holder else "nothing", good))
    if expected.says is not None:
        text = reason(decision)
        checks.append(("says", repr(expected.says), "other words", expected.says in text))
    return checks


def _target(test: PolicyTest, expected: Expectation, place: str) -> Target:
    pools = list(test.config.pools)
    if not expected.pool and len(pools) > 1:
        raise InputError(f"{place}: name the pool; the config has {', '.join(pools)}")
    pool = expected.pool or pools[0]
    if pool not in pools:
        raise InputError(f"{place}: there is no pool {pool!r} in the config; its pools are {', '.join(pools)}")
    if expected.lever not in test.config.pools[pool].levers:
        raise InputError(f"{place}: the pool {pool} has no lever {expected.lever.value} in the config")
    return Target(pool, expected.lever, expected.member)


def _source(test: PolicyTest, folder: Path) -> Source:
    if test.model.input_signals:
        table = SignalTable()
        for i, one in enumerate(test.model.input_signals):
            place = f"{test.place}: {test.name}: input_signals[{i}]"
            name, labels = parse_series(one.series, place)
            table.add(name, labels, parse_values(one.values, place), list(test.config.pools), place)
        edges = [needs.edges for needs in pool_needs(test.config)]
        targets = {fact: tuple(e for pool in edges for e in pool.get(fact, ())) for pool in edges for fact in pool}
        return SignalSource(table, START, test.interval, targets)
    return _recorded(test, folder)


def _recorded(test: PolicyTest, folder: Path) -> Source:
    """The series as timestamped exposition text, imported as `governor import` would: one path for raw series."""
    rows: dict[str, list[float | None]] = {}
    seen: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    targets: dict[str, None] = {}
    for i, one in enumerate(test.model.input_series):
        place = f"{test.place}: {test.name}: input_series[{i}]"
        name, labels = parse_series(one.series, place)
        if (key := (name, frozenset(labels.items()))) in seen:
            raise InputError(f"{place}: {one.series.strip()} is given twice; keep one of them")
        seen.add(key)
        rows[one.series.strip()] = parse_values(one.values, place)
        own = ",".join(f'{name}="{labels[name]}"' for name in ("instance", "job") if name in labels)
        targets[f"up{{{own}}}"] = None
    # A series counts from its birth only where its target was up before; a test that says nothing means that it was.
    length = max(map(len, rows.values()))
    for target in targets:
        rows.setdefault(target, [1.0] * length)
    text = folder / "series.txt"
    with text.open("w", encoding="utf-8") as out:
        for step in range(length):
            out.write(f"# SCRAPE {START + step * test.interval:.3f}\n")
            for series, values in rows.items():
                value = values[step] if step < len(values) else None
                if value is not None:
                    out.write(f"{series} {value!r}\n")
    recording = folder / "series.jsonl.gz"
    registry.tool("import-exposition")(text, recording, everything=True)
    kind = registry.source("recording")
    source: Source = kind(kind.Config(path=str(recording)), pool_needs(test.config))
    return source


def _config(given: str | Mapping[str, Any], path: Path) -> GovernorConfig:
    if isinstance(given, str):
        return load(path.parent / given)
    try:
        return loads(yaml.safe_dump(dict(given), sort_keys=False), origin=f"{path}: config")
    except ConfigError as error:
        # Lines would be those of a file that nobody has seen.
        raise InputError("\n".join(f"{path}: config.{problem}" for problem in error.problems)) from error
