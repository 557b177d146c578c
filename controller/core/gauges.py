"""Gauges of a pool, and its fullest replica."""

from collections.abc import Mapping

from controller.core.facts import Fact
from controller.core.judge import Judge
from controller.core.reading import Reading
from controller.core.signals import Signal

GAUGES: Mapping[Signal, Fact] = {
    Signal.RUNNING: Fact.RUNNING, Signal.QUEUE_DEPTH: Fact.WAITING, Signal.KV_USAGE: Fact.KV_USAGE,
    Signal.GPU_MEMORY: Fact.GPU_MEMORY, Signal.GPU_UTILISATION: Fact.GPU_UTILISATION,
    Signal.READY_REPLICAS: Fact.READY_REPLICAS, Signal.LORA_LOADED: Fact.LORA_LOADED,
}  # fmt: skip


def pool_gauges(j: Judge) -> dict[Signal, Reading]:
    """Gauges of the pool."""
    out: dict[Signal, Reading] = {}
    for signal, fact in GAUGES.items():
        value = j.facts.gauges.get(fact)
        out[signal] = j.absent(fact) if value is None else j.gauge(value, fact)
    worst = _highest(j, Fact.KV_USAGE)
    out[Signal.KV_USAGE_MAX] = out[Signal.KV_USAGE] if worst is None else j.gauge(worst, Fact.KV_USAGE)
    return out


def _highest(j: Judge, fact: Fact) -> float | None:
    return max((r.gauges[fact] for r in j.up.values() if fact in r.gauges), default=None)
