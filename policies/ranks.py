"""Ranks: who is let in while requests have to wait, when refusing what may be shed is not enough.

    firm      = left - Σ demand of classes that may be shed             what shedding them cannot give
    priority  = v with  Σ over classes: clamp(rank - v, 0, 1) · demand = left        if firm > 0, else every rank
    down      at once, rounded up: no more is kept out than is left
    up        by `up` ranks a minute

Ranks go whole from the last one on, and a part of the next; the first rank is never kept out. Nothing grows with the
time that a class has waited: what a rank keeps in any case is the floor that the gateway gives it, and every place that
is free. `left` is what earlier levers have not relieved, so a downgrade before this one spares the lower ranks.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from controller.core.model import Ask, Proposal, Target
from controller.core.ports import Brief, View
from controller.core.setpoints import EVERY_RANK
from controller.core.tenancy import ClassRules
from controller.core.why import Why

TINY = 1e-6  # replica-equivalents; less is not short but rounded


@dataclass(frozen=True, slots=True)
class Ranks:
    """Parameters: `up` ranks per minute."""

    up: float


def priority(
    law: Ranks, view: View, brief: Brief, target: Target, current: float, gone: float, kept: float | None,
    doubt: Why | None,
) -> tuple[Proposal, float | None]:  # fmt: skip
    """SET where demand by class is known; AT_MOST the current value where it is not, or where data forbids relaxing.
    `gone` seconds since the last tick, `kept` the value before rounding; `doubt` why nothing may be relaxed."""
    demand = {name: brief.balance.by_class.get(name, 0.0) for name in view.classes}
    told = bool(brief.balance.by_class) and all(math.isfinite(one) and one >= 0 for one in demand.values())
    if not (told and math.isfinite(brief.left)):
        return Proposal(target, Ask.AT_MOST, current, "gate", doubt or Why.MISSING), kept
    limits = view.limits[target]
    need = wanted(view.classes, demand, brief.left)
    evidence = {"left": brief.left, "sheddable": _sheddable(view.classes, demand)}
    if need < current:
        point = max(limits.min, math.ceil(need / limits.quantum - 1e-6) * limits.quantum)
        if point >= current:
            return Proposal(target, Ask.SET, current, "gate", Why.STEADY, evidence), None
        return Proposal(target, Ask.SET, point, "gate", Why.SHORTFALL, evidence), None
    if need <= current:
        return Proposal(target, Ask.SET, current, "gate", Why.STEADY, evidence), None
    if doubt is not None:
        return Proposal(target, Ask.AT_MOST, current, "gate", doubt, evidence), None
    start = current if kept is None else min(max(kept, current), current + limits.quantum)
    point = start + law.up * gone / 60.0
    last = max(one.rank for one in view.classes.values())
    wish = max(current, math.floor(min(point, need) / limits.quantum + 1e-6) * limits.quantum)
    if min(wish, need) >= last:  # everybody comes in, so no number is needed
        wish = limits.max
    why = Why.CARRIED if wish > current else Why.SHORTFALL
    return Proposal(target, Ask.SET, wish, "gate", why, evidence), point


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
