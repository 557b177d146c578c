"""What may be believed of what a target says of itself. Pure."""

import math
from collections.abc import Sequence
from dataclasses import replace

from controller.core.model import Lever, Pending, Target, TargetState
from controller.core.rest import NO_LIMIT

_MOST_REPLICAS = 1e6  # no fleet has more


def believable(target: Target, state: TargetState) -> TargetState:
    """The state, or an unreadable one where its value is none that a target can have: a decision must not start from
    it. A ready count that cannot be is dropped, and said."""
    if state.accepted is not None and (doubt := _doubt(target, state.accepted)):
        return replace(state, accepted=None, ready=None, error=f"it says that its value is {state.accepted:g}, {doubt}")
    if state.ready is not None and (doubt := _doubt(Target(target.pool, Lever.REPLICAS), state.ready)):
        return replace(state, ready=None, error=state.error or f"it says that {state.ready:g} are ready, {doubt}")
    return state


def known(state: TargetState, last: float | None) -> TargetState:
    """A target that cannot tell its value assumes its configured initial one, which is wrong after a restart: the value
    that Governor saw or set last is better."""
    return replace(state, accepted=last) if state.assumed and last is not None else state


def expected(pending: Sequence[Pending], cold_start: float) -> tuple[Pending, ...]:
    """Pending capacity with a time of arrival: its owner's own, else what replicas took so far (`cold_start` seconds
    from asking)."""
    return tuple(p if p.eta is not None else replace(p, eta=p.since + cold_start) for p in pending)


def _doubt(target: Target, value: float) -> str:
    if not math.isfinite(value):
        return "which is no number"
    most = _MOST_REPLICAS if target.lever is Lever.REPLICAS else NO_LIMIT  # no lever has a larger value
    if not 0 <= value <= most:
        return f"which is not within 0..{most:g}"
    if target.lever is Lever.REPLICAS and value % 1:
        return "which is not a whole number of replicas"
    return ""
