"""One sentence on what a plan is doing."""

from collections.abc import Sequence

from controller.core.model import Decision
from controller.core.why import SENTENCE, Why

_HELD = {Why.FLEET_GUARD, Why.GROUP_BUDGET}


def sentence(decisions: Sequence[Decision], *, holding: bool) -> str:
    """For example "raises llama/replicas 2 → 4 because the load offered now needs it"."""
    moves = [d for d in decisions if d.changed]
    parts = []
    for decision in moves[:3]:
        up = (decision.final or 0.0) > (decision.current or 0.0)
        verb = "raises" if up else "lowers"
        reason = decision.steps[0].why if decision.steps else decision.why
        parts.append(f"{verb} {decision.target} {decision.current:g} → {decision.final:g} because {SENTENCE[reason]}")
    if len(moves) > len(parts):
        parts.append(f"and {len(moves) - len(parts)} more changes")
    if holding:
        parts.append(f"holds: {SENTENCE[Why.FLEET_GUARD]}")
    return "; ".join(parts) if parts else "keeps everything as it is"
