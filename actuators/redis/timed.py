"""Connections of redis-py whose questions are over by a certain time.

The time-out of redis-py is the longest wait for the next bytes. A server that drips one now and then holds its reader
for as long as it likes. Here each wait gets no more than what is left of ``actuators.paced.within``.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from actuators import paced


class _Timed:
    """A socket, of TLS or not, that is left with the time-out that redis-py gave it after every wait."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def recv(self, size: int) -> bytes:
        with self._in_time():
            return self._sock.recv(size)

    def recv_into(self, buffer: bytearray) -> int:
        with self._in_time():
            return self._sock.recv_into(buffer)

    def sendall(self, data: bytes) -> None:
        with self._in_time():
            self._sock.sendall(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    @contextmanager
    def _in_time(self) -> Iterator[None]:
        left, usual = paced.left(), self._sock.gettimeout()
        if left is None or usual == 0:  # redis-py only looks whether something is there, and must not wait for it
            yield
            return
        if left <= 0:
            raise TimeoutError("the answer was still coming in when its time was over")
        self._sock.settimeout(left if usual is None else min(left, usual))
        try:
            yield
        finally:
            self._sock.settimeout(usual)


def timed(library: Any, scheme: str) -> Any:
    """The class of connections for an address that begins so."""
    kinds = library.connection
    of = {"redis": kinds.Connection, "rediss": kinds.SSLConnection, "unix": kinds.UnixDomainSocketConnection}
    base: Any = of[scheme]

    class Timed(base):  # type: ignore[misc]
        def _connect(self) -> Any:
            return _Timed(super()._connect())

    return Timed
