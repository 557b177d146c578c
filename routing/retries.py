"""Retries with a budget, and when to come again.

    level = min(spare, level + budget)  with each request that arrives,  + spare / 10 s with time;  a retry takes 1

A retry is load that the fleet makes for itself just when it has least room. In proportion to arrivals it can add its
share and no more, however many fail; the spare lets a quiet fleet retry at all. The same law bounds the retries of
clients that say that they are (`Request.attempt`); what a client does is cheaper to refuse than to serve.

Retry-After is the predicted time until there is room, spread over half as much again by the request's id, so that those
refused together do not come back together.
"""

from routing.hashing import mix, unit

SPARE_SECONDS = 10.0
SHORTEST = 1.0
LONGEST = 600.0


class RetryBudget:
    """A store of retries."""

    __slots__ = ("_at", "_level", "share", "spare")

    def __init__(self, share: float, spare: float, now: float) -> None:
        self.share = share
        self.spare = spare
        self._level = spare
        self._at = now

    def arrived(self) -> None:
        """One request more of which a share may be retried."""
        self._level = min(max(self.spare, 1.0), self._level + self.share)

    def take(self, now: float) -> bool:
        """Whether there may be one retry more now."""
        if now > self._at:
            self._level = min(max(self.spare, self._level), self._level + self.spare * (now - self._at) / SPARE_SECONDS)
            self._at = now
        if self._level < 1.0 - 1e-9:  # ten tenths are one
            return False
        self._level = max(0.0, self._level - 1.0)
        return True

    def tune(self, share: float, spare: float) -> None:
        """Other limits; what is stored stays, up to the new spare."""
        self.share, self.spare = share, spare
        self._level = min(self._level, max(spare, 1.0))


def retry_after(seconds: float, request_id: int) -> float:
    """Seconds to tell a client, for room that is predicted in `seconds`."""
    bounded = min(max(seconds, SHORTEST), LONGEST)
    return bounded * (1.0 + 0.5 * unit(mix(request_id)))
