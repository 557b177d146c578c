"""One sentence on what a plan is doing."""

from collections.abc import Sequence

from controller.core.model import Decision, Lever
from controller.core.why import SENTENCE, Why

_SHOWN = 3  # groups of changes that are told; the rest is counted


def sentence(decisions: Sequence[Decision], *, holding: bool) -> str:
    """For example "raises llama/replicas 2 → 4 because the load offered now needs it". Members of one lever that move
    the same way for the same reason are told together: "lowers 3 of llama/weight to 0.4 ... 0.8 because ..."."""
    groups: dict[tuple[str, Lever, bool, Why], list[Decision]] = {}
    for decision in decisions:
        if decision.changed:
            up = (decision.final or 0.0) > (decision.current or 0.0)
            why = decision.steps[0].why if decision.steps else decision.why
            groups.setdefault((decision.target.pool, decision.target.lever, up, why), []).append(decision)
    told = list(groups.items())
    parts = [_group(moved, up, why) for (_, _, up, why), moved in told[:_SHOWN]]
    rest = sum(len(moved) for _, moved in told[_SHOWN:])
    if rest:
        parts.append(f"and {rest} more changes" if rest > 1 else "and 1 more change")
    if holding:
        parts.append(f"holds: {SENTENCE[Why.FLEET_GUARD]}")
    return "; ".join(parts) if parts else "keeps everything as it is"


def _group(moved: Sequence[Decision], up: bool, why: Why) -> str:
    verb, first = "raises" if up else "lowers", moved[0]
    if len(moved) == 1:
        return f"{verb} {first.target} {first.current:g} → {first.final:g} because {SENTENCE[why]}"
    finals = sorted(decision.final or 0.0 for decision in moved)
    to = f"{finals[0]:g}" if finals[0] == finals[-1] else f"{finals[0]:g} ... {finals[-1]:g}"
    return f"{verb} {len(moved)} of {first.target.pool}/{first.target.lever} to {to} because {SENTENCE[why]}"
