"""The standing concurrency cap: requests beyond what the engines can run wait in the gateway, where order can be kept.

    share of a replica = min(per_slot · slots, per_replica) · min(weight, 1)    in service; 0 when it drains or is out
    cap                = min( limit, max(1, floor( Σ share )) )                 requests
    Σ (uncached prompt + expected answer / 2) in flight  <  kv · Σ kv_tokens · min(weight, 1)

Inside an engine a request that waits can be neither reordered nor given to another replica, and a critical one waits
behind whatever came before. The second line holds where memory is the limit and not slots: half of its answer is what a
request holds on the average of its life. A replica that is ramped up or half broken counts with its weight, one
that only prefills not at all. While anything is in service one request may always go. What a replica has above its
reduced share, because it drains or was slowed down, does not count against the others: they would idle until it is
done. A replica that does not tell its slots or its memory makes that sum unknown, and the other limits hold;
`per_replica` asks for no slots.
"""

from collections.abc import Iterable
from math import floor, inf

from routing.knobs import Concurrency
from routing.model import Replica


class Cap:
    """The cap as of the last `set`, infinite where there is none: `limit` requests at all, `slots` requests and `kv`
    tokens at the replicas in service."""

    __slots__ = ("_reduced", "kv", "limit", "slots")

    def __init__(self) -> None:
        self.limit = inf
        self.slots = inf
        self.kv = inf
        self._reduced: list[tuple[Replica, float]] = []  # with their parts, 0..1

    def set(self, knobs: Concurrency, replicas: Iterable[Replica]) -> None:
        """All replicas, also those that are not in service."""
        self.limit = inf if knobs.limit is None else float(knobs.limit)
        slots = inf if knobs.per_slot is None and knobs.per_replica is None else 0.0
        kv = inf if knobs.kv is None else 0.0
        self._reduced, serving = [], False
        for replica in replicas:
            if replica.ability.role == "prefill":
                continue
            part = 0.0 if replica.draining else min(replica.weight, 1.0)
            if part > 0.0:
                serving = True
                slots += _share(knobs, replica) * part
                kv += inf if replica.kv_tokens is None else (knobs.kv or 0.0) * replica.kv_tokens * part
            if part < 1.0:
                share = _share(knobs, replica)
                self._reduced.append((replica, part * (share if share < inf else float(replica.slots or 0))))
        self.slots = slots if slots == inf else max(1.0, floor(slots)) if serving else 0.0
        self.kv = kv

    def full(self, inflight: int, tokens: float) -> bool:
        """Whether no more may be sent, with so many requests and tokens at the replicas."""
        if inflight >= self.limit:
            return True
        if inflight < self.slots and tokens < self.kv:
            return False
        here = inflight - sum(max(0.0, replica.inflight - share) for replica, share in self._reduced)
        if here < 1.0:
            return self.slots == 0.0
        return here >= self.slots or tokens * here / inflight >= self.kv

    def value(self, inflight: int, tokens: float) -> float:
        """The cap in requests, if those to come are like those in flight."""
        requests = min(self.limit, self.slots)
        if self.kv < inf and inflight and tokens > 0.0:
            requests = min(requests, max(1.0, self.kv * inflight / tokens))
        return requests


def _share(knobs: Concurrency, replica: Replica) -> float:
    """Requests that a replica of full weight counts for; infinite where nothing limits it."""
    slots = inf if knobs.per_slot is None or replica.slots is None else knobs.per_slot * replica.slots
    return slots if knobs.per_replica is None else min(slots, knobs.per_replica)
