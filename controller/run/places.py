"""Places: who is connected to a server with few of them, and who must go.

Whoever keeps us waiting, with a request that is not whole or an answer that is not taken, has until a deadline; and
when all places are taken, the one that has done so for longest gives its place to the next, or a few slow clients would
keep the liveness probe out. While an answer is being made nobody is cut.
"""

import socket
import threading
from contextlib import suppress


class Places:
    """`at_once` connections, each of which may keep us waiting for `patience` seconds at a time. Times are monotonic.
    From any thread."""

    def __init__(self, at_once: int, patience: float) -> None:
        self._at_once, self._patience = at_once, patience
        self._lock = threading.Lock()
        self._taken: set[socket.socket] = set()
        self._waiting: dict[socket.socket, float] = {}  # since when, in this order

    def take(self, who: socket.socket, now: float) -> bool:
        """Whether there is a place. We wait for the request from now on."""
        with self._lock:
            if len(self._taken) >= self._at_once and self._waiting:
                self._cut(next(iter(self._waiting)))
            if len(self._taken) >= self._at_once:
                return False
            self._taken.add(who)
            self._waiting[who] = now
            return True

    def asked(self, who: socket.socket) -> bool:
        """The request is here. False for one that was cut meanwhile, and gets no answer."""
        with self._lock:
            return self._waiting.pop(who, None) is not None

    def answering(self, who: socket.socket, now: float) -> None:
        """The answer is made, and we wait for it to be taken."""
        with self._lock:
            self._waiting.pop(who, None)  # where it was refused before its request was whole: to the end of the queue
            if who in self._taken:
                self._waiting[who] = now

    def leave(self, who: socket.socket) -> None:
        with self._lock:
            self._taken.discard(who)
            self._waiting.pop(who, None)

    def sweep(self, now: float) -> None:
        """Cut those that have kept us waiting for too long."""
        with self._lock:
            for who in [who for who, since in self._waiting.items() if now - since >= self._patience]:
                self._cut(who)

    def _cut(self, who: socket.socket) -> None:
        self._taken.discard(who)
        del self._waiting[who]
        with suppress(OSError):  # it hung up by itself a moment ago
            who.shutdown(socket.SHUT_RDWR)  # wakes the thread that serves it, which closes it
