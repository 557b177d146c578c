"""Ports for programs that a test starts, below those that the system gives to whoever asks for any (from 32768 on
Linux). Above, a client that asks a place again and again before somebody listens there is at last given that place's
own port, connects to itself, and whoever should have listened finds it taken. Runs side by side look at stretches of
their own, and what was given is not given again before its stretch has been gone through."""

import itertools
import os
import random
import re
import socket
from contextlib import ExitStack

_FIRST, _BEYOND, _STRETCH = 18_000, 32_000, 1_000


def _mine() -> list[int]:
    worker = re.fullmatch(r"gw(\d+)", os.environ.get("PYTEST_XDIST_WORKER", ""))
    stretches = (_BEYOND - _FIRST) // _STRETCH
    first = _FIRST + (int(worker[1]) if worker else os.getpid()) % stretches * _STRETCH
    begin = random.randrange(_STRETCH)  # another run of the same tests may have the same stretch
    return [first + (begin + n) % _STRETCH for n in range(_STRETCH)]


_next = itertools.cycle(_mine()).__next__


def free_port() -> int:
    """A port that nobody listens on."""
    return free_row(1)


def free_row(count: int) -> int:
    """The first of so many in a row."""
    for _ in range(_STRETCH):
        first = _next()
        with ExitStack() as held:
            try:
                for port in range(first, first + count):
                    held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
        for _ in range(count - 1):
            _next()
        return first
    raise OSError(f"no {count} free ports in a row")
