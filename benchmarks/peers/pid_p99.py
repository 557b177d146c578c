"""A PID on the raw p99 of the time to first token, as people write it: no product, but what is tried first.

Written after the textbook (Astrom and Hagglund, "Advanced PID Control", 2006, chapter 3: the positional form, and
conditional integration against windup), with the error in seconds:

    e = p99 - half the promise
    u = base + K * (e + 1/Ti * sum of e dt + Td * de/dt);  replicas = round(u) within the bounds

* `base` is what stands at the start;
* the set-point is half the promise: behind a gate that drops what would be late, no p99 is ever above the promise, and
  a PID that holds the promise itself lets go of everything;
* the integral stands still while u is beyond a bound and the error would drive it further;
* without a p99 (no request finished, nothing scraped) nothing changes: in PromQL it is NaN, and code of this kind skips
  it. A p99 in the open bucket reads as the largest finite edge, as ``histogram_quantile`` gives it.

Tuned is `gain`. What this emulation cannot know: nobody's code in particular is followed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.peers import seen
from controller.core.model import Lever, Proposal
from controller.core.params import Unit, param
from controller.core.ports import Brief, View
from controller.core.reading import State as Known
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why

_NAN = frozenset({Known.NO_TRAFFIC, Known.MISSING, Known.CENSORED, Known.UNSUPPORTED})


class PidP99:
    """Replicas by a positional PID on p99 TTFT in seconds."""

    TUNED = "gain"
    GRID = (0.05, 0.1, 0.2, 0.3, 0.45, 0.65, 1.0, 1.6)
    ABOUT = (
        "A positional PID on the raw p99 of the time to first token, in seconds above half the promise (behind a gate "
        "with deadlines none is above the whole), with integral, anti-windup by clamping and no derivative: the "
        "textbook, and nobody's product. It skips what has no p99."
    )

    levers = (Lever.REPLICAS,)
    reads = frozenset({Signal.TTFT})

    @dataclass(frozen=True, slots=True)
    class Config:
        """Parameters of the controller."""

        gain: float = param("K: replicas per second of error", 0.4, gt=0)
        share: float = param("share of the promise that is the p99 to hold", 0.5, unit=Unit.RATIO, gt=0)
        target: float = param("p99 to hold; 0 takes the share of the promise", 0.0, unit=Unit.DURATION, ge=0)
        integral_time: float = param("Ti", 300.0, unit=Unit.DURATION, gt=0)
        derivative_time: float = param("Td; 0 is off", 0.0, unit=Unit.DURATION, ge=0)

    @dataclass(frozen=True, slots=True)
    class State:
        """`base` replicas at the start; `integral` in second-seconds; `error` seconds, at `at` (unix seconds)."""

        base: float | None = None
        integral: float = 0.0
        error: float = 0.0
        at: float | None = None

    def __init__(self, config: "PidP99.Config") -> None:
        self.config = config

    def initial(self) -> "PidP99.State":
        return self.State()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "PidP99.State"
    ) -> tuple[Sequence[Proposal], "PidP99.State"]:
        """SET for the one target of the pool; nothing while its replicas cannot be read."""
        found = seen.pool_target(view)
        if found is None:
            return (), state
        target, _, current = found
        promises = [o.target for o in objectives if o.signal is Signal.TTFT]
        wanted = self.config.target or self.config.share * min(promises, default=0.0)
        measure = _p99(view)
        if measure is None or not wanted:
            return (seen.stay(target, current, "pid_p99", Why.MISSING),), state
        config, limits = self.config, view.limits[target]
        error, gone = measure - wanted, view.tick.at - state.at if state.at is not None else 0.0
        base = current if state.base is None else state.base
        slope = (error - state.error) / gone if gone > 0 else 0.0
        integral = state.integral + error * gone

        def output(total: float) -> float:
            return base + config.gain * (error + total / config.integral_time + config.derivative_time * slope)

        if (output(integral) > limits.max and error > 0) or (output(integral) < limits.min and error < 0):
            integral = state.integral
        value = min(max(float(round(output(integral))), limits.min), limits.max)
        proposal = seen.ask(target, value, current, "pid_p99", measure=measure, target=wanted, integral=integral)
        return (proposal,), self.State(base, integral, error, view.tick.at)


def _p99(view: View) -> float | None:
    """The p99 as a query gives it; None for NaN."""
    reading = view.pool.latency(Signal.TTFT, "p99")
    if reading.state in _NAN:
        return None
    return next((one for one in (reading.value, reading.lo, reading.hi) if one is not None), None)
