"""All tasks of a bench on the cores there are, each when what it needs is known.

With one core everything happens in this process. With more, workers are started anew. Ctrl-C and SIGTERM end all within
a tick of the twin; what was finished stays in the cache. A case whose run fails is told with its reason, and the others
go on.
"""

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

from benchmarks.control.cache import Cache
from benchmarks.control.cases import Case, chosen
from benchmarks.control.planner import Program, state
from benchmarks.control.run import do
from benchmarks.control.task import Outcome, Task
from controller.core.errors import InputError
from controller.run import logs, memory
from controller.simulate.interrupts import noted, withheld
from controller.simulate.run import Cancelled, Watch

_TURN = 0.5  # seconds between two looks
Told = Callable[[Task, Outcome | None, int, int], None]


def _silent(_task: Task, _outcome: Outcome | None, _done: int, _of: int) -> None:
    pass


class Failed(Exception):
    """A run that could not be made."""


class Interrupted(KeyboardInterrupt):
    """By `signal`, SIGINT or SIGTERM."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.signal = number


def run_all(
    cases: Sequence[Case], program: Program, cache: Cache, *, cores: int, told: Told = _silent
) -> tuple[dict[str, dict[Task, Outcome | None]], dict[str, str]]:
    """(what came of every task, by case; why a case could not be run, by its name). `told` hears of each task that is
    done, how many are, and how many are known to be needed so far. Raises Interrupted."""
    found: dict[str, dict[Task, Outcome | None]] = {case.name: {} for case in cases}
    broken: dict[str, str] = {}
    waiting: dict[Future[Outcome | None], Task] = {}
    asked: set[Task] = set()
    with noted() as interrupted, _ended(interrupted), _workers(cores, cache.folder) as submit:

        def plan(case: Case) -> None:
            for task in state(case, program, found[case.name]).next if case.name not in broken else ():
                if task not in asked and not interrupted():
                    asked.add(task)
                    waiting[submit(task)] = task

        by_name = {case.name: case for case in cases}
        for case in cases:
            plan(case)
        while waiting and not interrupted():
            ended, _ = wait(waiting, timeout=_TURN, return_when=FIRST_COMPLETED)
            for future in ended:
                task = waiting.pop(future)
                try:
                    outcome = found[task.case][task] = future.result()
                except (InputError, Failed) as error:
                    broken.setdefault(task.case, f"{task.contender}, seed {task.seed}: {error}")
                    continue
                told(task, outcome, len(asked) - len(waiting), len(asked))
                plan(by_name[task.case])
    return found, broken


@contextmanager
def _ended(interrupted: Callable[[], int]) -> Iterator[None]:
    """Raises Interrupted at the end when it was. A SIGTERM for all processes of the bench ends its workers too, and
    theirs may be seen before ours."""
    try:
        yield
    except BrokenProcessPool:
        threading.Event().wait(0 if interrupted() else _TURN)
        if not interrupted():
            raise
    if number := interrupted():
        raise Interrupted(number)


Submit = Callable[[Task], "Future[Outcome | None]"]


@contextmanager
def _workers(cores: int, folder: Path) -> Iterator[Submit]:
    if cores <= 1:
        halt = threading.Event()
        thread = ThreadPoolExecutor(1)
        try:
            yield lambda task: thread.submit(_done, task, folder, Watch(stop=halt.is_set))
        finally:
            halt.set()
            thread.shutdown(wait=True, cancel_futures=True)
        return
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    pool = ProcessPoolExecutor(cores, context, initializer=_begin, initargs=(folder, stop))

    def submit(task: Task) -> "Future[Outcome | None]":
        with withheld(signal.SIGINT):  # a process may be started meanwhile; SIGTERM is how a pool ends its own
            return pool.submit(_work, task)

    try:
        yield submit
    finally:
        stop.set()
        pool.shutdown(wait=True, cancel_futures=True)


def _done(task: Task, folder: Path, watch: Watch) -> Outcome | None:
    (case,) = chosen([task.case])
    try:
        return do(case, task, Cache(folder), watch)
    except (InputError, Cancelled):
        raise
    except Exception as error:
        raise Failed(f"{type(error).__name__}: {error}") from error


class _Worker:
    folder: Path
    stop: Event


def _begin(folder: Path, stop: Event) -> None:
    logs.configure(logging.WARNING)
    memory.settle()
    _Worker.folder, _Worker.stop = folder, stop
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _work(task: Task) -> Outcome | None:
    return _done(task, _Worker.folder, Watch(stop=_Worker.stop.is_set))
