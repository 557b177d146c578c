"""The metrics page of a gateway, as llm-d's endpoint picker writes it (contract ``gaie``), and what it counts for it.

Names are llm-d's, and so is the label `fairness_id` for the tenant of what comes in and of what is refused. The twin's
own are the label `request_class`, `fairness_id` on the duration and the tokens of what was served, and the series of
`routing`: retries of clients that say that they are (no gateway is known to count them), prompt tokens sent, those of
them believed cached where they were sent, and how long decisions took, where somebody lends the gateway a clock. A
series is born with its first event, that of retries with the first request of its class and tenant. What waits in the
gateway's own queue is seen here and nowhere else: engines do not know of it.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import accumulate

import numpy as np

from routing.actions import Reason
from routing.counts import DECISION_EDGES, Counts
from routing.model import Replica
from simulator.engine.counts import PER_TOKEN, REQUEST, TTFT, Histogram
from simulator.job import Ending, Job
from simulator.watch.page import Page, SeriesKey, labels

_LATENCIES: tuple[tuple[str, tuple[float, ...], dict[str, str]], ...] = (
    ("llm_d_epp_request_ttft_seconds", TTFT, {"streaming": "true"}),
    ("llm_d_epp_request_streaming_tpot_seconds", PER_TOKEN, {}),
)
_DURATION = "llm_d_epp_request_duration_seconds"
_TOKENS = (
    "llm_d_epp_request_input_tokens_sum",
    "llm_d_epp_request_output_tokens_sum",
    "llm_d_epp_request_cached_tokens_sum",
)
_CLIENTS_FAULT = frozenset({Reason.NO_MATCH.value, Reason.PROMPT_TOO_LONG.value, Reason.TENANT_BURST.value})
_REASONS = frozenset(reason.value for reason in Reason)


class _Stream:
    """What is counted of one class and tenant when requests are served."""

    __slots__ = ("duration", "tokens")

    def __init__(self) -> None:
        self.duration = Histogram(REQUEST)
        self.tokens = [0, 0, 0]


class Picker:
    """The counts and the page of one gateway. `name` is its pod's, `model` what its pool serves."""

    def __init__(self, name: str, model: str, namespace: str) -> None:
        self.target = labels(job=name, instance=f"{name}:9090", namespace=namespace, pod=f"{name}-0")
        self.name = name
        self._own = {**dict(self.target), "model_name": model, "target_model_name": model}
        self._arrived: Counter[tuple[str, str]] = Counter()  # by class and tenant
        self._errors: Counter[tuple[str, str, str]] = Counter()  # and code
        self._retries: Counter[tuple[str, str]] = Counter()
        self._classes: dict[str, tuple[Histogram, ...]] = {}
        self._streams: dict[tuple[str, str], _Stream] = {}
        self._bars: dict[tuple[str, str, str], list[SeriesKey]] = {}
        self._keys: tuple[SeriesKey, ...] = ()
        self._made: dict[tuple[object, ...], SeriesKey] = {}

    def arrived(self, job: Job) -> None:
        """A request came in."""
        request = job.request
        self._arrived[request.klass, request.tenant] += 1
        self._retries[request.klass, request.tenant] += request.attempt > 0

    def first_token(self, job: Job) -> None:
        """Its client has the first token; what becomes of the rest is not known yet."""
        if (wait := job.ttft) is not None:
            self._of_class(job.request.klass)[0].add(wait)

    def _of_class(self, klass: str) -> tuple[Histogram, ...]:
        own = self._classes.get(klass)
        if own is None:
            own = self._classes[klass] = tuple(Histogram(edges) for _, edges, _ in _LATENCIES)
        return own

    def ended(self, job: Job) -> None:
        """A request has ended for its client. Those whose client went away are not counted."""
        request = job.request
        if job.ending is Ending.FINISHED:
            stream = self._streams.get((request.klass, request.tenant))
            if stream is None:
                stream = self._streams[request.klass, request.tenant] = _Stream()
            if job.ended_at is not None:
                stream.duration.add(job.ended_at - job.arrived)
            if (pace := job.tpot) is not None:
                self._of_class(request.klass)[1].add(pace)
            tokens = stream.tokens
            tokens[0] += request.prompt_tokens
            tokens[1] += min(job.output, request.max_tokens)
            tokens[2] += job.cached
        elif job.ending is not Ending.ABORTED:
            self._errors[request.klass, request.tenant, _code(job)] += 1

    def page(self, replicas: Iterable[Replica], counts: Counts, inflight: int, queued: int, cap: float) -> Page:
        """One scrape. `replicas` as the gateway sees them; `cap` on requests at replicas, inf when there is none."""
        keys: list[SeriesKey] = []
        values: list[float] = []

        def put(metric: str, value: float, **more: str) -> None:
            made = (metric, *more.values())
            key = self._made.get(made)
            if key is None:
                key = self._made[made] = (metric, labels(**self._own, **more))
            keys.append(key)
            values.append(float(value))

        def show(name: str, histogram: Histogram, klass: str, tenant: str = "", **more: str) -> None:
            bars = self._bars.get((name, klass, tenant))
            if bars is None:
                own = {**self._own, "request_class": klass, "fairness_id": tenant, **more}
                edges = (*map(repr, histogram.edges), "+Inf")
                bars = self._bars[name, klass, tenant] = [
                    *((f"{name}_bucket", labels(**own, le=edge)) for edge in edges),
                    (f"{name}_count", labels(**own)),
                    (f"{name}_sum", labels(**own)),
                ]
            keys.extend(bars)
            values.extend(map(float, accumulate(histogram.buckets)))
            values.extend((float(histogram.count), histogram.sum))

        there = list(replicas)
        for (klass, tenant), count in sorted(self._arrived.items()):
            put("llm_d_epp_request_total", count, request_class=klass, fairness_id=tenant)
        for (klass, tenant, code), count in sorted(self._errors.items()):
            put("llm_d_epp_request_error_total", count, request_class=klass, fairness_id=tenant, error_code=code)
        for (klass, tenant), count in sorted(self._retries.items()):
            put("routing_client_retries_total", count, request_class=klass, fairness_id=tenant)
        for klass, own in sorted(self._classes.items()):
            for (name, _, more), histogram in zip(_LATENCIES, own, strict=True):
                show(name, histogram, klass, **more)
        for (klass, tenant), stream in sorted(self._streams.items()):
            show(_DURATION, stream.duration, klass, tenant)
            for name, total in zip(_TOKENS, stream.tokens, strict=True):
                put(name, total, request_class=klass, fairness_id=tenant)
        sent, decisions = counts.total, counts.decisions
        put("routing_prompt_tokens_total", sent.prompt_tokens)
        put("routing_prefix_hit_tokens_total", sent.hit_tokens)
        if decisions.count:
            for le, upto in zip((*map(repr, DECISION_EDGES), "+Inf"), accumulate(decisions.buckets), strict=True):
                put("routing_decision_seconds_bucket", upto, le=le)
            put("routing_decision_seconds_count", decisions.count)
            put("routing_decision_seconds_sum", decisions.seconds)
        put("llm_d_epp_request_running", inflight)
        put("llm_d_epp_flow_control_queue_size", queued)
        for replica in there:
            put("llm_d_epp_per_endpoint_queue_size", replica.waiting, name=replica.name)
        put("llm_d_epp_ready_endpoints", sum(not replica.draining for replica in there))
        if there:
            usage = sum(replica.kv_usage for replica in there) / len(there)
            put("llm_d_epp_average_kv_cache_utilization", usage)
        if 0.0 < cap < np.inf:
            put("llm_d_epp_flow_control_pool_saturation", (inflight + queued) / cap)
        if self._keys != (shape := tuple(keys)):
            self._keys = shape
        return Page(self._keys, np.array(values))


def _code(job: Job) -> str:
    """The word that llm-d has for why a request was not served."""
    why = job.why
    if why in _CLIENTS_FAULT or why.endswith("(HTTP 400)"):
        return "BadRequest"
    if why == Reason.NO_CAPACITY:
        return "ServiceUnavailable"
    if job.ending in (Ending.REJECTED, Ending.TIMED_OUT) and why in _REASONS:
        return "ResourceExhausted"
    return "ModelServerError"
