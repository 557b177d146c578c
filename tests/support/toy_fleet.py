"""A toy vLLM fleet: a `/metrics` page per replica, in vLLM's names, whose load a test sets. Counters advance at every
scrape, and every scrape is told, so that a test can wait by the fleet's own clock."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

EDGES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TTFT = "vllm:time_to_first_token_seconds"
CALM = {  # seconds of every request, beside its time to first token
    "vllm:inter_token_latency_seconds": 0.02,
    "vllm:request_time_per_output_token_seconds": 0.02,
    "vllm:e2e_request_latency_seconds": 0.8,
    "vllm:request_queue_time_seconds": 0.008,
}


@dataclass
class ToyFleet:
    """`waiting` and `running` requests per replica; per scrape `arrivals` requests end, after `ttft` seconds each."""

    pods: Sequence[str] = ("chat-0", "chat-1")
    waiting: int = 0
    running: int = 4
    ttft: float = 0.4
    arrivals: int = 10
    address: str = ""
    scraped: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _done: dict[str, int] = field(default_factory=dict)
    _below: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def targets(self) -> list[dict[str, Any]]:
        """Scrape targets for Prometheus' `static_configs`; the page of each pod is a path of its own."""
        paths = [{"pod": pod, "instance": pod, "__metrics_path__": f"/{pod}"} for pod in self.pods]
        return [{"targets": [self.address], "labels": labels} for labels in paths]

    def page(self, pod: str) -> str:
        """The next scrape of one replica."""
        done = self._done[pod] = self._done.get(pod, 0) + self.arrivals
        lines = []

        def add(name: str, value: float, **labels: str) -> None:
            pairs = ",".join(f'{k}="{v}"' for k, v in {"model_name": "chat", "engine": "0", **labels}.items())
            lines.append(f"{name}{{{pairs}}} {value}")

        add("vllm:num_requests_waiting", self.waiting)
        add("vllm:num_requests_running", self.running)
        add("vllm:kv_cache_usage_perc", 0.2)
        add("vllm:prompt_tokens_total", done * 100)
        add("vllm:generation_tokens_total", done * 50)
        add("vllm:num_preemptions_total", 0)
        add("vllm:request_success_total", done, finished_reason="stop")
        for name, seconds in {TTFT: self.ttft, **CALM}.items():
            below = self._below.setdefault((pod, name), [0] * len(EDGES))
            for index, edge in enumerate(EDGES):
                below[index] += self.arrivals if seconds <= edge else 0
            for edge, count in zip(EDGES, below, strict=True):
                add(f"{name}_bucket", count, le=str(edge))
            add(f"{name}_bucket", done, le="+Inf")
            add(f"{name}_count", done)
            add(f"{name}_sum", done * seconds)
        return "\n".join(lines) + "\n"


class _Handler(BaseHTTPRequestHandler):
    fleet: ToyFleet

    def do_GET(self) -> None:
        body = self.fleet.page(self.path.strip("/")).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        if self.path == f"/{self.fleet.pods[0]}":
            self.fleet.scraped.release()

    def log_message(self, *args: object) -> None:
        """Scrapes are counted, not told."""


@contextmanager
def toy_fleet() -> Iterator[ToyFleet]:
    """A fleet on a free loopback port."""
    fleet = ToyFleet()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Handler,), {"fleet": fleet}))
    fleet.address = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield fleet
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
