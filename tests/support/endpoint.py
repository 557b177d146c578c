"""A user's webhook endpoint on loopback: keeps values, drops repeated keys, checks signatures, misbehaves."""

import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Post:
    """One request as it arrived."""

    headers: Message
    body: dict[str, Any]


@dataclass
class Endpoint:
    """What it holds, and `script`: how it treats the next requests ("GET" or "POST", and a status or one of hang, lost,
    cut, drip (its body), headers (drips those), redirect, page (a web page with 200), clamp (takes 1 less than asked),
    text (not an object))."""

    url: str = ""
    key: bytes = b""
    values: dict[tuple[str, str, str], float] = field(default_factory=dict)
    writer: str = ""
    read_body: str | None = None  # instead of the values
    posts: list[Post] = field(default_factory=list)
    script: list[tuple[str, int | str]] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    applied: int = 0
    redirected: int = 0
    released: threading.Event = field(default_factory=threading.Event)


class Handler(BaseHTTPRequestHandler):
    end: Endpoint
    wbufsize = 1 << 16

    def do_GET(self) -> None:
        if self.path == "/elsewhere":
            self.end.redirected += 1
        if self._misbehaves(self._next("GET"), b""):
            return
        rows = [{"pool": p, "lever": v, "member": m, "value": x, "writer": self.end.writer}
                for (p, v, m), x in self.end.values.items()]  # fmt: skip
        self._send(200, (self.end.read_body or json.dumps({"targets": rows})).encode())

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/elsewhere":
            self.end.redirected += 1
        self.end.posts.append(Post(self.headers, json.loads(body)))
        if self.end.key and not self._signed(body):
            self._send(401, b'{"message": "bad signature"}')
            return
        if not self._misbehaves(self._next("POST"), body):
            self._apply(body)
            self._send(200, b'{"accepted": true}')

    def _next(self, method: str) -> int | str:
        for index, (of, what) in enumerate(self.end.script):
            if of == method:
                del self.end.script[index]
                return what
        return ""

    def _misbehaves(self, what: int | str, body: bytes) -> bool:
        match what:
            case int(status):
                self._send(status, json.dumps({"message": f"because of {status}"}).encode())
            case "hang" | "lost":
                if what == "lost":
                    self._apply(body)
                self.end.released.wait()
            case "cut":
                pass
            case "drip":
                self.send_response(200)
                self.send_header("Content-Length", "100000")
                self.end_headers()
                while not self.end.released.wait(0.02):
                    self.wfile.write(b" ")
                    self.wfile.flush()
            case "headers":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not self.end.released.wait(0.02):
                    self.wfile.write(b"a")
                    self.wfile.flush()
            case "redirect":
                self._send(307, b"", Location="/elsewhere")
            case "page":
                self._send(200, b"<html>Please log in</html>")
            case "text":
                self._send(200, b'"ok"')
            case "clamp":
                value = json.loads(body)["value"] - 1
                self._apply(body, value)
                self._send(200, json.dumps({"value": value}).encode())
            case _:
                return False
        return True

    def _apply(self, body: bytes, value: float | None = None) -> None:
        order = json.loads(body)
        if order["idempotency_key"] in self.end.keys:
            return
        self.end.keys.add(order["idempotency_key"])
        self.end.applied += 1
        self.end.values[order["pool"], order["lever"], order["member"]] = order["value"] if value is None else value

    def _signed(self, body: bytes) -> bool:
        stamp = str(self.headers["X-Governor-Timestamp"]).encode()
        mac = hmac.new(self.end.key, stamp + b"." + body, hashlib.sha256).hexdigest()
        return hmac.compare_digest(f"sha256={mac}", str(self.headers["X-Governor-Signature"]))

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Silence; the requests are kept in ``Endpoint.posts``."""


class Server(ThreadingHTTPServer):
    """Keeps quiet about clients that hang up, which is what these tests make them do."""

    def handle_error(self, request: object, client_address: object) -> None:
        """A broken pipe of a client that lost patience."""


@contextmanager
def endpoint() -> Iterator[Endpoint]:
    """An endpoint on a free loopback port."""
    end = Endpoint()
    server = Server(("127.0.0.1", 0), type("BoundHandler", (Handler,), {"end": end}))
    end.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield end
    finally:
        end.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
