"""A command that is told to end while it holds a lock of its workers must not wait for them for ever."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from controller.simulate.interrupts import noted, withheld

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@pytest.fixture(autouse=True)
def _usual() -> Iterator[None]:
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


@BOTH
def test_a_signal_in_the_middle_of_a_lock_leaves_it_locked_for_ever(number: signal.Signals) -> None:
    lock, usual = threading.Lock(), signal.getsignal(number)
    with noted() as came:
        assert came() == 0
        with lock:
            signal.raise_signal(number)  # the usual handler raises here, or ends the process
        assert came() == number
    assert came() == number
    assert not lock.locked()
    assert signal.getsignal(number) is usual


def test_a_command_in_the_background_of_a_shell_is_ended_by_the_ctrl_c_of_another() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with noted() as came:
        signal.raise_signal(signal.SIGINT)
        assert came() == 0
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_another_thread_has_no_signals_to_note() -> None:
    seen: list[int] = []

    def work() -> None:
        with noted() as came:
            seen.append(came())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [0]


@BOTH
def test_ctrl_c_while_a_worker_is_started_is_lost(number: signal.Signals) -> None:
    with noted() as came:
        with withheld():
            signal.raise_signal(number)
            assert came() == 0
        assert came() == number


def test_a_worker_that_is_started_first_is_ended_by_the_ctrl_c_of_the_terminal() -> None:
    """Starting the first also starts the tracker of resources, which lets the signals in again when it is there."""
    code = (
        "import multiprocessing, signal, subprocess, sys\n"
        "from controller.simulate.interrupts import withheld\n"
        "with withheld():\n"
        "    multiprocessing.get_context('spawn').Event()\n"
        "    held = signal.pthread_sigmask(signal.SIG_BLOCK, ())\n"
        "print(sorted(int(one) for one in held))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(sorted([int(signal.SIGINT), int(signal.SIGTERM)]))
