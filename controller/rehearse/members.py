"""Levers with many members, made readable: one row and one plot for a lever, and by name only what moved most."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from controller.core.model import Lever, Target
from controller.core.rest import NO_LIMIT
from controller.core.why import Why
from controller.rehearse.summary import TargetSummary
from controller.rehearse.trace import NAN, TargetTrace

FEW = 3  # members that are shown one by one
NAMED = 5  # of more members, those with a row of their own


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table of levers: a target, or all members of a lever."""

    name: str
    one: TargetSummary


def rows(targets: Iterable[TargetSummary]) -> list[Row]:
    """All members of a lever in one row where they are many, and those that moved most below it."""
    out: list[Row] = []
    for _, group in groupby(sorted(targets, key=lambda one: one.target), key=lambda one: one.target.lever):
        members = list(group)
        if len(members) <= FEW:
            out += [Row(short_name(one.target), one) for one in members]
            continue
        moved = sorted((one for one in members if one.ups + one.downs), key=lambda one: -(one.ups + one.downs))
        rest = len(moved) - NAMED
        still = len(members) - len(moved)
        name = f"{members[0].target.lever}: {len(members)} members, {still} never moved"
        out.append(Row(name + (f", {rest} more moved" if rest > 0 else ""), _together(members)))
        out += [Row(short_name(one.target), one) for one in moved[:NAMED]]
    return out


def short_name(target: Target) -> str:
    """`replicas`, `weight/pod-1`: the target without its pool."""
    return "/".join(part for part in (target.lever.value, target.member) if part)


def by_lever(lanes: Mapping[Target, TargetTrace]) -> list[tuple[Lever, list[Target]]]:
    """The targets of each lever, sorted."""
    return [(lever, list(group)) for lever, group in groupby(sorted(lanes), key=lambda target: target.lever)]


def movers(lanes: Mapping[Target, TargetTrace], targets: Sequence[Target], most: int) -> list[Target]:
    """Those whose proposal moved, most often first, at most so many."""
    moves = {target: sum(1 for _ in lanes[target].changes()) for target in targets}
    return sorted((target for target in targets if moves[target]), key=lambda target: (-moves[target], target))[:most]


def limited(values: Iterable[float]) -> list[float]:
    """For a plot: no limit has no height, and leaves a gap."""
    return [NAN if value >= NO_LIMIT else value for value in values]


def spread(lanes: Iterable[TargetTrace]) -> list[tuple[float, float]]:
    """Lowest and highest proposal at each tick, unknown where nobody is known."""
    columns = [limited(lane.proposed) for lane in lanes]
    out = []
    for values in zip(*columns, strict=True):
        known = [value for value in values if math.isfinite(value)]
        out.append((min(known), max(known)) if known else (NAN, NAN))
    return out


def _together(members: Sequence[TargetSummary]) -> TargetSummary:
    held: Counter[Why] = Counter()
    for one in members:
        held.update(one.held)
    known = [one for one in members if one.recorded_hours is not None and one.proposed_hours is not None]
    return TargetSummary(
        Target(members[0].target.pool, members[0].target.lever),
        math.fsum(one.recorded_hours or 0.0 for one in known) if known else None,
        math.fsum(one.proposed_hours or 0.0 for one in known) if known else None,
        math.fsum(one.compared for one in members) / len(members),
        min((one.lowest for one in members if one.lowest is not None), default=None),
        max((one.highest for one in members if one.highest is not None), default=None),
        sum(one.ups for one in members),
        sum(one.downs for one in members),
        sum(one.turns for one in members),
        sum(one.recorded_turns for one in members),
        dict(held.most_common()),
        sum(one.ticks for one in members),
        math.fsum(one.known for one in members),
    )
