"""From decision to effect: how long it takes from giving a batch to an actuator until the real program acts on it.

A module of this folder joins by ``COURSES``: what it measures, each with a function that gives the seconds of many
rounds. It is left out, and said so, where its program is not installed.
"""

import importlib
import math
import pkgutil
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Course:
    """`kind` is the actuator, `program` what must be on the PATH, `what` a sentence on what one round is, `bound` the
    seconds within which 95 of 100 rounds must be over, `run` gives the seconds of each."""

    kind: str
    program: str
    what: str
    bound: float
    run: Callable[[], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Effect:
    """What came of a course; seconds."""

    course: Course
    rounds: tuple[float, ...]

    def at(self, share: float) -> float:
        """The time within which this share of the rounds was over."""
        ordered = sorted(self.rounds)
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def courses() -> list[Course]:
    """All of them, by kind."""
    found: list[Course] = []
    for module in sorted(pkgutil.iter_modules(__path__), key=lambda one: one.name):
        found += importlib.import_module(f"{__name__}.{module.name}").COURSES
    return found


def measure() -> Iterator[Effect]:
    """Those whose program is there."""
    for course in courses():
        if shutil.which(course.program) is None:
            print(
                f"{course.program} is not on the PATH; `scripts/real-programs.sh {course.program}` gets it", flush=True
            )
        else:
            yield Effect(course, tuple(course.run()))


def line(one: Effect) -> str:
    """For the terminal."""
    return (
        f"{one.course.kind}: {one.course.what}: median {one.at(0.5) * 1000:.1f} ms, p95 {one.at(0.95) * 1000:.1f} ms "
        f"of {len(one.rounds)}, wanted {one.course.bound * 1000:g} ms"
    )


HEADING = "## From decision to effect\n"
_SECTION = """
From giving a batch to an actuator until the real program acts on it, on loopback, with everything on the same cores,
{when}. `make bench ARGS="--only actuators"` measures it anew.

| actuator | one round | rounds | median | p95 | wanted, p95 |
| --- | --- | --- | --- | --- | --- |
"""


def section(rows: Sequence[Effect]) -> str:
    """Its part of docs/performance.md, ending in an empty line."""
    head = _SECTION.format(when=datetime.now(UTC).strftime("%Y-%m-%d"))
    return "".join([HEADING, head, *map(_row, rows), "\n"])


def _row(one: Effect) -> str:
    missed = " **(missed)**" if one.at(0.95) > one.course.bound else ""
    times = f"{one.at(0.5) * 1000:.1f} ms | {one.at(0.95) * 1000:.1f} ms{missed} | ≤ {one.course.bound * 1000:g} ms"
    return f"| {one.course.kind} | {one.course.what} | {len(one.rounds)} | {times} |\n"
