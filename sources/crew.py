"""Crew: several requests at once, by threads that nobody has to wait for.

The threads of an executor are joined when the interpreter ends, and one that hangs is missing to all that comes later.
A name server that does not answer can hang a thread beyond any time-out. So each round has threads of its own; they are
daemons and end with their round.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def start(jobs: Sequence[Callable[[], T]], at_once: int, name: str) -> list[Future[T]]:
    """Run `jobs` in their order, `at_once` at a time. A future that is cancelled before its turn is never run."""
    futures: list[Future[T]] = [Future() for _ in jobs]
    queue = deque(zip(futures, jobs, strict=True))
    for number in range(min(at_once, len(queue))):
        threading.Thread(target=_work, args=(queue,), name=f"{name}-{number}", daemon=True).start()
    return futures


def _work(queue: "deque[tuple[Future[T], Callable[[], T]]]") -> None:
    while True:
        try:
            future, job = queue.popleft()
        except IndexError:
            return
        if future.set_running_or_notify_cancel():
            _run(future, job)
        del future, job  # its answer may be large, and the next one takes a while


def _run(future: Future[T], job: Callable[[], T]) -> None:
    try:
        answer = job()
    except BaseException as error:  # noqa: BLE001 - whoever waits for the future gets it
        future.set_exception(error)
    else:
        future.set_result(answer)
