"""Many requests quickly: one after the other, fifty on the way at a time, and who answered each."""

import socket
from collections import Counter
from typing import BinaryIO

_AT_ONCE, _A_CONNECTION = 50, 500


def traffic(port: int, count: int, **headers: str) -> Counter[str]:
    """Answers by the header x-engine, or by status where there is none. A header's `_` stands for `-`."""
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    request = f"GET / HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode()
    found: Counter[str] = Counter()
    for start in range(0, count, _A_CONNECTION):
        left = min(_A_CONNECTION, count - start)
        with socket.create_connection(("127.0.0.1", port), 5.0) as wire, wire.makefile("rb") as reader:
            while left > 0:
                batch = min(_AT_ONCE, left)
                wire.sendall(request * batch)
                for _ in range(batch):
                    found[_answer(reader)] += 1
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
