"""The largest batch that an engine runs, learned from single replicas. Pure.

Where requests wait although the latency of those that run is far from any promise, a setting limits the batch: vLLM's
`max_num_seqs`, or a gateway that sends no more. That shows: at scrape after scrape a replica for which requests wait
runs just as many sequences, and none ever runs more. A batch that something else limits, prompts to be read or the KV
cache, is another one at each scrape, so its largest is seen once. Others may run less while requests wait: a new one
warms up, and a cap of the fleet leaves some unfilled. So it counts that many pile up at one number. Governor's own cap
stands above the operating point, so where that is what limits, the least of both is still the operating point. And the
number has to stay, from sample to sample: a gateway that begins new replicas with a small share lets all of them run
just as many, and more a few seconds later.
"""

import math
from collections.abc import Collection
from typing import NamedTuple

from controller.core.model import Scope
from controller.core.signals import Signal

ENOUGH = 6  # scrapes of replicas that must show the same largest batch while requests wait
SHARE = 1 / 3  # of all of those that must be at it, or
PILE = 1.5  # times as many as show each number just below, where a tail's end has fewer: else something else limits
NEAR = 0.1  # share of it that is just below
LASTS = 30.0  # seconds for which that was the largest: what a gateway gives new replicas is more by then
PAUSE = 120.0  # seconds without a look, of which nobody knows what was the largest
AGAIN = 0.5  # seconds: what is not younger by more than this is the same sample, looked at again
MEMORY = 240  # scrapes after which what was seen counts half


class Slots(NamedTuple):
    """`top` is the largest batch of a replica so far; of the scrapes while requests waited, so many showed the
    `same`, and so many less (`below`), `near` of them less by a tenth at most. It has `lasted` so many seconds, and
    the last sample was from `until`, unix seconds."""

    top: float = 0.0
    same: int = 0
    below: int = 0
    near: int = 0
    lasted: float = 0.0
    until: float = 0.0

    @property
    def limit(self) -> float | None:
        """Sequences that a replica runs at most; None while nothing shows that there is such a limit."""
        piled = self.same >= SHARE * (self.same + self.below) or self.same * _width(self.top) >= PILE * self.near
        return self.top if self.same >= ENOUGH and piled and self.lasted >= LASTS else None

    def take(self, replicas: Collection[Scope], waiting: float, at: float) -> "Slots":
        """One look at all replicas of a pool, sampled `at` unix seconds. Of the requests that are waiting, those that
        no replica has wait at a gateway, for any of them."""
        gone = at - self.until
        if gone <= AGAIN:
            return self
        inside = [scope.get(Signal.QUEUE_DEPTH).usable or 0.0 for scope in replicas]
        held = waiting - math.fsum(inside) >= 1
        top, same, below, near, lasted, _ = self
        lasted += gone if gone <= PAUSE else 0.0
        for scope, mine in zip(replicas, inside, strict=True):
            running = scope.get(Signal.RUNNING).usable
            if running is None or not (held or mine >= 1):
                continue
            if running > top:  # it can do more than was thought
                top, same, below, near, lasted = running, 0, 0, 0, 0.0
            if running == top:
                same += 1
            else:
                below += 1
                near += running >= top - _width(top)
        if same + below > MEMORY:
            same, below, near = same // 2, below // 2, near // 2
        if below > MEMORY / 4 and same < ENOUGH:  # a lower limit since, or none: begin again
            return Slots()
        return Slots(top, same, below, near, lasted, at)


def _width(top: float) -> int:
    """How many numbers below the largest batch count as near it."""
    return max(1, round(NEAR * top))
