"""Use: how busy a tenant gets, learned as one number. Pure.

The p99 of a use is tracked by frugal streaming: per second it rises by 0.99 of an e-fold per ``memory`` while the use
is above, and falls by 0.01 while it is below, so that it is above for 1 % of the time. A flood of minutes moves it by
little, a tenant that grew is followed within hours.
"""

import math
from typing import NamedTuple

QUANTILE = 0.99


class Use(NamedTuple):
    """How busy a tenant gets: `p99` of its tokens/s, learned over `seen` seconds."""

    p99: float
    seen: float = 0.0

    def followed(self, now: float, gone: float, memory: float) -> "Use":
        """After `gone` seconds in which `now` tokens/s were used; a newcomer's follows faster than in `memory`."""
        if self.p99 <= 0:
            return Use(now, self.seen + gone)
        pace = gone / min(memory, max(self.seen, gone, 1.0))
        if now > self.p99:
            return Use(min(now, self.p99 * math.exp(QUANTILE * pace)), self.seen + gone)
        return Use(max(now, self.p99 * math.exp((QUANTILE - 1.0) * pace)), self.seen + gone)


UNSEEN = Use(0.0)
