"""The HTTP face: probes, metrics and a read-only status API. It can change nothing, so it needs no login; what it shows
holds no secrets, because configs hold only references to them.
"""

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from controller.core.errors import InputError
from controller.run.metrics import Metrics
from controller.run.places import Places
from controller.run.status import HISTORY, Board, health

_PATIENCE = 10.0  # seconds that a client may dawdle over its request, and again over the answer
_AT_ONCE = 16  # requests served together; more would take the processor from the loop
_DEFAULT_LIMIT = 100
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class ListenError(InputError):
    """The address cannot be bound. The message names the address, the cause and the mend."""


def parse_listen(listen: str) -> tuple[str, int]:
    """ "127.0.0.1:8080", "[::1]:8080" or ":8080" (every IPv4 address) -> host and port. Raises ListenError."""
    host, colon, port = listen.rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise ListenError(f"http.listen: {listen!r} is not an address; write host:port, such as 127.0.0.1:8080")
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104 - ":8080" asks for exactly this


class _BadRequest(Exception):
    """The client asked for something that makes no sense."""


Answer = tuple[HTTPStatus, bytes, str]


class _Pages:
    """Path -> answer."""

    def __init__(self, board: Board, metrics: Metrics) -> None:
        self._board, self._metrics = board, metrics
        self.routes: Mapping[str, Callable[[Mapping[str, Sequence[str]], str], Answer]] = {
            "/healthz": lambda _query, _accept: _probe(board.alive(time.monotonic())),
            "/readyz": lambda _query, _accept: _probe(board.ready()),
            "/metrics": lambda _query, accept: self._exposition(accept),
            "/api/v1/status": lambda _query, _accept: _json(HTTPStatus.OK, board.status()),
            "/api/v1/decisions": lambda query, _accept: self._decisions(query),
        }

    def _exposition(self, accept: str) -> Answer:
        body, content_type = self._metrics.render(accept)
        return HTTPStatus.OK, body, content_type

    def _decisions(self, query: Mapping[str, Sequence[str]]) -> Answer:
        text = query.get("limit", [str(_DEFAULT_LIMIT)])[-1]
        if not text.isdecimal() or not 1 <= int(text) <= HISTORY:
            raise _BadRequest(f"limit must be a whole number from 1 to {HISTORY}, not {text!r}")
        return _json(HTTPStatus.OK, {"decisions": self._board.decisions(int(text))})


def _json(status: HTTPStatus, body: object) -> Answer:
    return status, json.dumps(body, allow_nan=False).encode() + b"\n", "application/json"


def _probe(problem: str) -> Answer:
    return _json(HTTPStatus.SERVICE_UNAVAILABLE if problem else HTTPStatus.OK, health(problem))


class _Handler(BaseHTTPRequestHandler):
    timeout = _PATIENCE  # of one read; `places` has an eye on the whole
    server: "_Listener"
    server_version, sys_version = "governor", ""  # no version banner for a stranger

    def do_GET(self) -> None:
        if not self.server.places.asked(self.connection):
            return
        url = urlsplit(self.path)
        page = self.server.pages.routes.get(url.path)
        if page is None:
            self._send(_json(HTTPStatus.NOT_FOUND, {"error": "no such page", "pages": [*self.server.pages.routes]}))
            return
        try:
            answer = page(parse_qs(url.query), self.headers.get("Accept", ""))
        except _BadRequest as problem:
            answer = _json(HTTPStatus.BAD_REQUEST, {"error": str(problem)})
        except Exception as problem:  # noqa: BLE001 - a page must not end the connection without a word
            self.server.on_error(f"{url.path}: {problem!r}")
            answer = _json(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": "this page failed; see the log"})
        self._send(answer)

    do_HEAD = do_GET  # noqa: N815 - the name that the base class looks for

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Also what the base class says by itself: JSON and safe headers here as well."""
        del explain
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:  # how the base class answers a method without a do_ function
            status, message = HTTPStatus.METHOD_NOT_ALLOWED, "this interface is read-only"
        self.close_connection = True
        self._send(_json(status, {"error": message or status.phrase}))

    def _send(self, answer: Answer) -> None:
        status, body, content_type = answer
        self.server.places.answering(self.connection, time.monotonic())
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Probes and scrapes every few seconds are not news."""


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, pages: _Pages, on_error: Callable[[str], None]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.pages, self.on_error = pages, on_error
        self.places = Places(_AT_ONCE, _PATIENCE)
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """Without the base class's reverse look-up of our own name, which can hang on a broken resolver."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self.places.take(request, time.monotonic()):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Between two looks at the socket."""
        self.places.sweep(time.monotonic())

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.places.leave(request)

    def handle_error(self, *_: Any) -> None:
        problem = sys.exception()
        if not isinstance(problem, OSError):  # a client that hung up is its own affair
            self.on_error(repr(problem))


class Server:
    """Binds at once, so that a port in use is known before the first tick; serves from its own thread after `start`.
    Raises ListenError."""

    def __init__(self, listen: str, board: Board, metrics: Metrics, on_error: Callable[[str], None]) -> None:
        host, port = parse_listen(listen)
        try:
            self._listener = _Listener(host, port, _Pages(board, metrics), on_error)
        except OSError as problem:
            raise ListenError(
                f"http.listen: cannot listen on {listen}: {problem.strerror or problem}; "
                "stop the other program or choose another address"
            ) from problem
        self._thread = threading.Thread(target=self._listener.serve_forever, args=(0.1,), name="http", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port really bound (port 0 asks the system for one)."""
        return self._listener.server_name, self._listener.server_port

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Stops listening; a request being served ends by itself."""
        if self._thread.is_alive():
            self._listener.shutdown()
            self._thread.join()
        self._listener.server_close()
