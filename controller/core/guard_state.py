"""Guard state: what is remembered of one target from tick to tick, so that guards can speak of time.

Pure and small: a fleet has tens of thousands of targets, and each is remembered anew at every tick.
"""

from bisect import bisect_left
from typing import NamedTuple

from controller.core.model import TargetState
from controller.core.rules import LeverRules

Pairs = tuple[tuple[float, float], ...]  # of a time, unix seconds, and a value


class GuardState(NamedTuple):
    """Memory of one target. `wishes` are what was sought (unix seconds, value), for stabilising; of the same wish in a
    row the last, which says as much as all of them. `changes` are how the value as read back moved (unix seconds,
    delta), for cooldowns and rates; `position` that value and when it was read; `due` the next time this lever decides;
    `short_since` since when fewer replicas are seen than serve; `out_since` since when some are out of rotation.

    Changes come from read-back, not from what was sent: so a rehearsal, whose world does not answer, does not count
    its own imagination, and a write by somebody else counts like ours.
    """

    wishes: Pairs = ()
    changes: Pairs = ()
    position: tuple[float, float] | None = None
    due: float = 0.0
    short_since: float | None = None
    out_since: float | None = None


def changes(state: GuardState, keep: float, value: float | None, at: float) -> Pairs:
    """Those of the last `keep` seconds, with the one since the last reading."""
    found = state.changes
    if found and found[0][0] <= at - keep:
        found = tuple(change for change in found if change[0] > at - keep)
    position = state.position
    if value is not None and position is not None and value != position[1]:
        # What we sent went out right after the last reading; a foreign change may be later, so this is the earliest it
        # can have been.
        found = (*found, (position[0], value - position[1]))
    return found


def observe(state: GuardState, rules: LeverRules, target: TargetState, at: float) -> GuardState:
    """Take the value as read back into memory, before deciding or without."""
    value = target.accepted
    moved = changes(state, rules.memory, value, at)
    position = state.position if value is None else (at, value)
    return GuardState(state.wishes, moved, position, state.due, state.short_since, state.out_since)


def since(pairs: Pairs, start: float) -> Pairs:
    """Those that are no older than `start`. They lie in the order of time."""
    if not pairs or pairs[-1][0] < start:
        return ()
    if pairs[0][0] >= start:
        return pairs
    return pairs[bisect_left(pairs, (start,)) :]
