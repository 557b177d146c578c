"""Engines of the tests: they answer as OpenAI's API does, count what they get, and can be held back. A stream begins
before it is held back."""

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Upstream:
    """One engine. `served` counts answers; while `gate` is not set, requests wait; `status` fails them. `asked_with`
    is the key of the last one."""

    port: int = 0
    served: int = 0
    inflight: int = 0
    prompt_tokens: int = 10
    completion_tokens: int = 10
    status: int = 200
    health: int = 200
    asked_with: str = ""
    gate: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, model: str) -> dict[str, Any]:
        usage = {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }
        message = {"role": "assistant", "content": "yes"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": model,
            "choices": [choice],
            "usage": usage,
        }


class _Handler(BaseHTTPRequestHandler):
    upstream: Upstream
    protocol_version = "HTTP/1.1"
    wbufsize = 1 << 16

    def do_GET(self) -> None:
        """Health, for routers that look before they send."""
        self.send_response(self.upstream.health)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")
        self.wfile.flush()

    def do_POST(self) -> None:
        end = self.upstream
        end.asked_with = self.headers.get("Authorization", "")
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with end.lock:
            end.inflight += 1
        if body.get("stream"):
            self._stream(str(body.get("model")))
            return
        end.gate.wait(30)
        with end.lock:
            end.inflight -= 1
            end.served += end.status == 200
        said = (
            end.answer(str(body.get("model"))) if end.status == 200 else {"error": {"message": "no", "type": "server"}}
        )
        data = json.dumps(said).encode()
        self.send_response(end.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)
        self.wfile.flush()

    def _stream(self, model: str) -> None:
        """A word, then the gate, then the rest with its usage, as with `stream_options: {include_usage: true}`."""
        end = self.upstream
        whole = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": model}

        def chunk(delta: dict[str, str], reason: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            return f"data: {json.dumps({**whole, 'choices': [choice]})}\n\n".encode()

        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(chunk({"role": "assistant", "content": "one"}))
        self.wfile.flush()
        end.gate.wait(30)
        usage = {**whole, "choices": [], "usage": end.answer(model)["usage"]}
        self.wfile.write(chunk({}, "stop") + f"data: {json.dumps(usage)}\n\ndata: [DONE]\n\n".encode())
        self.wfile.flush()
        with end.lock:
            end.inflight -= 1
            end.served += 1
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Silence."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


@contextmanager
def upstreams(count: int) -> Iterator[list[Upstream]]:
    """So many engines on ports of their own."""
    with ExitStack() as stack:
        made = []
        for _ in range(count):
            end = Upstream()
            end.gate.set()
            server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"upstream": end}))
            end.port = server.server_address[1]
            thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
            thread.start()
            stack.callback(thread.join)
            stack.callback(server.server_close)
            stack.callback(server.shutdown)
            stack.callback(end.gate.set)
            made.append(end)
        yield made
