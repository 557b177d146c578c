"""One request between its arrival and its end, as the gateway remembers it. Seconds, tokens."""

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING

from routing.buckets import Debit
from routing.counts import Tally
from routing.knobs import Klass
from routing.model import Replica, Request

if TYPE_CHECKING:
    from routing.fairqueue import Entry


class Flight:
    """A request that arrived and has not ended: in the queue, or at a replica."""

    __slots__ = (
        "arrived",
        "attempt",
        "debit",
        "decode_tokens",
        "entry",
        "expected",
        "expires",
        "first_token_at",
        "generation",
        "klass",
        "matched",
        "prefill",
        "prefill_tokens",
        "queued_at",
        "rank",
        "replica",
        "request",
        "sent_at",
        "tally",
        "tried",
    )

    def __init__(self, request: Request, now: float, klass: Klass, tally: Tally, expected: float) -> None:
        self.request = request
        self.arrived = now
        self.klass = klass
        self.tally = tally
        self.expected = expected  # answer tokens
        self.debit: Debit | None = None  # what its tenant's bucket paid
        self.entry: Entry[Flight] | None = None  # its place in the queue, also after it left
        self.queued_at = now
        self.expires = inf  # when the gateway gives it up
        self.attempt = 0
        self.tried: tuple[str, ...] = ()  # replicas that failed it
        self.rank = request.priority if klass.rank is None else klass.rank  # lower is served first
        self.matched: Sequence[Replica] = ()  # what capability match found ...
        self.generation = -1  # ... for this state of the fleet
        # While it is at a replica:
        self.replica: Replica | None = None
        self.prefill: Replica | None = None  # where the prefill is; None once it is over
        self.sent_at = now
        self.first_token_at: float | None = None
        self.prefill_tokens = 0.0  # its part in inflight_tokens of the one ...
        self.decode_tokens = 0.0  # ... and of the other

    def due(self, factor: float) -> float | None:
        """By when it must get its turn, with so much of the time until its deadline; None where it has none. What is in
        time for the promise of its class is never called late."""
        deadline = self.request.deadline
        if deadline is None or factor >= 1.0:
            return deadline
        return min(deadline, self.arrived + max(factor * (deadline - self.arrived), self.klass.target or 0.0))
