"""Slow start: a new replica comes to its full weight in steps, because its cache is cold and its queue is empty.

    factor = max(0.05, age / slow_start)        in steps of a twentieth

To a load-aware strategy an empty replica looks like the best of all, and gets everything at once.
"""

from math import floor, inf

LEAST = 0.05


class SlowStart:
    """Ages of replicas that are still starting. `next_at` is when a factor changes by itself, unix seconds."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.next_at = inf
        self._since: dict[str, float] = {}

    def joined(self, name: str, now: float) -> None:
        """It serves since now."""
        if self.seconds > 0.0:
            self._since[name] = now
            self.next_at = min(self.next_at, now + self.seconds * LEAST)

    def left(self, name: str) -> None:
        """It is no longer there."""
        self._since.pop(name, None)

    def factor(self, name: str, now: float) -> float:
        """The part of its weight that it has, above 0, at most 1."""
        since = self._since.get(name)
        if since is None or self.seconds <= 0.0:
            return 1.0
        # A hair more, so that the step is taken at `next_at` itself and not just after it.
        return min(1.0, max(LEAST, floor((now - since) / self.seconds / LEAST + 1e-6) * LEAST))

    def poll(self, now: float) -> bool:
        """Whether a factor may have changed."""
        if now < self.next_at:
            return False
        self._since = {name: since for name, since in self._since.items() if now - since < self.seconds}
        self.next_at = now + self.seconds * LEAST if self._since else inf
        return True

    def tune(self, seconds: float, now: float) -> None:
        """Another length; those that have begun go on from their age."""
        self.seconds = seconds
        self.next_at = now if self._since else inf
