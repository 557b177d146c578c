"""Values in a file that another program reads: replaced as a whole by rename, then an optional reload command."""

import json
import math
import os
import signal
import stat
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import yaml

from actuators.batch import invalid, reject, wanted
from actuators.memory import Memory
from controller.core.model import Applied, Decision, Lever, Outcome, Target, TargetState
from controller.core.params import Unit, param
from controller.core.ports import Binding, Capability

_WORDS = 300  # characters of a command's own words that are worth a log line
_ENVIRONMENT = ("PATH", "HOME", "LANG", "TZ")  # the reload command gets these and none of Governor's secrets


@dataclass(frozen=True, slots=True)
class FileConfig:
    """Which file, in which form, and what to run after a change."""

    path: str = param("Path of the file; keys are pool/lever or pool/lever/member.")
    format: Literal["json", "yaml", "lines"] = param("json, yaml, or lines of `key: value`.", "json")
    initial: float | None = param("Value in force while the file or a key of it does not exist.", None)
    reload: tuple[str, ...] = param("Command and arguments to run after a change; no shell.", ())
    timeout: float = param("Longest wait for the reload command.", 10.0, unit=Unit.DURATION, gt=0)
    unit: str = param("Unit of the value, for people.", "replicas")
    quantum: float = param("Smallest step of the value.", 1.0, gt=0)
    settle: float = param("Time until a new value can show an effect.", 0.0, unit=Unit.DURATION, ge=0)
    hot: bool = param("Whether a new value takes effect without a restart.", True)
    yield_for: float = param("How long a value set by somebody else is left alone.", 900.0, unit=Unit.DURATION, ge=0)

    def __post_init__(self) -> None:
        if not Path(self.path).is_absolute():
            raise ValueError("path: is relative; write the whole path, from / on")


class _Unusable(Exception):
    """The file cannot be read or is not what it should be; the message says what and where."""


class _ReloadFailed(Exception):
    """The reload command refused the change."""


class _ReloadHung(Exception):
    """The reload command did not end in time and was killed."""


@dataclass(frozen=True, slots=True)
class _Content:
    """What the file holds. `raw` is None when it does not exist; `by` tells who wrote it, as far as a file can."""

    raw: bytes | None
    keys: Mapping[str, Any]
    by: str = ""


