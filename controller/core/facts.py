"""Facts: the raw quantities that an engine or gateway exposes, before any of them is a signal.

A metric contract (``sources/contracts``) says which metric yields which fact; ``measure`` turns facts into canonical
signals. Keeping the two apart lets one engine's missing histogram be ``unsupported`` without a special case anywhere.
"""

from enum import StrEnum


class Kind(StrEnum):
    """How a fact adds up over time."""

    HISTOGRAM = "histogram"  # increments per bucket since the previous observation
    COUNTER = "counter"  # increment since the previous observation
    GAUGE = "gauge"  # value at the scrape


class Fact(StrEnum):
    """What can be read. The unit is in the comment; contracts convert to it."""

    # histograms, seconds
    TTFT = "ttft"
    TPOT = "tpot"  # per request, (last - first token) / (n_out - 1); never a per-step metric
    ITL = "itl"
    E2E = "e2e"
    QUEUE_TIME = "queue_time"

    # histogram, tokens
    PROMPT_LENGTHS = "prompt_lengths"  # prompt of each request, cached tokens included

    # counters
    ARRIVED = "arrived"  # requests offered
    ADMITTED = "admitted"  # requests that got their first token or their first schedule
    FINISHED = "finished"  # requests that ended well
    RESPONSES = "responses"  # responses of the HTTP layer, aborted streams included
    ABORTED = "aborted"  # client went away, where the engine counts it
    ERRORS = "errors"  # not served by fault of the server
    REJECTED = "rejected"  # refused before service (admission, overload)
    TIMEOUTS = "timeouts"
    RETRIES = "retries"
    PROMPT_TOKENS = "prompt_tokens"
    GENERATION_TOKENS = "generation_tokens"
    PREFIX_HITS = "prefix_hits"  # tokens (or blocks) found in the prefix cache
    PREFIX_QUERIES = "prefix_queries"  # tokens (or blocks) looked up
    PREEMPTIONS = "preemptions"
    RESTARTS = "restarts"
    OOM_RESTARTS = "oom_restarts"
    XID_ERRORS = "xid_errors"

    # gauges
    RUNNING = "running"  # requests in the batch
    WAITING = "waiting"  # requests queued
    KV_USAGE = "kv_usage"  # ratio 0..1
    PREFIX_HIT_RATIO = "prefix_hit_ratio"  # ratio 0..1, where only a gauge exists
    HELD = "held"  # of those, requests in a gateway's own queue, which no engine knows of
    QUEUED_TOKENS = "queued_tokens"
    REMAINING_TOKENS = "remaining_tokens"
    GPU_MEMORY = "gpu_memory"  # bytes used
    GPU_UTILISATION = "gpu_utilisation"  # ratio 0..1; shown, never steered by
    READY_REPLICAS = "ready_replicas"
    WANTED_REPLICAS = "wanted_replicas"
    LORA_LOADED = "lora_loaded"  # adapters
    SATURATION = "saturation"  # a gateway's own 0..1+ pool saturation

    @property
    def kind(self) -> Kind:
        if self in _HISTOGRAMS:
            return Kind.HISTOGRAM
        return Kind.COUNTER if self in _COUNTERS else Kind.GAUGE


_HISTOGRAMS = frozenset({Fact.TTFT, Fact.TPOT, Fact.ITL, Fact.E2E, Fact.QUEUE_TIME, Fact.PROMPT_LENGTHS})
_COUNTERS = frozenset(
    {
        Fact.ARRIVED, Fact.ADMITTED, Fact.FINISHED, Fact.RESPONSES, Fact.ABORTED, Fact.ERRORS, Fact.REJECTED,
        Fact.TIMEOUTS, Fact.RETRIES, Fact.PROMPT_TOKENS, Fact.GENERATION_TOKENS, Fact.PREFIX_HITS,
        Fact.PREFIX_QUERIES, Fact.PREEMPTIONS, Fact.RESTARTS, Fact.OOM_RESTARTS, Fact.XID_ERRORS,
    }
)  # fmt: skip
