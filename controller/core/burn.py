"""Burn rates of an error budget over long windows, kept incrementally instead of queried for days.

burn = bad share / (1 - objective). Misses and totals are added into bins of one minute (six hours of them) and of one
hour (three days); a window is the sum of its bins. Misses are counted conservatively: what cannot be shown to have
met the target is a miss. Source of the windows and factors: Google SRE workbook, chapter 5.
"""

from collections import deque
from dataclasses import dataclass

from controller.core.reading import Reading, State

WINDOWS: dict[str, float] = {"5m": 300.0, "30m": 1800.0, "1h": 3600.0, "6h": 21600.0, "3d": 259200.0}
FAST = ("1h", "5m", 14.4)
SLOW = ("6h", "30m", 6.0)
MIN_EVENTS = 100.0  # below this in the long window one miss is worth too much to act on


@dataclass(slots=True)
class _Bin:
    start: float
    bad: float = 0.0
    total: float = 0.0


class BudgetLedger:
    """Bad and total requests of one objective over three days, in about 430 bins."""

    def __init__(self, share: float) -> None:
        self.share = share
        self._minutes: deque[_Bin] = deque(maxlen=int(WINDOWS["6h"] // 60) + 1)
        self._hours: deque[_Bin] = deque(maxlen=int(WINDOWS["3d"] // 3600) + 1)
        self.since: float | None = None

    def add(self, at: float, bad: float, total: float) -> None:
        if self.since is None:
            self.since = at
        for bins, width in ((self._minutes, 60.0), (self._hours, 3600.0)):
            start = at - at % width
            if not bins or bins[-1].start < start:
                bins.append(_Bin(start))
            bins[-1].bad += bad
            bins[-1].total += total

    def burn(self, now: float, window: str) -> Reading:
        """Burn rate over the window, 1 = the budget lasts exactly its period. `underfilled` while history is
        shorter."""
        seconds = WINDOWS[window]
        bins, width = (self._minutes, 60.0) if seconds <= WINDOWS["6h"] else (self._hours, 3600.0)
        bad = total = 0.0
        for each in reversed(bins):
            if each.start + width <= now - seconds:
                break
            bad += each.bad
            total += each.total
        if total <= 0:
            return Reading(State.NO_TRAFFIC if self.since is not None else State.MISSING, window=seconds)
        full = self.since is not None and now - self.since >= seconds * 0.9
        return Reading(
            State.OK if full else State.UNDERFILLED,
            value=bad / total / (1 - self.share), count=total, window=seconds,
        )  # fmt: skip


def burning(readings: dict[str, Reading]) -> bool:
    """Whether the budget burns too fast by the fast or the slow pair: both windows above the factor, enough events."""
    for long, short, factor in (FAST, SLOW):
        a, b = readings.get(long), readings.get(short)
        if a is None or b is None or a.value is None or b.value is None:
            continue
        if a.value > factor and b.value > factor and (a.count or 0.0) >= MIN_EVENTS:
            return True
    return False
