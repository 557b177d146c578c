"""Which facts make which signal. Pure data, shared by the config (what to fetch) and by the doctor (what is there).

A signal has ways, best first; each way is a set of facts that suffices together.
"""

from collections.abc import Collection, Mapping

from controller.core.facts import Fact
from controller.core.signals import Signal

_F = Fact


def _ways(*ways: tuple[Fact, ...]) -> tuple[frozenset[Fact], ...]:
    return tuple(frozenset(way) for way in ways)


SIGNAL_FACTS: Mapping[Signal, tuple[frozenset[Fact], ...]] = {
    Signal.TTFT: _ways((_F.TTFT,)),
    Signal.TPOT: _ways((_F.TPOT,)),
    Signal.ITL: _ways((_F.ITL,)),
    Signal.E2E: _ways((_F.E2E,)),
    Signal.QUEUE_TIME: _ways((_F.QUEUE_TIME,)),
    # the histogram alone is blind to whoever still waits, so depth over the rate of leaving the queue comes first
    Signal.QUEUE_DELAY: _ways(
        (_F.WAITING, _F.ADMITTED, _F.QUEUE_TIME),
        (_F.WAITING, _F.ADMITTED),
        (_F.WAITING, _F.FINISHED),
        (_F.QUEUE_TIME,),
    ),
    Signal.QUEUE_DEPTH: _ways((_F.WAITING,)),
    Signal.QUEUED_TOKENS: _ways(
        (_F.QUEUED_TOKENS,), (_F.WAITING, _F.PROMPT_TOKENS, _F.ADMITTED), (_F.WAITING, _F.PROMPT_TOKENS, _F.FINISHED)
    ),
    Signal.REMAINING_TOKENS: _ways((_F.REMAINING_TOKENS,), (_F.RUNNING, _F.GENERATION_TOKENS, _F.FINISHED)),
    Signal.RUNNING: _ways((_F.RUNNING,)),
    Signal.KV_USAGE: _ways((_F.KV_USAGE,)),
    Signal.KV_USAGE_MAX: _ways((_F.KV_USAGE,)),
    Signal.GPU_MEMORY: _ways((_F.GPU_MEMORY,)),
    Signal.GPU_UTILISATION: _ways((_F.GPU_UTILISATION,)),
    Signal.PREFIX_HIT_RATE: _ways((_F.PREFIX_HITS, _F.PREFIX_QUERIES), (_F.PREFIX_HIT_RATIO,)),
    # no engine but a few counts arrivals: what left plus the growth of what is inside
    Signal.OFFERED_RATE: _ways(
        (_F.ARRIVED, _F.RETRIES),
        (_F.ARRIVED,),
        (_F.RESPONSES, _F.FINISHED, _F.RUNNING, _F.WAITING),
        (_F.ABORTED, _F.FINISHED, _F.RUNNING, _F.WAITING),
        (_F.FINISHED, _F.RUNNING, _F.WAITING),
        (_F.FINISHED, _F.RUNNING),
    ),
    Signal.RECENT_RATE: _ways((_F.ARRIVED, _F.RETRIES), (_F.ARRIVED,)),
    Signal.ADMITTED_RATE: _ways((_F.ADMITTED,)),
    Signal.BEGUN_RATE: _ways((_F.ADMITTED,)),
    Signal.FINISHED_RATE: _ways((_F.FINISHED,)),
    Signal.REJECTED_RATE: _ways((_F.REJECTED,)),
    Signal.RETRY_SHARE: _ways((_F.RETRIES, _F.ARRIVED)),
    Signal.PROMPT_TOKEN_RATE: _ways((_F.PROMPT_TOKENS,)),
    Signal.GENERATION_TOKEN_RATE: _ways((_F.GENERATION_TOKENS,)),
    # errors, rejections and time-outs are disjoint in every contract: what an engine tells apart is added up
    Signal.ERROR_RATIO: _ways(
        (_F.ERRORS, _F.REJECTED, _F.TIMEOUTS, _F.FINISHED),
        (_F.ERRORS, _F.REJECTED, _F.FINISHED),
        (_F.ERRORS, _F.TIMEOUTS, _F.FINISHED),
        (_F.ERRORS, _F.FINISHED),
        (_F.ERRORS, _F.RESPONSES),
        (_F.ERRORS, _F.ARRIVED),
    ),
    Signal.TIMEOUTS: _ways((_F.TIMEOUTS,)),
    Signal.ABORTS: _ways((_F.ABORTED,), (_F.RESPONSES, _F.FINISHED)),
    Signal.PREEMPTIONS: _ways((_F.PREEMPTIONS,)),
    Signal.OOM_RESTARTS: _ways((_F.OOM_RESTARTS,)),
    Signal.CRASH_RESTARTS: _ways((_F.RESTARTS, _F.OOM_RESTARTS)),
    Signal.XID_ERRORS: _ways((_F.XID_ERRORS,)),
    Signal.READY_REPLICAS: _ways((_F.READY_REPLICAS,)),
    Signal.LORA_LOADED: _ways((_F.LORA_LOADED,)),
    Signal.STUCK: _ways((_F.RUNNING, _F.WAITING, _F.GENERATION_TOKENS), (_F.RUNNING, _F.GENERATION_TOKENS)),
}


def facts_for(signal: Signal) -> frozenset[Fact]:
    """Every fact that may help to make `signal`; a source fetches those of them that the engine exposes."""
    return frozenset().union(*SIGNAL_FACTS[signal])


def way_for(signal: Signal, available: Collection[Fact]) -> frozenset[Fact] | None:
    """The best way to make `signal` from the facts that are `available`; None when there is none."""
    return next((way for way in SIGNAL_FACTS[signal] if way.issubset(available)), None)
