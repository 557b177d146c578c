"""Capacity: feed-forward on demand, with a slow trim from measured latency. The main law for replicas.

    need = (max(demand, forecast) * (1 + margin) + backlog) / rho * exp(trim)

Demand and forecast are replica-equivalents at the horizon of the measured cold start; rho leaves room for variation;
margin comes from a burning error budget. The trim integrates ln(latency / target), slowly and within bounds, and only
while nothing is pending: it corrects a model that is wrong in a way kappa cannot see. Because the need is absolute,
capacity that was asked for and is still on its way is not asked for twice.

Use it where the engine tells tokens and inter-token latency; it also runs, more coarsely, on queue and KV alone.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from controller.core.model import Ask, Lever, Proposal, Target, TargetState
from controller.core.params import Unit, param
from controller.core.ports import Brief, View
from controller.core.reading import State
from controller.core.signals import INFO, Signal
from controller.core.slo import Objective
from controller.core.why import Why

PASSING = 0.5  # share of the tightest promised wait; who waits no longer is between two steps of the engine
UNPROMISED = 2.0  # seconds of wait that count as promised where nothing is
CLAMP = 1.5  # ln(latency/target) beyond this says no more than "far too slow"


class Capacity:
    """Replicas by feed-forward and trim."""

    levers = (Lever.REPLICAS,)
    reads = frozenset(
        {
            Signal.ITL, Signal.PROMPT_TOKEN_RATE, Signal.GENERATION_TOKEN_RATE, Signal.FINISHED_RATE,
            Signal.ADMITTED_RATE, Signal.QUEUE_DELAY, Signal.PREFIX_HIT_RATE, Signal.RETRY_SHARE,
        }
    )  # fmt: skip

    @dataclass(frozen=True, slots=True)
    class Config:
        """Parameters of the capacity policy."""

        utilisation: float = param(
            "share of a replica's capacity to plan with (rho*)", 0.85, unit=Unit.RATIO, gt=0, le=1
        )
        trim_time: float = param("seconds in which the trim corrects one e-fold", 900.0, unit=Unit.DURATION, gt=0)
        trim_down: float = param("largest reduction by the trim, in ln", 0.15, ge=0, le=1)
        trim_up: float = param("largest addition by the trim, in ln", 0.35, ge=0, le=2)
        dead_band: float = param("ln(latency/target) within which the trim rests", 0.1, ge=0, le=1)
        hysteresis: float = param("replicas by which the need must pass a whole number to count", 0.1, ge=0, lt=0.5)

    @dataclass(frozen=True, slots=True)
    class State:
        """`trim` in ln; `at` unix seconds of the last update."""

        trim: float = 0.0
        at: float | None = None

    def __init__(self, config: "Capacity.Config") -> None:
        self.config = config

    def initial(self) -> "Capacity.State":
        return self.State()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "Capacity.State"
    ) -> tuple[Sequence[Proposal], "Capacity.State"]:
        """One proposal per target: SET while demand is trusted, AT_LEAST while it is not, none when nothing is known
        but the queue is empty."""
        state = self._trim(view, objectives, brief.gain, state)
        return tuple(self._one(view, objectives, target, state) for target in sorted(view.targets)), state

    def _one(self, view: View, objectives: Sequence[Objective], target: Target, state: "Capacity.State") -> Proposal:
        estimate, config = view.estimate, self.config
        owner = view.targets[target]
        current = owner.accepted if owner.accepted is not None else view.limits[target].min
        depth = view.pool.get(Signal.QUEUE_DEPTH)
        if estimate.demand is None:
            if depth.usable and self._all_serve(view, owner, current):
                return self._blind(target, current, depth.usable)
            return Proposal(target, Ask.AT_LEAST, current, "capacity", _why_unknown(view))
        load = max(estimate.demand, estimate.forecast or 0.0) * (1 + estimate.margin) + estimate.backlog
        need = load / config.utilisation * math.exp(state.trim)
        evidence = {**estimate.evidence, "need": need, "trim": state.trim, "backlog": estimate.backlog}
        up, down = math.ceil(need - config.hysteresis), math.ceil(need + config.hysteresis)
        if self._queue_outlasts(view, objectives, owner, current):
            up = max(up, int(current) + 1)
        if up > current:
            return Proposal(target, Ask.SET, float(up), "capacity", self._reason(view, state), evidence)
        blind = estimate.unit_rate is None and depth.usable is not None and depth.usable >= max(current, 1.0)
        if blind and self._all_serve(view, owner, current):
            return self._blind(target, current, depth.usable or 0.0)
        if not estimate.trusted:
            return Proposal(target, Ask.AT_LEAST, current, "capacity", _why_unknown(view), evidence)
        why = Why.STEADY
        if depth.usable:
            why = Why.QUEUE_CLEARS
        elif down < current:
            why = Why.NO_TRAFFIC if not estimate.offered else Why.SURPLUS
        return Proposal(target, Ask.SET, min(float(down), current), "capacity", why, evidence)

    def _queue_outlasts(self, view: View, objectives: Sequence[Objective], owner: TargetState, current: float) -> bool:
        """Whether requests will still wait when one more replica is warm, with all that was asked for serving already:
        then one more helps whatever the model says. One at a time, because the next answer comes with the next one. A
        prompt that a full step has left out for the next one is no queue, and a large pool has one at every scrape."""
        waits = [o.target for o in objectives if o.signal in (Signal.TTFT, Signal.QUEUE_TIME)]
        delay = view.pool.get(Signal.QUEUE_DELAY).usable
        if delay is not None and delay < PASSING * min(waits, default=UNPROMISED):
            return False
        left = view.estimate.evidence.get("still_waiting", 0.0)
        return left >= 1.0 and self._all_serve(view, owner, current)

    def _all_serve(self, view: View, owner: TargetState, current: float) -> bool:
        """Whether all that was asked for serves: what was added last must show before one more is added."""
        return not owner.pending and view.estimate.evidence.get("serving", current) >= current

    def _blind(self, target: Target, current: float, waiting: float) -> Proposal:
        """A queue and no idea of a replica's capacity: one more at a time."""
        return Proposal(target, Ask.SET, current + 1, "capacity", Why.BACKLOG, {"waiting": waiting})

    def _reason(self, view: View, state: "Capacity.State") -> Why:
        """What tipped the scale: the first of load, KV, queue, trim without which the need would fit."""
        estimate = view.estimate
        demand = estimate.demand or 0.0
        if estimate.backlog > demand * 0.2 or estimate.evidence.get("still_waiting", 0.0) >= 1.0:
            return Why.BACKLOG
        if estimate.forecast is not None and estimate.forecast > demand:
            return Why.FORECAST
        if estimate.burning:
            return Why.BUDGET_BURN
        if demand > estimate.evidence.get("demand_compute", math.inf) + 1e-9:
            return Why.KV_PRESSURE
        return Why.TRIM if state.trim > 0.1 else Why.DEMAND

    def _trim(
        self, view: View, objectives: Sequence[Objective], gain: float, state: "Capacity.State"
    ) -> "Capacity.State":  # fmt: skip
        now, config = view.tick.at, self.config
        gone = min(now - state.at, 120.0) if state.at is not None else 0.0
        pending = any(owner.pending for owner in view.targets.values())
        error = max((e for o in objectives if (e := _error(view, o)) is not None), default=0.0)
        trim = state.trim * math.exp(-gone / (4 * config.trim_time))  # leaky: an old correction fades
        if not pending and abs(error) > config.dead_band and (error > 0 or self._loaded(view)):
            trim += gain * gone / config.trim_time * error
        return self.State(min(max(trim, -config.trim_down), config.trim_up), now)

    def _loaded(self, view: View) -> bool:
        """Whether replicas work near the operating point: only there does a low latency say that the model is too
        careful. Everywhere else it is low because there is little to do."""
        serving = view.estimate.evidence.get("serving", 0.0)
        return (view.estimate.demand or 0.0) >= 0.8 * self.config.utilisation * serving > 0


