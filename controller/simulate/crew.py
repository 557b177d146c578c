"""All runs of a study on the cores there are. What comes out does not depend on how many they are, nor on their order.

With one core everything happens in this process. With more, workers are started anew (spawn), load the study from its
text, and tell of their progress through a queue. Searches wait for what they must reach.
"""

import logging
import math
import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event

from controller.core.errors import InputError
from controller.run import logs, memory
from controller.simulate.interrupts import noted
from controller.simulate.jobs import GOVERNOR, ORACLE, SEARCHES, STATIC, Task, contenders, do
from controller.simulate.load import Origin, Study
from controller.simulate.run import Cancelled, Frame, Run, Watch
from controller.simulate.search import Mark

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


def _there(study: Study, tasks: Sequence[Task], followers: Followers, progress: Progress, workers: int) -> None:
    context = multiprocessing.get_context("spawn")
    frames: Queue[Frame] = context.Queue()
    stop = context.Event()
    begin = partial(_begin, study.origin, frames if progress.frames else None, stop)
    with noted() as interrupted, _executor(workers, begin, stop) as pool:
        running: dict[Future[Run | None], Task] = {pool.submit(_work, task): task for task in tasks}
        while running and not interrupted():
            ended, _ = wait(running, timeout=_TURN, return_when=FIRST_COMPLETED)
            _drain(frames, progress)
            for future in ended:
                task = running.pop(future)
                try:
                    run = future.result()
                except BrokenProcessPool as error:
                    raise InputError(
                        "a worker died, most likely of too little memory; use --cores 1, or a shorter scenario"
                    ) from error
                for follower in followers(task, run):
                    running[pool.submit(_work, follower)] = follower
        _drain(frames, progress)
    frames.close()
    if number := interrupted():
        signal.raise_signal(number)  # to the usual handler, now that nobody waits


@contextmanager
def _executor(workers: int, begin: Callable[[], None], stop: Event) -> Iterator[ProcessPoolExecutor]:
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=begin)
    try:
        yield pool
    finally:
        stop.set()  # whoever still runs leaves at its next tick
        pool.shutdown(wait=True, cancel_futures=True)


def _drain(frames: "Queue[Frame]", progress: Progress) -> None:
    while True:
        try:
            frame = frames.get_nowait()
        except queue.Empty:
            return
        progress.frame(frame)


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


class _Worker:
    """What a worker process has."""

    origin: Origin
    frames: "Queue[Frame] | None"
    stop: Event
    study: Study | None = None


def _begin(origin: Origin, frames: "Queue[Frame] | None", stop: Event) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the first process tells the others
    logs.configure(logging.WARNING)
    memory.settle()
    _Worker.origin, _Worker.frames, _Worker.stop = origin, frames, stop
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A worker that waits for its next task is not told when its parent was killed."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _work(task: Task) -> Run | None:
    # Loaded here and not at the start, so that what goes wrong is told by the task.
    study = _Worker.study = _Worker.study or _Worker.origin.load()
    frames = _Worker.frames
    shown = frames is not None and task.contender == GOVERNOR
    watch = Watch(frames.put if frames is not None and shown else None, _pace(), _Worker.stop.is_set)
    try:
        return do(study, task, watch)
    except Cancelled:
        return None
