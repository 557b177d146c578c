"""The plugin of LiteLLM in the tests' own process, with its status over HTTP as the proxy gives it."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from actuators.litellm import governor_litellm as plugin


@dataclass
class Status:
    """`hook` is the plugin. `drop` answers stay away, others come after `wait` seconds."""

    hook: "plugin.Hook"
    url: str = ""
    drop: int = 0
    wait: float = 0.0
    over: threading.Event = field(default_factory=threading.Event)
    asked: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


class _Handler(BaseHTTPRequestHandler):
    status: Status

    def do_GET(self) -> None:
        self.status.asked += 1
        if self.status.drop:
            self.status.drop -= 1
            self.close_connection = True
            return
        self.status.over.wait(self.status.wait)
        with self.status.lock:
            body = json.dumps(asyncio.run(self.status.hook.status())).encode()
        with suppress(OSError):  # whoever asked has given up
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silence."""


@contextmanager
def plugin_status(reader: "plugin.Reader") -> Iterator[Status]:
    made = Status(plugin.Hook(reader))
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"status": made}))
    made.url = f"http://127.0.0.1:{server.server_address[1]}/governor/status"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.over.set()
        server.shutdown()
        server.server_close()
        thread.join()
