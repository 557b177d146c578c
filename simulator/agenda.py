"""Agenda: what is to happen when, in virtual time. Equal times happen in the order in which they were put down."""

import heapq
import math
from collections.abc import Callable

Call = Callable[[float], None]


class Agenda:
    """`now` is the time of what happens, unix seconds; it never goes back."""

    __slots__ = ("_heap", "_order", "now")

    def __init__(self, now: float) -> None:
        self.now = now
        self._heap: list[tuple[float, int, Call]] = []
        self._order = 0

    def at(self, time: float, call: Call) -> None:
        """Put down a call; one in the past happens next. Infinity is never."""
        if time < math.inf:
            self._order += 1
            heapq.heappush(self._heap, (time, self._order, call))

    @property
    def next_at(self) -> float:
        """When the next call is due, inf when none is."""
        return self._heap[0][0] if self._heap else math.inf

    def turn(self) -> None:
        """Make the next call."""
        time, _, call = heapq.heappop(self._heap)
        self.now = max(self.now, time)
        call(self.now)


class Wake:
    """Something that wants to be called at a time that it keeps changing. Only an earlier time costs an entry of the
    agenda; a later one is found out when the old time comes."""

    __slots__ = ("_agenda", "_call", "_planned")

    def __init__(self, agenda: Agenda, call: Call) -> None:
        self._agenda = agenda
        self._call = call
        self._planned = math.inf

    def plan(self, time: float) -> None:
        """Be called at `time` or before; the call looks for itself whether it was early."""
        if time < self._planned:
            self._planned = time
            self._agenda.at(time, self._fire)

    def _fire(self, now: float) -> None:
        if now < self._planned:
            return  # left over: something earlier came, and what was planned since is later
        self._planned = math.inf
        self._call(now)
