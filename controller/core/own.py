"""Own: how many of the replicas that are seen of a pool its workload has. Pure.

A selector may see more than one workload: a canary as a second Deployment behind one router. Those of the others stay
when this one shrinks, and count in how many may be out. But who was just told to go is seen for a while longer, and is
nobody else's: the workload has as many as it had at most of late.
"""

from typing import NamedTuple

LEAVING = 300.0  # seconds for which one that goes may still be seen


class Own(NamedTuple):
    """The most replicas that the workload had of late, and when it had them last, unix seconds."""

    most: float
    at: float


def had(accepted: float, now: float, before: Own | None) -> Own:
    """With what it has now."""
    if before is None or accepted >= before.most or now - before.at > LEAVING:
        return Own(accepted, now)
    return before


def staying(seen: int, has: float, own: Own | None) -> float:
    """How many of those that are seen stay, where the workload `has` that many after this tick."""
    return has + max(0.0, seen - own.most) if own is not None else has
