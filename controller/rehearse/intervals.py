"""A recording as plain intervals of means, for fits of the twin. Intervals do not overlap: one control window each."""

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

from controller.config import GovernorConfig, pool_needs
from controller.core.errors import InputError
from controller.core.interval import Interval
from controller.core.meter import Meter, PoolSpec
from controller.core.model import PoolReadings
from controller.core.needs import facts_for
from controller.core.reading import Reading, State
from controller.core.signals import Signal
from controller.rehearse.run import TimedSource, open_for, tick_times

_SIGNALS = (
    Signal.TTFT, Signal.ITL, Signal.TPOT, Signal.FINISHED_RATE, Signal.PROMPT_TOKEN_RATE, Signal.GENERATION_TOKEN_RATE,
    Signal.RUNNING, Signal.QUEUE_DEPTH, Signal.KV_USAGE, Signal.READY_REPLICAS,
)  # fmt: skip
READ = frozenset().union(*(facts_for(signal) for signal in _SIGNALS))  # facts that intervals are made of
_DEADLINE = 60.0  # seconds; a file answers at once


def read_intervals(
    path: Path, config: GovernorConfig, pool: str, between: tuple[float, float] = (-math.inf, math.inf)
) -> list[Interval]:
    """The intervals of one pool, in order of time. Raises InputError for an unknown pool, and what the `recording`
    source raises."""
    needs = next((need for need in pool_needs(config) if need.pool == pool), None)
    if needs is None:
        raise InputError(f"--pool {pool}: the config has no such pool; it has {', '.join(config.pools)}")
    wanted = dataclasses.replace(needs, facts=needs.facts | READ)
    source = open_for((wanted,), path, config, between)
    try:
        return list(_read(source, pool, config.pools[pool].window))
    finally:
        source.close()


def _read(source: TimedSource, pool: str, window: float) -> Iterator[Interval]:
    times, width = tick_times(source.times(), window)
    meter = Meter([PoolSpec(pool, width, (), stale_after=2 * width)])
    for at in times:
        yield interval(at, meter.update(source.observe(at, _DEADLINE))[pool])


def interval(at: float, seen: PoolReadings) -> Interval:
    """What the readings of one control window say, as an interval that ends at `at`."""
    finished = _number(seen.get(Signal.FINISHED_RATE))
    itl = seen.latency(Signal.ITL, "mean")
    return Interval(
        at=at,
        # Where nobody counts them, those that told anything.
        replicas=_number(seen.get(Signal.READY_REPLICAS)) or float(len(seen.replicas)) or None,
        finished=finished,
        prompt=_over(seen.get(Signal.PROMPT_TOKEN_RATE), finished),
        output=_over(seen.get(Signal.GENERATION_TOKEN_RATE), finished),
        # An engine that exposes no gaps has them in the time per token of its requests.
        itl=_number(itl if itl.state is not State.UNSUPPORTED else seen.latency(Signal.TPOT, "mean")),
        ttft=_number(seen.latency(Signal.TTFT, "mean")),
        running=_number(seen.get(Signal.RUNNING)),
        waiting=_number(seen.get(Signal.QUEUE_DEPTH)),
        kv_usage=_number(seen.get(Signal.KV_USAGE)),
    )


def _number(reading: Reading) -> float | None:
    """What is known as a number. Half a window or half the replicas are no mean of an interval."""
    return reading.value if reading.state is State.OK else None


def _over(tokens: Reading, finished: float | None) -> float | None:
    rate = _number(tokens)
    return rate / finished if rate is not None and finished else None
