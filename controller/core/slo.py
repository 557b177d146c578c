"""Objectives in one internal form: attainment, the share of offered requests that met a target.

"P99 TTFT < 2 s" is attainment(2 s) >= 99 %. Counts add up over pods, classes and windows; quantiles do not. An
objective on a mean exists for engines and recordings that only know means; it has no error budget.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from controller.core.signals import Signal

PASSING = 0.5  # share of the tightest promised wait; who waits no longer is between two steps of the engine
_WAITS = (Signal.TTFT, Signal.QUEUE_TIME)
UNPROMISED = 2.0  # seconds of wait that count as promised where nothing is


@dataclass(frozen=True)
class Objective:
    """One promise. `target` in the unit of the signal; `share` the part of offered requests that must meet it, None
    for an objective on the mean; `window` the seconds over which the control loop judges it; `klass` the request class
    ("" = all)."""

    name: str
    signal: Signal
    target: float
    share: float | None
    window: float
    klass: str = ""

    @cached_property
    def stat(self) -> str:
        """The statistic of the latency signal that stands for this objective: "p99", "p99.9" or "mean"."""
        return "mean" if self.share is None else f"p{self.share * 100:g}"


def passing(objectives: Sequence[Objective]) -> float:
    """Seconds of wait that are no queue: half of the tightest wait that is promised."""
    waits = [o.target for o in objectives if o.signal in _WAITS]
    return PASSING * min(waits, default=UNPROMISED)
