"""PID in velocity form on the value read back, for any continuous lever.

    e  = ln(measure / target), clamped to +-1.5, dead-band with continuity
    du = K * [(max(e, 0) - max(e_prev, 0)) + dt/Ti * e + Td * (change of e's slope, 1/s)]
    u  = current * exp(+-du),   of a share that rests at zero   u = current +- du * (max - min)

Working on changes of the value that the target really has gives anti-windup and bumpless switching by construction: a
bound, a person or another controller moves `current`, and the next step starts there. The logarithm keeps the loop
gain within a factor of four where latency goes like 1/(1 - load). Derivative, of e before its dead band, is off by
default: a p99 is too noisy.
What rounding to the quantum takes away is carried to the next tick, for each target of its own. The sign is that of the
lever: a measure above its target raises capacity and what is sent elsewhere, and lowers weights, caps and gates. A
replica's weight follows what that replica does, all else what the pool does. Without a signal of its own it holds the
first latency objective, but the cap on requests in flight that of ITL or TPOT (``core.operating``): whatever grows with
the wait before the cap would grow further with every step down. Silence never relaxes, nor does a filter that
is late, while the measure is above its target; that there is no traffic is
known, and relaxes as such. Tuning (SIMC, dead time theta):
Ti = 4 * theta, K = 1/(2 * theta) * the time constant.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from controller.core.doubt import unproven
from controller.core.elapsed import elapsed
from controller.core.members import own
from controller.core.model import Ask, Lever, Proposal, Target, TargetState
from controller.core.operating import CONCURRENCY, OF_THE_BATCH
from controller.core.params import Unit, param, refuse
from controller.core.ports import Brief, Limits, View
from controller.core.reading import Reading, State
from controller.core.rules import PER_REPLICA, RELAX_DOWN
from controller.core.signals import INFO, Signal
from controller.core.slo import Objective
from controller.core.why import Why
from policies.error import CLAMP, log_error
from policies.promised import kept

_CARRY = 0.7  # of a quantum, or in ln: more than a rounding can take


@dataclass(frozen=True, slots=True)
class Track:
    """What the law remembers of one target. `error` and `filtered` of the last tick (ln), `slope` of the filtered
    measure, `carry` the part that rounding took, valid while the value is still `asked`, `held` the step that was asked
    to relax, valid while the value is still at its `base`."""

    at: float | None = None
    filtered: float | None = None
    error: float = 0.0
    slope: float = 0.0
    carry: float = 0.0
    asked: float | None = None
    held: float = 0.0
    base: float | None = None


_NEW = Track()


class Pid:
    """One signal held at a target by moving one value."""

    levers = tuple(lever for lever in Lever if lever is not Lever.BREAKER)  # which is in or out, and no dial
    reads: frozenset[Signal] = frozenset()  # what its parameters name

    @dataclass(frozen=True, slots=True)
    class Config:
        """Parameters of the PID policy."""

        signal: str = param(
            "signal to hold; empty takes the first latency objective of the pool, for concurrency that of itl or tpot",
            "",
        )
        target: float = param("value to hold it at; 0 takes the objective's", 0.0, ge=0)
        statistic: str = param("statistic of a latency signal: p50, p95, p99, mean; empty takes the objective's", "")
        scope: Literal["by_lever", "pool", "member"] = param(
            "whose signal: the pool's, or the member's own (of latencies the mean); by_lever is the replica's own for "
            "weight",
            "by_lever",
        )
        gain: float = param("proportional gain K, in ln(value) per ln(measure/target)", 0.4, gt=0, le=5)
        integral_time: float = param("integral time Ti", 600.0, unit=Unit.DURATION, gt=0)
        derivative_time: float = param("derivative time Td; 0 is off", 0.0, unit=Unit.DURATION, ge=0)
        filter_time: float = param("low-pass of the measure; 0 is off", 30.0, unit=Unit.DURATION, ge=0)
        dead_band: float = param("|ln(measure/target)| below which nothing moves", 0.1, ge=0, le=1)
        raise_when_high: bool | None = param(
            "whether a measure above its target raises the value; without it as the lever protects: replicas and "
            "downgrade rise, weights, caps and gates fall",
            None,
        )

    @dataclass(frozen=True, slots=True)
    class State:
        """What is remembered of each target."""

        tracks: Mapping[Target, Track] = field(default_factory=dict)

    def __init__(self, config: "Pid.Config") -> None:
        refuse(self._mistakes(config))
        self.config = config

    def initial(self) -> "Pid.State":
        return self.State()

    @staticmethod
    def _mistakes(config: "Pid.Config") -> Iterator[str]:
        if config.signal and config.signal not in set(Signal):
            yield f"signal: unknown signal {config.signal!r}; known: {', '.join(sorted(Signal))}"
        if config.signal and not config.target:
            mend = "write the value to hold the signal at, in its unit, or leave signal out to hold a promise"
            yield f"target: is missing; {mend}"

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "Pid.State"
    ) -> tuple[Sequence[Proposal], "Pid.State"]:
        """SET on good data; otherwise a bound at the current value that forbids to relax, or a protective move. A
        target whose measure is gone begins anew."""
        proposals, tracks = [], {}
        for each, owner in sorted(view.targets.items()):
            if owner.accepted is None:
                continue
            signal, measure, target = self._measure(view, objectives, each)
            if signal is None or measure is None or target is None or (y := _log_ratio(measure, target)) is None:
                why = Why.UNSUPPORTED if measure is None else unproven(measure.state)
                proposals.append(Proposal(each, _keep(each.lever), owner.accepted, "pid", why))
                continue
            delta, track = self._step(y, view.tick.at, state.tracks.get(each, _NEW))
            final, tracks[each] = self._move(each, owner.accepted, delta, track, view.limits[each])
            final = kept(view, each, owner.accepted, final)
            evidence = {"target": target, "error": tracks[each].error, "delta": delta}
            if measure.state is not State.NO_TRAFFIC:
                evidence = {"measure": measure.usable or 0.0, signal.value: measure.usable or 0.0, **evidence}
            proposals.append(_proposal(each, owner, final, measure, evidence, y))
        return tuple(proposals), self.State(tracks)

    def _move(self, target: Target, current: float, delta: float, track: Track, limits: Limits) -> tuple[float, Track]:
        """The next value, on the quantum, and what rounding took of it."""
        rises = RELAX_DOWN[target.lever] if self.config.raise_when_high is None else self.config.raise_when_high
        delta = delta if rises else -delta
        carry = track.carry if track.asked == current else 0.0
        if track.base == current != track.asked and delta * track.held > 0:
            # A guard holds the step until it has been wanted for long enough; a law that forgot it would never want it
            # for long. One quantum is kept, and dropped as soon as the measure turns, so nothing winds up.
            carry = track.held
        quantum = limits.quantum
        if target.lever is Lever.DOWNGRADE:  # it rests at zero, from where no factor leads away
            wish = min(max(current + delta * (limits.max - limits.min) + carry, limits.min), limits.max)
            final = _round(wish, current, quantum)
            left, most = wish - final, _CARRY * quantum
        else:
            wish = max(current, quantum or 1e-9) * math.exp(delta + carry)
            final = _round(wish, current, quantum)
            left, most = math.log(wish / final) if final > 0 else 0.0, _CARRY
        held = _one_step(target.lever, current, final, quantum)
        return final, replace(track, carry=min(max(left, -most), most), asked=final, held=held, base=current)

    def _measure(
        self, view: View, objectives: Sequence[Objective], target: Target
    ) -> tuple[Signal | None, Reading | None, float | None]:
        """Which signal is held, its reading, and at what."""
        config = self.config
        # Latencies are of all requests, so a promise for one class of them is nothing to hold them at.
        latencies = (o for o in objectives if INFO[o.signal].latency and not o.klass)
        if target.lever is Lever.ADMISSION and target.member == CONCURRENCY and not config.signal:
            latencies = (o for o in latencies if o.signal in OF_THE_BATCH)
        objective = next((o for o in latencies if not config.signal or o.signal == config.signal), None)
        signal = Signal(config.signal) if config.signal else (objective.signal if objective else None)
        if signal is None:
            return None, None, None
        wanted = config.target or (objective.target if objective else None)
        stat = config.statistic or (objective.stat if objective else "p95")
        if config.scope == "member" or (config.scope == "by_lever" and target.lever in PER_REPLICA):
            return signal, own(view.pool, target, signal, stat), wanted
        if not INFO[signal].latency:
            return signal, view.pool.get(signal), wanted
        return signal, view.pool.latency(signal, stat), wanted

    def _step(self, y: float, now: float, track: Track) -> tuple[float, Track]:
        """Change of ln(value) for this tick if a high measure raises it. The gain of the brief is not
        looked at: a guard slows what relaxes, and what protects must not be slowed."""
        c = self.config
        gone = elapsed(track.at, now)
        filtered = y
        if track.filtered is not None and c.filter_time > 0:
            filtered = (
                track.filtered + gone / (c.filter_time + gone) * (y - track.filtered) if gone > 0 else track.filtered
            )
        error = math.copysign(max(abs(filtered) - c.dead_band, 0.0), filtered)
        if track.filtered is None or gone <= 0:
            return 0.0, replace(track, at=now, filtered=filtered, error=error, slope=0.0)
        slope = (filtered - track.filtered) / gone
        # In proportion only above the target: below it every upward jitter would protect at once and every downward one
        # wait for the guards, and the value would climb on noise alone.
        jump = max(error, 0.0) - max(track.error, 0.0)
        delta = c.gain * (jump + gone / c.integral_time * error)
        if c.derivative_time > 0:
            delta += c.gain * c.derivative_time * (slope - track.slope)
        if filtered <= 0 < y:
            delta = max(delta, 0.0)  # the filter is late: nothing is relaxed while the measure is above its target
        return delta, replace(track, at=now, filtered=filtered, error=error, slope=slope)


def _proposal(
    target: Target, owner: TargetState, final: float, measure: Reading, evidence: Mapping[str, float], y: float
) -> Proposal:
    """`y` is ln(measure / target). What was done in proportion to it goes as it falls, before it is at the target."""
    current = owner.accepted or 0.0
    protective = (final > current) == RELAX_DOWN[target.lever]
    if final == current:
        why = Why.STEADY
    else:
        relaxes = Why.LATENCY_FALLS if y > 0 and evidence["error"] >= 0 else Why.LATENCY_LOW
        why = Why.LATENCY_HIGH if protective else relaxes
        if measure.state is State.NO_TRAFFIC:
            why = Why.NO_TRAFFIC
    ask = Ask.SET if measure.trusted or (protective and final != current) else _keep(target.lever)
    return Proposal(target, ask, final if ask == Ask.SET else current, "pid", why, evidence)


def _log_ratio(measure: Reading, target: float) -> float | None:
    """ln(measure / target), clamped. An empty queue and a pool without traffic are as far below a target as anything
    can be."""
    if measure.state == State.NO_TRAFFIC or (measure.trusted and measure.value is not None and measure.value <= 0):
        return -CLAMP
    if measure.usable is None or measure.usable <= 0:
        return None
    return log_error(measure.usable, target)


def _keep(lever: Lever) -> Ask:
    """The bound that only forbids to relax."""
    return Ask.AT_LEAST if RELAX_DOWN[lever] else Ask.AT_MOST


def _round(wish: float, current: float, quantum: float) -> float:
    """To the quantum, with a Schmitt band of 0.6: a value near the middle of two does not flip between them."""
    if quantum <= 0:
        return wish
    units, now = wish / quantum, current / quantum
    if abs(units - now) < 0.6:
        return current
    return round(units) * quantum


def _one_step(lever: Lever, current: float, final: float, quantum: float) -> float:
    """The first quantum of a relaxing step, as the law counts it; 0 of any other."""
    if final == current or quantum <= 0 or (final < current) != RELAX_DOWN[lever]:
        return 0.0
    after = current + math.copysign(quantum, final - current)
    if lever is Lever.DOWNGRADE:
        return after - current
    return math.log(after / current) if after > 0 and current > 0 else 0.0
