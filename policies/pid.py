"""PID in velocity form on the value read back, for any continuous lever.

    e  = ln(measure / target), clamped to +-1.5, dead-band with continuity
    du = K * [(e - e_prev) + dt/Ti * e - Td/dt * (change of the filtered measure's slope)]
    u  = current * exp(+-du)

Working on changes of the value that the target really has gives anti-windup and bumpless switching by construction: a
bound, a person or another controller moves `current`, and the next step starts there. The logarithm keeps the loop
gain within a factor of four where latency goes like 1/(1 - load). Derivative is off by default: a p99 is too noisy.
What rounding to whole replicas takes away is carried to the next tick. Tuning (SIMC, dead time theta): Ti = 4 * theta,
K = 1/(2 * theta) * the time constant.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from controller.core.model import Ask, Lever, Proposal
from controller.core.params import Unit, param
from controller.core.ports import Brief, View
from controller.core.reading import Reading, State
from controller.core.signals import INFO, Signal
from controller.core.slo import Objective
from controller.core.why import Why

CLAMP = 1.5


class Pid:
    """One signal held at a target by moving one value."""

    levers = tuple(Lever)
    reads: frozenset[Signal] = frozenset()  # what its parameters name

    @dataclass(frozen=True, slots=True)
    class Config:
        """Parameters of the PID policy."""

        signal: str = param("signal to hold; empty takes the first latency objective of the pool", "")
        target: float = param("value to hold it at; 0 takes the objective's", 0.0, ge=0)
        statistic: str = param("statistic of a latency signal: p50, p95, p99, mean; empty takes the objective's", "")
        gain: float = param("proportional gain K, in ln(value) per ln(measure/target)", 0.4, gt=0, le=5)
        integral_time: float = param("integral time Ti", 600.0, unit=Unit.DURATION, gt=0)
        derivative_time: float = param("derivative time Td; 0 is off", 0.0, unit=Unit.DURATION, ge=0)
        filter_time: float = param("low-pass of the measure; 0 is off", 30.0, unit=Unit.DURATION, ge=0)
        dead_band: float = param("|ln(measure/target)| below which nothing moves", 0.1, ge=0, le=1)
        raise_when_high: bool = param(
            "whether a measure above its target raises the value (capacity) or lowers it", True
        )

    @dataclass(frozen=True, slots=True)
    class State:
        """`error` and `filtered` of the last tick (ln), `slope` of the filtered measure, `carry` the part of a whole
        unit that rounding took (ln), valid while the value is still `asked`."""

        at: float | None = None
        filtered: float | None = None
        error: float = 0.0
        slope: float = 0.0
        carry: float = 0.0
        asked: float | None = None

    def __init__(self, config: "Pid.Config") -> None:
        if config.signal and config.signal not in set(Signal):
            raise ValueError(f"signal: unknown signal {config.signal!r}; known: {', '.join(sorted(Signal))}")
        if config.signal and not config.target:
            raise ValueError("target: is missing; write the value to hold the signal at, in its unit")
        self.config = config

    def initial(self) -> "Pid.State":
        return self.State()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "Pid.State"
    ) -> tuple[Sequence[Proposal], "Pid.State"]:
        """SET on good data, AT_LEAST the current value (or a protective raise) otherwise."""
        measure, target = self._measure(view, objectives)
        if measure is None or target is None or (y := _log_ratio(measure, target)) is None:
            why = _why_silent(measure)
            quiet = [
                Proposal(t, _bound(self.config), owner.accepted, "pid", why)
                for t, owner in sorted(view.targets.items())
                if owner.accepted is not None
            ]
            return tuple(quiet), self.State()
        gone = view.tick.at - state.at if state.at is not None else 0.0
        delta, state = self._step(y, gone, view.tick.at, state)
        proposals = []
        for each, owner in sorted(view.targets.items()):
            if owner.accepted is None:
                continue
            quantum = view.limits[each].quantum
            base = max(owner.accepted, quantum or 1e-9)
            carry = state.carry if state.asked == owner.accepted else 0.0
            wish = base * math.exp(delta + carry)
            final = _round(wish, owner.accepted, quantum)
            left = math.log(wish / final) if final > 0 else 0.0
            state = self.State(state.at, state.filtered, state.error, state.slope, min(max(left, -0.7), 0.7), final)
            protective = (final > owner.accepted) == self.config.raise_when_high
            if final == owner.accepted:
                why = Why.STEADY
            else:
                why = Why.LATENCY_HIGH if protective else Why.LATENCY_LOW
            ask = Ask.SET if measure.trusted or (protective and final != owner.accepted) else _bound(self.config)
            value = final if ask == Ask.SET else owner.accepted
            evidence = {"measure": measure.usable or 0.0, "target": target, "error": state.error, "delta": delta}
            proposals.append(Proposal(each, ask, value, "pid", why, evidence))
        return tuple(proposals), state

    def _measure(self, view: View, objectives: Sequence[Objective]) -> tuple[Reading | None, float | None]:
        config = self.config
        # Latencies are the pool's, so a promise for one class of requests is nothing to hold them at.
        latencies = (o for o in objectives if INFO[o.signal].latency and not o.klass)
        objective = next((o for o in latencies if not config.signal or o.signal == config.signal), None)
        signal = Signal(config.signal) if config.signal else (objective.signal if objective else None)
        if signal is None:
            return None, None
        target = config.target or (objective.target if objective else None)
        if not INFO[signal].latency:
            return view.pool.get(signal), target
        stat = config.statistic or (objective.stat if objective else "p95")
        return view.pool.latency(signal, stat), target

    def _step(self, y: float, gone: float, now: float, state: "Pid.State") -> tuple[float, "Pid.State"]:
        """Change of ln(value) for this tick, in the direction of the lever."""
        c = self.config
        y = min(max(y, -CLAMP), CLAMP)
        filtered = y
        if state.filtered is not None and c.filter_time > 0:
            filtered = (
                state.filtered + gone / (c.filter_time + gone) * (y - state.filtered) if gone > 0 else state.filtered
            )
        error = math.copysign(max(abs(filtered) - c.dead_band, 0.0), filtered)
        if state.filtered is None or gone <= 0:
            return 0.0, self.State(now, filtered, error, 0.0, state.carry, state.asked)
        slope = (filtered - state.filtered) / gone
        delta = c.gain * ((error - state.error) + gone / c.integral_time * error)
        if c.derivative_time > 0:
            delta += c.gain * c.derivative_time * (slope - state.slope)
        sign = 1.0 if c.raise_when_high else -1.0
        return sign * delta, self.State(now, filtered, error, slope, state.carry, state.asked)


def _log_ratio(measure: Reading, target: float) -> float | None:
    """ln(measure / target). An empty queue and a pool without traffic are as far below a target as anything can be."""
    if measure.state == State.NO_TRAFFIC or (measure.trusted and measure.value is not None and measure.value <= 0):
        return -CLAMP
    if measure.usable is None or measure.usable <= 0:
        return None
    return math.log(measure.usable / target)


def _bound(config: "Pid.Config") -> Ask:
    return Ask.AT_LEAST if config.raise_when_high else Ask.AT_MOST


def _round(wish: float, current: float, quantum: float) -> float:
    """To the quantum, with a Schmitt band of 0.6: a value near the middle of two does not flip between them."""
    if quantum <= 0:
        return wish
    units, now = wish / quantum, current / quantum
    if abs(units - now) < 0.6:
        return current
    return round(units) * quantum


def _why_silent(measure: Reading | None) -> Why:
    if measure is None:
        return Why.UNSUPPORTED
    return {
        State.NO_TRAFFIC: Why.NO_TRAFFIC, State.STALE: Why.STALE, State.UNSUPPORTED: Why.UNSUPPORTED,
        State.UNDERFILLED: Why.UNDERFILLED, State.PARTIAL: Why.PARTIAL, State.CENSORED: Why.UNDERFILLED,
    }.get(measure.state, Why.MISSING)  # fmt: skip
