"""Ctrl-C and SIGTERM as a flag that a loop looks at, in place of an exception.

A handler that raises may do so while the main thread holds a lock of the pool of workers: whoever waits for that lock
then waits for ever, and the command with it.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def noted() -> Iterator[Callable[[], int]]:
    """Which signal came last, 0 while none did; it can be asked afterwards, too. What is ignored stays ignored, and
    the usual handlers are back at the end."""
    came = 0

    def note(number: int, _: FrameType | None) -> None:
        nonlocal came
        came = number

    usual = {}
    if threading.current_thread() is threading.main_thread():  # signals come to it alone
        for one in (signal.SIGINT, signal.SIGTERM):
            if signal.getsignal(one) is not signal.SIG_IGN:
                usual[one] = signal.signal(one, note)
    try:
        yield lambda: came
    finally:
        for one, handler in usual.items():
            signal.signal(one, handler)
