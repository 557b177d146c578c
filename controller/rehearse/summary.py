"""What a rehearsal comes to: promises kept (with bounds), replica-hours, turns, and what was held and why."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from controller.core.model import Target
from controller.core.reading import State
from controller.core.signals import INFO
from controller.core.slo import Objective
from controller.core.why import Why
from controller.explain import held_by
from controller.rehearse.trace import Column, Key, PoolTrace, TargetTrace, Trace

# Ticks in one of these states tell nothing about a promise, in either direction.
_BLIND = frozenset({State.MISSING, State.STALE, State.UNSUPPORTED})


@dataclass(frozen=True, slots=True)
class ObjectiveSummary:
    """One promise over the whole recording, as recorded (not as it would have been). `lo` and `hi` bound the share of
    offered requests that met the target (for an objective on a mean or on a ratio: the share of ticks), None when
    nothing could be told. `seen` is the share of ticks with knowledge, `count` the requests behind it, `klass` the
    class of requests that it is for ("" = all)."""

    name: str
    signal: str
    stat: str
    target: float
    unit: str
    share: float | None
    lo: float | None
    hi: float | None
    seen: float
    count: float
    klass: str = ""

    @property
    def verdict(self) -> str:
        """kept | broken | cannot tell | no traffic | no data."""
        if self.lo is None or self.hi is None:
            return "no traffic" if self.seen > 0 else "no data"
        if self.share is None:
            return "kept" if self.lo >= 1 else "broken"
        if self.lo >= self.share:
            return "kept"
        return "broken" if self.hi < self.share else "cannot tell"


@dataclass(frozen=True, slots=True)
class TargetSummary:
    """One target. Hours are the sum of (value x time) in hours, over the ticks at which both are known; None when there
    are none. `ups` and `downs` count the moves of the proposal, `turns` its reversals: a decision to lower after one to
    raise, or the other way round. A proposal that falls back to what is recorded is none, for in an open loop the
    recorded value never followed it. `recorded_turns` counts changes of direction of the recorded value."""

    target: Target
    recorded_hours: float | None
    proposed_hours: float | None
    compared: float  # share of ticks at which both are known
    lowest: float | None
    highest: float | None
    ups: int
    downs: int
    turns: int
    recorded_turns: int
    held: Mapping[Why, int]  # ticks at which what was asked was held or bent, by reason
    ticks: int
    known: float = 0.0  # hours at which both are known


@dataclass(frozen=True, slots=True)
class PoolSummary:
    """One pool: its promises, its targets, and how many GPUs a replica takes."""

    pool: str
    gpus: int
    objectives: tuple[ObjectiveSummary, ...]
    targets: tuple[TargetSummary, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The whole rehearsal. `start` and `end` unix seconds."""

    start: float
    end: float
    ticks: int
    step: float
    errors: int
    error: str
    pools: tuple[PoolSummary, ...]


def summarise(trace: Trace) -> Summary:
    """Sum up a finished trace."""
    held = held_counts(trace)
    spans = trace.spans()
    pools = tuple(
        PoolSummary(
            name,
            pool.gpus,
            tuple(_objective(pool, objective) for objective in pool.objectives),
            tuple(_target(target, lane, spans, held[target]) for target, lane in sorted(pool.targets.items())),
        )
        for name, pool in trace.pools.items()
    )
    start, end = (trace.at[0], trace.at[-1]) if trace.at else (0.0, 0.0)
    return Summary(start, end, len(trace.at), trace.step, trace.errors, trace.error, pools)


def held_counts(trace: Trace) -> dict[Target, dict[Why, int]]:
    """Ticks held, by target and reason. A run of equal decisions is held as long as it lasts."""
    ticks = len(trace.at)
    counts: dict[Target, dict[Why, int]] = {}
    for pool in trace.pools.values():
        for target, lane in pool.targets.items():
            counter: Counter[Why] = Counter()
            ends = [tick for tick, _ in lane.runs[1:]] + [ticks]
            for (begin, decision), end in zip(lane.runs, ends, strict=True):
                why = held_by(decision)
                if why is not None:
                    counter[why] += end - begin
            counts[target] = dict(counter.most_common())
    return counts


