"""What is wrong with a config, in the user's words: where, what, and how to mend it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from controller.core.errors import InputError

Path = tuple[str | int, ...]


class BadValue(ValueError):
    """One value is wrong. Raised inside validators; carries the mend next to the mistake."""

    def __init__(self, mistake: str, mend: str = "") -> None:
        super().__init__(mistake)
        self.mistake = mistake
        self.mend = mend


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake. `path` as `pools.llama-70b.levers.replicas.max` ("" = the file itself); `line` counts from 1."""

    path: str
    mistake: str
    mend: str = ""
    line: int | None = None

    def __str__(self) -> str:
        text = f"{self.path}: {self.mistake}" if self.path else self.mistake
        return f"{text}; {self.mend}" if self.mend else text


class BadParts(ValueError):
    """Several values below one key are wrong (a plug-in's parameters). Paths are relative to that key."""

    def __init__(self, problems: Sequence[tuple[Path, str, str]]) -> None:
        super().__init__("; ".join(mistake for _, mistake, _ in problems))
        self.problems = tuple(problems)


class ConfigError(InputError):
    """A config that cannot be used, with every problem found in it. `origin` is the file name."""

    def __init__(self, problems: Iterable[Problem], origin: str = "config") -> None:
        self.problems = tuple(problems)
        self.origin = origin
        super().__init__(self.render())

    def __reduce__(self) -> "tuple[type[ConfigError], tuple[tuple[Problem, ...], str]]":
        # Made again of its parts, not of its message: else a process pool breaks when a worker raises one.
        return type(self), (self.problems, self.origin)

    def render(self) -> str:
        """One line per problem, `file:line: path: mistake; mend`, as editors and terminals understand it."""
        return "\n".join(
            f"{self.origin}:{problem.line}: {problem}" if problem.line else f"{self.origin}: {problem}"
            for problem in self.problems
        )


@dataclass(frozen=True, slots=True)
class Finding:
    """A contradiction at `path`; `uses` are the other paths that it depends on."""

    path: Path
    mistake: str
    mend: str = ""
    uses: tuple[Path, ...] = ()


def dotted(path: Iterable[str | int]) -> str:
    """`("pools", "a", "objectives", 0)` -> `pools.a.objectives[0]`. Keys that would break the line, or write to the
    terminal, are quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        shown = part if part.isprintable() and part else repr(part)
        text += f".{shown}" if text else shown
    return text
