"""Requests that hang beyond every time-out, as when a name server does not answer: they hold up nobody."""

import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import wait

from sources import crew

HUNG = """
import threading
from sources import crew
started = threading.Event()
crew.start([lambda: (started.set(), threading.Event().wait())], 1, "hung")
started.wait()
print("the end", flush=True)
"""


def test_a_hung_request_does_not_keep_the_process_alive() -> None:
    done = subprocess.run([sys.executable, "-c", HUNG], capture_output=True, text=True, timeout=20, check=True)
    assert done.stdout == "the end\n"


def test_a_hung_request_takes_no_place_of_a_later_round() -> None:
    released = threading.Event()
    hung = crew.start([released.wait] * 2, 2, "hung")
    later = crew.start([lambda: 1, lambda: 2, lambda: 3], 2, "later")
    done, _ = wait(later, timeout=10.0)
    assert [future.result(0) for future in later] == [1, 2, 3]
    assert len(done) == 3
    assert not any(future.done() for future in hung)
    released.set()
    wait(hung, timeout=10.0)


def test_what_was_cancelled_before_its_turn_is_not_asked() -> None:
    asked: list[int] = []
    first, go = threading.Event(), threading.Event()

    def wait_for_it() -> None:
        first.set()
        go.wait()

    jobs: list[Callable[[], None]] = [wait_for_it, lambda: asked.append(2), lambda: asked.append(3)]
    futures = crew.start(jobs, 1, "one")
    first.wait()
    assert futures[1].cancel()
    go.set()
    wait(futures, timeout=10.0)
    assert asked == [3]


def test_an_error_goes_to_who_waits_for_the_answer() -> None:
    (future,) = crew.start([lambda: 1 // 0], 1, "broken")
    assert isinstance(future.exception(10.0), ZeroDivisionError)