def moves(values: Iterable[float]) -> tuple[int, int, int]:
    """(rises, falls, changes of direction) of a series; unknown values are skipped."""
    ups = downs = turned = direction = 0
    before: float | None = None
    for value in values:
        if math.isnan(value):
            continue
        if before is not None and value != before:
            now = 1 if value > before else -1
            ups, downs = ups + (now > 0), downs + (now < 0)
            turned += direction not in (0, now)
            direction = now
        before = value
    return ups, downs, turned


def reversals(proposed: Iterable[float], recorded: Iterable[float]) -> int:
    """How often the wish turned from above the recorded value to below it, or back."""
    turned = direction = 0
    for would, is_ in zip(proposed, recorded, strict=True):
        now = 0 if math.isnan(would) or math.isnan(is_) else (would > is_) - (would < is_)
        if now:
            turned += direction not in (0, now)
            direction = now
    return turned


def _objective(pool: PoolTrace, objective: Objective) -> ObjectiveSummary:
    stat = objective.stat if INFO[objective.signal].latency else ""
    column = pool.columns[Key(objective.signal.value, objective=objective.name)]
    by_count = objective.share is not None
    if by_count:
        lo, hi, count = _weighted(column)
    else:
        column = pool.columns[Key(objective.signal.value, stat)]
        lo, hi, count = _ticks_within(column, objective.target)
    known = sum(1 for state in column.states() if state not in _BLIND)
    seen = known / len(column.state) if column.state else 0.0
    return ObjectiveSummary(
        objective.name, objective.signal.value, stat, objective.target, INFO[objective.signal].unit,
        objective.share if by_count else None, lo, hi, seen, count, objective.klass,
    )  # fmt: skip


def _weighted(column: Column) -> tuple[float | None, float | None, float]:
    """Attainment of the whole from attainment per window. Windows overlap alike everywhere, so weighting by requests
    counts each of them equally often, but for those of the first and last window."""
    lo = hi = total = 0.0
    for (low, high), count in zip(column.bounds(), column.count, strict=True):
        if math.isnan(count) or count <= 0 or (math.isinf(low) and math.isinf(high)):
            continue
        lo += count * max(0.0, low)
        hi += count * min(1.0, high)
        total += count
    return (min(1.0, lo / total), min(1.0, hi / total), total) if total else (None, None, 0.0)


def _ticks_within(column: Column, target: float) -> tuple[float | None, float | None, float]:
    known = [(low, high) for low, high in column.bounds() if math.isfinite(low) or math.isfinite(high)]
    if not known:
        return None, None, 0.0
    surely = sum(1 for _, high in known if high <= target)
    possibly = sum(1 for low, _ in known if low <= target)
    return surely / len(known), possibly / len(known), float(len(known))


def _target(target: Target, lane: TargetTrace, spans: Sequence[float], held: Mapping[Why, int]) -> TargetSummary:
    recorded = proposed = known = 0.0
    both = 0
    serving = lane.recorded if all(math.isnan(v) for v in lane.ready) else lane.ready
    for was, would, span in zip(serving, lane.proposed, spans, strict=True):
        if not math.isnan(was) and not math.isnan(would):
            both += 1
            recorded += was * span
            proposed += would * span
            known += span
    finite = [v for v in lane.proposed if not math.isnan(v)]
    ups, downs, _ = moves(lane.proposed)
    return TargetSummary(
        target,
        recorded / 3600 if both else None,
        proposed / 3600 if both else None,
        both / len(spans) if spans else 0.0,
        min(finite, default=None),
        max(finite, default=None),
        ups, downs, reversals(lane.proposed, lane.recorded),
        moves(lane.recorded)[2],
        held,
        len(spans),
        known / 3600,
    )  # fmt: skip
