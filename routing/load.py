"""What is at the replicas: the one place that writes their `inflight` and `inflight_tokens`."""

from math import inf

from routing.flight import Flight
from routing.model import Replica


class Load:
    """`inflight` requests at all replicas together, the `tokens` of KV memory that they hold on the average of their
    lives, and their prompt tokens that are not yet prefilled."""

    __slots__ = ("inflight", "prefill_tokens", "tokens")

    def __init__(self) -> None:
        self.inflight = 0
        self.tokens = 0.0
        self.prefill_tokens = 0.0

    def place(self, flight: Flight, replica: Replica, prefill: Replica, uncached: float, now: float) -> None:
        """It was sent. A replica that only prefills for it has it in flight until the first token."""
        flight.replica, flight.prefill, flight.sent_at, flight.first_token_at = replica, prefill, now, None
        flight.prefill_tokens, flight.decode_tokens = uncached, flight.expected
        replica.inflight += 1
        replica.inflight_tokens += flight.expected
        if prefill is not replica:
            prefill.inflight += 1
        prefill.inflight_tokens += uncached
        self.prefill_tokens += uncached
        self.inflight += 1
        self.tokens += uncached + 0.5 * flight.expected

    def prefilled(self, flight: Flight) -> None:
        """Its prefill is over, if it was not before."""
        prefill = flight.prefill
        if prefill is None:
            return
        flight.prefill = None
        prefill.inflight_tokens -= flight.prefill_tokens
        self.prefill_tokens -= flight.prefill_tokens
        if prefill is not flight.replica:
            prefill.inflight -= 1
            if not prefill.inflight:
                prefill.inflight_tokens = 0.0  # and not what rounding left

    def release(self, flight: Flight) -> Replica:
        """It is off its replica, which is returned."""
        self.prefilled(flight)
        replica = flight.replica
        if replica is None:
            raise ValueError(f"request {flight.request.id} is at no replica")
        flight.replica, flight.expires = None, inf
        replica.inflight -= 1
        replica.inflight_tokens -= flight.decode_tokens
        self.inflight -= 1
        self.tokens -= flight.prefill_tokens + 0.5 * flight.decode_tokens
        if not replica.inflight:
            replica.inflight_tokens = 0.0
        if not self.inflight:
            self.prefill_tokens = self.tokens = 0.0
        return replica
