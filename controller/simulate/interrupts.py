"""Ctrl-C and SIGTERM as a flag that a loop looks at, in place of an exception.

A handler that raises may do so while the main thread holds a lock of the pool of workers: whoever waits for that lock
then waits for ever, and the command with it. Its workers hear of neither: a terminal sends Ctrl-C to all processes of a
command, and it is the first that ends the others.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType

_BOTH = (signal.SIGINT, signal.SIGTERM)


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
        for one in _BOTH:
            if signal.getsignal(one) is not signal.SIG_IGN:
                usual[one] = signal.signal(one, note)
    try:
        yield lambda: came
    finally:
        for one, handler in usual.items():
            signal.signal(one, handler)


@contextmanager
def withheld(*signals: signal.Signals) -> Iterator[None]:
    """Processes that are started meanwhile never get these signals (both where none is named), also while they are
    still importing: a handler of their own would come too late. Here they come when it is over."""
    resource_tracker.ensure_running()  # processes are started beside one, and its start would let the signals in again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals or _BOTH)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
