"""Who waits: lanes ordered by priority and then by arrival, and how long each may wait."""

from collections import deque
from heapq import heappop, heappush

from simulator.engine.sequence import Sequence, State


class Queue:
    """One lane, or one for short and one for long prompts. `count` wait; `tokens` are theirs to compute, an answer that
    a preempted one has to compute anew included."""

    __slots__ = ("_expiry", "_keys", "_lanes", "_wait", "count", "tokens")

    def __init__(self, lanes: int, wait: float | None) -> None:
        self.count = 0
        self.tokens = 0
        self._wait = wait
        self._lanes: tuple[dict[int, Sequence], ...] = tuple({} for _ in range(lanes))
        self._keys: tuple[list[int], ...] = tuple([] for _ in range(lanes))  # heaps; keys of who has left stay in
        self._expiry: deque[tuple[float, Sequence]] = deque()

    @property
    def lanes(self) -> int:
        return len(self._lanes)

    def push(self, sequence: Sequence) -> None:
        """A new one, or one that was preempted and keeps its place."""
        lane = sequence.long if len(self._lanes) > 1 else 0
        self._lanes[lane][sequence.key] = sequence
        heappush(self._keys[lane], sequence.key)
        self.count += 1
        self.tokens += sequence.target
        if self._wait is not None and sequence.scheduled_at < 0:
            self._expiry.append((sequence.queued_at + self._wait, sequence))

    def discard(self, sequence: Sequence) -> None:
        """It waits no longer."""
        del self._lanes[sequence.long if len(self._lanes) > 1 else 0][sequence.key]
        self.count -= 1
        self.tokens -= sequence.target

    def head(self, lane: int) -> Sequence | None:
        """The first of a lane."""
        keys, waiting = self._keys[lane], self._lanes[lane]
        while keys:
            sequence = waiting.get(keys[0])
            if sequence is not None:
                return sequence
            heappop(keys)
        return None

    def patience(self) -> float:
        """When the first wait is over, unix seconds; inf when none may be."""
        expiry = self._expiry
        while expiry:
            at, sequence = expiry[0]
            if sequence.state is State.WAITING and sequence.scheduled_at < 0:
                return at
            expiry.popleft()
        return float("inf")

    def overdue(self) -> Sequence:
        """The one whose wait is over first."""
        return self._expiry[0][1]
