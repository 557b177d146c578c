"""A wire between a client and a server on loopback that can be cut, stopped or spoiled."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

_CHUNK = 1 << 16


@dataclass
class Relay:
    """`lose` holds words: the next request with one of them in it reaches the server, and its answer never comes back.
    `mute` swallows all that comes. `drip` is the time in seconds before each byte of an answer. `says` is
    sent instead of every answer. `passed` counts connections, `counted` what was passed on with one of the words
    `counts` in it."""

    port: int = 0
    to: int = 0
    lose: list[bytes] = field(default_factory=list)
    counts: tuple[bytes, ...] = ()
    counted: int = 0
    mute: bool = False
    drip: float = 0.0
    says: bytes = b""
    passed: int = 0
    served: threading.Event = field(default_factory=threading.Event)  # a lost request was carried out

    def _parts(self, data: bytes) -> list[bytes]:
        return [bytes([one]) for one in data] if self.drip else [data]

    def quiet(self) -> bool:
        return self.mute

    def _pair(self, client: socket.socket) -> None:
        self.passed += 1
        if self.mute:
            with client, contextlib.suppress(OSError):
                while client.recv(_CHUNK):
                    pass
            return
        try:
            server = socket.create_connection(("127.0.0.1", self.to), timeout=5)
        except OSError:
            client.close()
            return
        server.settimeout(None)
        cut = threading.Event()
        back = threading.Thread(target=self._answers, args=(server, client, cut), daemon=True)
        back.start()
        with contextlib.suppress(OSError):
            while data := client.recv(_CHUNK):
                if self.quiet():
                    continue
                self.counted += any(word in data for word in self.counts)
                if any(word in data for word in self.lose):
                    self.lose.clear()
                    cut.set()
                server.sendall(data)
        for end in (server, client):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        back.join()
        server.close()
        client.close()

    def _answers(self, server: socket.socket, client: socket.socket, cut: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(_CHUNK):
                if cut.is_set():
                    self.served.set()
                    break
                for part in self._parts(self.says or data):
                    if self.drip:
                        cut.wait(self.drip)
                    if not self.mute:
                        client.sendall(part)
        for end in (server, client):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


@contextmanager
def relay(to: int) -> Iterator[Relay]:
    """A port that leads to the port `to`."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        made = Relay(listener.getsockname()[1], to)
        clients: list[socket.socket] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listener.accept()
                    clients.append(client)
                    threading.Thread(target=made._pair, args=(client,), daemon=True).start()  # noqa: SLF001

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        try:
            yield made
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()
            for client in clients:
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
                client.close()
