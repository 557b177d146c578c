"""Who waits: lanes ordered by priority and then by arrival, and how long each may wait."""

from collections import deque
from heapq import heappop, heappush

from simulator.engine.sequence import Sequence, State


class Queue:
    """`count` wait.

    Lanes are numbered as they come: one, or one each for short and long prompts where these are `isolated`, times one
    for each adapter where there are `slots` for adapters. `kinds` tells of each whether it is of long prompts.
    """

    __slots__ = ("_expiry", "_isolated", "_keys", "_numbers", "_slots", "_wait", "_waiting", "count", "kinds")

    def __init__(self, *, isolated: bool, slots: bool, wait: float | None) -> None:
        self.count = 0
        self.kinds: list[bool] = []
        self._isolated = isolated
        self._slots = slots
        self._wait = wait
        self._numbers: dict[tuple[bool, str], int] = {}
        self._waiting: list[dict[int, Sequence]] = []
        self._keys: list[list[int]] = []  # heaps; keys of who has left stay in
        self._expiry: deque[tuple[float, Sequence]] = deque()

    def _lane(self, sequence: Sequence) -> int:
        lane = (self._isolated and sequence.long, sequence.job.request.adapter if self._slots else "")
        number = self._numbers.get(lane)
        if number is None:
            number = self._numbers[lane] = len(self.kinds)
            self.kinds.append(lane[0])
            self._waiting.append({})
            self._keys.append([])
        return number

    def push(self, sequence: Sequence) -> None:
        """A new one, or one that was preempted and keeps its place."""
        if sequence.lane < 0:
            sequence.lane = self._lane(sequence)
        self._waiting[sequence.lane][sequence.key] = sequence
        heappush(self._keys[sequence.lane], sequence.key)
        self.count += 1
        if self._wait is not None and sequence.scheduled_at < 0:
            self._expiry.append((sequence.queued_at + self._wait, sequence))

    def discard(self, sequence: Sequence) -> None:
        """It waits no longer."""
        del self._waiting[sequence.lane][sequence.key]
        self.count -= 1

    def head(self, lane: int) -> Sequence | None:
        """The first of a lane."""
        keys, waiting = self._keys[lane], self._waiting[lane]
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
