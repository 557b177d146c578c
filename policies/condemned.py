"""Condemned: the replicas of a version that is worse than the rest, all together. Pure, no memory.

    worse     they fail far more than the rest (``controller.core.worse``), of at least 20 requests together; or more
              than half of them are slow, each by itself, and load is not beyond the fleet
    while     they are no more than a share of the fleet, and no more of the others look bad than may be out
    how many  k of them, as long as  lost(k) <= lost(0) + errors * k      lost(k) = max(0, demand - carried without k)

A bad rollout is one cause, of however many replicas. Taking out what is slow must cost nothing, so that the others have
to carry it; taking out what fails may cost as much as it fails.
"""

import math
from collections.abc import Collection, Mapping
from typing import NamedTuple

from controller.core.ports import Brief, View
from controller.core.relief import usable
from controller.core.worse import Worse, failing, siblings


class Condemned(NamedTuple):
    """Who of one version should be out: `names`, the worst first; `fails` what they fail together, None where they are
    slow."""

    version: str
    names: tuple[str, ...]
    fails: Worse | None

    @property
    def evidence(self) -> dict[str, float]:
        """The numbers behind it."""
        if self.fails is None:
            return {}
        return {
            "version_errors": self.fails.errors, "version_ended": self.fails.ended, "rest_errors": self.fails.rest
        }  # fmt: skip


class Looks(NamedTuple):
    """How a fleet looks: all its `members`; those in rotation, and how bad each is (`closed`); those of them that
    should be out for what they are (`slow`); and all that look `bad` or are out."""

    members: Collection[str]
    closed: Mapping[str, float]
    slow: Collection[str]
    bad: Collection[str]


def condemned(
    view: View, brief: Brief, versions: Mapping[str, str], fleet: Looks, room: int, most: int, limit: float, *,
    overload: bool,
) -> Condemned | None:  # fmt: skip
    """The version whose replicas should be out; `room` is how many may be of any, and `most` of one version."""
    members, closed, slow, bad = fleet
    groups = siblings(versions, list(members))
    if len(groups) < 2:
        return None
    fails = {one.version: one for one in failing(view.pool, limit)}
    for version, names in groups.items():
        mine = sorted((name for name in names if name in closed), key=lambda name: (-closed[name], name))
        if not version or not mine or len(names) > min(most, len(members) - 1):
            continue
        if sum(name in bad for name in members if name not in names) > room:
            continue
        its = fails.get(version)
        lag = not overload and any(name in slow for name in mine)
        lag = lag and 2 * sum(name in slow or name not in closed for name in names) > len(names)
        if its is None and not lag:
            continue
        out = [name for name in members if name in bad and name not in closed]
        many = room - len(out)
        if all(name in names for name in out):  # while others are out, too, the cap is that of any
            many = max(many, _worth(view, brief, its.errors if its is not None else 0.0, len(mine)))
        return Condemned(version, tuple(mine[: max(0, many)]), its)
    return None


def _worth(view: View, brief: Brief, errors: float, count: int) -> int:
    """How many of them are better out than in."""
    demand, carried = brief.balance.demand, brief.balance.carried
    if view.estimate.demand is None or not (math.isfinite(demand) and math.isfinite(carried)):
        return 0

    def lost(out: int) -> float:
        return max(0.0, demand - usable(max(0.0, carried - out), view.estimate))

    return max((k for k in range(1, count + 1) if lost(k) <= lost(0) + errors * k + 1e-9), default=0)
