"""A tiny HTTP server in the place of a Prometheus, which answers as badly as a test wants."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

Rows = list[tuple[dict[str, str], str]]
JSON = "application/json"


@dataclass
class Api:
    """`behave` gets the query and gives (status, content type, body), or None to hang until the test ends. `asked`
    keeps the queries, `headers` those of the last request, `date` is sent instead of the time when set."""

    url: str = ""
    behave: Callable[[str], tuple[int, str, bytes] | None] = lambda query: vector([])
    asked: list[str] = field(default_factory=list)
    headers: Message = field(default_factory=Message)
    target: str = ""  # of the last request line
    date: str = ""
    drip: bool = False  # the body, byte by byte
    drip_headers: bool = False  # for ever
    location: str = ""
    released: threading.Event = field(default_factory=threading.Event)


def vector(rows: Rows, **more: object) -> tuple[int, str, bytes]:
    result = [{"metric": labels, "value": [0, value]} for labels, value in rows]
    document = {"status": "success", "data": {"resultType": "vector", "result": result}, **more}
    return 200, JSON, json.dumps(document).encode()


def failure(status: int, message: str) -> tuple[int, str, bytes]:
    return status, JSON, json.dumps({"status": "error", "errorType": "x", "error": message}).encode()


class _Handler(BaseHTTPRequestHandler):
    api: Api

    def do_GET(self) -> None:
        self._answer(urlsplit(self.path).query)

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode())

    def _answer(self, form: str) -> None:
        api = self.api
        query = parse_qs(form).get("query", [""])[0]
        api.asked.append(query)
        api.headers, api.target = self.headers, self.path
        behaviour = api.behave(query)
        if behaviour is None:
            api.released.wait()
            return
        status, kind, body = behaviour
        if api.drip_headers:
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Drip: ")
            while not api.released.wait(0.05):
                self.wfile.write(b"a")
                self.wfile.flush()
            return
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if api.location:
            self.send_header("Location", api.location)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if api.drip:
            for byte in body:
                self.wfile.write(bytes([byte]))
                self.wfile.flush()
                if api.released.wait(0.05):
                    return
        else:
            self.wfile.write(body)

    def date_time_string(self, timestamp: float | None = None) -> str:
        return self.api.date or super().date_time_string(timestamp)

    def log_message(self, *args: object) -> None:
        """Silence; what was asked is in ``Api.asked``."""


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that lose patience are what these tests make."""


@contextmanager
def query_api() -> Iterator[Api]:
    """Serve on a free loopback port."""
    api = Api()
    server = _Server(("127.0.0.1", 0), type("Bound", (_Handler,), {"api": api}))
    api.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield api
    finally:
        api.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
