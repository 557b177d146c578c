"""Ctrl-C and SIGTERM between two turns of a loop, and never in the middle of one.

A handler that raises may do so while the main thread holds a lock of the pool of workers: whoever waits for that lock
then waits for ever, and the command with it.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def deferred() -> Iterator[Callable[[], None]]:
    """Yields what is to be called where it may end: it does what the usual handler does about a signal that came."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None  # signals come to the main thread alone
        return
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        came.append(number)

    usual = {one: signal.signal(one, note) for one in (signal.SIGINT, signal.SIGTERM)}

    def look() -> None:
        if came:
            number = came.pop()
            signal.signal(number, usual[signal.Signals(number)])
            signal.raise_signal(number)

    try:
        yield look
    finally:
        for one, handler in usual.items():
            signal.signal(one, handler)