class File:
    """A batch is one write: all of its values or none. Keys of others are kept (comments in YAML are not)."""

    Config = FileConfig

    def __init__(self, config: FileConfig, binding: Binding) -> None:
        self._config = config
        self._path = Path(config.path)
        self._owns = binding.owns
        self._memory = Memory(config.yield_for)

    @classmethod
    def describe(cls, config: FileConfig | None = None) -> Mapping[Lever, Capability]:
        note = "a key of a file; your program reads it, or a command of yours makes it"
        one = Capability("yours", atomic=True, note=note)
        if config is not None:
            one = replace(one, unit=config.unit, quantum=config.quantum, settle=config.settle, hot=config.hot)
        return dict.fromkeys(Lever, one)

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        try:
            content = self._load()
        except _Unusable as error:
            return {target: self._memory.state(target, None, now, error=str(error)) for target in targets}
        return {target: self._read_one(target, content, now) for target in targets}

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        problems = invalid(decisions, self._owns, quantum=self._config.quantum)
        if problems:
            return reject(decisions, problems)
        try:
            content = self._load()
        except _Unusable as error:
            return self._all(decisions, Outcome.FAILED, str(error), now)
        there = [d for d in decisions if str(d.target) in content.keys]
        held = {d.target: self._value(content, d.target) for d in there}
        if len(there) == len(decisions) and all(held[d.target] == d.final for d in decisions):
            return self._all(decisions, Outcome.DONE, f"{self._path} already says so", now, moved=False)
        moved = [d for d in there if held[d.target] not in (d.current, d.final)]
        if moved:
            detail = f"{self._path}: {moved[0].target} was changed by {content.by} since the decision was made"
            return self._all(decisions, Outcome.FAILED, detail, now)
        try:
            self._write(content, {str(d.target): wanted(d) for d in decisions})
        except OSError as error:
            return self._all(decisions, Outcome.FAILED, f"{self._path} is unchanged: {error.strerror or error}", now)
        return self._reload(decisions, content, now)

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        try:
            content = self._load()
        except _Unusable as error:
            return tuple(Applied(d.target, Outcome.UNKNOWN, str(error)) for d in decisions)
        return tuple(self._verified(decision, content, now) for decision in decisions)

    def close(self) -> None:
        """Nothing is held open."""

    # --- reading ------------------------------------------------------------------------------------------------

    def _load(self) -> _Content:
        try:
            raw = self._path.read_bytes()
            info = self._path.stat()
        except FileNotFoundError:
            return _Content(None, {})
        except OSError as error:
            raise _Unusable(f"cannot read {self._path}: {error.strerror}") from error
        try:
            keys = _parse(raw.decode(), self._config.format)
        except (ValueError, yaml.YAMLError) as error:
            raise _Unusable(f"{self._path} is not valid {self._config.format}: {error}") from error
        return _Content(raw, keys, f"uid {info.st_uid}")

    def _value(self, content: _Content, target: Target) -> float | None:
        value = content.keys.get(str(target), self._config.initial)
        if self._config.format == "lines" and isinstance(value, str):
            value = _number(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return None
        return float(value)

    def _read_one(self, target: Target, content: _Content, now: float) -> TargetState:
        value = self._value(content, target)
        if value is None:
            error = f"{self._path} has no finite number for {target}; write one, or set initial"
            return self._memory.state(target, None, now, error=error)
        if str(target) not in content.keys:
            return replace(self._memory.state(target, value, now), assumed=True)
        self._memory.saw(target, value, now, content.by)
        return self._memory.state(target, value, now)

    # --- writing ------------------------------------------------------------------------------------------------

    def _write(self, content: _Content, values: Mapping[str, float]) -> None:
        numbers = {key: int(value) if value.is_integer() else value for key, value in values.items()}
        self._replace(_render({**content.keys, **numbers}, self._config.format).encode())

    def _replace(self, data: bytes) -> None:
        """Write beside the file, flush to disk, rename over it: a reader sees the old file or the new one."""
        path = self._path.resolve()  # a symbolic link keeps pointing where it did
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _reload(self, decisions: Sequence[Decision], before: _Content, now: float) -> Sequence[Applied]:
        if not self._config.reload:
            return self._all(decisions, Outcome.DONE, f"{self._path} written", now)
        try:
            _run(self._config.reload, self._config.timeout)
        except _ReloadHung as error:
            return self._all(decisions, Outcome.UNKNOWN, str(error), now)
        except (_ReloadFailed, OSError) as error:
            try:
                self._restore(before)
            except OSError as second:
                return self._all(decisions, Outcome.UNKNOWN, f"{error}; {self._path} was not put back: {second}", now)
            return self._all(decisions, Outcome.FAILED, f"{error}; {self._path} was put back", now)
        return self._all(decisions, Outcome.DONE, f"{self._path} written and reloaded", now)

    def _restore(self, before: _Content) -> None:
        if before.raw is None:
            self._path.unlink()
        else:
            self._replace(before.raw)

    def _verified(self, decision: Decision, content: _Content, now: float) -> Applied:
        value, got = wanted(decision), self._value(content, decision.target)
        if str(decision.target) not in content.keys:
            return self._record(decision, Outcome.FAILED, f"{self._path} has no {decision.target}", now)
        outcome = Outcome.DONE if got == value else Outcome.FAILED
        return self._record(decision, outcome, f"{self._path} says {got} for {decision.target}", now)

    def _all(
        self, decisions: Sequence[Decision], outcome: Outcome, detail: str, now: float, *, moved: bool = True
    ) -> tuple[Applied, ...]:
        return tuple(self._record(d, outcome, detail, now, moved=moved) for d in decisions)

    def _record(self, decision: Decision, outcome: Outcome, detail: str, now: float, *, moved: bool = True) -> Applied:
        self._memory.sent(decision.target, wanted(decision), outcome, now, moved=moved)
        return Applied(decision.target, outcome, detail)


def _parse(text: str, form: str) -> dict[str, Any]:
    """The keys of a file; ValueError or YAMLError when it is not of its form."""
    if form == "json":
        document = json.loads(text, parse_constant=_no_constant)
    elif form == "yaml":
        document = yaml.safe_load(text) or {}
    else:
        document = dict(_line(line) for line in text.splitlines() if line.strip() and not line.startswith("#"))
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise ValueError("the top level must be a mapping with text keys")
    return document


def _line(line: str) -> tuple[str, str]:
    key, separator, value = line.rpartition(": ")
    if not separator:
        raise ValueError(f"no `key: value` in {line!r}")
    return key.strip(), value.strip()


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _render(keys: Mapping[str, Any], form: str) -> str:
    if form == "json":
        return json.dumps(keys, indent=2, sort_keys=True, allow_nan=False) + "\n"
    if form == "yaml":
        return yaml.safe_dump(dict(keys), sort_keys=True)
    return "".join(f"{key}: {value}\n" for key, value in keys.items())


def _run(command: Sequence[str], timeout: float) -> None:
    """Run to the end in a process group of its own, so that a hung command is ended with all that it started."""
    environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    with subprocess.Popen(  # noqa: S603 - the command is the operator's own, given as a list
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise _ReloadHung(f"{command[0]} did not end within {timeout:g} s and was killed") from None
    if process.returncode != 0:
        words = output.decode(errors="replace").strip()[-_WORDS:]
        raise _ReloadFailed(f"{command[0]} ended with {process.returncode}: {words}")
