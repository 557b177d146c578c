"""HTTP in which the read time-out bounds the whole answer, its headers included.

The time-out of requests bounds the wait for the next byte. A server that drips one byte now and then within its headers
would so hold its reader for hours, where no code of ours runs that could look at the clock. Here each read from the
socket gets only the time that is left.
"""

import http.client
import io
import math
import socket
import threading
import time
from collections.abc import Mapping
from typing import Any

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, ProxyManager
from urllib3.connection import HTTPConnection, HTTPSConnection


class _Until(threading.local):
    """When the answer that this thread asks for must be complete, monotonic seconds."""

    at: float = math.inf


_until = _Until()


class _Paced(io.RawIOBase):
    """Reads from a socket until a time, and raises TimeoutError after it."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, until: float) -> None:
        super().__init__()
        self._raw, self._sock, self._until = raw, sock, until

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer was not complete in time")
        self._sock.settimeout(left if math.isfinite(left) else None)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_Paced(self.fp.detach(), sock, _until.at))


class _Plain(HTTPConnection):
    response_class = _Response


class _Secure(HTTPSConnection):
    response_class = _Response


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _Plain


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _Secure


_POOLS = {"http": _PlainPool, "https": _SecurePool}


class BoundedAdapter(HTTPAdapter):
    """To be mounted on a session. An answer that is not complete in time is a ``requests.ReadTimeout``, or while its
    body is read urllib3's ``ReadTimeoutError``."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **kwargs)
        if type(manager) is ProxyManager:  # one for SOCKS has connections of its own
            manager.pool_classes_by_scheme = _POOLS
        return manager

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: bool | str = True,
        cert: Any = None,
        proxies: Mapping[str, str] | None = None,
    ) -> requests.Response:
        read = timeout[1] if isinstance(timeout, tuple) else timeout
        _until.at = time.monotonic() + read if isinstance(read, (int, float)) else math.inf
        return super().send(request, stream, timeout, verify, cert, proxies)
