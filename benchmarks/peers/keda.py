"""KEDA with its Prometheus scaler, and the HorizontalPodAutoscaler that it generates: emulation of their source.

Written after the behaviour of kedacore/keda `pkg/scalers/prometheus_scaler.go` (at 0805d72e),
`pkg/fallback/fallback.go` (at 1a835eba), `pkg/scaling/executor/scale_scaledobjects.go` (at 8b4f083c, after v2.20.2),
its page "Scaling Deployments", and of kubernetes/kubernetes `replica_calculator.go` for external metrics. In short:

* between 1 and the maximum the HPA rules: usage = the sum that the query gives, ratio = usage / (target x replicas that
  exist); within the tolerance nothing changes, else ceil(usage / target); then as in ``behaviour``. The HPA asks at
  each of its own looks (15 s); with `cached` it gets what the last poll (30 s) found;
* between 0 and 1, where the minimum is 0, KEDA rules: at a poll, a value above `activation` is activity; after
  `cooldown` without any the pool goes to 0, and with any it comes back;
* an answer without a series, and NaN, read as 0 while `ignore_null`: a fleet whose targets are all down is scaled down;
* a Prometheus that does not answer is an error: after more than `failures` in a row the value is `fallback` replicas'
  worth, where that is set; else the HPA does nothing.

The query may be any: here requests running and waiting, waiting alone, or offered per second. Tuned is `target`. What
this emulation cannot know: how the twin's ticks fall against the clocks of KEDA and the HPA; it takes each look at the
first tick at which it is due.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from benchmarks.peers import seen
from benchmarks.peers.behaviour import Behaviour, Memory, behave, due, per_pod
from controller.core.model import Lever, Proposal
from controller.core.params import Unit, param
from controller.core.ports import Brief, Limits, View
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why

STATIC, CURRENT, HIGHER, LOWER = "static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"
BEHAVIOURS = (STATIC, CURRENT, HIGHER, LOWER)


class Keda:
    """Replicas by the sum of a metric over the part of one replica."""

    TUNED = "target"
    GRID: tuple[float, ...] = (6.0, 9.0, 12.0, 16.0, 20.0, 24.0, 28.0, 32.0, 40.0, 52.0)
    ABOUT = (
        "KEDA's Prometheus scaler with the HPA that it generates: the query is the sum of requests running and waiting "
        "(or waiting alone) at engines and gateway; polling, cooldown, activation, fallback, and null read as 0 follow "
        "its source and defaults, the HPA's ratio, tolerance, stabilisation and speed limits those of autoscaling/v2. "
        "Replicas that do not serve yet count as supply, as they do for an external metric."
    )

    levers = (Lever.REPLICAS,)
    reads = frozenset({Signal.RUNNING, Signal.QUEUE_DEPTH, Signal.OFFERED_RATE})

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Config(Behaviour):
        """Parameters of a ScaledObject with one Prometheus trigger, and of its HPA; the defaults are published ones."""

        target: float = param("threshold: the part of the metric that one replica takes", gt=0)
        metric: str = param(
            "in_flight (requests running and waiting), queue (waiting alone) or rate (offered per second)",
            seen.IN_FLIGHT,
        )
        activation: float = param("activationThreshold: above it the pool is active", 0.0, ge=0)
        poll: float = param("pollingInterval", 30.0, unit=Unit.DURATION, gt=0)
        cooldown: float = param("cooldownPeriod before the last replica goes", 300.0, unit=Unit.DURATION, ge=0)
        cached: bool = param("useCachedMetrics: whether the HPA gets the value of the last poll", False)
        ignore_null: bool = param("ignoreNullValues: whether an empty answer reads as 0", True)
        fallback: int = param("fallback.replicas; 0 is no fallback", 0, ge=0)
        failures: int = param("fallback.failureThreshold", 3, ge=0)
        fallback_behaviour: str = param("fallback.behavior", STATIC)

    @dataclass(frozen=True, slots=True)
    class State:
        """`polled` and `active` unix seconds of the last poll and of the last activity; `value` of the last poll, None
        when it failed; `failed` polls or looks in a row."""

        hpa: Memory = field(default_factory=Memory)
        polled: float | None = None
        active: float | None = None
        value: float | None = None
        failed: int = 0

    def __init__(self, config: "Keda.Config") -> None:
        seen.check(config.metric, (*seen.OF_PODS, seen.RATE))
        if config.fallback_behaviour not in BEHAVIOURS:
            raise ValueError(
                f"fallback_behaviour: unknown {config.fallback_behaviour!r}; write one of {', '.join(BEHAVIOURS)}"
            )
        self.config = config

    def initial(self) -> "Keda.State":
        return self.State()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "Keda.State"
    ) -> tuple[Sequence[Proposal], "Keda.State"]:
        """SET for the one target of the pool; nothing while its replicas cannot be read."""
        found = seen.pool_target(view)
        if found is None:
            return (), state
        target, _, current = found
        now, limits = view.tick.at, view.limits[target]
        if due(now, state.polled, self.config.poll):
            state = self._poll(view, now, state)
            switched = self._switch(state, current, limits, now)
            if switched != current:
                return (seen.ask(target, switched, current, "keda", value=state.value or 0.0),), state
        if current <= 0:
            return (seen.stay(target, current, "keda", Why.STEADY),), state
        if not due(now, state.hpa.at, self.config.sync):
            return (seen.stay(target, current, "keda", Why.NOT_DUE),), state
        value, state = self._metric(view, current, state)
        if value is None:
            return (seen.stay(target, current, "keda", Why.MISSING),), state
        wish = per_pod(self.config, value, self.config.target, current)
        floor = Limits(max(1.0, limits.min), limits.max, limits.quantum)  # the last one is KEDA's to take
        wanted, memory = behave(self.config, wish, current, floor, now, state.hpa)
        proposal = seen.ask(target, wanted, current, "keda", measure=value / current, target=self.config.target)
        return (proposal,), replace(state, hpa=memory)

    def _query(self, view: View) -> float | None:
        """The answer to the query; None is an error."""
        if not seen.answers(view):
            return None
        value = seen.summed(view, self.config.metric)
        return 0.0 if value is None and self.config.ignore_null else value

    def _poll(self, view: View, now: float, state: "Keda.State") -> "Keda.State":
        value = self._query(view)
        lively = value is not None and value > self.config.activation
        return replace(state, polled=now, value=value, active=now if lively or state.active is None else state.active)

    def _switch(self, state: "Keda.State", current: float, limits: Limits, now: float) -> float:
        """Between nothing and something; an error changes nothing."""
        if state.value is None or state.active is None:
            return current
        if current <= 0 and state.active == now and state.value > self.config.activation:
            return max(1.0, limits.min)
        if current > 0 and limits.min <= 0 and now - state.active > self.config.cooldown:
            return 0.0
        return current

    def _metric(self, view: View, current: float, state: "Keda.State") -> tuple[float | None, "Keda.State"]:
        """What the HPA is told; None is an error."""
        value = state.value if self.config.cached else self._query(view)
        if value is not None:
            return value, replace(state, failed=0)
        state = replace(state, failed=state.failed + 1)
        if not self.config.fallback or state.failed <= self.config.failures:
            return None, state
        return self._fallback(current) * self.config.target, state

    def _fallback(self, current: float) -> float:
        static = float(self.config.fallback)
        kind = self.config.fallback_behaviour
        if kind == CURRENT or (kind == HIGHER and current > static) or (kind == LOWER and current < static):
            return math.floor(current)
        return static


class KedaRate(Keda):
    """The same with the rate of requests offered as its query: behind a gate that refuses work, requests in flight do
    not tell how much was refused. The grid is wide, because what one replica serves depends on the lengths."""

    GRID = (0.35, 0.42, 0.5, 0.6, 0.73, 0.87, 1.05, 1.25, 1.5, 1.8, 2.15, 2.6)
    ABOUT = (
        "KEDA as above, with the rate of requests offered per replica as its query. It counts what the gateway "
        "refuses, which requests in flight do not show, and takes all requests for equal, which they are not."
    )

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Config(Keda.Config):
        """As of ``Keda``; `target` is requests per second that one replica is to serve."""

        metric: str = param("rate (offered per second)", seen.RATE)
