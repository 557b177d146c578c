"""When the gateway gives requests up: a heap of times, each valid while its request still says the same."""

import heapq
from collections.abc import Mapping
from math import inf

from routing.flight import Flight

STALE = 1000  # times that are over, beyond which (and beyond half of all) the heap is made anew


class Expiry:
    """The expiries of `flights`, by id; one whose `expires` has changed or that is gone is forgotten by itself."""

    __slots__ = ("_flights", "_heap")

    def __init__(self, flights: Mapping[int, Flight]) -> None:
        self._flights = flights
        self._heap: list[tuple[float, int]] = []

    def set(self, flight: Flight, at: float) -> None:
        """It is given up at `at`, unix seconds, unless that changes."""
        flight.expires = at
        heapq.heappush(self._heap, (at, flight.request.id))
        if len(self._heap) > STALE + 2 * len(self._flights):
            self._heap = [pair for pair in self._heap if self._holds(*pair)]
            heapq.heapify(self._heap)

    def next_at(self) -> float:
        """The first that holds; infinite when none does."""
        heap = self._heap
        while heap and not self._holds(*heap[0]):
            heapq.heappop(heap)
        return heap[0][0] if heap else inf

    def due(self, now: float) -> Flight | None:
        """One that is to be given up by now."""
        if self.next_at() > now:
            return None
        return self._flights[heapq.heappop(self._heap)[1]]

    def _holds(self, at: float, id_: int) -> bool:
        flight = self._flights.get(id_)
        return flight is not None and flight.expires == at
