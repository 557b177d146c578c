"""An engine that holds every request until it is let go, and a client that waits for it."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class SlowEngine:
    """Begins an answer at once, and ends it when it is let go. `got` counts the requests that have arrived."""

    def __init__(self) -> None:
        self.got, self._go = 0, threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.place = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def let_go(self) -> None:
        self._go.set()

    def close(self) -> None:
        self._go.set()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                wire, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(wire,), daemon=True).start()

    def _answer(self, wire: socket.socket) -> None:
        with wire:
            wire.recv(1 << 16)
            self.got += 1
            wire.sendall(b"HTTP/1.1 200 OK\r\nX-Engine: slow\r\nContent-Length: 4\r\nConnection: close\r\n\r\nto")
            self._go.wait(10)
            wire.sendall(b"ld")


@contextmanager
def slow_engine() -> Iterator[SlowEngine]:
    engine = SlowEngine()
    try:
        yield engine
    finally:
        engine.close()


class Client:
    """One request in a thread of its own; `text` is all that has come of it."""

    def __init__(self, port: int) -> None:
        self.text = b""
        self._port = port
        self._thread = threading.Thread(target=self._ask, daemon=True)
        self._thread.start()

    def _ask(self) -> None:
        with socket.create_connection(("127.0.0.1", self._port), 10.0) as wire:
            wire.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            while part := wire.recv(1 << 16):
                self.text += part

    def whole(self) -> bool:
        """Whether the answer came to its end; waits for it."""
        self._thread.join(10)
        return self.text.endswith(b"told")
