"""A command that is told to end while it holds a lock of its workers must not wait for them for ever."""

import signal
import threading

import pytest

from controller.simulate.interrupts import deferred


def test_ctrl_c_in_the_middle_of_a_lock_leaves_it_locked_for_ever() -> None:
    lock = threading.Lock()

    def work() -> None:
        with deferred() as may_end:
            lock.acquire()
            signal.raise_signal(signal.SIGINT)  # the usual handler raises here
            lock.release()
            may_end()

    with pytest.raises(KeyboardInterrupt):
        work()
    assert not lock.locked()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_sigterm_ends_as_it_usually_does() -> None:
    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    def work() -> None:
        with deferred() as may_end:
            signal.raise_signal(signal.SIGTERM)
            may_end()

    before = signal.signal(signal.SIGTERM, end)
    try:
        with pytest.raises(SystemExit) as told:
            work()
        assert told.value.code == 143
        assert signal.getsignal(signal.SIGTERM) is end
    finally:
        signal.signal(signal.SIGTERM, before)


def test_nothing_came_nothing_ends() -> None:
    with deferred() as may_end:
        may_end()


def test_another_thread_has_no_signals_to_defer() -> None:
    seen: list[bool] = []

    def work() -> None:
        with deferred() as may_end:
            may_end()
            seen.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]
