"""The face: the HTTP server at the address that the config asks for, and its move to another one.

A move is taken back when the config that asked for it turns out to be of no use. Where the new address holds the port
of the old one, as 0.0.0.0 does for every address of this host, the old server has to go first.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from controller.run.http import ListenError, Server, parse_listen


class Face:
    """`make` binds a server for an address. Binds at once, and raises ListenError. One thread moves it."""

    def __init__(self, listen: str, make: Callable[[str], Server]) -> None:
        self._make = make
        self._server: Server | None = make(listen)  # None where the way back from a failed move was barred
        self._listen, self._address = listen, self._server.address

    @property
    def address(self) -> tuple[str, int]:
        """Host and port that are, or were last, really bound."""
        return self._address

    def start(self) -> None:
        if self._server is not None:
            self._server.start()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    @contextmanager
    def moving(self, listen: str) -> Iterator[None]:
        """Bound to `listen` for the block, and served there after it; where the block raises, all is as before. Raises
        ListenError before the block."""
        if listen == self._listen and self._server is not None:
            yield
            return
        new = self._bind(listen)
        try:
            yield
        except BaseException:
            new.close()
            if self._server is None:
                self._back()
            raise
        self._listen, self._address = listen, new.address
        if self._server is not None:
            new.start()
            self._server.close()
        self._server = new

    def _bind(self, listen: str) -> Server:
        try:
            new = self._make(listen)
        except ListenError as problem:
            if self._server is None or not self._in_our_way(listen, problem):
                raise
            new = self._instead_of(self._server, listen)
        if self._server is None:
            new.start()  # nothing else serves, and a probe must not wait for the block, which may wait for a tick
        return new

    def _instead_of(self, old: Server, listen: str) -> Server:
        old.close()
        self._server = None
        try:
            return self._make(listen)
        except ListenError:
            self._back()
            raise

    def _in_our_way(self, listen: str, problem: ListenError) -> bool:
        cause = problem.__cause__
        taken = isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE
        return taken and parse_listen(listen)[1] == self._address[1]

    def _back(self) -> None:
        host, port = self._address
        self._server = self._make(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        self._server.start()
