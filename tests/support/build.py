"""Builders of the values of one tick, with defaults that a test overrides by name."""

import math
from collections.abc import Iterator

from controller.core.model import (
    Decision,
    Lever,
    Plan,
    PoolReadings,
    Snapshot,
    Step,
    Target,
    TargetState,
    Tick,
)
from controller.core.reading import Reading, State, ok
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why

START = 1_767_225_600.0  # 2026-01-01 00:00 UTC
REPLICAS = Target("llama", Lever.REPLICAS)
TTFT = Objective("ttft-p99", Signal.TTFT, 2.0, 0.99, 60.0)


def decision(
    current: float | None = 8.0,
    final: float | None = 8.0,
    why: Why = Why.STEADY,
    *steps: Step,
    target: Target = REPLICAS,
    evidence: dict[str, float] | None = None,
) -> Decision:
    return Decision(target, current, final, why, steps, evidence or {}, send=final != current)


def readings(ttft: Reading | None = None, attained: Reading | None = None, **signals: float) -> PoolReadings:
    return PoolReadings(
        signals={Signal(name): ok(value, source="test") for name, value in signals.items()},
        latencies={Signal.TTFT: {"p99": ttft or ok(1.0, lo=0.8, hi=1.2, count=50)}},
        attainment={TTFT.name: attained or ok(0.995, lo=0.99, hi=1.0, count=50)},
    )


def snapshot(
    tick: int,
    at: float,
    pools: dict[str, PoolReadings],
    targets: dict[Target, TargetState] | None = None,
    error: str = "",
) -> Snapshot:
    return Snapshot(Tick(tick, at, 15.0 if tick else None), pools, targets or {}, error)


def day(pools: int = 1, ticks: int = 240, step: float = 15.0) -> Iterator[tuple[Snapshot, Plan]]:
    """A made-up stretch with load that swings, a saturated peak, a hole in the data, and a policy that follows it."""
    before = {f"pool-{p:02d}": 2 for p in range(pools)}
    for tick in range(ticks):
        at = START + tick * step
        seen: dict[str, PoolReadings] = {}
        states: dict[Target, TargetState] = {}
        made: list[Decision] = []
        for p, name in enumerate(before):
            target = Target(name, Lever.REPLICAS)
            phase = 2 * math.pi * (tick / ticks + p / 20)
            load = 5 + 4 * math.sin(phase) + 0.4 * math.sin(37 * phase) + 0.2 * math.sin(211 * phase)
            blind = ticks * 0.55 < tick < ticks * 0.6
            recorded = 5.0 if tick < ticks * 0.7 else 4.0
            seen[name] = _pool(load, recorded, blind=blind)
            need = max(1, math.ceil(load / 0.85))
            if blind:
                one = decision(recorded, max(recorded, before[name]), Why.MISSING, target=target)
            elif need == recorded:
                one = decision(recorded, recorded, Why.STEADY, target=target, evidence={"demand": load})
            else:
                final = min(need, 8)
                steps = [Step("capacity", recorded, float(need), Why.DEMAND if need > recorded else Why.SURPLUS)]
                if final != need:
                    steps.append(Step("bounds", float(need), float(final), Why.MAX_BOUND))
                one = decision(recorded, final, steps[-1].why, *steps, target=target, evidence={"demand": load})
            before[name] = int(one.final or 0)
            states[target] = TargetState(recorded, ready=recorded)
            made.append(one)
        yield snapshot(tick, at, seen, states), Plan(at, tuple(made), "made up")


def _pool(load: float, replicas: float, *, blind: bool) -> PoolReadings:
    if blind:
        return PoolReadings()
    ratio = load / replicas
    p99 = 0.4 * math.exp(2.2 * max(0.0, ratio - 0.6))
    latency = ok(p99, lo=p99 * 0.8, hi=p99 * 1.3, count=load * 60)
    if p99 > 5:
        latency = Reading(State.SATURATED_TOP, lo=5.0, count=load * 60)
    share = max(0.5, min(1.0, 1.0 - 0.02 * (p99 - 1.0)))
    return readings(
        latency,
        ok(share, lo=max(0.0, share - 0.01), hi=min(1.0, share + 0.005), count=load * 60),
        offered_rate=load,
        finished_rate=min(load, replicas),
        queue_depth=max(0.0, (load - replicas) * 10),
        queue_delay=max(0.0, load - replicas),
        running=load * 8,
        kv_usage_max=min(1.0, ratio * 0.7),
    )
