"""Many requests quickly: one after the other, fifty on the way at a time, and who answered each."""

import socket
from collections import Counter
from typing import BinaryIO

_AT_ONCE, _A_CONNECTION = 50, 500


class Asking:
    """One connection that is kept alive, for requests one after the other. A header's `_` stands for `-`."""

    def __init__(self, port: int, **headers: str) -> None:
        head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        self._request = f"GET / HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode()
        self._wire = socket.create_connection(("127.0.0.1", port), 5.0)
        self._reader = self._wire.makefile("rb")

    def __enter__(self) -> "Asking":
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()
        self._wire.close()

    def ask(self) -> str:
        """The engine that answers, by the header x-engine, or the status where there is none."""
        return self.ask_many(1)[0]

    def ask_many(self, count: int) -> list[str]:
        """The same for as many requests, all on the way at once."""
        self._wire.sendall(self._request * count)
        return [_answer(self._reader) for _ in range(count)]


def traffic(port: int, count: int, **headers: str) -> Counter[str]:
    """Answers by engine, or by status where none answered."""
    found: Counter[str] = Counter()
    for start in range(0, count, _A_CONNECTION):
        left = min(_A_CONNECTION, count - start)
        with Asking(port, **headers) as client:
            while left > 0:
                batch = min(_AT_ONCE, left)
                found.update(client.ask_many(batch))
                left -= batch
    return found


def _answer(reader: BinaryIO) -> str:
    status = reader.readline().split()[1].decode()
    engine, length = "", 0
    while (line := reader.readline()) not in (b"\r\n", b""):
        name, _, value = line.decode().partition(":")
        if name.lower() == "x-engine":
            engine = value.strip()
        if name.lower() == "content-length":
            length = int(value)
    reader.read(length)
    return engine or status
