"""Set-points of admission that have a unit of their own, and what each of them refuses.

| set-point | value | neutral |
| --- | --- | --- |
| `deadline` | factor on the deadlines of all classes | 1: as they are configured |
| `priority` | the highest rank that is let in while requests have to wait | 100: every one |

Between two whole numbers a `priority` lets a share of the next rank in: at 1.4 rank 1 comes in, four tenths of rank 2,
and nothing of rank 3. The lowest number that is in use is never refused. The other set-points are counted as the bounds
of their lever are; these are not, and are the same for every pool.
"""

from collections.abc import Mapping
from types import MappingProxyType

from controller.core.ports import Limits

DEADLINE, PRIORITY = "deadline", "priority"
EVERY_RANK = 100.0  # a priority that refuses nobody; no rank is above it
OWN: Mapping[str, Limits] = MappingProxyType(
    {DEADLINE: Limits(0.1, 1.0, 0.05), PRIORITY: Limits(0.0, EVERY_RANK, 0.05)}
)


def refused(rank: int, priority: float) -> float:
    """The share of a rank that a `priority` keeps out, 0..1."""
    if priority >= EVERY_RANK:
        return 0.0
    return min(max(rank - priority, 0.0), 1.0)
