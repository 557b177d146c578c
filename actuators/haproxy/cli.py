"""HAProxy's command line on its stats socket, one answer at a time.

The interactive mode ends every answer with a prompt, so that an empty one, which is how HAProxy says yes, can be told
from one that is still to come.
"""

import socket
import time
from collections.abc import Sequence
from types import TracebackType

_PROMPT = b"\n> "
_PAYLOAD = 8_000  # bytes of a payload that fit into a buffer of HAProxy (16,384 by default) with room to spare
_LONGEST = 64 << 20


class NotReached(Exception):
    """Nobody answered, or not as HAProxy does, before anything was asked: nothing can have been applied."""


class Lost(Exception):
    """A command was sent and no whole answer came."""


class Cli:
    """One connection. All of it, from connecting on, takes `timeout` seconds at most."""

    def __init__(self, address: str | tuple[str, int], timeout: float) -> None:
        self._address, self._timeout = address, timeout
        self._until = 0.0
        self._socket: socket.socket | None = None
        self._unread = bytearray()

    def __enter__(self) -> "Cli":
        self._until = time.monotonic() + self._timeout
        family = socket.AF_UNIX if isinstance(self._address, str) else socket.AF_INET
        if not isinstance(self._address, str) and ":" in self._address[0]:
            family = socket.AF_INET6
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(self._timeout)
            self._socket.connect(self._address)
            self.ask("prompt")
        except (OSError, Lost) as error:
            self._socket.close()
            what = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise NotReached(f"HAProxy's socket {self._shown()}: {what}") from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._socket is not None:
            self._socket.close()

    def ask(self, command: str) -> str:
        """The answer to one command without its outer white space; raises Lost."""
        return self._ask(command.encode() + b"\n", command)

    def ask_all(self, commands: Sequence[str]) -> list[str]:
        """The answers to commands that change nothing, sent at once: each wait for one would be a pause of its own."""
        return self._converse("\n".join(commands).encode() + b"\n", commands[0], len(commands))

    def load(self, command: str, lines: Sequence[str]) -> str:
        """The first answer that is not empty to a command with a payload, which may need several."""
        start = 0
        while start < len(lines):
            size, end = 0, start
            while end < len(lines) and (end == start or size + len(lines[end]) < _PAYLOAD):
                size += len(lines[end].encode()) + 1
                end += 1
            block = "\n".join(lines[start:end])
            answer = self._ask(f"{command} <<\n{block}\n\n".encode(), command)
            if answer:
                return answer
            start = end
        return ""

    def _ask(self, data: bytes, command: str) -> str:
        return self._converse(data, command, 1)[0]

    def _converse(self, data: bytes, command: str, count: int) -> list[str]:
        if self._socket is None:
            raise Lost(f"{command}: not connected")
        answers: list[str] = []
        try:
            self._wait()
            self._socket.sendall(data)
            while len(answers) < count:
                self._wait()
                part = self._socket.recv(1 << 16)
                if not part:
                    raise Lost(f"`{command}`: the connection ended before the answer did")
                self._unread += part
                if len(self._unread) > _LONGEST:
                    raise Lost(f"`{command}`: the answer has no end")
                *whole, rest = self._unread.split(_PROMPT)
                answers += [_clean(one) for one in whole]
                self._unread = bytearray(rest)
        except OSError as error:
            what = f"no answer within {self._timeout:g} s" if isinstance(error, TimeoutError) else error.strerror
            raise Lost(f"`{command}`: {what}") from error
        if len(answers) > count:
            raise Lost(f"`{command}`: more answers than questions")
        return answers

    def _wait(self) -> None:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        if self._socket is not None:
            self._socket.settimeout(left)

    def _shown(self) -> str:
        return self._address if isinstance(self._address, str) else f"{self._address[0]}:{self._address[1]}"


def _clean(answer: bytes | bytearray) -> str:
    text = answer.decode(errors="replace")
    while text.startswith("+ "):  # the prompt for each line of a payload
        text = text[2:]
    return text.strip()
