"""The largest batch that an engine runs, learned from single replicas. Pure.

Where requests wait although the latency of those that run is far from any promise, a setting limits the batch: vLLM's
`max_num_seqs`, or a gateway that sends no more. That shows: at scrape after scrape a replica for which requests wait
runs just as many sequences, and none ever runs more. A batch that something else limits, prompts to be read or the KV
cache, is another one at each scrape, so its largest is seen once. Governor's own cap stands above the operating point,
so where that is what limits, the least of both is still the operating point.
"""

import math
from collections.abc import Collection
from typing import NamedTuple

from controller.core.model import Scope
from controller.core.signals import Signal

ENOUGH = 6  # scrapes of replicas that must show the same largest batch while requests wait
SHARE = 1 / 3  # of all of those that must be at it: else something else limits
MEMORY = 240  # scrapes after which what was seen counts half


class Slots(NamedTuple):
    """`top` is the largest batch of a replica so far; of the scrapes while requests waited, `at` showed that and
    `below` less."""

    top: float = 0.0
    at: int = 0
    below: int = 0

    @property
    def limit(self) -> float | None:
        """Sequences that a replica runs at most; None while nothing shows that there is such a limit."""
        enough = self.at >= ENOUGH and self.at >= SHARE * (self.at + self.below)
        return self.top if enough else None

    def take(self, replicas: Collection[Scope], waiting: float) -> "Slots":
        """One look at all replicas of a pool. Of the requests that are waiting, those that no replica has wait at a
        gateway, for any of them."""
        inside = [scope.get(Signal.QUEUE_DEPTH).usable or 0.0 for scope in replicas]
        held = waiting - math.fsum(inside) >= 1
        top, at, below = self.top, self.at, self.below
        for scope, mine in zip(replicas, inside, strict=True):
            running = scope.get(Signal.RUNNING).usable
            if running is None or not (held or mine >= 1):
                continue
            if running > top:  # it can do more than was thought
                top, at, below = running, 0, 0
            if running == top:
                at += 1
            else:
                below += 1
        if at + below > MEMORY:
            at, below = at // 2, below // 2
        if below > MEMORY / 4 and at < ENOUGH:  # a lower limit since, or none: begin again
            return Slots()
        return Slots(top, at, below)
