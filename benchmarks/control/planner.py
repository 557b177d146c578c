"""What is to be run next, from what is known. Pure.

Every case is a chain: Governor on all seeds; then, with what it attained, the tuning of the peers and the searches for
the bounds; then the tuned peers on the seeds that are scored. Where sets of levers are run, those between which a step
looks too dear are run again on further seeds.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.control import contenders, tune
from benchmarks.control.cases import Case
from benchmarks.control.subsets import Levers, dear
from benchmarks.control.task import SEARCHED, Outcome, Task, mark
from controller.simulate.jobs import GOVERNOR, NONE

FIRST_TRAINING = 101


@dataclass(frozen=True, slots=True)
class Program:
    """What a bench is to run: seeds that are scored, seeds that peers are tuned on, who is wanted (None = all), sets of
    Governor's levers to be run by themselves, by case, and on which `more` seeds those that look too dear are."""

    seeds: tuple[int, ...]
    training: tuple[int, ...]
    wanted: tuple[str, ...] | None = None
    subsets: Mapping[str, tuple[Levers, ...]] = field(default_factory=dict)
    more: tuple[int, ...] = ()


Found = Mapping[Task, Outcome | None]
Grids = Callable[[str], Sequence[float]]


def published(name: str) -> Sequence[float]:
    """The grid that the peer itself names."""
    return contenders.peer(name).grid


@dataclass(frozen=True, slots=True)
class State:
    """What is known of a case: tasks that can be run now, and the value that each tuned peer has."""

    next: tuple[Task, ...]
    tuned: Mapping[str, float]


def state(case: Case, program: Program, found: Found, grids: Grids = published) -> State:
    """The tasks of a case that are not done and need nothing that is not done; `found` are those of this case."""
    names = contenders.names(case, program.wanted)
    left: list[Task] = []
    tuned: dict[str, float] = {}

    def ask(task: Task) -> None:
        if task not in found:
            left.append(task)

    rivals = [name for name in names if name not in (GOVERNOR, NONE, *SEARCHED)]
    for seed in (*program.seeds, *(program.training if rivals else ())):
        ask(Task(case.name, GOVERNOR, seed))
    for seed in program.seeds:
        if NONE in names:
            ask(Task(case.name, NONE, seed))
        for levers in program.subsets.get(case.name, ()):
            ask(Task(case.name, GOVERNOR, seed, levers=levers))
        if (own := found.get(Task(case.name, GOVERNOR, seed))) is not None:
            for name in names:
                if name in SEARCHED:
                    ask(Task(case.name, name, seed, mark=mark(own)))
    for levers in _doubted(case, program, found):
        for seed in program.more:
            ask(Task(case.name, GOVERNOR, seed, levers=levers))
    mine = {seed: one for seed in program.training if (one := found.get(Task(case.name, GOVERNOR, seed))) is not None}
    for name in rivals:
        tried = {
            (task.value, task.seed): one
            for task, one in found.items()
            if task.contender == name and task.value is not None and one is not None
        }
        missing, value = tune.wanted(grids(name), program.training, mine, tried)
        left += [Task(case.name, name, seed, value) for value, seed in missing]
        if value is not None:
            tuned[name] = value
            for seed in program.seeds:
                ask(Task(case.name, name, seed, value))
    return State(tuple(left), tuned)


@dataclass(frozen=True, slots=True)
class Result:
    """A case that is done: outcomes by contender in the order of the seeds (None where a search found nothing), the
    tuned value of each peer, those of Governor with some of its levers, those of them that were run on `more` seeds,
    and what all that was run has cost in CPU seconds."""

    case: Case
    seeds: tuple[int, ...]
    runs: Mapping[str, tuple[Outcome | None, ...]]
    tuned: Mapping[str, float]
    subsets: Mapping[Levers, tuple[Outcome, ...]]
    more: Mapping[Levers, tuple[Outcome, ...]]
    cpu: float


def result(case: Case, program: Program, found: Found, grids: Grids = published) -> Result:
    """What came of a case whose state has nothing left to run."""
    tuned = state(case, program, found, grids).tuned
    runs: dict[str, tuple[Outcome | None, ...]] = {}
    own = [found[Task(case.name, GOVERNOR, seed)] for seed in program.seeds]
    for name in contenders.names(case, program.wanted):
        if name in SEARCHED:
            runs[name] = tuple(
                None if one is None else found[Task(case.name, name, seed, mark=mark(one))]
                for seed, one in zip(program.seeds, own, strict=True)
            )
        else:
            runs[name] = tuple(found[Task(case.name, name, seed, tuned.get(name))] for seed in program.seeds)
    if "oracle" in runs and "static" in runs:
        runs["oracle"] = tuple(map(_cheaper, runs["oracle"], runs["static"]))
    sets = program.subsets.get(case.name, ())
    scored = {levers: _with(case, levers, program.seeds, found) for levers in sets}
    more = {levers: _with(case, levers, program.more, found) for levers in _doubted(case, program, found)}
    cpu = sum(one.cpu for one in found.values() if one is not None)
    return Result(case, program.seeds, runs, tuned, scored, more, cpu)


def _with(case: Case, levers: Levers, seeds: Sequence[int], found: Found) -> tuple[Outcome, ...]:
    """Governor with some of its levers, on those seeds that are done."""
    some = (found.get(Task(case.name, GOVERNOR, seed, levers=levers)) for seed in seeds)
    return tuple(one for one in some if one is not None)


def _doubted(case: Case, program: Program, found: Found) -> list[Levers]:
    """The sets on both sides of steps that look too dear; none before all sets are done."""
    scored = {levers: _with(case, levers, program.seeds, found) for levers in program.subsets.get(case.name, ())}
    if any(len(some) < len(program.seeds) for some in scored.values()):
        return []
    return sorted({levers for step in dear(scored) for levers in step})


def _cheaper(oracle: Outcome | None, static: Outcome | None) -> Outcome | None:
    """A constant fleet is a schedule, too, and one that a clairvoyant may choose."""
    if static is None or (oracle is not None and oracle.gpu_hours <= static.gpu_hours):
        return oracle
    return static
