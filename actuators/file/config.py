"""Which file, in which form, what is made of it, and what to run."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from controller.core.params import Unit, param, refuse


@dataclass(frozen=True, slots=True)
class FileConfig:
    """Which file, in which form, and what to run after a change."""

    path: str = param("Path of the file; keys are pool/lever or pool/lever/member.")
    format: Literal["json", "yaml", "lines"] = param("json, yaml, or lines of `key: value`.", "json")
    initial: float | None = param("Value in force while the file or a key of it does not exist.", None)
    template: str = param("Path of a Jinja2 template, from which `output` is made anew at each change.", "")
    output: str = param("Path of the file that is made from the template, and that the program reads.", "")
    variables: Mapping[str, str] = param("What the template needs beside the values, such as addresses.", {})
    check: tuple[str, ...] = param(
        "Command that judges a new output before it takes its place; {file} stands for its path. No shell.", ()
    )
    reload: tuple[str, ...] = param("Command and arguments to run after a change; no shell.", ())
    min_interval: float = param("Least time between two reloads.", 0.0, unit=Unit.DURATION, ge=0)
    timeout: float = param("Longest wait for each command.", 10.0, unit=Unit.DURATION, gt=0, le=3600)
    unit: str = param("Unit of the value, for people.", "replicas")
    quantum: float = param("Smallest step of the value.", 1.0, gt=0)
    settle: float = param("Time until a new value can show an effect.", 0.0, unit=Unit.DURATION, ge=0)
    hot: bool = param("Whether a new value takes effect without a restart.", True)
    yield_for: float = param("How long a value set by somebody else is left alone.", 900.0, unit=Unit.DURATION, ge=0)

    def __post_init__(self) -> None:
        refuse(self._mistakes())

    def _mistakes(self) -> Iterator[str]:
        for name, path in (("path", self.path), ("template", self.template), ("output", self.output)):
            if (path or name == "path") and not Path(path).is_absolute():
                yield f"{name}: is relative; write the whole path, from / on"
        if bool(self.template) != bool(self.output):
            missing = "output" if self.template else "template"
            yield f"{missing}: is missing; a template and what is made of it belong together"
        if self.output and len({self.path, self.template, self.output}) < 3:
            yield "output: the values, the template and what is made of them are three files; name another"
        if self.check and not (self.template or self.output):
            yield "check: judges what a template makes, and there is none; write template and output"
        if self.check and "{file}" not in " ".join(self.check):
            yield "check: does not look at the new file; write {file} where its path belongs"
