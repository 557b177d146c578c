"""Groups: what the members of one lever share. Of weights and breakers: enough replicas stay in rotation.

A replica counts as out below half of its factor. However bad all look, no more than the cap is taken out at once, and
never the last one: what is bad everywhere is overload, and taking replicas out makes it worse.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from controller.core.model import Decision, Step, Target
from controller.core.relief import OUT
from controller.core.rules import PER_REPLICA, LeverRules
from controller.core.why import Why


def most_out(members: int, share: float) -> int:
    """How many members may be out: the share, rounded down, one at least where there are two, never all."""
    if members < 2:
        return 0
    return min(members - 1, max(1, math.floor(share * members + 1e-9)))


def keep_in(decisions: Mapping[Target, Decision], rules: LeverRules) -> dict[Target, Decision]:
    """The decisions on one lever of one pool, with no more members taken out than may be. Those that are out already
    count first; of the others the lowest wish is granted first."""
    if rules.lever not in PER_REPLICA:
        return dict(decisions)
    out = [d for d in decisions.values() if d.final is not None and d.final < OUT]
    room = most_out(len(decisions), rules.group)
    if len(out) <= room:
        return dict(decisions)
    ranked = sorted(out, key=lambda d: (not _was_out(d), d.final or 0.0, d.target))
    kept = {d.target for d in ranked[room:] if not _was_out(d)}
    detail = f"at most {room} of {len(decisions)} out"
    return {t: _in_rotation(d, detail) if t in kept else d for t, d in decisions.items()}


def _was_out(decision: Decision) -> bool:
    """A replica that is out, or that a person takes out."""
    return decision.why is Why.PIN or (decision.current is not None and decision.current < OUT)


def _in_rotation(decision: Decision, detail: str) -> Decision:
    current = decision.current if decision.current is not None else 1.0
    if decision.final == current or decision.blocked:
        return decision
    step = Step("group", decision.final or 0.0, current, Why.EJECTION_CAP, detail)
    return replace(decision, final=current, why=step.why, steps=(*decision.steps, step))
