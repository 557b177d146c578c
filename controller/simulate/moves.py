"""Moves: how far and how often the levers went, from the changes that the twin has seen."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from controller.core.model import Target
from controller.simulate.ports import Move


@dataclass(slots=True)
class Moves:
    """Travel is the sum of absolute changes by lever, in its unit; a reversal is a change in the direction opposite to
    the change before it, of the same target."""

    travel: dict[str, float] = field(default_factory=dict)
    reversals: dict[str, int] = field(default_factory=dict)


def summed(moves: Iterable[Move], begin: float, end: float) -> Moves:
    """The moves in [begin, end), unix seconds. What came before gives the direction that the first one may reverse."""
    found = Moves()
    going: dict[Target, int] = {}
    for move in moves:
        if move.after == move.before or move.at >= end:
            continue
        direction = 1 if move.after > move.before else -1
        if move.at >= begin:
            lever = move.target.lever.value
            found.travel[lever] = found.travel.get(lever, 0.0) + abs(move.after - move.before)
            turned = going.get(move.target, direction) != direction
            found.reversals[lever] = found.reversals.get(lever, 0) + turned
        going[move.target] = direction
    return found
