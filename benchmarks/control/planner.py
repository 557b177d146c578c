"""What is to be run next, from what is known. Pure.

Every case is a chain: Governor on all seeds; then, with what it attained, the tuning of the peers and the searches for
the bounds; then the tuned peers on the seeds that are scored.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.control import contenders, tune
from benchmarks.control.cases import Case
from benchmarks.control.task import SEARCHED, Outcome, Task, mark
from controller.simulate.jobs import GOVERNOR, NONE

FIRST_TRAINING = 101


@dataclass(frozen=True, slots=True)
class Program:
    """What a bench is to run: seeds that are scored, seeds that peers are tuned on, who is wanted (None = all), and
    sets of Governor's levers to be run by themselves, by case."""

    seeds: tuple[int, ...]
    training: tuple[int, ...]
    wanted: tuple[str, ...] | None = None
    subsets: Mapping[str, tuple[tuple[str, ...], ...]] = field(default_factory=dict)


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
    tuned value of each peer, those of Governor with some of its levers, and what all that was run has cost in CPU
    seconds."""

    case: Case
    seeds: tuple[int, ...]
    runs: Mapping[str, tuple[Outcome | None, ...]]
    tuned: Mapping[str, float]
    subsets: Mapping[tuple[str, ...], tuple[Outcome, ...]]
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
    subsets = {
        levers: tuple(
            one for seed in program.seeds
            if (one := found[Task(case.name, GOVERNOR, seed, levers=levers)]) is not None
        )
        for levers in program.subsets.get(case.name, ())
    }  # fmt: skip
    cpu = sum(one.cpu for one in found.values() if one is not None)
    return Result(case, program.seeds, runs, tuned, subsets, cpu)


def _cheaper(oracle: Outcome | None, static: Outcome | None) -> Outcome | None:
    """A constant fleet is a schedule, too, and one that a clairvoyant may choose."""
    if static is None or (oracle is not None and oracle.gpu_hours <= static.gpu_hours):
        return oracle
    return static
