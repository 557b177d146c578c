"""All runs of a study on the cores there are. What comes out does not depend on how many they are, nor on their order.

With one core everything happens in this process. With more, workers are started anew (spawn), load the study from its
text, and tell of their progress on the way. Searches wait for what they must reach.
"""

import logging
import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from controller.run import logs, memory
from controller.simulate.interrupts import noted
from controller.simulate.jobs import GOVERNOR, ORACLE, SEARCHES, STATIC, Task, contenders, do
from controller.simulate.load import Origin, Study
from controller.simulate.run import Frame, Run, Watch
from controller.simulate.search import Mark
from controller.simulate.workers import crew

_PACE = 0.2  # seconds between two frames of a run
_SPARING = 10.0  # times as long as the last frame took, at least, until the next
_TURN = 0.1  # seconds between two looks at the workers


@dataclass(frozen=True, slots=True)
class Results:
    """Runs by contender, each in the order of the seeds; None where a search found nothing."""

    contenders: tuple[str, ...]
    seeds: tuple[int, ...]
    runs: Mapping[str, tuple[Run | None, ...]]

    def of(self, contender: str) -> list[Run]:
        """Those that there are."""
        return [run for run in self.runs.get(contender, ()) if run is not None]


@dataclass(frozen=True, slots=True)
class Progress:
    """Who is told on the way: of frames of the controller's runs, and of finished runs (done, of how many)."""

    frame: Callable[[Frame], None] = lambda _: None
    done: Callable[[int, int], None] = lambda _done, _of: None
    frames: bool = False  # whether frames are wanted


def run_all(
    study: Study, seeds: Sequence[int], *, cores: int, progress: Progress | None = None, ledger: str = ""
) -> Results:
    """Every contender with every seed. `ledger` is a folder for the ledger of the controller's first run. Raises what a
    run raises; InputError when a worker dies."""
    progress = progress or Progress()
    names = contenders(study)
    first = [
        Task(name, seed, ledger=ledger if (name, seed) == (GOVERNOR, seeds[0]) else "")
        for seed in seeds
        for name in names
        if name not in SEARCHES
    ]
    searches = [name for name in names if name in SEARCHES]
    total = len(names) * len(seeds)
    found: dict[Task, Run | None] = {}

    def followers(task: Task, run: Run | None) -> list[Task]:
        found[Task(task.contender, task.seed)] = run
        progress.done(len(found), total)
        if task.contender != GOVERNOR or run is None:
            return []
        return [Task(name, task.seed, Mark.set_by(run.score)) for name in searches]

    progress.done(0, total)
    if cores <= 1:
        _here(study, first, followers, progress)
    else:
        _there(study, first, followers, progress, min(cores, total))
    runs = {name: tuple(found[Task(name, seed)] for seed in seeds) for name in names}
    if ORACLE in runs and STATIC in runs:
        runs[ORACLE] = tuple(map(_cheaper, runs[ORACLE], runs[STATIC]))
    return Results(names, tuple(seeds), runs)


def _cheaper(oracle: Run | None, static: Run | None) -> Run | None:
    """A constant fleet is a schedule, too, and one that a clairvoyant may choose."""
    if static is None or (oracle is not None and oracle.score.gpu_hours <= static.score.gpu_hours):
        return oracle
    return replace(static, contender=ORACLE)


Followers = Callable[[Task, Run | None], list[Task]]


def _here(study: Study, tasks: Sequence[Task], followers: Followers, progress: Progress) -> None:
    left = list(tasks)
    while left:
        task = left.pop(0)
        watch = Watch(progress.frame, _pace()) if progress.frames and task.contender == GOVERNOR else Watch()
        left[:0] = followers(task, do(study, task, watch))


def _there(study: Study, tasks: Sequence[Task], followers: Followers, progress: Progress, count: int) -> None:
    begin = partial(_begin, study.origin, shown=progress.frames)
    with noted() as interrupted, crew(count, begin, progress.frame) as workers:
        for task in tasks:
            workers.submit(task)
        while workers.busy and not interrupted():
            for task, run in workers.answers(_TURN):
                for follower in followers(task, run):
                    workers.submit(follower)
    if number := interrupted():
        signal.raise_signal(number)  # to the usual handler, now that nobody waits


def _pace() -> Callable[[], bool]:
    """Whether it is time for a frame: seldom enough that looking takes a small part of the run."""
    looked, wait = -math.inf, _PACE

    def due() -> bool:
        nonlocal looked, wait
        now = time.monotonic()
        if math.isinf(wait):  # the first tick after a frame: what the frame took is known now, and a little more
            wait = max(_PACE, _SPARING * (now - looked))
        if now - looked < wait:
            return False
        looked, wait = now, math.inf
        return True

    return due


# --- in the worker ---------------------------------------------------------------------------------------------------


def _begin(origin: Origin, *, shown: bool) -> Callable[[Task, Callable[[Frame], None]], Run | None]:
    logs.configure(logging.WARNING)
    memory.settle()
    loaded: list[Study] = []

    def work(task: Task, tell: Callable[[Frame], None]) -> Run | None:
        if not loaded:  # not at the start, so that what goes wrong is told by the task
            loaded.append(origin.load())
        watch = Watch(tell, _pace()) if shown and task.contender == GOVERNOR else Watch()
        return do(loaded[0], task, watch)

    return work
