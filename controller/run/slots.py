"""Slots: the moments at which a tick belongs, multiples of the interval since the epoch, so that every replica and
every restart agrees on them without talking. No clock in here."""

import threading
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slots:
    """`interval` in seconds, a whole number of milliseconds. Computed in whole microseconds: 0.3 // 0.1 is 2.0, and a
    tick would be given the slot before its own."""

    interval: float

    def at(self, now: float) -> float:
        """The slot that `now` (unix seconds) falls into."""
        return self._slot(now, 0)

    def after(self, now: float) -> float:
        """The first slot after `now`."""
        return self._slot(now, 1)

    def _slot(self, now: float, further: int) -> float:
        length = round(self.interval * 1000) * 1000
        return (round(now * 1e6) // length + further) * length / 1e6


class Missed:
    """Counts slots that passed without a tick, each once, whether it is noticed while a tick overruns or afterwards."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._seen: float | None = None
        self._lock = threading.Lock()

    def ran(self, slot: float) -> int:
        """A tick begins at `slot`; how many slots before it are newly known to be missed."""
        return self._account(slot, 1)

    def skipped(self, slot: float) -> int:
        """No tick can begin at `slot`; how many slots, this one included, are newly known to be missed."""
        return self._account(slot, 0)

    def _account(self, slot: float, served: int) -> int:
        with self._lock:
            before = slot - self._slots.interval if self._seen is None else self._seen
            self._seen = max(before, slot)
            return max(0, round((slot - before) / self._slots.interval) - served)