def _error(view: View, objective: Objective) -> float | None:
    """ln(measure / target), clamped; None when the reading is no evidence. A latency that is fine is only counted when
    trusted, one that is not always."""
    if not INFO[objective.signal].latency or objective.klass:  # quantiles are the pool's; those of a class are unknown
        return None
    reading = view.pool.latency(objective.signal, objective.stat)
    if reading.usable is None or reading.usable <= 0 or reading.state == State.CENSORED:
        return None
    error = min(max(math.log(reading.usable / objective.target), -CLAMP), CLAMP)
    return error if error > 0 or reading.trusted else None


def _why_unknown(view: View) -> Why:
    """Why the estimate cannot be trusted, in the words of the worst reading behind it."""
    by_state: Mapping[State, Why] = {
        State.STALE: Why.STALE, State.PARTIAL: Why.PARTIAL, State.UNDERFILLED: Why.UNDERFILLED,
        State.UNSUPPORTED: Why.UNSUPPORTED, State.CENSORED: Why.UNDERFILLED,
    }  # fmt: skip
    for signal in (Signal.OFFERED_RATE, Signal.QUEUE_DEPTH):
        reading = view.pool.get(signal)
        if not reading.trusted:
            return by_state.get(reading.state, Why.MISSING)
    return Why.UNDERFILLED
