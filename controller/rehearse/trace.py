"""Trace: what a rehearsal keeps of its ticks, in columns, so that a day of twenty pools fits in memory.

Absent numbers are NaN in here, and only in here: columns feed plots and sums, never a decision.
"""

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from controller.core.model import Decision, Plan, PoolReadings, Snapshot, Target, TargetState
from controller.core.reading import MISSING, Reading, State
from controller.core.signals import INFO, Signal
from controller.core.slo import Objective

NAN = math.nan
STATES: tuple[State, ...] = tuple(State)
_INDEX = {state: i for i, state in enumerate(STATES)}
_SIGNALS = {signal.value: signal for signal in Signal}
# What a reader needs to judge a decision, besides the signals that the objectives name.
CONTEXT: tuple[Signal, ...] = (
    Signal.OFFERED_RATE,
    Signal.FINISHED_RATE,
    Signal.QUEUE_DEPTH,
    Signal.QUEUE_DELAY,
    Signal.RUNNING,
    Signal.KV_USAGE_MAX,
)


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """A plotted quantity: a signal and, for a latency, its statistic ("p99", "mean"); `objective` for an attainment."""

    signal: str
    stat: str = ""
    objective: str = ""

    def __str__(self) -> str:
        return f"attainment {self.objective}" if self.objective else " ".join(filter(None, (self.signal, self.stat)))


@dataclass(slots=True)
class Column:
    """One quantity over all ticks. `state[i]` indexes `STATES`."""

    value: "array[float]" = field(default_factory=lambda: array("d"))
    lo: "array[float]" = field(default_factory=lambda: array("d"))
    hi: "array[float]" = field(default_factory=lambda: array("d"))
    count: "array[float]" = field(default_factory=lambda: array("d"))
    state: bytearray = field(default_factory=bytearray)

    def bounds(self) -> Iterator[tuple[float, float]]:
        """(lo, hi) of each tick; a side that is not known is infinite, both are the value where it has no bounds."""
        for value, lo, hi in zip(self.value, self.lo, self.hi, strict=True):
            low = value if math.isnan(lo) else lo
            high = value if math.isnan(hi) else hi
            yield (-math.inf if math.isnan(low) else low), (math.inf if math.isnan(high) else high)

    def append(self, reading: Reading) -> None:
        state, value, lo, hi, count = reading[:5]
        self.value.append(NAN if value is None else value)
        self.lo.append(NAN if lo is None else lo)
        self.hi.append(NAN if hi is None else hi)
        self.count.append(NAN if count is None else count)
        self.state.append(_INDEX[state])

    def states(self) -> Iterator[State]:
        return (STATES[i] for i in self.state)


@dataclass(slots=True)
class TargetTrace:
    """One target over all ticks. `runs` holds the ticks at which the decision began to differ, and the decision."""

    recorded: "array[float]" = field(default_factory=lambda: array("d"))  # accepted spec as recorded
    ready: "array[float]" = field(default_factory=lambda: array("d"))
    proposed: "array[float]" = field(default_factory=lambda: array("d"))
    runs: list[tuple[int, Decision]] = field(default_factory=list)

    def append(self, tick: int, decision: Decision, state: TargetState | None) -> None:
        while len(self.recorded) < tick:  # the target appeared later than the first tick
            self._row(NAN, NAN, NAN)
        accepted = state.accepted if state is not None else decision.current
        ready = state.ready if state is not None else None
        self._row(_or_nan(accepted), _or_nan(ready), _or_nan(decision.final))
        last = self.runs[-1][1] if self.runs else None
        if last is None or (last.why, last.final, last.current) != (decision.why, decision.final, decision.current):
            self.runs.append((tick, decision))

    def pad(self, ticks: int) -> None:
        while len(self.recorded) < ticks:
            self._row(NAN, NAN, NAN)

    def _row(self, recorded: float, ready: float, proposed: float) -> None:
        self.recorded.append(recorded)
        self.ready.append(ready)
        self.proposed.append(proposed)

    def changes(self) -> Iterator[tuple[int, float, Decision]]:
        """(tick, proposal before, decision) each time the proposal moved; the first one when it differs from what
        stood at that time. In an open loop the recorded value does not follow, so `changed` alone would repeat."""
        before: float | None = None
        for tick, decision in self.runs:
            if decision.final is None:
                continue
            was = decision.current if before is None else before
            if was is not None and decision.final != was:
                yield tick, was, decision
            before = decision.final


@dataclass(slots=True)
class PoolTrace:
    """One pool over all ticks."""

    objectives: tuple[Objective, ...] = ()
    gpus: int = 1
    columns: dict[Key, Column] = field(default_factory=dict)
    targets: dict[Target, TargetTrace] = field(default_factory=dict)

    def append(self, pool: PoolReadings | None) -> None:
        for key, column in self.columns.items():
            column.append(_reading(pool, key))


@dataclass(slots=True)
class Trace:
    """All ticks of a rehearsal. `step` is the nominal distance of ticks in seconds."""

    step: float
    at: "array[float]" = field(default_factory=lambda: array("d"))
    pools: dict[str, PoolTrace] = field(default_factory=dict)
    errors: int = 0  # ticks at which the source gave nothing at all
    error: str = ""  # and the first reason

    @staticmethod
    def begin(step: float, objectives: Mapping[str, Sequence[Objective]], gpus: Mapping[str, int]) -> "Trace":
        """Ready to take ticks of these pools."""
        trace = Trace(step)
        for pool, promised in objectives.items():
            entry = PoolTrace(objectives=tuple(promised), gpus=gpus.get(pool, 1))
            for key in keys(promised):
                entry.columns[key] = Column()
            trace.pools[pool] = entry
        return trace

    def append(self, snapshot: Snapshot, plan: Plan) -> None:
        tick = len(self.at)
        self.at.append(snapshot.tick.at)
        if snapshot.error:
            self.errors += 1
            self.error = self.error or snapshot.error
        for name, pool in self.pools.items():
            pool.append(snapshot.pools.get(name))
        for decision in plan.decisions:
            owner = self.pools.get(decision.target.pool)
            if owner is None:
                continue
            lane = owner.targets.get(decision.target)
            if lane is None:
                lane = owner.targets[decision.target] = TargetTrace()
            lane.append(tick, decision, snapshot.targets.get(decision.target))

    def finish(self) -> None:
        """Bring targets that vanished before the end to full length."""
        for pool in self.pools.values():
            for lane in pool.targets.values():
                lane.pad(len(self.at))

    def spans(self) -> list[float]:
        """Seconds that each tick stands for: up to the next one, but a hole in the recording counts as one step."""
        gaps = [min(b - a, 2 * self.step) for a, b in pairwise(self.at)]
        return [*gaps, self.step] if self.at else []


def keys(objectives: Sequence[Objective]) -> list[Key]:
    """What is kept of a pool: the objectives' own signals first, then attainments, then context."""
    wanted: dict[Key, None] = {}
    for objective in objectives:
        stat = objective.stat if INFO[objective.signal].latency else ""
        wanted[Key(objective.signal.value, stat)] = None
    for objective in objectives:
        wanted[Key(objective.signal.value, objective=objective.name)] = None
    for signal in CONTEXT:
        wanted.setdefault(Key(signal.value))
    return list(wanted)


def _reading(pool: PoolReadings | None, key: Key) -> Reading:
    if pool is None:
        return MISSING
    if key.objective:
        return pool.attainment.get(key.objective, MISSING)
    signal = _SIGNALS[key.signal]
    return pool.latency(signal, key.stat) if key.stat else pool.get(signal)


def _or_nan(value: float | None) -> float:
    return NAN if value is None else value
