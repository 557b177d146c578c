"""Threshold with hysteresis and dwell: the law that everybody can check by eye.

Above `upper` for `dwell_up` seconds the value rises by `step_up`, below `lower` for `dwell_down` it falls by
`step_down`; between the two it rests. The two thresholds must be apart, else the lever would swing on noise. Dwell
is measured in seconds, not ticks, so late ticks do not change it. Use it for levers with a plain signal (KV usage,
queue depth) and as a first, easily explained policy.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from controller.core.model import Ask, Lever, Proposal, Target
from controller.core.params import Unit, param
from controller.core.ports import Brief, View
from controller.core.reading import Reading, State
from controller.core.signals import INFO, Signal
from controller.core.slo import Objective
from controller.core.why import Why


class Threshold:
    """Two thresholds, two dwell times, two steps."""

    levers = tuple(Lever)
    reads: frozenset[Signal] = frozenset()  # what its parameters name

    @dataclass(frozen=True, slots=True)
    class Config:
        """Parameters of the threshold policy."""

        signal: str = param("signal to watch, e.g. kv_usage, queue_delay, queue_depth, ttft")
        upper: float = param("above this the value moves to protect (unit of the signal)", gt=0)
        lower: float = param("below this the value may relax (unit of the signal)", ge=0)
        statistic: str = param("statistic of a latency signal: p50, p95, p99 or mean", "p95")
        per_replica: bool = param("divide the signal by the current value first (queue depth per replica)", False)
        step_up: float = param("units to add", 1.0, gt=0)
        step_down: float = param("units to take away", 1.0, gt=0)
        dwell_up: float = param("how long the signal must stay above", 0.0, unit=Unit.DURATION, ge=0)
        dwell_down: float = param("how long the signal must stay below", 300.0, unit=Unit.DURATION, ge=0)
        raise_when_high: bool = param("whether a high signal raises the value (capacity) or lowers it", True)

    @dataclass(frozen=True, slots=True)
    class State:
        """Since when the signal has been above or below, unix seconds."""

        above: float | None = None
        below: float | None = None

    def __init__(self, config: "Threshold.Config") -> None:
        if config.signal not in set(Signal):
            raise ValueError(f"signal: unknown signal {config.signal!r}; known: {', '.join(sorted(Signal))}")
        if config.lower >= config.upper:
            raise ValueError(
                f"lower: must be below upper ({config.lower:g} >= {config.upper:g}); leave a gap between them"
            )
        self.config = config

    @property
    def _keep(self) -> Ask:
        return Ask.AT_LEAST if self.config.raise_when_high else Ask.AT_MOST

    def initial(self) -> "Threshold.State":
        return self.State()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "Threshold.State"
    ) -> tuple[Sequence[Proposal], "Threshold.State"]:
        """SET when a threshold was passed for long enough; a bound at the current value when the signal is unknown."""
        reading, now = self._reading(view), view.tick.at
        measured = reading.usable
        if reading.state == State.NO_TRAFFIC:
            measured = 0.0
        owners = [(t, o.accepted) for t, o in sorted(view.targets.items()) if o.accepted is not None]
        if measured is None:
            why = {State.STALE: Why.STALE, State.UNSUPPORTED: Why.UNSUPPORTED}.get(reading.state, Why.MISSING)
            return tuple(Proposal(t, self._keep, value, "threshold", why) for t, value in owners), self.State()
        proposals, marks = [], state
        for target, current in owners:
            value = measured / max(current, 1.0) if self.config.per_replica else measured
            marks = self._mark(value, now, state)
            proposals.append(
                self._one(target, current, value, reading.trusted, now, marks, view.limits[target].quantum)
            )
        return tuple(proposals), marks

    def _one(
        self,
        target: Target,
        current: float,
        value: float,
        trusted: bool,
        now: float,
        marks: "Threshold.State",
        quantum: float,
    ) -> Proposal:
        c = self.config
        sign = 1.0 if c.raise_when_high else -1.0
        # Half a replica would be rounded away, and the lever would never move.
        up, down = max(c.step_up, quantum), max(c.step_down, quantum)
        evidence = {"measure": value, "upper": c.upper, "lower": c.lower}
        if marks.above is not None and now - marks.above >= c.dwell_up:
            return Proposal(target, Ask.SET, current + sign * up, "threshold", Why.ABOVE_THRESHOLD, evidence)
        if not trusted:
            return Proposal(target, self._keep, current, "threshold", Why.UNDERFILLED, evidence)
        if marks.below is not None and now - marks.below >= c.dwell_down:
            return Proposal(target, Ask.SET, current - sign * down, "threshold", Why.BELOW_THRESHOLD, evidence)
        return Proposal(target, Ask.SET, current, "threshold", Why.STEADY, evidence)

    def _mark(self, value: float, now: float, state: "Threshold.State") -> "Threshold.State":
        above = (state.above if state.above is not None else now) if value > self.config.upper else None
        below = (state.below if state.below is not None else now) if value < self.config.lower else None
        return self.State(above, below)

    def _reading(self, view: View) -> Reading:
        signal = Signal(self.config.signal)
        return view.pool.latency(signal, self.config.statistic) if INFO[signal].latency else view.pool.get(signal)
