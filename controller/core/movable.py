"""Movable: whether what was decided reaches a target, and what stands there afterwards. One answer for all."""

from controller.core.model import Decision, Mode, TargetState

UNREAD = TargetState(accepted=None, error="not read")  # a target that nobody has told anything of
ACTING = (Mode.AUTO, Mode.PROTECT)  # modes in which a lever does more than observe


def moves(decision: Decision) -> bool:
    """Whether an actuator gets what was decided, as far as its mode says."""
    return not decision.blocked and decision.mode in ACTING


def stands(decision: Decision) -> float | None:
    """The value that will be there after this tick: a lever that only observes relieves nobody."""
    return decision.final if not decision.blocked and decision.mode in ACTING else decision.current
