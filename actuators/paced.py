"""Answers that are complete by a certain time, headers included, for every client that rests on urllib3; others ask
``left``.

A time-out of urllib3 is the longest wait for the next byte. A server that drips one now and then inside its headers
holds its reader for as long as it likes. Here every wait gets no more than what is left of one deadline.
"""

import http.client
import io
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection


class _Deadline(threading.local):
    """By when the request that this thread makes must be over, monotonic seconds; None where there is no limit."""

    at: float | None = None
    begun: bool = False  # whether bytes of it went out over TLS


_deadline = _Deadline()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Requests made in the block by this thread, through a ``paced`` manager, are over `seconds` from now. One that is
    not raises urllib3's ReadTimeoutError, as a server that says nothing does."""
    before, _deadline.at = _deadline.at, time.monotonic() + seconds
    _deadline.begun = False
    try:
        yield
    finally:
        _deadline.at = before


def left() -> float | None:
    """Seconds that the request of this thread still has, below 0 when they are over; None where there is no limit."""
    return None if _deadline.at is None else _deadline.at - time.monotonic()


def begun() -> bool:
    """Whether the request that this thread made last, ``within`` a time, had begun to go out when TLS failed: an error
    of TLS may come with the handshake, and then nothing was sent, or long after the request was carried out."""
    return _deadline.begun


def paced(manager: urllib3.PoolManager) -> None:
    """Make the connections of this manager keep to ``within``; one for SOCKS keeps connections of its own, without
    that promise."""
    if type(manager) in (urllib3.PoolManager, urllib3.ProxyManager):
        manager.pool_classes_by_scheme = {"http": _PlainPool, "https": _TlsPool}


class _Reader(io.RawIOBase):
    """The bytes of one answer, as long as there is time."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, until: float) -> None:
        super().__init__()
        self._raw, self._sock, self._until = raw, sock, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer was still coming in when its time was over")
        self._sock.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        if _deadline.at is not None:
            self.fp = io.BufferedReader(_Reader(self.fp.detach(), sock, _deadline.at))


class _Plain(HTTPConnection):
    response_class = _Response


class _Tls(HTTPSConnection):
    response_class = _Response

    def send(self, data: Any) -> None:
        """What is sent is sent on a connection whose handshake is over."""
        _deadline.begun = True
        super().send(data)


class _PlainPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Plain


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Tls
