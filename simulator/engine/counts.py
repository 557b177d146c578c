"""What an engine counts since its process started, with vLLM's bucket edges. Seconds and tokens, cumulative.

Buckets are kept apart here (each sample is in one of them); whoever prints an exposition adds them up.
"""

from bisect import bisect_left

TTFT = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip
PER_TOKEN = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
REQUEST = (
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
    1920.0, 7680.0,
)  # fmt: skip
ITERATION = (
    1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0,
)  # fmt: skip


def token_edges(longest: int) -> tuple[float, ...]:
    """Edges of the histograms of tokens per request: 1, 2, 5, 10, ... as far as the longest context."""
    edges: list[float] = []
    power = 1
    while True:
        for digit in (1, 2, 5):
            if digit * power > longest or power > 10**9:
                return tuple(edges)
            edges.append(float(digit * power))
        power *= 10


class Histogram:
    """Samples by bucket. `buckets[i]` counts those of at most `edges[i]` and above the edge before; the last is
    beyond all edges."""

    __slots__ = ("buckets", "count", "edges", "sum")

    def __init__(self, edges: tuple[float, ...]) -> None:
        self.edges = edges
        self.buckets = [0] * (len(edges) + 1)
        self.sum = 0.0
        self.count = 0

    def add(self, value: float, times: int = 1) -> None:
        """`times` samples of one value."""
        self.buckets[bisect_left(self.edges, value)] += times
        self.sum += value * times
        self.count += times

    def ramp(self, first: float, slope: float, length: int, times: int) -> None:
        """`times` samples each of first, first + slope, ..., `length` values in all; slope is not negative."""
        edges = self.edges
        low = bisect_left(edges, first)
        last = first + slope * (length - 1)
        self.sum += times * (first + last) * 0.5 * length
        self.count += times * length
        seen = 0
        while low < len(edges) and last > edges[low]:
            below = min(length, int((edges[low] - first) / slope) + 1)
            if below > seen:
                self.buckets[low] += times * (below - seen)
                seen = below
            low += 1
        self.buckets[low] += times * (length - seen)


class Counts:
    """One engine process. Histograms of time in seconds; those observed at the end of a request are of finished ones
    alone, as in vLLM, where an aborted request reaches no metric. `aborted`, `timed_out` and `rejected` are what vLLM
    does not tell of itself."""

    __slots__ = (
        "aborted", "decode_time", "e2e", "finished", "generation_tokens", "inference_time", "iteration_tokens", "itl",
        "preemptions", "prefill_time", "prefix_hits", "prefix_queries", "prompt_tokens", "queue_time", "rejected",
        "request_generation_tokens", "request_prompt_tokens", "steps", "timed_out", "tpot", "ttft",
    )  # fmt: skip

    def __init__(self, longest: int = 131_072) -> None:
        tokens = token_edges(longest)
        self.ttft = Histogram(TTFT)  # at the first token
        self.itl = Histogram(PER_TOKEN)  # at each token after the first
        self.tpot = Histogram(PER_TOKEN)  # this one and the next five at the end
        self.e2e = Histogram(REQUEST)
        self.queue_time = Histogram(REQUEST)
        self.prefill_time = Histogram(REQUEST)
        self.decode_time = Histogram(REQUEST)
        self.inference_time = Histogram(REQUEST)
        self.request_prompt_tokens = Histogram(tokens)
        self.request_generation_tokens = Histogram(tokens)
        self.iteration_tokens = Histogram(ITERATION)  # at each step: prompts that it finished and tokens that it made
        self.prompt_tokens = 0  # of prompts whose prefill has ended, cached ones included
        self.generation_tokens = 0
        self.prefix_queries = 0  # tokens
        self.prefix_hits = 0  # tokens
        self.preemptions = 0
        self.steps = 0
        self.finished = {"stop": 0, "length": 0}
        self.aborted = 0
        self.timed_out = 0
        self.rejected = 0

    def ended(self, queued: float, scheduled: float, first: float, last: float, prompt: int, output: int) -> None:
        """A request has finished. When it came, was first scheduled, had its first and its last token, unix seconds."""
        self.e2e.add(last - queued)
        self.queue_time.add(scheduled - queued)
        self.prefill_time.add(first - scheduled)
        self.decode_time.add(last - first)
        self.inference_time.add(last - scheduled)
        self.tpot.add((last - first) / (output - 1) if output > 1 else 0.0)  # 0 for one token, as vLLM has it
        self.request_prompt_tokens.add(prompt)
        self.request_generation_tokens.add(output)
