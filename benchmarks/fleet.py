"""A made-up vLLM fleet as raw series: seeded, with a day and a night, and the config that governs it.

Only the families that the config needs are made, as a careful scrape config would keep them; of a full vLLM page that
is about a third.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sources.frames import SeriesKey, labels

DAY = 86_400.0
# Bucket edges of vLLM 0.10 and later.
_TO_TEN = (0.5, 0.75, 1, 2.5, 5, 7.5, 10)
TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, *_TO_TEN, 20, 40, 80, 160, 640, 2560)
ITL = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, *_TO_TEN, 20, 40, 80)
QUEUE = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_PLAIN: tuple[tuple[str, dict[str, str]], ...] = (
    ("vllm:request_success_total", {"finished_reason": "stop"}),
    ("vllm:request_success_total", {"finished_reason": "length"}),
    ("vllm:prompt_tokens_total", {}),
    ("vllm:generation_tokens_total", {}),
    ("vllm:prefix_cache_queries_total", {}),
    ("vllm:prefix_cache_hits_total", {}),
    ("vllm:num_preemptions_total", {}),
    ("vllm:num_requests_running", {}),
    ("vllm:num_requests_waiting", {}),
    ("vllm:kv_cache_usage_perc", {}),
)
_HTTP: tuple[tuple[str, dict[str, str]], ...] = (
    ("http_requests_total", {"handler": "/v1/chat/completions", "method": "POST", "status": "2xx"}),
    ("http_request_duration_highr_seconds_count", {}),
    ("up", {}),
    ("process_start_time_seconds", {}),
)
_CAPACITY = 12.0  # requests a second that one replica serves well
_OUTPUT = 220.0  # tokens of a mean answer
Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a fleet is. `per_replica` False gives one target per pool, which speaks for all its replicas, as
    recording rules or a federation leave it."""

    pools: int
    replicas: int
    per_replica: bool = True

    @property
    def targets(self) -> int:
        return self.pools * (self.replicas if self.per_replica else 1)

    def pool(self, number: int) -> str:
        return f"model-{number:04d}"


