"""One run of the bench, what is kept of it, and under which name it is kept.

A task says all that a run depends on: the case, the contender, its tuned value, the seed, what a search must reach,
and which levers Governor has. Its key is a hash of that, of the scenario and of the code that takes part, so that a
result is taken from the cache exactly when a new run would give the same.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.control import contenders
from benchmarks.control.cases import ROOT, TRACES, Case
from benchmarks.control.plant import Data
from controller.simulate.jobs import GOVERNOR, ORACLE, STATIC
from controller.simulate.score import Score, Share
from controller.simulate.search import Mark

KEY = "[0-9a-f]{20}"  # what names a result
PLANT = ("simulator", "routing", "controller/simulate", "benchmarks/control/run.py")
PEERS = (*PLANT, "controller/core", "sources", "benchmarks/peers")
LOOP = (*PLANT, "controller/core", "controller/run", "controller/config", "sources", "policies")


@dataclass(frozen=True, slots=True)
class Task:
    """One run. `value` is of the tuned parameter of a peer; `mark` is for searches; `levers` are those that Governor
    has, None for all of its config."""

    case: str
    contender: str
    seed: int
    value: float | None = None
    mark: Mark | None = None
    levers: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """Requests, as in ``score.Share``."""

    offered: int
    good: int
    degraded: int = 0
    open: int = 0
    missed: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, share: Share) -> "Counted":
        return cls(share.offered, share.good, share.degraded, share.open, dict(share.missed))

    @property
    def attained(self) -> float:
        """Share of what was offered that was good; 1 when nothing was."""
        return self.good / self.offered if self.offered else 1.0

    @property
    def kept(self) -> float:
        """The same with those that got a smaller model in time."""
        return (self.good + self.degraded) / self.offered if self.offered else 1.0

    @property
    def shed(self) -> int:
        """Requests that got no answer at all."""
        return sum(count for why, count in self.missed.items() if why not in ("late", "slow", "long"))


@dataclass(frozen=True, slots=True)
class Within:
    """An event: its requests in all and the critical ones; seconds until promises were kept again, None = never."""

    all: Counted
    critical: Counted
    recovered: float | None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What is kept of a run. `replicas` by pool are (seconds after the start, paid for, ready); `offered` requests/s
    and `attained` by minute; `tenants` what became of each tenant's requests; `breaks` are moves of breakers
    (seconds, replica, before, after); `relaxed` are orders that relax a lever (seconds, lever, before, after);
    `floor` the least share of an event that had to be shed, None where it is not asked for; `margin` or
    replicas of a search in `settings`; `cpu` seconds that it took."""

    seconds: float
    all: Counted
    critical: Counted
    events: Mapping[str, Within]
    gpu_hours: float
    bad_minutes: int
    reversals_per_hour: float
    fairness: Mapping[str, float]
    hit_rate: float | None
    tenants: Mapping[str, Counted]
    tenants_in: Mapping[str, Mapping[str, Counted]]
    replicas: Mapping[str, tuple[tuple[float, int, int], ...]]
    offered: tuple[float, ...]
    attained: tuple[float | None, ...]
    breaks: tuple[tuple[float, str, float, float], ...]
    relaxed: tuple[tuple[float, str, float, float], ...]
    settings: Mapping[str, float]
    floor: float | None
    cpu: float

    @property
    def peak(self) -> int:
        """Most replicas that were paid for at once, of all pools."""
        return sum(max((paid for _, paid, _ in rows), default=0) for rows in self.replicas.values())


def mark(score: "Score | Outcome") -> Mark:
    """What a search has to reach, from a score or from what was kept of it."""
    if isinstance(score, Score):
        return Mark.set_by(score)
    whole = Mark(score.all.offered - score.all.good, score.all.open)
    if score.critical == score.all:
        return whole
    rest = score.critical
    return Mark(whole.lost, whole.open, Mark(rest.offered - rest.good, rest.open))


# --- keys ------------------------------------------------------------------------------------------------------------


def document(case: Case, task: Task) -> Data:
    """The whole scenario file of a task: with Governor's config where it runs, and the one peer that does."""
    data: Data = {**case.scenario, "name": case.name}
    if task.contender == GOVERNOR:
        data["governor"] = contenders.governed(case, only=task.levers)
    else:
        data["governor"] = contenders.bare(case)
    if task.value is not None:
        settings = contenders.peer(task.contender).settings(task.value, case)
        data["against"] = {"peers": {task.contender: settings}}
    return data


def key(case: Case, task: Task) -> str:
    """The name under which the result of a task is kept."""
    rooms = LOOP if task.contender == GOVERNOR else PEERS if task.value is not None else PLANT
    known = {
        "document": document(case, task), "contender": task.contender, "seed": task.seed, "floor": case.floor,
        "mark": None if task.mark is None else asdict(task.mark), "code": version(rooms),
        "ladder": contenders.levers() if task.contender == GOVERNOR else (),  # JSON forgets the order of keys
        "trace": _trace(case),
    }  # fmt: skip
    return digest(known)


def digest(known: Any) -> str:
    """Twenty hexadecimal digits of a JSON value."""
    text = json.dumps(known, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:20]


@cache
def version(rooms: tuple[str, ...]) -> str:
    """A hash of the code in these rooms, as it was when it was first asked for."""
    found = hashlib.sha256()
    for path in sorted(_files(rooms)):
        found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:20]


def _files(rooms: Iterable[str]) -> Iterable[Path]:
    for room in rooms:
        place = ROOT / room
        yield from [place] if place.is_file() else (p for p in place.rglob("*") if p.suffix in (".py", ".toml", ".csv"))


def _trace(case: Case) -> int:
    """A trace is told by its size; none is 0."""
    return (TRACES / case.trace).stat().st_size if case.trace else 0


SEARCHED = (STATIC, ORACLE)
