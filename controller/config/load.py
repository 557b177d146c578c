"""Text or file to GovernorConfig, or to every problem in it at once."""

import hashlib
import json
import os
from collections.abc import Callable, Collection, Iterable
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from controller import registry
from controller.config import checks, tree
from controller.config.errors import ConfigError, Path, Problem, dotted
from controller.config.models import GovernorConfig, ObjectiveConfig
from controller.config.plugins import Plugin
from controller.config.report import problems_of
from controller.registry import Group


def load(path: FilePath | str, engines: Callable[[], Iterable[str]] = registry.engines) -> GovernorConfig:
    """The config in the file at `path`. Raises ConfigError."""
    return loads(read(path), str(path), engines)


def read(path: FilePath | str) -> str:
    """The text of the file at `path`. Raises ConfigError, also for a pipe with a name and a device: nobody may ever
    write to them. What a shell hands over, as in `governor check <(...)`, has no name, and is read."""
    named = FilePath(os.path.realpath(path))
    if named.exists() and not (named.is_file() or named.is_dir()):
        problem = Problem("", "is a pipe or a device, which may never end", "name a plain file")
        raise ConfigError([problem], str(path))
    try:
        return FilePath(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        problem = Problem("", f"is not UTF-8 text (byte {error.start})", "save it as UTF-8 text")
        raise ConfigError([problem], str(path)) from error
    except OSError as error:
        raise ConfigError(
            [Problem("", f"cannot be read: {error.strerror}", "check the path and its rights")], str(path)
        ) from error


def loads(text: str, origin: str = "config", engines: Callable[[], Iterable[str]] = registry.engines) -> GovernorConfig:
    """The config in YAML `text`. `origin` names it in messages. Raises ConfigError with every problem found."""
    found = tree.parse(text)
    data = mapping(found, origin, "run `governor init` for a starter")
    config, mistakes = validate(data, engines, found.broken)
    problems = located(found, mistakes)
    if problems or config is None:
        raise ConfigError(problems, origin)
    return config


def mapping(found: tree.Tree, origin: str, starter: str) -> dict[str, Any]:
    """The data of a file that is a mapping of version 1. Raises ConfigError for one that is not; `starter` says where
    to get a file from."""
    data = found.data
    if data is None and not found.problems:
        raise ConfigError([Problem("", "the file is empty", starter)], origin)
    if not isinstance(data, dict):
        problems = found.problems or [
            Problem("", "the file must be a mapping of names to values", "begin with `version: 1`", 1)
        ]
        raise ConfigError(problems, origin)
    if "version" in data and data["version"] != 1:
        what = f"{data['version']!r} is not a version this Governor knows"
        raise ConfigError([Problem("version", what, "write version: 1", found.line(("version",)))], origin)
    return data


def located(found: tree.Tree, mistakes: Iterable[tuple[Path, str, str]]) -> list[Problem]:
    """The mistakes with the lines that they are in, and those of the text itself, in the order of the file."""
    problems = [Problem(dotted(path), mistake, mend, found.line(path)) for path, mistake, mend in mistakes]
    return sorted([*found.problems, *problems], key=lambda problem: (problem.line or 0, problem.path))


def config_hash(config: GovernorConfig) -> str:
    """SHA-256 of the canonical JSON of the config; equal for files that mean the same. The order of levers means
    something: it is the ladder."""
    plain = config.model_dump(mode="python")
    plain["ladders"] = {name: list(pool.levers) for name, pool in config.pools.items()}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), allow_nan=False, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def validate(
    data: dict[str, Any], engines: Callable[[], Iterable[str]] = registry.engines, broken: Collection[Path] = ()
) -> tuple[GovernorConfig | None, list[tuple[Path, str, str]]]:
    """The config, and everything that is wrong.

    Contradictions between keys can only be looked for in a config whose single values are valid. So wrong values are
    cut out, the rest is validated again, and contradictions that depend on something cut out are not reported. What is
    at a `broken` path was never read, and nothing is said about it.
    """
    mistakes: list[tuple[Path, str, str]] = []
    cut: set[Path] = set()
    broken = set(broken)
    config: GovernorConfig | None = None
    while config is None:
        try:
            config = GovernorConfig.model_validate(data)
        except ValidationError as error:
            round_cut: set[Path] = set()
            for path, mistake, mend in problems_of(error, GovernorConfig):
                if not _touched(path, cut | broken):
                    mistakes.append((path, mistake, mend))
                round_cut.add(_cut(data, path, cut | round_cut))
            if () in round_cut or round_cut <= cut:
                return None, mistakes
            cut |= round_cut
    for finding in checks.check(config, engines):
        if any(_touched(path, cut | broken) for path in (finding.path, *finding.uses)):
            continue
        mistakes.append((finding.path, finding.mistake, finding.mend))
    return (None if cut else config), mistakes


def _touched(path: Path, cut: set[Path]) -> bool:
    """Whether something at, above or below `path` was cut out."""
    return any(path[: len(gone)] == gone or gone[: len(path)] == path for gone in cut)


def _cut(data: dict[str, Any], path: Path, cut: set[Path]) -> Path:
    """Take away what is at `path`, or what holds it where that is a required key, and return the path taken away.

    Where the file could not do without it, a stand-in that contradicts nothing takes its place.
    """
    while path:
        holder: Any = data
        for part in path[:-1]:
            holder = holder[part] if _has(holder, part) else None
        last: Any = path[-1]
        stand_in = _stand_in(path) if path not in cut and isinstance(holder, (dict, list)) else None
        if stand_in is not None:
            holder[last] = stand_in
            return path
        if isinstance(holder, dict) and last in holder:
            del holder[last]
            return path
        path = path[:-1]
    return ()


def _stand_in(path: Path) -> object | None:
    match path:
        case ("version",):
            return 1
        case ("source",):
            return Plugin(Group.SOURCE, "", None)
        case ("pools", _, "engine"):
            return "?"
        case ("pools", _, "levers", _, "min"):
            return 0.0
        case ("pools", _, "levers", _, "max"):
            return 1.0
        case ("pools", _, "levers", _, "policy"):
            return Plugin(Group.POLICY, "", None)
        case ("pools", _, "objectives", int(index)):
            own = f"?{index}"  # a class of its own, so that it is nobody's duplicate
            return ObjectiveConfig.model_validate(
                {"signal": "ttft", "target": "1s", "percentile": "p99", "class": own, "name": "x"}
            )
        case _:
            return None


def _has(holder: Any, part: str | int) -> bool:
    if isinstance(holder, dict):
        return part in holder
    return isinstance(holder, list) and isinstance(part, int) and part < len(holder)
