"""Unavailable: what is known of capacity that does not come, and until when it is not asked for, in words. Pure."""

from collections.abc import Mapping
from datetime import UTC, datetime

from controller.core.model import Phase, TargetState

_CAUSE = {
    Phase.REQUESTED: "not created, as under a quota",
    Phase.PENDING: "without a node: no quota or none free",
    Phase.PULLING: "still pulling the image",
    Phase.LOADING: "started and never ready",
    Phase.WARMING: "started and never ready",
}
_UNTOLD = "never ready"  # where the target tells counts alone


def words(owner: TargetState, evidence: Mapping[str, float], now: float) -> str:
    """For example "2 without a node: no quota or none free; tried again at about 14:03 UTC". `now` unix seconds; the
    policy says in `again_in` after how many seconds it tries again."""
    counts: dict[str, float] = {}
    for one in sorted(owner.pending, key=lambda p: list(Phase).index(p.phase)):
        counts[_CAUSE[one.phase]] = counts.get(_CAUSE[one.phase], 0.0) + one.count
    if not counts and owner.accepted is not None and owner.ready is not None and owner.accepted > owner.ready:
        counts[_UNTOLD] = owner.accepted - owner.ready
    parts = [f"{count:g} {cause}" for cause, count in counts.items()]
    if "again_in" in evidence:
        parts.append(f"tried again at about {datetime.fromtimestamp(now + evidence['again_in'], UTC):%H:%M} UTC")
    return "; ".join(parts)
