"""Canonical signals: the names that objectives, policies, reports and dashboards use, with unit and meaning."""

from dataclasses import dataclass
from enum import StrEnum


class Signal(StrEnum):
    """A canonical signal of a pool, a replica or a tenant."""

    TTFT = "ttft"
    TPOT = "tpot"
    ITL = "itl"
    E2E = "e2e"
    QUEUE_TIME = "queue_time"
    QUEUE_DELAY = "queue_delay"
    QUEUE_DEPTH = "queue_depth"
    QUEUED_TOKENS = "queued_tokens"
    REMAINING_TOKENS = "remaining_tokens"
    RUNNING = "running"
    KV_USAGE = "kv_usage"
    KV_USAGE_MAX = "kv_usage_max"
    GPU_MEMORY = "gpu_memory"
    GPU_UTILISATION = "gpu_utilisation"
    PREFIX_HIT_RATE = "prefix_hit_rate"
    OFFERED_RATE = "offered_rate"
    RECENT_RATE = "recent_rate"
    ADMITTED_RATE = "admitted_rate"
    BEGUN_RATE = "begun_rate"
    FINISHED_RATE = "finished_rate"
    REJECTED_RATE = "rejected_rate"
    RETRY_SHARE = "retry_share"
    PROMPT_TOKEN_RATE = "prompt_token_rate"  # noqa: S105 - a rate of tokens, not a secret
    GENERATION_TOKEN_RATE = "generation_token_rate"  # noqa: S105
    ERROR_RATIO = "error_ratio"
    TIMEOUTS = "timeouts"
    ABORTS = "aborts"
    PREEMPTIONS = "preemptions"
    OOM_RESTARTS = "oom_restarts"
    CRASH_RESTARTS = "crash_restarts"
    XID_ERRORS = "xid_errors"
    READY_REPLICAS = "ready_replicas"
    LORA_LOADED = "lora_loaded"
    STUCK = "stuck"

    __hash__ = str.__hash__  # that of Enum is written in Python, and readings are looked up by the thousand


@dataclass(frozen=True, slots=True)
class SignalInfo:
    """Unit and one-sentence meaning, shown by ``governor doctor`` and in the docs."""

    unit: str
    meaning: str
    latency: bool = False  # a histogram of seconds, read as quantiles and attainment


INFO: dict[Signal, SignalInfo] = {
    Signal.TTFT: SignalInfo("s", "time to first token, from the engine's arrival clock", latency=True),
    Signal.TPOT: SignalInfo("s", "per request, (last - first token) / (output tokens - 1)", latency=True),
    Signal.ITL: SignalInfo("s", "gap between two emissions of one request", latency=True),
    Signal.E2E: SignalInfo("s", "arrival to last token", latency=True),
    Signal.QUEUE_TIME: SignalInfo("s", "wait before the first schedule, of requests whose wait is over", latency=True),
    Signal.QUEUE_DELAY: SignalInfo("s", "wait that a request joining now must expect"),
    Signal.QUEUE_DEPTH: SignalInfo("requests", "requests waiting"),
    Signal.QUEUED_TOKENS: SignalInfo("tokens", "prompt tokens waiting, estimated with bounds where not exposed"),
    Signal.REMAINING_TOKENS: SignalInfo("tokens", "output tokens still to come, estimated with bounds"),
    Signal.RUNNING: SignalInfo("requests", "requests in the batch"),
    Signal.KV_USAGE: SignalInfo("ratio", "KV cache in use, mean over replicas"),
    Signal.KV_USAGE_MAX: SignalInfo("ratio", "KV cache in use, the fullest replica"),
    Signal.GPU_MEMORY: SignalInfo("bytes", "GPU memory in use; engines preallocate it, so it is shown only"),
    Signal.GPU_UTILISATION: SignalInfo("ratio", "GPU busy share; near 1 at batch 1, so it is shown only"),
    Signal.PREFIX_HIT_RATE: SignalInfo("ratio", "prompt tokens found in the prefix cache"),
    Signal.OFFERED_RATE: SignalInfo("1/s", "requests offered, each once, not once per attempt"),
    Signal.RECENT_RATE: SignalInfo("1/s", "requests offered, of the younger half of the window"),
    Signal.ADMITTED_RATE: SignalInfo("1/s", "requests that left the queue, of the last half minute"),
    Signal.BEGUN_RATE: SignalInfo("1/s", "requests that left the queue, of the whole window"),
    Signal.FINISHED_RATE: SignalInfo("1/s", "requests finished"),
    Signal.REJECTED_RATE: SignalInfo("1/s", "requests refused before service"),
    Signal.RETRY_SHARE: SignalInfo("ratio", "share of the attempts offered that are retries"),
    Signal.PROMPT_TOKEN_RATE: SignalInfo("1/s", "prompt tokens processed"),
    Signal.GENERATION_TOKEN_RATE: SignalInfo("1/s", "output tokens produced"),
    Signal.ERROR_RATIO: SignalInfo("ratio", "requests that the server failed, of all that ended"),
    Signal.TIMEOUTS: SignalInfo("requests", "requests that ran out of time, in the window"),
    Signal.ABORTS: SignalInfo("requests", "requests whose client went away, in the window"),
    Signal.PREEMPTIONS: SignalInfo("events", "sequences thrown out of the batch, in the window"),
    Signal.OOM_RESTARTS: SignalInfo("restarts", "containers killed for memory, in the window"),
    Signal.CRASH_RESTARTS: SignalInfo("restarts", "containers restarted for any other reason, in the window"),
    Signal.XID_ERRORS: SignalInfo("events", "errors that a GPU's driver reported, in the window"),
    Signal.READY_REPLICAS: SignalInfo("replicas", "replicas that answer"),
    Signal.LORA_LOADED: SignalInfo("adapters", "LoRA adapters loaded"),
    Signal.STUCK: SignalInfo("replicas", "replicas that hold work and produce nothing"),
}
