"""Burn rates of an error budget over long windows, kept incrementally instead of queried for days.

burn = bad share / (1 - objective). Each window is sixty bins and their running sum, so a tick costs the same after a
minute and after three days. Misses are counted conservatively: what cannot be shown to have met the target is a miss.
Source of the windows and factors: Google SRE workbook, chapter 5.
"""

from array import array
from collections.abc import Mapping

from controller.core.reading import Reading, State

WINDOWS: dict[str, float] = {"5m": 300.0, "30m": 1800.0, "1h": 3600.0, "6h": 21600.0, "3d": 259200.0}
FAST = ("1h", "5m", 14.4)
SLOW = ("6h", "30m", 6.0)
LATELY = "5m"
MIN_EVENTS = 100.0  # below this in the long window one miss is worth too much to act on
BINS = 60
PERIOD = 30 * 86400.0  # seconds; the period that the factors are made for


class _Window:
    """Bad and total events of the last `seconds`, forgotten bin by bin."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.width = seconds, seconds / BINS
        # Start, bad, total of each bin, one after the other: as lists a thousand pools would take 150 MB of them.
        self.bins = array("d")
        self.bad = self.total = 0.0

    def add(self, at: float, bad: float, total: float) -> None:
        bins = self.bins
        if not bins or at >= bins[-3] + self.width:
            bins.extend((at - at % self.width, 0.0, 0.0))
        bins[-2] += bad
        bins[-1] += total
        self.bad += bad
        self.total += total

    def expire(self, now: float) -> None:
        bins, oldest = self.bins, now - self.seconds - self.width
        while bins and bins[0] <= oldest:
            self.bad -= bins[1]
            self.total -= bins[2]
            del bins[:3]
        if not self.bins:
            self.bad = self.total = 0.0  # nothing left of what floats may have left


class BudgetLedger:
    """Bad and total requests of one objective over every window of the workbook."""

    def __init__(self, share: float) -> None:
        self.share = share
        self._windows = {name: _Window(seconds) for name, seconds in WINDOWS.items()}
        self.since: float | None = None

    def add(self, at: float, bad: float, total: float) -> None:
        """Events up to `at` (unix seconds)."""
        if self.since is None:
            self.since = at
        for window in self._windows.values():
            window.add(at, bad, total)

    def burns(self, now: float) -> dict[str, Reading]:
        """Burn rate over each window by its name, 1 = the budget lasts exactly its period. `underfilled` while history
        is shorter."""
        return {name: self._burn(now, window) for name, window in self._windows.items()}

    def _burn(self, now: float, window: _Window) -> Reading:
        window.expire(now)
        if window.total <= 0:
            return Reading(State.NO_TRAFFIC if self.since is not None else State.MISSING, window=window.seconds)
        full = self.since is not None and now - self.since >= window.seconds * 0.9
        rate = max(0.0, window.bad) / window.total / (1 - self.share)
        return Reading(State.OK if full else State.UNDERFILLED, rate, None, None, window.total, None, window.seconds)


def burning(readings: Mapping[str, Reading], period: float = PERIOD) -> bool:
    """Whether the budget of `period` seconds burns too fast by the fast or the slow pair: both windows above the
    factor, enough events. The factors are for 30 days, where they mean 2 % of the budget in an hour and 5 % in six.

    What has burnt is over when the last five minutes spend no more than the budget: the slow pair would remember a
    crowd for half an hour after it, and hold all replicas that came for it."""
    lately = readings.get(LATELY)
    if lately is not None and lately.value is not None and lately.value <= 1.0:
        return False
    for long, short, factor in (FAST, SLOW):
        a, b = readings.get(long), readings.get(short)
        if a is None or b is None or a.value is None or b.value is None:
            continue
        limit = factor * period / PERIOD
        if a.value > limit and b.value > limit and (a.count or 0.0) >= MIN_EVENTS:
            return True
    return False
