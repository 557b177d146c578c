"""HAProxy's command line on its stats socket, one answer at a time.

The interactive mode ends every answer with a prompt, so that an empty one, which is how HAProxy says yes, can be told
from one that is still to come.
"""

import errno
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
    """Commands were sent, and not to all of them a whole answer came; `answers` are those that did."""

    def __init__(self, message: str, answers: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.answers = tuple(answers)


class Cli:
    """One connection. All of it, from connecting on, takes `timeout` seconds at most."""

    def __init__(self, address: str | tuple[str, int], timeout: float) -> None:
        self._address, self._timeout = address, timeout
        self._until = 0.0
        self._socket: socket.socket | None = None
        self._unread = bytearray()
        self._greeted = False

    def __enter__(self) -> "Cli":
        self._until = time.monotonic() + self._timeout
        family = socket.AF_UNIX if isinstance(self._address, str) else socket.AF_INET
        if not isinstance(self._address, str) and ":" in self._address[0]:
            family = socket.AF_INET6
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        try:
            self._socket.settimeout(self._timeout)
            self._socket.connect(self._address)
        except OSError as error:
            self._socket.close()
            raise NotReached(f"HAProxy's socket {self._shown()}: {error.strerror or error}") from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._socket is not None:
            self._socket.close()

    def ask(self, command: str) -> str:
        """The answer to one command without its outer white space; raises Lost."""
        return self._converse([command])[0]

    def ask_all(self, commands: Sequence[str]) -> list[str]:
        """The answers to commands that are sent at once, for each wait would be a pause of its own; raises Lost."""
        return self._converse(commands)

    def look(self, commands: Sequence[str]) -> list[str]:
        """The same for commands that change nothing; raises NotReached where nothing was ever answered."""
        first = not self._greeted
        try:
            return self._converse(commands)
        except Lost as error:
            if first:
                raise NotReached(f"HAProxy's socket {self._shown()}: {error}") from error
            raise

    def load(self, command: str, lines: Sequence[str]) -> str:
        """The first answer that is not empty to a command with a payload, which may need several."""
        start = 0
        while start < len(lines):
            size, end = 0, start
            while end < len(lines) and (end == start or size + len(lines[end]) < _PAYLOAD):
                size += len(lines[end].encode()) + 1
                end += 1
            block = "\n".join(lines[start:end])
            answer = self.ask(f"{command} <<\n{block}\n")
            if answer:
                return answer
            start = end
        return ""

    def _converse(self, commands: Sequence[str]) -> list[str]:
        """Commands must have no answer yet under way. The first ones go with the wish for prompts before them."""
        sent = list(commands) if self._greeted else ["prompt", *commands]
        answers: list[str] = []
        try:
            if self._socket is None:
                raise ConnectionError(errno.ENOTCONN, "not connected")
            self._wait()
            self._socket.sendall("".join(f"{command}\n" for command in sent).encode())
            while len(answers) < len(sent):
                self._wait()
                part = self._socket.recv(1 << 16)
                if not part or len(self._unread) > _LONGEST:
                    raise ConnectionError(errno.ECONNRESET, "the connection ended before the answer did")
                self._unread += part
                *whole, rest = self._unread.split(_PROMPT)
                answers += [_clean(one) for one in whole]
                self._unread = bytearray(rest)
        except OSError as error:
            what = f"no answer within {self._timeout:g} s" if isinstance(error, TimeoutError) else error.strerror
            told = answers if self._greeted else answers[1:]
            asked = commands[min(len(told), len(commands) - 1)].partition(" <<")[0]
            raise Lost(f"`{asked}`: {what}", told) from error
        told = answers if self._greeted else answers[1:]
        self._greeted = True
        return told

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
