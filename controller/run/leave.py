"""Leaving: an end within bounded time, whatever a plug-in, a client library or a name server still does.

A thread cannot be ended from outside, and the interpreter waits for all that are no daemons, executors' included.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable

import structlog

log = structlog.get_logger("governor.leave")


def bounded(work: Callable[[], None], seconds: float, what: str) -> None:
    """Do `work`, and wait no longer than that for it; what goes wrong is told, since the rest must still be closed."""

    def run() -> None:
        try:
            work()
        except Exception:
            log.exception("close_failed", what=what)

    thread = threading.Thread(target=run, name=f"close {what}", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        log.warning("close_abandoned", what=what, after_seconds=seconds)


def leave(code: int, within: float = 2.0) -> int:
    """Gives the exit code when all threads end `within` seconds, else ends the process here and now."""
    until = time.monotonic() + within
    for thread in _left():
        thread.join(max(0.0, until - time.monotonic()))
    left = _left()
    if left:
        log.warning("threads_left_behind", threads=sorted(thread.name for thread in left))
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    return code


def _left() -> list[threading.Thread]:
    mine = (threading.main_thread(), threading.current_thread())
    return [thread for thread in threading.enumerate() if not thread.daemon and thread not in mine]
