"""Laws of forecasting: each takes the log of demand as it comes and says what it expects some seconds ahead.

* last: what is there now, without its noise, stays.
* holt: a damped trend on the log (Gardner and McKenzie 1985). The trend is capped, and ends when the load turns: a
  ramp that is over must not be drawn on.
* seasonal: now, times what the time of day ahead usually has over the time of day now. Only after a whole day, because
  a season that was never seen whole is a guess.

All follow noise slowly and a jump at once: an innovation of several times the usual one is no noise. A jump is another
level and no trend. A surge is one that a younger, shorter window shows first: it is believed while it is above the
whole window, which is as late as it is long.
"""

import math
from typing import NamedTuple

STEP = 60.0  # seconds; the unit of the smoothing below, which is scaled to the time that really passed
LEVEL, TREND, DAMP = 0.6, 0.3, 0.92  # per step
STEEPEST = 0.25  # largest trend, in ln per step
FURTHEST = 0.5  # ln; the largest part of a forecast that a trend may be
YOUNG = 60.0  # seconds in which a series has no trend yet: the window that counts it is still filling
JUMP = 3.0  # times the usual innovation, beyond which a level is believed at once
SURGE = 5.0  # times the usual innovation, by which a shorter window must be above the level to be believed
LEAP = 0.5  # ln per step, from which on a jump is no ramp
TURN = 2.0  # times the usual innovation, by which recent ones must speak against a trend to end it
TURN_MEMORY = 45.0  # seconds in which such an innovation loses half of its word
LEAST_NOISE, FIRST_NOISE = 0.02, 0.05  # ln
NOISE_TIME = 600.0  # seconds over which the usual innovation is learned
DAY, BINS = 86_400.0, 96
WIDTH = DAY / BINS
OFFSET_TIME = 6 * 3600.0  # seconds over which today's level is told apart from the shape of the day
NEW_DAY = 0.3  # weight of today in a bin that earlier days have filled
LAWS = ("last", "holt", "seasonal")


class Track(NamedTuple):
    """Level, its trend per step, the level without a trend, and the usual innovation, all in ln; `doubt` is the recent
    innovations' word against the trend. `at` is when it was told last, `since` when it began, `jumped` when it last
    jumped, unix seconds; `surge` while the younger window is believed."""

    at: float | None = None
    level: float = 0.0
    trend: float = 0.0
    flat: float = 0.0
    noise: float = FIRST_NOISE
    doubt: float = 0.0
    since: float | None = None
    jumped: float | None = None
    surge: bool = False

    def follow(self, now: float, y: float, young: float | None = None) -> "Track":
        """Take the value y (ln) at `now`; `young` is that of a shorter window."""
        if self.at is None:
            return self.restart(now, y)
        gone = max(now - self.at, 1e-3)
        steps = gone / STEP
        usual = max(self.noise, LEAST_NOISE)
        surge = young is not None and young > y and (self.surge or young - self.flat > SURGE * usual)
        if surge and young is not None:
            y = young
        gain = 1 - (1 - LEVEL) ** steps
        flat = y if surge or abs(y - self.flat) > JUMP * usual else self.flat + gain * (y - self.flat)
        expected = self.level + self.trend * _run(steps)
        error = y - expected
        jump = abs(error) > JUMP * usual
        level = y if jump or surge else expected + gain * error
        trend = DAMP**steps * self.trend
        # Faster than any ramp: a jump is another level and no trend. Between readings a minute apart a ramp jumps too.
        if not surge and (not jump or abs(error) < LEAP * steps):
            trend += (1 - (1 - TREND) ** steps) * ((level - self.level) / steps - trend)
        doubt = 0.5 ** (gone / TURN_MEMORY) * self.doubt + error
        if doubt * trend < 0 and abs(doubt) > TURN * usual:
            level, trend, doubt = (y if jump else flat), 0.0, 0.0
        most = 2 * JUMP * usual
        noise = self.noise + (1 - math.exp(-gone / NOISE_TIME)) * (min(abs(error), most) - self.noise)
        return Track(
            now, level, min(max(trend, -STEEPEST), STEEPEST), flat, noise, doubt, self.since,
            now if jump else self.jumped, surge,
        )  # fmt: skip

    def restart(self, now: float, y: float) -> "Track":
        """From nothing there is no trend to follow: start at what is there."""
        return Track(now, y, 0.0, y, self.noise, 0.0, now)

    def ahead(self, seconds: float) -> float:
        """The damped trend drawn on; the level alone while the series is young."""
        if self.at is None or self.since is None or self.at - self.since < YOUNG:
            return self.level
        return self.level + min(max(self.trend * _run(seconds / STEP), -FURTHEST), FURTHEST)


