"""Looks at replicas, added up until they are of a stretch that is long enough for a mean. Pure.

From one second to the next a replica is several times as slow as the others, because it reads a prompt that holds up
its whole batch; a second later another one is. Judged by looks of a second, some were always left out as stragglers,
what was learned was of those that read no prompt, which are a fifth faster, and a sixth of the fleet was missing. So
step times are learned of a quarter of a minute, in however many looks it was seen.
"""

from collections.abc import Mapping
from typing import NamedTuple

from controller.core.stragglers import Look

ENOUGH = 14.0  # seconds, a little less than the usual interval


class Stretch(NamedTuple):
    """`time` in seconds, and sums of the looks in it by replica: seconds between tokens, how many such gaps, and
    sequences times seconds, running and flowing. All of them were looks at as many `replicas`; for `away` seconds there
    have been others."""

    time: float = 0.0
    sums: Mapping[str, Look] = {}
    replicas: float | None = None
    away: float = 0.0

    def take(
        self, seen: Mapping[str, Look], gone: float | None, replicas: float, *, whole: bool = True
    ) -> "tuple[Stretch, Mapping[str, Look] | None]":
        """One more look, over `gone` seconds, at so many `replicas`. The second value is what they showed in all of the
        stretch, once it is long enough and a look is `whole`, of as many as the one before; a look that is of as much
        by itself is taken as it is, and so is the first. A page that is missed is passed over; where replicas came or
        went, a stretch of the others begins, with a whole look too."""
        if gone is None or (gone >= ENOUGH and not self.time):
            return Stretch(), seen
        if self.replicas not in {None, replicas}:
            away = self.away + gone
            return (Stretch() if away >= ENOUGH else self._replace(away=away)), None
        if self.replicas is None and not whole:
            return Stretch(), None
        sums = dict(self.sums)
        for name, one in seen.items():
            before = sums.get(name, Look(0.0, 0.0, 0.0, 0.0))
            sums[name] = Look(
                before.itl + one.itl * one.gaps, before.gaps + one.gaps, before.running + one.running * gone,
                before.flowing + one.flowing * gone,
            )  # fmt: skip
        time = self.time + gone
        if time < ENOUGH or not whole:
            return Stretch(time, sums, replicas), None
        # Who is gone meanwhile has not shown enough.
        means = {
            name: Look(one.itl / one.gaps, one.gaps, one.running / time, one.flowing / time)
            for name, one in sorted(sums.items())
            if name in seen
        }
        return Stretch(), means
