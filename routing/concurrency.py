"""The standing concurrency cap: requests beyond what the engines can run wait in the gateway, where order can be kept.

    share of a replica = per_slot · slots · min(weight, 1)        in service; 0 when it drains or is out
    cap                = min( limit, max(1, floor( Σ share )) )

Inside an engine a request that waits can be neither reordered nor given to another replica, and a critical one waits
behind whatever came before. A replica that is ramped up or half broken counts with its weight, one that only prefills
not at all. While anything is in service the cap is at least 1. What a replica has above its reduced share, because it
drains or was slowed down, does not count against the others: they would idle until it is done. A replica that does not
tell its slots makes the sum unknown, and `limit` alone holds.
"""

from collections.abc import Iterable
from math import floor, inf

from routing.knobs import Concurrency
from routing.model import Replica


class Cap:
    """The cap as of the last `set`. `limit` is the absolute one, `slots` that of the replicas; infinite without."""

    __slots__ = ("_reduced", "limit", "slots")

    def __init__(self) -> None:
        self.limit = inf
        self.slots = inf
        self._reduced: list[tuple[Replica, float]] = []  # with their shares

    @property
    def value(self) -> float:
        """Requests that may be at the replicas at once."""
        return min(self.limit, self.slots)

    def set(self, knobs: Concurrency, replicas: Iterable[Replica]) -> None:
        """All replicas, also those that are not in service."""
        self.limit = inf if knobs.limit is None else float(knobs.limit)
        self.slots = inf
        self._reduced = []
        if knobs.per_slot is None:
            return
        total, serving = 0.0, False
        for replica in replicas:
            if replica.ability.role == "prefill":
                continue
            open_ = replica.weight > 0.0 and not replica.draining
            if open_ and replica.slots is None:
                return
            share = knobs.per_slot * replica.slots * min(replica.weight, 1.0) if open_ and replica.slots else 0.0
            total += share
            serving = serving or open_
            if replica.draining or replica.weight < 1.0:
                self._reduced.append((replica, share))
        self.slots = max(1.0, floor(total)) if serving else 0.0

    def full(self, inflight: int) -> bool:
        """Whether no more may be sent, with so many at the replicas."""
        if inflight >= self.limit:
            return True
        if inflight < self.slots:
            return False
        excess = sum(max(0.0, replica.inflight - share) for replica, share in self._reduced)
        return inflight - excess >= self.slots
