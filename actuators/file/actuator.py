"""Values in a file that another program reads: replaced as a whole by rename, then an optional reload command.

With a template, the file that the program reads is made from the values: filled in, judged by a check, and renamed into
its place before the values are, so that the values never claim what the program cannot have seen.
"""

import math
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from actuators.atomic import replace_file
from actuators.batch import invalid, reject, wanted
from actuators.file.command import CommandFailed, CommandHung, run
from actuators.file.config import FileConfig
from actuators.file.forms import BadForm, number, parse, render
from actuators.file.template import BadTemplate, fill
from actuators.memory import Memory
from controller.core.model import Applied, Decision, Lever, Outcome, Target, TargetState
from controller.core.ports import Binding, Capability, Finding
from controller.core.rest import at_rest


class _Unusable(Exception):
    """The file cannot be read or is not what it should be; the message says what and where."""


class _Refused(Exception):
    """The check would not have what the template made of the values."""


@dataclass(frozen=True, slots=True)
class _Content:
    """What the file holds. `raw` is None when it does not exist; `by` tells who wrote it, as far as a file can."""

    raw: bytes | None
    keys: Mapping[str, Any]
    by: str = ""


class File:
    """A batch is one write: all of its values or none. Keys of others are kept (comments in YAML are not)."""

    Config = FileConfig
    place = ("path",)

    def __init__(self, config: FileConfig, binding: Binding) -> None:
        self._config = config
        self._path = Path(config.path)
        self._owns = binding.owns
        self._memory = Memory(config.yield_for)
        self._output = Path(config.output) if config.output else None
        self._reloaded: float | None = None

    @classmethod
    def describe(cls, config: FileConfig | None = None) -> Mapping[Lever, Capability]:
        note = "a key of a file; your program reads it, or a command of yours makes it"
        one = Capability("yours", atomic=True, note=note, sizes=True)
        if config is not None:
            one = replace(one, unit=config.unit, quantum=config.quantum, settle=config.settle, hot=config.hot)
        return dict.fromkeys(Lever, one)

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        try:
            content = self._load()
        except _Unusable as error:
            return {target: self._memory.state(target, None, now, error=str(error)) for target in targets}
        placed = self._placed(content)
        return {
            target: self._read_one(target, content, now)
            if placed is None or str(target) in placed
            else self._memory.state(target, None, now, error=self._without_place(target))
            for target in targets
        }

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
        try:
            made = self._made({**content.keys, **_numbers({str(d.target): wanted(d) for d in decisions})})
            output = self._read_output()
        except BadTemplate as error:
            return self._all(decisions, Outcome.FAILED, f"{self._path} is unchanged: {error}", now)
        if len(there) == len(decisions) and all(held[d.target] == d.final for d in decisions) and made == output:
            return self._all(decisions, Outcome.DONE, f"{self._path} already says so", now, moved=False)
        moved = [d for d in there if held[d.target] not in (d.current, d.final)]
        if moved:
            detail = f"{self._path}: {moved[0].target} was changed by {content.by} since the decision was made"
            return self._all(decisions, Outcome.FAILED, detail, now)
        if self._too_soon(now):
            detail = f"not written: reloads are {self._config.min_interval:g} s apart at least"
            return tuple(Applied(d.target, Outcome.FAILED, detail, waits=True) for d in decisions)
        return self._change(decisions, content, output, made, now)

    def _change(
        self, decisions: Sequence[Decision], content: _Content, output: bytes | None, made: bytes | None, now: float
    ) -> Sequence[Applied]:
        try:
            if self._output is not None and made is not None:
                self._check(made)
                replace_file(self._output, made)
            self._write(content, {str(d.target): wanted(d) for d in decisions})
        except _Refused as error:
            return self._all(decisions, Outcome.REFUSED, f"{self._output} is unchanged: {error}", now)
        except (CommandHung, OSError) as error:
            words = (error.strerror if isinstance(error, OSError) else "") or str(error)
            return self._undone(decisions, content, output, f"{self._path} is unchanged: {words}", now)
        return self._reload(decisions, content, output, now)

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        try:
            content = self._load()
        except _Unusable as error:
            return tuple(Applied(d.target, Outcome.UNKNOWN, str(error)) for d in decisions)
        return tuple(self._verified(decision, content, now) for decision in decisions)

    def diagnose(self, now: float) -> Sequence[Finding]:
        """Whether the files can be read and written, the template filled in, and whether all three agree."""
        folder = f"its folder cannot be written by uid {os.geteuid()}"
        found = [
            Finding("error", str(path), folder)
            for path in (self._path, self._output)
            if path is not None and not os.access(path.resolve().parent, os.W_OK)
        ]
        try:
            content = self._load()
            if content.raw is not None and not self._in_step_or_raise(content):
                text = f"{self._output} is not what the template makes of {self._path}; the next write makes it so"
                found.append(Finding("warning", str(self._output), text))
        except (_Unusable, BadTemplate) as error:
            found.append(Finding("error", str(self._path), str(error)))
        for name, command in (("check", self._config.check), ("reload", self._config.reload)):
            if command and shutil.which(command[0]) is None:
                found.append(Finding("error", name, f"{command[0]} is no program that can be run"))
        return found

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
            keys = parse(raw.decode(), self._config.format)
        except (BadForm, UnicodeDecodeError) as error:
            raise _Unusable(f"{self._path} is not valid {self._config.format}: {error}") from error
        return _Content(raw, keys, f"uid {info.st_uid}")

    def _value(self, content: _Content, target: Target) -> float | None:
        value = content.keys.get(str(target), self._initial(target))
        if self._config.format == "lines" and isinstance(value, str):
            value = number(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return None
        return float(value)

    def _initial(self, target: Target) -> float | None:
        if self._config.initial is None and self._output is not None:
            # What a template takes for a value that was never set, if it has a default for it: out of the way.
            return None if target.lever is Lever.REPLICAS else at_rest(target)
        return self._config.initial

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
        replace_file(self._path, render({**content.keys, **_numbers(values)}, self._config.format).encode())

    def _placed(self, content: _Content) -> Set[str] | None:
        """The keys that the template looks at; None where there is none, or one that is broken, which a write tells."""
        if self._output is None:
            return None
        keys: set[str] = set()
        try:
            fill(self._config.template, content.keys, self._config.variables, keys)
        except BadTemplate:
            return None
        return keys

    def _without_place(self, target: Target) -> str:
        return f"{self._config.template} does not look at {target}; name it there as the metrics and the config do"

    def _made(self, keys: Mapping[str, Any]) -> bytes | None:
        """What the output would be with these values; None where there is no template."""
        if self._output is None:
            return None
        return fill(self._config.template, keys, self._config.variables).encode()

    def _read_output(self) -> bytes | None:
        if self._output is None:
            return None
        try:
            return self._output.read_bytes()
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise BadTemplate(f"{self._output} cannot be read: {error.strerror}") from error

    def _check(self, made: bytes) -> None:
        """Let the check judge a candidate that lies beside the output, so that it finds what it includes."""
        if not self._config.check or self._output is None:
            return
        handle, name = tempfile.mkstemp(
            prefix=f".{self._output.name}.", suffix=".new", dir=self._output.resolve().parent
        )
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(made)
            run([part.replace("{file}", name) for part in self._config.check], self._config.timeout)
        except CommandFailed as error:
            raise _Refused(str(error)) from error
        finally:
            Path(name).unlink(missing_ok=True)

    def _too_soon(self, now: float) -> bool:
        """Whether a reload would follow the last one too closely. What lowers and what raises come as two batches of
        one moment, and are not held against each other."""
        last = self._reloaded
        return last is not None and last != now and now - last < self._config.min_interval

    def _reload(
        self, decisions: Sequence[Decision], before: _Content, output: bytes | None, now: float
    ) -> Sequence[Applied]:
        self._reloaded = now
        if not self._config.reload:
            return self._all(decisions, Outcome.DONE, f"{self._path} written", now)
        try:
            run(self._config.reload, self._config.timeout)
        except CommandHung as error:
            # The program may have taken it or not. With the new values in the file nobody would ever ask it again.
            words = f"{error}; {self._path} was put back"
            return self._undone(decisions, before, output, words, now, Outcome.UNKNOWN)
        except CommandFailed as error:
            return self._undone(decisions, before, output, f"{error}; {self._path} was put back", now)
        return self._all(decisions, Outcome.DONE, f"{self._path} written and reloaded", now)

    def _undone(
        self,
        decisions: Sequence[Decision],
        before: _Content,
        output: bytes | None,
        words: str,
        now: float,
        outcome: Outcome = Outcome.FAILED,
    ) -> Sequence[Applied]:
        """Put both files back as they were, so that what failed does not come into force at somebody's next reload."""
        try:
            if self._output is not None and output is not None:
                _restore(self._output, output or None)
            _restore(self._path, before.raw)
        except OSError as error:
            words = f"{words}, but putting back failed: {error.strerror or error}"
            return self._all(decisions, Outcome.UNKNOWN, words, now)
        return self._all(decisions, outcome, words, now)

    def _verified(self, decision: Decision, content: _Content, now: float) -> Applied:
        value, got = wanted(decision), self._value(content, decision.target)
        if str(decision.target) not in content.keys:
            return self._record(decision, Outcome.FAILED, f"{self._path} has no {decision.target}", now)
        if got == value and not self._in_step(content):
            return self._record(decision, Outcome.FAILED, f"{self._output} is not what the values make of it", now)
        outcome = Outcome.DONE if got == value else Outcome.FAILED
        return self._record(decision, outcome, f"{self._path} says {got} for {decision.target}", now)

    def _in_step(self, content: _Content) -> bool:
        try:
            return self._in_step_or_raise(content)
        except BadTemplate:
            return False

    def _in_step_or_raise(self, content: _Content) -> bool:
        return self._made(content.keys) == self._read_output()

    def _all(
        self, decisions: Sequence[Decision], outcome: Outcome, detail: str, now: float, *, moved: bool = True
    ) -> tuple[Applied, ...]:
        return tuple(self._record(d, outcome, detail, now, moved=moved) for d in decisions)

    def _record(self, decision: Decision, outcome: Outcome, detail: str, now: float, *, moved: bool = True) -> Applied:
        self._memory.sent(decision.target, wanted(decision), outcome, now, moved=moved)
        return Applied(decision.target, outcome, detail)


def _numbers(values: Mapping[str, float]) -> dict[str, float]:
    return {key: int(value) if value.is_integer() else value for key, value in values.items()}


def _restore(path: Path, raw: bytes | None) -> None:
    """The file as it was; nothing is written where it is so already."""
    now = path.read_bytes() if path.exists() else None
    if raw is None:
        path.unlink(missing_ok=True)
    elif raw != now:
        replace_file(path, raw)
