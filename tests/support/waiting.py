"""Waiting for another process."""

import threading
import time
from collections.abc import Callable


def until(true: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait for what another process does in its own time."""
    end, pause = time.monotonic() + seconds, threading.Event()
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        pause.wait(0.01)
