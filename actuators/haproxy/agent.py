"""The agent that HAProxy asks, server by server: `agent-check` with `agent-send "backend/server\\n"`.

Before Governor has decided, and of servers that it does not move, it says nothing, which HAProxy passes over.
"""

import socket
import socketserver
import threading
import time
from collections.abc import Mapping
from typing import Any

_QUESTION = 300  # bytes
_TIME = 2.0  # seconds for a whole question and its answer
_MOST = 256  # questions at once: one for each server of each HAProxy, and each is over in a moment


class Answers:
    """What each server is to be told, and whether it has been."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._lines: dict[str, str] = {}
        self._given: dict[str, str] = {}

    def give(self, server: str) -> str:
        """The line for a server that asks, "" for nothing. It counts as fetched from here on: what may have gone out
        is not taken back."""
        with self._changed:
            line = self._lines.get(server, "")
            if server in self._lines:  # names that strangers ask for are not kept
                self._given[server] = line
            self._changed.notify_all()
            return line

    def tell(self, lines: Mapping[str, str], seconds: float) -> set[str]:
        """Put the lines up and wait until each has been fetched. Those that were not in time are taken back, so that
        they are certain not to come into force, and returned."""
        with self._changed:
            before = {server: self._lines.get(server) for server in lines}
            self._lines.update(lines)
            for server in lines:
                self._given.pop(server, None)
            self._changed.wait_for(lambda: all(self._given.get(s) == line for s, line in lines.items()), seconds)
            late = {server for server, line in lines.items() if self._given.get(server) != line}
            for server in late:
                old = before[server]
                if old is None:
                    del self._lines[server]
                else:
                    self._lines[server] = old
            return late

    def wait(self, seconds: float) -> None:
        """Until the next answer has gone out, or the time is over."""
        with self._changed:
            self._changed.wait(seconds)


class _Talk(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        answers: Answers = self.server.answers  # type: ignore[attr-defined]
        wire: socket.socket = self.request
        try:
            server = _question(wire, time.monotonic() + _TIME)
            wire.sendall(answers.give(server.decode(errors="replace").strip()).encode())
        except OSError:
            return  # whoever asked has gone


def _question(wire: socket.socket, until: float) -> bytes:
    """One line, or what there is of it; whole by `until`, because a time-out alone counts from byte to byte."""
    line = b""
    while b"\n" not in line and len(line) < _QUESTION:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        wire.settimeout(left)
        if not (more := wire.recv(_QUESTION - len(line))):
            break
        line += more
    return line.partition(b"\n")[0]


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = _MOST

    def __init__(self, place: tuple[str, int], answers: Answers) -> None:
        self.address_family = socket.AF_INET6 if ":" in place[0] else socket.AF_INET
        self.answers = answers
        self._room = threading.BoundedSemaphore(_MOST)
        super().__init__(place, _Talk)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Whoever comes while all the room is taken is sent away, and asks again at its next check."""
        return self._room.acquire(blocking=False)

    def process_request(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no thread could be begun, so none will give the room back
            self._room.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that broke off is no news."""


class AgentServer:
    """Answers on a port until it is closed."""

    def __init__(self, place: tuple[str, int], answers: Answers) -> None:
        self._server = _Server(place, answers)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="haproxy-agent", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """The port is free again afterwards."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
