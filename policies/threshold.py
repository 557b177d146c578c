"""Threshold with hysteresis and dwell: the law that everybody can check by eye.

Above `upper` for `dwell_up` seconds the value moves by `step_up` in the direction that protects, below `lower` for
`dwell_down` it moves back by `step_down`; between the two it rests. Without a step it is one that makes sense for the
lever: one replica, all of a breaker, a tenth of a weight, a downgrade or affinity, a twentieth of the largest cap or
set-point. Capacity and what is sent elsewhere protect by
rising; a weight, a breaker, a cap and a gate by falling. The two thresholds must be apart, else the lever would swing
on noise. Dwell is measured in seconds, not ticks, so late ticks do not change it. Each member has a dwell of its own:
a replica's weight and breaker follow what that replica does, all else what the pool does. A replica that is out of
rotation has no signal to fall, so it comes back as the breaker's own law has it (``policies.wayback``), and is judged
by its own measure on the way. Use it for levers with a plain signal (KV usage, queue depth) and as a first, easily
explained policy.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from controller.core.doubt import unproven
from controller.core.elapsed import GAP
from controller.core.members import own, scope
from controller.core.model import Ask, Lever, Proposal, Target, TargetState, Tick
from controller.core.params import Unit, param, refuse
from controller.core.ports import Brief, Limits, View
from controller.core.reading import Reading, State
from controller.core.rules import PER_REPLICA, RELAX_DOWN
from controller.core.signals import INFO, Signal
from controller.core.slo import Objective
from controller.core.telling import TRIED
from controller.core.why import Why
from policies.promised import kept
from policies.verdict import heard, span
from policies.wayback import FACTOR, OPEN_TIME, QUIET, Phase, Stand, arrived, due, moved, onward, opened


@dataclass(frozen=True, slots=True)
class Marks:
    """Since when a signal has been above or below, and when it was looked at last, unix seconds."""

    above: float | None = None
    below: float | None = None
    at: float | None = None


_UNMARKED = Marks()
LONGEST = 600.0  # seconds; a threshold on a time beyond this was meant in milliseconds
STEP: Mapping[Lever, float] = {
    Lever.REPLICAS: 1.0, Lever.BREAKER: 1.0, Lever.WEIGHT: 0.1, Lever.DOWNGRADE: 0.1,
    Lever.ROUTING: 0.1,
}  # fmt: skip
PART = 0.05  # of the largest value, the step of a lever whose values have no natural size


class Threshold:
    """Two thresholds, two dwell times, two steps."""

    levers = tuple(Lever)
    reads: frozenset[Signal] = frozenset()  # what its parameters name

    @dataclass(frozen=True, slots=True)
    class Config:
        """Parameters of the threshold policy."""

        signal: str = param("signal to watch, e.g. kv_usage, queue_delay, queue_depth, ttft")
        upper: float = param("above this the value moves to protect (unit of the signal; of times seconds)", gt=0)
        lower: float = param("below this the value may relax (unit of the signal; of times seconds)", ge=0)
        statistic: str = param("statistic of a latency signal: p50, p95, p99 or mean", "p95")
        per_replica: bool = param("replicas: divide the signal by the current value first (queue depth each)", False)
        scope: Literal["by_lever", "pool", "member"] = param(
            "whose signal: the pool's, or the member's own (of latencies the mean); by_lever is the replica's own for "
            "weight and breaker",
            "by_lever",
        )
        step_up: float | None = param(
            "how far the value moves when the signal is above; without it by the lever: 1 replica, 1 of a breaker, 0.1 "
            "of a weight, a downgrade or affinity, 5 % of `max` of caps and set-points",
            None,
            gt=0,
        )
        step_down: float | None = param("how far it moves back when the signal is below; without it as up", None, gt=0)
        dwell_up: float = param("how long the signal must stay above", 0.0, unit=Unit.DURATION, ge=0)
        dwell_down: float = param("how long the signal must stay below", 300.0, unit=Unit.DURATION, ge=0)
        raise_when_high: bool | None = param(
            "whether a high signal raises the value; without it as the lever protects: replicas and downgrade rise, "
            "weights, breakers, caps and gates fall",
            None,
        )

    @dataclass(frozen=True, slots=True)
    class State:
        """What was seen of each target, and where each replica stands that has a breaker."""

        marks: Mapping[Target, Marks] = field(default_factory=dict)
        stands: Mapping[Target, Stand] = field(default_factory=dict)

    def __init__(self, config: "Threshold.Config") -> None:
        refuse(self._mistakes(config))
        self.config = config

    def initial(self) -> "Threshold.State":
        return self.State()

    @staticmethod
    def _mistakes(config: "Threshold.Config") -> Iterator[str]:
        if config.signal not in set(Signal):
            yield f"signal: unknown signal {config.signal!r}; known: {', '.join(sorted(Signal))}"
        if config.lower >= config.upper:
            yield f"lower: must be below upper ({config.lower:g} >= {config.upper:g}); leave a gap between them"
        if config.signal in set(Signal) and INFO[Signal(config.signal)].unit == "s" and config.upper > LONGEST:
            yield (
                f"upper: {config.upper:g} s of {config.signal} is longer than anybody waits; thresholds on times are "
                f"in seconds: write {config.upper / 1000.0:g} for {config.upper:g} ms"
            )

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "Threshold.State"
    ) -> tuple[Sequence[Proposal], "Threshold.State"]:
        """SET when a threshold was passed for long enough; a bound at the current value, in the direction that
        protects, when the signal is unknown, and the dwell begins anew."""
        proposals, marks = [], dict[Target, Marks]()
        stands = {
            target: _standing(state.stands.get(target), owner, view.tick.at)
            for target, owner in view.targets.items()
            if target.lever is Lever.BREAKER
        }
        for target, owner in sorted(view.targets.items()):
            if owner.accepted is None:
                if target not in state.stands:
                    stands.pop(target, None)  # it is seen for the first time when it can be read
                continue
            if target in stands and stands[target].phase is not Phase.CLOSED:
                stands[target], proposal = self._back(view, target, owner.accepted, stands[target])
                proposals.append(proposal)
                continue
            reading, current = self._reading(view, target), owner.accepted
            measured = 0.0 if reading.state == State.NO_TRAFFIC else reading.usable
            if measured is None:
                why = unproven(reading.state)
                proposals.append(Proposal(target, _keep(target.lever), current, "threshold", why))
                continue
            value = measured / max(current, 1.0) if self.config.per_replica else measured
            mine = marks[target] = self._mark(value, view.tick, state.marks.get(target, _UNMARKED))
            made = self._one(target, current, value, reading.trusted, view.tick.at, mine, view.limits[target])
            told = {**made.evidence, self.config.signal: measured}
            made = made._replace(value=kept(view, target, current, made.value), evidence=told)
            if target in stands and made.value <= 0 < current:
                stands[target] = opened(stands[target], target.member, view.tick.at)
                made = made._replace(evidence={**made.evidence, TRIED: stands[target].until})
            proposals.append(made)
        return tuple(proposals), self.State(marks, stands)

    def _back(self, view: View, target: Target, current: float, one: Stand) -> tuple[Stand, Proposal]:
        """Where a replica stands that is on its way back, and the factor that goes with it."""
        now, reading = view.tick.at, self._reading(view, target)
        if not heard(scope(view.pool, target)):
            return one, Proposal(target, Ask.AT_MOST, current, "threshold", Why.MISSING)
        value = reading.usable if span(now, reading).within(one.since) else None
        high, low = value is not None and value > self.config.upper, value is not None and value < self.config.lower
        ill, well = (low, high) if self.config.raise_when_high else (high, low)
        out = Why.BELOW_THRESHOLD if self.config.raise_when_high else Why.ABOVE_THRESHOLD
        if one.phase is Phase.OPEN:
            one = moved(one, Phase.PROBE, now) if due(one, now) else one
        elif not arrived(one, current):
            one = one._replace(since=now)
        elif ill:
            one = opened(one, target.member, now)
        else:
            one = onward(one, now, well=well and reading.trusted)
        why = {Phase.OPEN: out, Phase.CLOSED: Why.WELL_AGAIN}.get(one.phase, Why.PROBE)
        evidence = {
            "relapses": float(one.relapses),
            **({} if value is None else {"measure": value, self.config.signal: value}),
            **({TRIED: one.until} if one.phase is Phase.OPEN else {}),
        }
        return one, Proposal(target, Ask.SET, FACTOR[one.phase], "threshold", why, evidence)

    def _one(
        self, target: Target, current: float, value: float, trusted: bool, now: float, marks: Marks, limits: Limits
    ) -> Proposal:
        c = self.config
        relax_down = RELAX_DOWN[target.lever]
        rises = relax_down if c.raise_when_high is None else c.raise_when_high
        sign = 1.0 if rises else -1.0
        # Half a replica would be rounded away, and the lever would never move.
        usual = STEP.get(target.lever, PART * limits.max)
        up, down = (max(usual if step is None else step, limits.quantum) for step in (c.step_up, c.step_down))
        evidence = {"measure": value, "upper": c.upper, "lower": c.lower}
        # What is only known to be high may protect; whoever lets a high signal relax must know it.
        may = trusted or rises == relax_down
        if may and marks.above is not None and now - marks.above >= c.dwell_up:
            return Proposal(target, Ask.SET, _moved(current, sign * up), "threshold", Why.ABOVE_THRESHOLD, evidence)
        if not trusted:
            return Proposal(target, _keep(target.lever), current, "threshold", Why.UNDERFILLED, evidence)
        if marks.below is not None and now - marks.below >= c.dwell_down:
            return Proposal(target, Ask.SET, _moved(current, -sign * down), "threshold", Why.BELOW_THRESHOLD, evidence)
        return Proposal(target, Ask.SET, current, "threshold", Why.STEADY, evidence)

    def _mark(self, value: float, tick: Tick, marks: Marks) -> Marks:
        now = tick.at
        if marks.at is not None and now - marks.at > max(GAP, 2 * (tick.since_last or 0.0)):
            marks = _UNMARKED  # nobody knows where it was meanwhile
        above = (marks.above if marks.above is not None else now) if value > self.config.upper else None
        below = (marks.below if marks.below is not None else now) if value < self.config.lower else None
        return Marks(above, below, now)

    def _reading(self, view: View, target: Target) -> Reading:
        signal, whose = Signal(self.config.signal), self.config.scope
        if whose == "member" or (whose == "by_lever" and target.lever in PER_REPLICA):
            return own(view.pool, target, signal, self.config.statistic)
        return view.pool.latency(signal, self.config.statistic) if INFO[signal].latency else view.pool.get(signal)


def _moved(current: float, step: float) -> float:
    """Without what floats add: 0.2 and 0.1 are 0.3."""
    return max(0.0, round(current + step, 9))


def _standing(before: Stand | None, owner: TargetState, now: float) -> Stand:
    """Where a replica stands at the start of a tick. One that is seen for the first time and is out was taken out
    before this process remembers. One that was to go out and is in rotation was kept there by the cap: no relapse.
    Where a target cannot be read, nothing is known to have changed."""
    has = owner.accepted
    if has is None:
        return before or Stand()
    if before is None:
        if has <= 0:
            return Stand(Phase.OPEN, now, now + OPEN_TIME)
        return Stand(Phase.RAMP, now) if has <= FACTOR[Phase.RAMP] else Stand()
    if before.phase is Phase.OPEN and has >= FACTOR[Phase.RAMP]:
        return before._replace(phase=Phase.CLOSED, relapses=max(0, before.relapses - 1))
    if before.phase is Phase.CLOSED and before.relapses and now - before.since >= QUIET:
        return before._replace(relapses=0)
    return before


def _keep(lever: Lever) -> Ask:
    """The bound that only forbids to relax."""
    return Ask.AT_LEAST if RELAX_DOWN[lever] else Ask.AT_MOST
