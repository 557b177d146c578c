"""Trim: the water level of tenant caps, corrected by what is measured. Pure.

    trim   AIMD, at most `most` either way: one cut per `pause` while requests wait longer than the target, and back
           additively, only while somebody uses its cap and nobody is shielded (``policies.shield``)
    press  falls by `most` at once while a shielded tenant is refused though others are above what they may count on,
           and comes back additively

The trim moves no guarantee that can be kept, and relieves no more than is left; guarantees that are cut follow it,
because a queue is proof that there is less still. The press relieves more, too: the pool carries less than the model
says.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from controller.core.model import PoolReadings
from controller.core.reading import State
from controller.core.signals import Signal
from controller.core.slo import Objective, passing


class Trim(NamedTuple):
    """Factors on the water level: `level` always, when it was last cut (unix seconds), and `press` while somebody is
    shielded."""

    level: float = 1.0
    cut_at: float | None = None
    press: float = 1.0


@dataclass(frozen=True, slots=True)
class Aimd:
    """Parameters: `most` either way; `cut` the largest of one cut; `grow` per minute; `pause` seconds between two
    cuts."""

    most: float
    cut: float
    grow: float
    pause: float

    def moved(
        self, trim: Trim, now: float, gone: float, gain: float, late: float | None, *, short: bool, use: bool,
        pressed: bool | None,
    ) -> Trim:  # fmt: skip
        """After `gone` seconds. `late` is the wait in targets, None where unknown; `short` that relief is wanted; `use`
        that a higher level is of use to somebody; `pressed` that a shielded tenant is refused, None where unknown.
        `gain` (0 to 1) slows what relaxes."""
        level, cut_at, press = trim
        step = self.grow * gone / 60.0 * min(max(gain, 0.0), 1.0)
        if not short:
            level = max(1.0, level - step) if level > 1.0 else min(1.0, level + step)
        elif late is not None and late > 1.0:
            if cut_at is None or now - cut_at >= self.pause - 1e-6:
                level, cut_at = level * (1.0 - self.cut * min(1.0, late - 1.0)), now
        elif late is not None and late < 0.5 and use:
            level += step
        if pressed and short:
            press = 1.0 - self.most
        elif pressed is False:
            press = min(1.0, press + step)
        return Trim(min(max(level, 1.0 - self.most), 1.0 + self.most), cut_at, press)


def lateness(pool: PoolReadings, objectives: Sequence[Objective], target: float) -> float | None:
    """Queue delay in targets, of which one that is 0 is made of the promises; None when it is unknown. Who cannot tell
    it shows no lateness either."""
    reading = pool.get(Signal.QUEUE_DELAY)
    if reading.state in (State.NO_TRAFFIC, State.UNSUPPORTED):
        return 0.0
    delay = reading.usable
    return None if delay is None else delay / (target or passing(objectives))
