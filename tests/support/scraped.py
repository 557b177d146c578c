"""A scrape target on loopback whose page a test can change, and which knows when it was scraped."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Target:
    """`page` is what the next scrape gets; None answers 500."""

    address: str = ""
    page: str | None = ""
    scrapes: int = 0
    scraped: threading.Condition = field(default_factory=threading.Condition)

    def show(self, page: str | None, scrapes: int = 3) -> None:
        """Change the page and wait until it was scraped this often: then the first of these samples is stored."""
        with self.scraped:
            self.page = page
            wanted = self.scrapes + scrapes
            assert self.scraped.wait_for(lambda: self.scrapes >= wanted, timeout=30), "nobody scrapes"


class _Handler(BaseHTTPRequestHandler):
    target: Target

    def do_GET(self) -> None:
        with self.target.scraped:
            page = self.target.page
            self.target.scrapes += 1
            self.target.scraped.notify_all()
        body = (page or "").encode()
        self.send_response(500 if page is None else 200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Silence."""


@contextmanager
def scraped() -> Iterator[Target]:
    """Serve on a free loopback port."""
    target = Target()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Handler,), {"target": target}))
    target.address = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield target
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
