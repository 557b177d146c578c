"""Interval: what a pool's metrics said over one stretch of time. The plain form in which recordings are fitted."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """`at` is its end, unix seconds. Counts are of all replicas together, None is what nobody measured. `prompt` and
    `output` are mean tokens of the requests that finished, `finished` how many did per second; `itl` and `ttft` are
    means, seconds. `running`, `waiting` and `kv_usage` (0..1, mean over replicas) are as of its end."""

    at: float
    replicas: float | None
    finished: float | None
    prompt: float | None
    output: float | None
    itl: float | None
    ttft: float | None = None
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
