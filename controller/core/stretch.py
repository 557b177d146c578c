"""Looks at replicas, added up until they are of a stretch that is long enough for a mean. Pure.

From one second to the next a replica is several times as slow as the others, because it reads a prompt that holds up
its whole batch; a second later another one is. Judged by looks of a second, some were always left out as stragglers,
what was learned was of those that read no prompt, which are a fifth faster, and a sixth of the fleet was missing. So
step times are learned of a quarter of a minute, in however many looks it was seen.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from controller.core.pace import SAMPLE
from controller.core.stragglers import Look


class Sum(NamedTuple):
    """The looks at one replica: seconds between tokens over all gaps, how many gaps, sequences times seconds, running
    and flowing, and of how many seconds they are."""

    itl: float = 0.0
    gaps: float = 0.0
    running: float = 0.0
    flowing: float = 0.0
    time: float = 0.0


class Shown(NamedTuple):
    """What a stretch of `time` seconds has shown, None for the first look of all: each replica that is still there, and
    the mean `batch` of all in sequences per replica. Of a single look that is the one at its end."""

    replicas: Mapping[str, Look]
    batch: float | None
    time: float | None = None
    single: bool = True

    @property
    def itl(self) -> float | None:
        """Mean seconds per token; None where no replica tells any."""
        gaps = math.fsum([one.gaps for one in self.replicas.values()])
        return math.fsum([one.itl * one.gaps for one in self.replicas.values()]) / gaps if gaps else None


class Stretch(NamedTuple):
    """`time` in seconds, sums of the looks in it by replica, and the `sequences` of a mean replica times seconds."""

    time: float = 0.0
    sums: Mapping[str, Sum] = {}
    sequences: float = 0.0

    def take(
        self, seen: Mapping[str, Look], batch: float | None, gone: float | None, *, whole: bool
    ) -> "tuple[Stretch, Shown | None]":
        """One more look, over `gone` seconds, at replicas with a mean `batch`. The second value is what they showed in
        all of the stretch, once it is long enough; a look that is of as much by itself is taken as it is, and so is the
        first. Passed over is one that is not `whole`, of as many replicas as the one before: a page was missed, or some
        came or went. So are one at which nobody runs anything, since what is measured are the steps of those that do,
        and a second one at the same time."""
        if gone is None or gone >= SAMPLE:
            return Stretch(), Shown(seen, batch, gone)
        if not batch or not whole or gone <= 0:
            return self, None
        sums = dict(self.sums)
        for name, one in seen.items():
            before = sums.get(name, Sum())
            # A sample that is older than the last look is looked at again, and has its gaps but once.
            gaps = one.gaps * min(1.0, gone / one.window) if one.window else one.gaps
            sums[name] = Sum(
                before.itl + one.itl * gaps, before.gaps + gaps, before.running + one.running * gone,
                before.flowing + one.flowing * gone, before.time + gone,
            )  # fmt: skip
        time, sequences = self.time + gone, self.sequences + batch * gone
        if time < SAMPLE:
            return Stretch(time, sums, sequences), None
        # Who is gone meanwhile has not shown enough.
        means = {
            name: Look(one.itl / one.gaps, one.gaps, one.running / one.time, one.flowing / one.time)
            for name, one in sorted(sums.items())
            if name in seen
        }
        return Stretch(), Shown(means, sequences / time, time, single=False)
