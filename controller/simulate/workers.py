"""Processes that do tasks, one at a time each, and that can be ended at any moment.

An executor of the standard library is ended by asking: who runs is waited for, and one that is killed may leave behind
a locked lock, or half an answer in a pipe that all write to. Here each has a pipe of its own and nothing is shared, so
all are killed, by their process id, whatever they do.
"""

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Generic, TypeVar

from controller.core.errors import InputError
from controller.simulate.interrupts import withheld

T = TypeVar("T")  # a task
S = TypeVar("S")  # what is told on the way
R = TypeVar("R")  # an answer
Do = Callable[[T, Callable[[S], None]], R]  # what a worker does with a task; the second tells on the way
_ANSWER, _SAID, _FAILED = "answer", "said", "failed"


class Died(InputError):
    """A worker ended that nobody had ended."""


@dataclass(slots=True)
class _Worker(Generic[T]):
    process: SpawnProcess
    pipe: Connection
    tasks: list[T]  # the one that it does, or none


class Workers(Generic[T, S, R]):
    """At most `count` of them, started when there is something to do. Each calls `prepare` once, which gives what it
    does with tasks; `hear` gets what is told on the way. All of it travels as pickle."""

    def __init__(self, count: int, prepare: Callable[[], Do[T, S, R]], hear: Callable[[S], None]) -> None:
        self._count, self._prepare, self._hear = count, prepare, hear
        self._waiting: deque[T] = deque()
        self._workers: list[_Worker[T]] = []

    @property
    def busy(self) -> bool:
        """Whether there is anything left to do."""
        return bool(self._waiting) or any(one.tasks for one in self._workers)

    def submit(self, task: T) -> None:
        """Have it done, in the order of asking. Raises Died."""
        self._waiting.append(task)
        self._give()

    def answers(self, within: float) -> Iterator[tuple[T, R]]:
        """What is done; waits for it for `within` seconds. Raises what a task raised, and Died."""
        ready = wait([one.pipe for one in self._workers], within)
        for worker in [one for one in self._workers if one.pipe in ready]:
            try:
                kind, content = worker.pipe.recv()
            except (EOFError, OSError) as error:
                raise _died(worker.process) from error
            if kind == _SAID:
                self._hear(content)
                continue
            task = worker.tasks.pop()
            self._give()
            if kind == _FAILED:
                raise content
            yield task, content

    def end(self) -> None:
        """At once, whatever they do."""
        for one in self._workers:
            one.process.kill()
        for one in self._workers:
            one.process.join()
            one.pipe.close()
        self._workers.clear()
        self._waiting.clear()

    def _give(self) -> None:
        while self._waiting:
            free = next((one for one in self._workers if not one.tasks), None)
            if free is None and len(self._workers) < self._count:
                free = self._start()
            if free is None:
                return
            task = self._waiting.popleft()
            free.tasks.append(task)
            try:
                free.pipe.send(task)
            except OSError as error:
                raise _died(free.process) from error

    def _start(self) -> _Worker[T]:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_serve, args=(theirs, self._prepare))
        with withheld():
            process.start()
        theirs.close()  # else its end would not be seen
        worker: _Worker[T] = _Worker(process, ours, [])
        self._workers.append(worker)
        return worker


@contextmanager
def crew(count: int, prepare: Callable[[], Do[T, S, R]], hear: Callable[[S], None]) -> Iterator["Workers[T, S, R]"]:
    """Workers that are gone at the end, however it comes."""
    workers: Workers[T, S, R] = Workers(count, prepare, hear)
    try:
        yield workers
    finally:
        workers.end()


def _died(process: SpawnProcess) -> Died:
    process.join()
    if process.exitcode == -signal.SIGKILL:
        return Died("a worker was killed, most likely for want of memory; use --cores 1, or a shorter scenario")
    return Died(f"a worker ended by itself (exit code {process.exitcode}); with --cores 1 it is told why")


# --- in the worker ---------------------------------------------------------------------------------------------------


def _serve(pipe: Connection, prepare: Callable[[], Do[T, S, R]]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    do = prepare()

    def tell(content: S) -> None:
        pipe.send((_SAID, content))

    while True:
        task = pipe.recv()
        try:
            answer = do(task, tell)
        except Exception as error:  # noqa: BLE001 - raised in the process that asked
            pipe.send((_FAILED, _portable(error)))
        else:
            pipe.send((_ANSWER, answer))


def _end_with_parent() -> None:
    """A worker that does not look up is not told when its parent was killed."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _portable(error: Exception) -> Exception:
    """As it is, with its traceback where it is a fault of ours, or at least its words where it cannot travel."""
    if not isinstance(error, InputError):
        error.add_note(traceback.format_exc())
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    except Exception:  # noqa: BLE001 - classes whose arguments are not those of their constructor
        kind = InputError if isinstance(error, InputError) else RuntimeError
        return kind(str(error) if kind is InputError else traceback.format_exc())
    return error
