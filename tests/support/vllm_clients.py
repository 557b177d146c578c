"""What the clients of the real vLLM recording saw, and where the recording divides into phases."""

import json
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from tests.support.repository import ROOT

RECORDING = ROOT / "examples" / "recordings" / "vllm-0.32-cpu-1s.jsonl.gz"
CLIENTS = ROOT / "tests" / "acceptance" / "vllm_clients.json"


@dataclass(frozen=True, slots=True)
class Request:
    """One request as its client saw it: seconds, None for what it did not live to see."""

    start: float
    finished: bool
    ttft: float | None
    tpot: float | None
    e2e: float

    def took(self, signal: str) -> float | None:
        """What a target of `signal` is held against; None is a miss."""
        seen: float | None = getattr(self, signal)
        return seen if self.finished or signal == "ttft" else None


@dataclass(frozen=True, slots=True)
class Phase:
    """`start` and `end` as the load generator had them, unix seconds, and the requests that it sent in between."""

    name: str
    start: float
    end: float
    requests: tuple[Request, ...]

    @property
    def last(self) -> Request:
        return max(self.requests, key=lambda request: request.start)


@cache
def phases() -> dict[str, Phase]:
    """By name, in the order of the recording; the last one has no end."""
    told = json.loads(CLIENTS.read_text())
    requests = [Request(**row) for row in told["requests"]]
    begins = [(row["start"], row["name"]) for row in told["phases"]]
    return {
        name: Phase(name, start, end, tuple(r for r in requests if start <= r.start < end))
        for (start, name), (end, _) in pairwise([*begins, (float("inf"), "")])
    }
