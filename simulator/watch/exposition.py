"""The metrics page of one replica, as vLLM's API server writes it: names, labels, bucket edges, and what is born when.

All series of the engine are there from the start, at zero. Those of the HTTP layer are born with their first event, by
status class; requests are counted there when they end, and one that its client left in the middle as 2xx.
"""

from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from simulator.engine.counts import Counts, Histogram
from simulator.engine.gauges import Load
from simulator.watch.page import Labels, Page, SeriesKey, labels

HANDLER = "/v1/completions"
_HISTOGRAMS = (
    ("ttft", "vllm:time_to_first_token_seconds"),
    ("itl", "vllm:inter_token_latency_seconds"),
    ("tpot", "vllm:request_time_per_output_token_seconds"),
    ("e2e", "vllm:e2e_request_latency_seconds"),
    ("queue_time", "vllm:request_queue_time_seconds"),
    ("prefill_time", "vllm:request_prefill_time_seconds"),
    ("decode_time", "vllm:request_decode_time_seconds"),
    ("inference_time", "vllm:request_inference_time_seconds"),
    ("request_prompt_tokens", "vllm:request_prompt_tokens"),
    ("request_generation_tokens", "vllm:request_generation_tokens"),
    ("iteration_tokens", "vllm:iteration_tokens_total"),
)
_COUNTERS = (
    ("prompt_tokens", "vllm:prompt_tokens_total"),
    ("generation_tokens", "vllm:generation_tokens_total"),
    ("prefix_queries", "vllm:prefix_cache_queries_total"),
    ("prefix_hits", "vllm:prefix_cache_hits_total"),
    ("preemptions", "vllm:num_preemptions_total"),
)
_REASONS = ("stop", "length", "abort", "error", "repetition")


class Http:
    """What the HTTP layer of one process counted: requests by status class, when they ended."""

    __slots__ = ("failed", "finished", "refused", "seconds")

    def __init__(self) -> None:
        self.finished = 0  # 2xx, streams that their clients left included
        self.refused = 0  # 4xx
        self.failed = 0  # 5xx
        self.seconds = 0.0  # of all of them


class Exposition:
    """Page after page of one replica. `target` are the labels that Prometheus gives to the target."""

    def __init__(self, model_name: str, target: Labels) -> None:
        self._target = dict(target)
        self._model_name = model_name
        self._keys: dict[object, tuple[SeriesKey, ...]] = {}

    def page(self, counts: Counts, load: Load, http: Http, started_at: float) -> Page:
        """One scrape of a process that was started at `started_at`, unix seconds."""
        values: list[float] = [started_at, *load]
        values += [getattr(counts, attribute) for attribute, _ in _COUNTERS]
        values += [counts.finished.get(reason, 0) for reason in _REASONS]
        histograms: list[Histogram] = [getattr(counts, attribute) for attribute, _ in _HISTOGRAMS]
        for one in histograms:
            values += accumulate(one.buckets)
            values += (one.count, one.sum)
        values += (http.finished + http.refused + http.failed, http.seconds)
        statuses = [("2xx", http.finished), ("4xx", http.refused), ("5xx", http.failed)]
        born = tuple(status for status, count in statuses if count)
        values += [count for _, count in statuses if count]
        shape = (born, tuple(one.edges for one in histograms))
        keys = self._keys.get(shape)
        if keys is None:
            keys = self._keys[shape] = tuple(self._series(histograms, born))
        return Page(keys, np.array(values, dtype=np.float64))

    def _series(self, histograms: list[Histogram], born: tuple[str, ...]) -> Iterator[SeriesKey]:
        """The series in the order of the values."""
        yield "process_start_time_seconds", self._with()
        own = {"model_name": self._model_name, "engine": "0"}
        for name in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
            yield name, self._with(**own)
        for _, name in _COUNTERS:
            yield name, self._with(**own)
        for reason in _REASONS:
            yield "vllm:request_success_total", self._with(**own, finished_reason=reason)
        for (_, name), histogram in zip(_HISTOGRAMS, histograms, strict=True):
            for edge in (*(repr(float(edge)) for edge in histogram.edges), "+Inf"):
                yield f"{name}_bucket", self._with(**own, le=edge)
            yield f"{name}_count", self._with(**own)
            yield f"{name}_sum", self._with(**own)
        yield "http_request_duration_highr_seconds_count", self._with()
        yield "http_request_duration_highr_seconds_sum", self._with()
        for status in born:
            yield "http_requests_total", self._with(handler=HANDLER, method="POST", status=status)

    def _with(self, **own: str) -> Labels:
        # A label of the target that the page has too is the target's, as with honor_labels: false.
        return labels(**{**own, **self._target})