def _run(steps: float) -> float:
    """What a trend of 1 adds up to over so many steps while it is damped."""
    return DAMP * (1 - math.exp(math.log(DAMP) * steps)) / (1 - DAMP)


class Season(NamedTuple):
    """The shape of a day: mean ln of demand by bin of ``WIDTH`` seconds of the day (UTC), less the level of its day;
    None where never seen. `offset` is today's level over the usual one. `sum` and `weight` are of the bin that is being
    filled, which is number `filling` since 1970."""

    bins: tuple[float | None, ...] = ()
    since: float | None = None
    at: float | None = None
    offset: float = 0.0
    filling: int = 0
    sum: float = 0.0
    weight: float = 0.0

    def follow(self, now: float, y: float) -> "Season":
        """Take the value y (ln) at `now`."""
        number = math.floor(now / WIDTH)
        mine = self if number == self.filling else self._closed(number)
        gone = min(max(now - mine.at, 0.0), WIDTH) if mine.at is not None else STEP
        usual, offset = mine.usual(now), mine.offset
        if usual is not None:
            offset += (1 - math.exp(-gone / OFFSET_TIME)) * (y - usual - offset)
        since = now if mine.since is None else mine.since
        return mine._replace(since=since, at=now, offset=offset, sum=mine.sum + gone * y, weight=mine.weight + gone)

    def _closed(self, number: int) -> "Season":
        """With the filled bin in the shape and another begun."""
        if self.weight <= 0:
            return self._replace(filling=number, sum=0.0, weight=0.0)
        bins = list(self.bins or (None,) * BINS)
        place, mean = self.filling % BINS, self.sum / self.weight - self.offset
        old = bins[place]
        bins[place] = mean if old is None else old + NEW_DAY * (mean - old)
        return self._replace(bins=tuple(bins), filling=number, sum=0.0, weight=0.0)

    def usual(self, when: float) -> float | None:
        """ln of demand at that time of a usual day, between the middles of bins; None before a whole day was seen."""
        if self.since is None or self.at is None or self.at - self.since < DAY + WIDTH or not self.bins:
            return None
        place = when / WIDTH - 0.5
        left = math.floor(place)
        one, other = self.bins[left % BINS], self.bins[(left + 1) % BINS]
        if one is None or other is None:
            return None
        return one + (place - left) * (other - one)


class Laws(NamedTuple):
    """All laws over one series."""

    track: Track = Track()
    season: Season = Season()

    def follow(self, now: float, y: float, young: float | None = None, *, fresh: bool) -> "Laws":
        """Take the value y (ln) at `now`, and that of a shorter window; `fresh` when there was nothing before."""
        track = self.track.restart(now, y) if fresh else self.track.follow(now, y, young)
        return Laws(track, self.season.follow(now, y))

    def ahead(self, now: float, seconds: float) -> tuple[float, ...]:
        """What each law expects, in the order of ``LAWS``; those at the end that have nothing to say are left out."""
        track = self.track
        said = (track.flat, track.ahead(seconds))
        here, there = self.season.usual(now), self.season.usual(now + seconds)
        if here is None or there is None:
            return said
        return (*said, track.flat + there - here)