class Fleet:
    """The series of a fleet, moved on in time. `values[i]` belongs to `keys[i]`."""

    def __init__(self, shape: Shape, start: float, seed: int = 1) -> None:
        self.shape, self.at = shape, start
        self._random = np.random.default_rng(seed)
        self._phase = self._random.uniform(0, DAY / 4, shape.pools)
        self._size = self._random.uniform(0.5, 1.0, shape.pools) * shape.replicas * _CAPACITY
        of = np.repeat(np.arange(shape.pools), shape.targets // shape.pools)
        self._pool = of
        self._histograms = {name: np.zeros((shape.targets, len(edges) + 3)) for name, edges in _EDGES.items()}
        self._plain = np.zeros((shape.targets, len(_PLAIN)))
        self._http = np.zeros((shape.targets, len(_HTTP)))
        self._http[:, 2:] = 1.0, start - DAY
        self._kube = np.full((shape.pools, 2), float(shape.replicas))
        self._restarts = np.zeros(shape.pools * shape.replicas)
        self.keys: list[SeriesKey] = [*self._target_keys(), *self._kube_keys()]
        self.advance(start + 1.0)

    @property
    def values(self) -> Numbers:
        engine = np.hstack([*self._histograms.values(), self._plain, self._http])
        return np.concatenate([engine.ravel(), self._kube.ravel(), self._restarts])

    def phases(self, interval: float) -> Numbers:
        """Seconds after the begin of an interval at which each series is scraped: targets are spread over it."""
        width = len(self.keys) - self._kube.size - self._restarts.size
        each = self._random.uniform(0, interval, self.shape.targets)
        return np.concatenate([np.repeat(each, width // self.shape.targets), np.zeros(len(self.keys) - width)])

    def advance(self, to: float) -> None:
        """Serve requests up to `to` (unix seconds)."""
        seconds, self.at = to - self.at, to
        load = self._size * (0.55 + 0.45 * np.sin(2 * math.pi * (to - self._phase) / DAY))
        wanted = np.ceil(load / _CAPACITY / 0.8).clip(1, self.shape.replicas)
        self._kube[:, 1], self._kube[:, 0] = self._kube[:, 0], wanted  # ready follows the spec a step behind
        share = load[self._pool] * self.shape.pools / self.shape.targets
        busy = share / (_CAPACITY * (1 if self.shape.per_replica else self.shape.replicas))
        done = self._random.poisson(share * seconds).astype(np.float64)
        self._observe("vllm:time_to_first_token_seconds", done, 0.12 + 0.5 * busy**4, 0.5)
        self._observe("vllm:inter_token_latency_seconds", done * _OUTPUT, 0.012 + 0.02 * busy, 0.25)
        self._observe("vllm:request_queue_time_seconds", done, 0.01 + 0.4 * busy**6, 0.8)
        stopped = self._random.binomial(done.astype(np.int64), 0.9)
        prompt = done * self._random.uniform(700, 900, len(done)).round()
        running = self._random.poisson(share * _OUTPUT * (0.012 + 0.02 * busy))
        waiting = self._random.poisson(np.maximum(0.0, busy - 0.85) * 20)
        added = (stopped, done - stopped, prompt, done * _OUTPUT, prompt, (prompt * 0.3).round(), np.zeros(len(done)))
        self._plain[:, : len(added)] += np.column_stack(added)
        self._plain[:, len(added) :] = np.column_stack((running, waiting, (0.1 + 0.6 * busy).clip(0, 0.98)))
        self._http[:, :2] += done[:, None]

    def _observe(self, name: str, samples: Numbers, middle: Numbers, spread: float) -> None:
        """Draw samples around `middle` seconds (log-normal) into the cumulative buckets, the count and the sum."""
        upto = _normal((np.log(np.array(_EDGES[name])) - np.log(middle)[:, None]) / spread)
        chances = np.diff(upto, axis=1, prepend=0.0, append=1.0).clip(0.0, 1.0)
        drawn = self._random.multinomial(samples.astype(np.int64), chances / chances.sum(axis=1, keepdims=True))
        into = self._histograms[name]
        into[:, : drawn.shape[1]] += drawn.cumsum(axis=1)
        into[:, -2] += samples
        into[:, -1] += (samples * middle * math.exp(spread**2 / 2)).round(6)

    def _target_keys(self) -> Iterator[SeriesKey]:
        for number in range(self.shape.targets):
            pool = self.shape.pool(int(self._pool[number]))
            target = {"job": "vllm", "namespace": "prod", "instance": f"10.0.{number // 250}.{number % 250}:8000"}
            if self.shape.per_replica:
                target["pod"] = f"{pool}-5d8f9c7b4-{number:05d}"
            model = {**target, "model_name": pool}
            for name, edges in _EDGES.items():
                for edge in (*(f"{float(e):g}" if e != int(e) else f"{e:.1f}" for e in edges), "+Inf"):
                    yield f"{name}_bucket", labels({**model, "le": edge}.items())
                yield f"{name}_count", labels(model.items())
                yield f"{name}_sum", labels(model.items())
            for name, more in _PLAIN:
                yield name, labels({**model, **more}.items())
            for name, more in _HTTP:
                yield name, labels({**target, **more}.items())

    def _kube_keys(self) -> Iterator[SeriesKey]:
        base = {"job": "kube-state-metrics", "instance": "10.1.0.1:8080", "namespace": "prod"}
        for number in range(self.shape.pools):
            deployment = labels({**base, "deployment": self.shape.pool(number)}.items())
            yield "kube_deployment_spec_replicas", deployment
            yield "kube_deployment_status_replicas_ready", deployment
        for number in range(self.shape.pools * self.shape.replicas):
            pod = f"{self.shape.pool(number // self.shape.replicas)}-5d8f9c7b4-{number:05d}"
            yield "kube_pod_container_status_restarts_total", labels({**base, "pod": pod, "container": "v"}.items())


_EDGES = {
    "vllm:time_to_first_token_seconds": TTFT,
    "vllm:inter_token_latency_seconds": ITL,
    "vllm:request_queue_time_seconds": QUEUE,
}


def _normal(x: Numbers) -> Numbers:
    """The normal distribution function, by a logistic approximation: nobody compares latencies here."""
    return 1.0 / (1.0 + np.exp(-1.702 * x.clip(-30, 30)))


def config(shape: Shape, url: str = "http://127.0.0.1:9090", *, rules: bool = False, interval: int = 15) -> str:
    """The YAML of a config that promises TTFT, ITL and errors in every pool and scales its replicas. `interval` in
    seconds; an answer may take nearly as long."""
    lines = [
        "version: 1",
        f"source: {{kind: prometheus, url: {url}, recording_rules: {str(rules).lower()}}}",
        f"interval: {interval}s",
        f"deadline: {interval - 1}s",
        f"budgets: {{gpus: {{max: {shape.pools * shape.replicas * 2}, pools: all}}}}",
        "pools:",
    ]
    for number in range(shape.pools):
        name = shape.pool(number)
        lines += [
            f"  {name}:",
            "    engine: vllm",
            f"    selector: {{namespace: prod, model_name: {name}}}",
            *([] if shape.per_replica else ["    labels: {replica: ''}"]),
            "    objectives:",
            "      - {signal: ttft, percentile: p99, target: 2500ms}",
            "      - {signal: itl, percentile: p95, target: 50ms}",
            "      - {signal: error_ratio, target: 1%}",
            f"    workload: {{namespace: prod, name: {name}}}",
            "    levers:",
            f"      replicas: {{mode: auto, min: 1, max: {2 * shape.replicas}, policy: {{kind: capacity}}}}",
        ]
    return "\n".join(lines) + "\n"
