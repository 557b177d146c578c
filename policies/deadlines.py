"""Deadlines: how much of the time until its deadline a request may wait, while first tokens come late.

    late    = ln( measured / target )        the worst promise on TTFT or queue time;  queue delay counts as TTFT
    down    f *= max( cut, e^-late )         late > 0 while requests wait; at most once per `again`
    up      f += up · Δt                     late < ln(margin), or nobody waits;  a ramp that goes on while guards hold

In an overload a queue is as long as its deadlines let it be, and whoever is served has waited nearly that long. Where
deadlines are longer than the promise all of them are late, though as many are served as ever. What is served waits in
proportion to f, so that one cut by the measured ratio is nearly enough; a queue that is turned away at the door is no
more than what could not have been served anyway. So it does not ask what relief is left, and relieves nobody of
anything. A first token that is late while nobody waits is late for another reason, and is left alone.

The ramp goes on while a guard still holds the value: one that follows the lowest wish of the last minute would else see
steps from where it stands, and let one of them through a minute.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from controller.core.model import Ask, PoolReadings, Proposal, Target
from controller.core.operating import ON_FIRST_TOKEN
from controller.core.ports import View
from controller.core.reading import Reading, State
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why

AHEAD = 120.0  # seconds by which the ramp may be ahead of a value that guards hold


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Parameters: `least` factor; `cut` the largest of one cut, as a factor; `again` seconds between two; `up` per
    minute; `margin` share of the target below which they are given back."""

    least: float
    cut: float
    again: float
    up: float
    margin: float


@dataclass(frozen=True, slots=True)
class Memory:
    """`factor` the value before rounding, ahead of what stands while guards hold that; None while there is none.
    `cut_at` when it was last cut, unix seconds."""

    factor: float | None = None
    cut_at: float | None = None


def deadline(
    law: Deadlines, view: View, objectives: Sequence[Objective], target: Target, current: float, gone: float,
    memory: Memory, doubt: Why | None,
) -> tuple[Proposal, Memory]:  # fmt: skip
    """SET where lateness is known; AT_MOST the current value where it is not. `gone` seconds since the last tick;
    `doubt` why nothing may be relaxed."""
    limits, now = view.limits[target], view.tick.at
    waiting, late, sure = lateness(view.pool, objectives, view.estimate.passing)
    kept, quantum = memory.factor, limits.quantum
    point = current if kept is None else min(max(kept, current - quantum), current + quantum)
    evidence = {} if late is None else {"late": late}
    if waiting and late is not None and late > 0:
        if memory.cut_at is not None and now - memory.cut_at < law.again - 1e-6:
            return Proposal(target, Ask.AT_MOST, current, "gate", Why.LATENCY_HIGH, evidence), memory
        point = max(law.least, point * max(law.cut, math.exp(-late)))
        wish = min(current, max(limits.min, math.floor(point / quantum + 0.5) * quantum))
        return Proposal(target, Ask.SET, wish, "gate", Why.LATENCY_HIGH, evidence), Memory(point, now)
    if late is None or not sure or doubt is not None:
        return Proposal(target, Ask.AT_MOST, current, "gate", doubt or Why.MISSING, evidence), memory
    if waiting and late > math.log(law.margin):
        return Proposal(target, Ask.SET, current, "gate", Why.STEADY, evidence), replace(memory, factor=point)
    start = current if kept is None else min(max(kept, current - quantum), current + law.up * AHEAD / 60.0)
    point = min(limits.max, start + law.up * gone / 60.0)
    wish = max(current, min(limits.max, math.floor(point / quantum + 1e-9) * quantum))
    why = Why.LATENCY_LOW if late <= math.log(law.margin) else Why.NOBODY_WAITS
    if wish <= current:
        why = Why.STEADY
    return Proposal(target, Ask.SET, wish, "gate", why, evidence), replace(memory, factor=point)


def lateness(
    pool: PoolReadings, objectives: Sequence[Objective], passing: float
) -> tuple[bool, float | None, bool]:  # fmt: skip
    """(whether requests wait, ln(measured / target) of the worst promise, whether that may justify relaxing). Quantiles
    are the pool's, so promises to a class say nothing here."""
    delay = pool.get(Signal.QUEUE_DELAY)
    waiting = delay.usable is not None and delay.usable > passing
    worst: float | None = None
    sure = delay.trusted
    for one in objectives:
        if one.signal not in ON_FIRST_TOKEN or one.klass:
            continue
        reading = pool.latency(one.signal, one.stat)
        told = [each.usable for each in (reading, delay) if each.usable is not None and each.usable > 0]
        sure = sure and (reading.trusted or reading.state is State.NO_TRAFFIC or _begun(reading))
        if told:
            late = math.log(max(told) / one.target)
            worst = late if worst is None else max(worst, late)
        elif sure:
            worst = worst if worst is not None else -math.inf
    return waiting, worst if worst is None or math.isfinite(worst) else -20.0, sure


def _begun(reading: Reading) -> bool:
    """Whether it is known to be below the first edge of its histogram: in time."""
    return reading.state is State.BELOW_FIRST
