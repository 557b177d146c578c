"""Ranks: who is let in while requests have to wait, when refusing what may be shed is not enough.

    firm      = left - Σ demand of classes that may be shed             what shedding them cannot give
    priority  = v with  Σ over classes: clamp(rank - v, 0, 1) · demand = left        if firm > 0, else every rank
    down      at once, rounded up: no more is kept out than is left
    up        a ramp of `up` ranks a minute from where it stands, at most to v

Ranks go whole from the last one on, and a part of the next; the first rank is never kept out. Nothing grows with the
time that a class has waited: what a rank keeps in any case is the floor that the gateway gives it, and every place that
is free. `left` is what earlier levers have not relieved, so a downgrade before this one spares the lower ranks.

The way back is counted in ranks that some class has: between 0 and 10 nothing is let in before 9. The ramp goes on
while a guard still holds the value, because one that follows the most protective wish of the last minute would else see
the same wish for ever. It begins anew when more has to be kept out, and is never further ahead than `AHEAD`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.core.model import Ask, Proposal, Target
from controller.core.ports import Brief, View
from controller.core.setpoints import EVERY_RANK, refused
from controller.core.tenancy import ClassRules
from controller.core.why import Why

TINY = 1e-6  # replica-equivalents; less is not short but rounded
AHEAD = 120.0  # seconds by which the ramp may be ahead of a value that guards hold


@dataclass(frozen=True, slots=True)
class Ranks:
    """Parameters: `up` ranks that a class has, per minute."""

    up: float


def priority(
    law: Ranks, view: View, brief: Brief, target: Target, current: float, gone: float, kept: float | None,
    doubt: Why | None,
) -> tuple[Proposal, float | None]:  # fmt: skip
    """SET where demand by class is known; AT_MOST the current value where it is not, or where data forbids relaxing.
    `gone` seconds since the last tick, `kept` the place of the ramp; `doubt` why nothing may be relaxed."""
    demand = {name: brief.balance.by_class.get(name, 0.0) for name in view.classes}
    told = bool(brief.balance.by_class) and all(math.isfinite(one) and one >= 0 for one in demand.values())
    if not (told and math.isfinite(brief.left)):
        return Proposal(target, Ask.AT_MOST, current, "gate", doubt or Why.MISSING), kept
    limits = view.limits[target]
    need = wanted(view.classes, demand, brief.left)
    evidence = {"left": brief.left, "sheddable": _sheddable(view.classes, demand)}
    ranks = sorted({one.rank for one in view.classes.values()})
    there, aim, last = place(ranks, current), place(ranks, need), len(ranks) - 1.0
    if aim < there - TINY:
        point = max(limits.min, math.ceil(need / limits.quantum - 1e-6) * limits.quantum)
        if point >= current:
            return Proposal(target, Ask.SET, current, "gate", Why.STEADY, evidence), None
        return Proposal(target, Ask.SET, point, "gate", Why.SHORTFALL, evidence), None
    if current >= limits.max or (need <= current and aim < last):
        return Proposal(target, Ask.SET, current, "gate", Why.STEADY, evidence), None
    if doubt is not None:
        return Proposal(target, Ask.AT_MOST, current, "gate", doubt, evidence), kept
    start = there if kept is None else min(max(kept, there), there + law.up * AHEAD / 60.0)
    ramp = start + law.up * gone / 60.0
    wish = limits.max if min(ramp, aim) >= last else max(current, _value(ranks, min(ramp, aim), limits.quantum))
    why = Why.CARRIED if wish > current else Why.SHORTFALL
    return Proposal(target, Ask.SET, wish, "gate", why, evidence), min(ramp, aim)


def place(ranks: Sequence[int], value: float) -> float:
    """How many of the `ranks` after the first a priority lets in, with a part of one: 1.4 is the second, and four
    tenths of the third."""
    return math.fsum(1.0 - refused(rank, value) for rank in ranks[1:])


def _value(ranks: Sequence[int], at: float, quantum: float) -> float:
    """The priority at a place, on the quantum, and no more let in than there."""
    whole = math.floor(at + 1e-6)
    part = math.floor((at - whole) / quantum + 1e-6) * quantum
    return float(ranks[whole]) if part <= 0 else ranks[whole + 1] - 1.0 + part


def wanted(classes: Mapping[str, ClassRules], demand: Mapping[str, float], left: float) -> float:
    """The priority that keeps out what is left, or all but the first rank; every rank where shedding is enough."""
    if left <= _sheddable(classes, demand) + TINY:
        return EVERY_RANK
    ranks: dict[int, list[float]] = {}
    for name, one in sorted(classes.items()):
        ranks.setdefault(one.rank, []).append(demand[name])
    first = min(ranks)
    for rank in sorted(ranks, reverse=True):
        there = math.fsum(ranks[rank])
        if rank == first:
            break
        if there > left:
            return rank - left / there
        left -= there
        if left <= TINY:
            return float(rank - 1)
    return float(first)


def _sheddable(classes: Mapping[str, ClassRules], demand: Mapping[str, float]) -> float:
    return math.fsum(demand[name] for name, one in sorted(classes.items()) if one.sheddable)
