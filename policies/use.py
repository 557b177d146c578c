"""Use: how busy a tenant gets, learned as one number. Pure.

The p99 of a use is tracked by frugal streaming: per second it rises by 0.99 of an e-fold per ``memory`` while the use
is above, and falls by 0.01 while it is below, so that it is above for 1 % of the time. A flood of minutes moves it by
little, a tenant that grew is followed within hours.
"""

import math
from typing import NamedTuple

QUANTILE = 0.99
FALL = QUANTILE - 1.0
_tuple = tuple.__new__  # past the one of named tuples, which takes twice as long


class Use(NamedTuple):
    """How busy a tenant gets: `p99` of its tokens/s, learned over `seen` seconds."""

    p99: float
    seen: float = 0.0

    def followed(self, now: float, gone: float, memory: float) -> "Use":
        """After `gone` seconds in which `now` tokens/s were used; a newcomer's follows faster than in `memory`."""
        p99, seen = self
        if p99 > 0:
            span = seen if gone <= seen >= 1.0 else max(gone, seen, 1.0)
            pace = gone / (span if span < memory else memory)  # noqa: FURB136 - in a fifth of the time of min
            rises = now > p99
            furthest = p99 * math.exp((QUANTILE if rises else FALL) * pace)
            now = furthest if (furthest < now) == rises else now
        return _tuple(Use, (now, seen + gone))


UNSEEN = Use(0.0)
