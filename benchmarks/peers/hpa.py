"""Kubernetes' HorizontalPodAutoscaler, version 2, on requests in flight per replica: emulation from its source.

Written after the behaviour of kubernetes/kubernetes `pkg/controller/podautoscaler/replica_calculator.go` (a metric of
type Pods with a target of type AverageValue) and `horizontal.go` (stabilisation and scaling policies with the defaults
of autoscaling/v2), and the page "Horizontal Pod Autoscaling" of the Kubernetes documentation. In short:

* usage ratio = mean of the metric over pods that have one / target; within the tolerance nothing changes;
* without gaps: ceil(ratio x pods that have one);
* pods without a metric count as at their target when the ratio asks for less, as idle when it asks for more, and
  pending pods as idle when it asks for more; the ratio is then taken anew over all of them, and when it is now within
  the tolerance or asks for the opposite, or the number would move the other way, nothing changes;
* scaling up: the lowest recommendation of the last `up_window` (0 s) counts; at most the larger of +100 % and +4 pods
  over what stood 15 s ago;
* scaling down: the highest recommendation of the last `down_window` (300 s) counts; at most to nothing within 15 s;
* what stands at the start counts as the first recommendation.

What this emulation cannot know: Kubernetes' own pod readiness delays, which matter for CPU metrics alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from controller.core.model import Ask, Lever, Proposal, Target, TargetState
from controller.core.params import Unit, param
from controller.core.ports import Brief, View
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why

PERIOD = 15.0  # seconds; of both default scaling policies


class Hpa:
    """Replicas by the ratio of requests in flight to their target."""

    levers = (Lever.REPLICAS,)
    reads = frozenset({Signal.RUNNING, Signal.QUEUE_DEPTH})

    @dataclass(frozen=True, slots=True)
    class Config:
        """Parameters of the emulated autoscaler; the defaults are those of autoscaling/v2."""

        target: float = param("requests in flight per replica, running and waiting", gt=0)
        tolerance: float = param("deviation of the ratio from 1 that changes nothing", 0.1, ge=0, lt=1)
        up_window: float = param("stabilisation of scaling up", 0.0, unit=Unit.DURATION, ge=0)
        down_window: float = param("stabilisation of scaling down", 300.0, unit=Unit.DURATION, ge=0)
        up_percent: float = param("largest rise in 15 s, in percent of what stood before", 100.0, ge=0)
        up_pods: float = param("the same in pods; the larger of the two counts", 4.0, ge=0)
        down_percent: float = param("largest fall in 15 s, in percent of what stood before", 100.0, ge=0, le=100)

    @dataclass(frozen=True, slots=True)
    class State:
        """`wishes` are recommendations (unix seconds, replicas); `changes` what was asked for (unix seconds, delta)."""

        wishes: tuple[tuple[float, float], ...] = ()
        changes: tuple[tuple[float, float], ...] = ()

    def __init__(self, config: "Hpa.Config") -> None:
        self.config = config

    def initial(self) -> "Hpa.State":
        return self.State()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "Hpa.State"
    ) -> tuple[Sequence[Proposal], "Hpa.State"]:
        """SET for the one target of the pool; nothing when no pod has a metric, as the HPA then does."""
        target = next(iter(sorted(view.targets)), None)
        if target is None:
            return (), state
        owner = view.targets[target]
        metrics = in_flight(view)
        if owner.accepted is None or not metrics:
            return (), state
        current, now = owner.accepted, view.tick.at
        pending, missing = _without(owner, current, len(metrics))
        wish = recommend(self.config, current, metrics, pending=pending, missing=missing)
        limits = view.limits[target]
        value, state = self._behave(wish, current, now, state)
        value = min(max(value, limits.min), limits.max)
        if value != current:
            state = self.State(state.wishes, (*state.changes, (now, value - current)))
        return (self._proposal(target, value, current, metrics),), state

    def _proposal(self, target: Target, value: float, current: float, metrics: Sequence[float]) -> Proposal:
        why = Why.STEADY if value == current else Why.ABOVE_THRESHOLD if value > current else Why.BELOW_THRESHOLD
        evidence = {"measure": math.fsum(metrics) / len(metrics), "target": self.config.target}
        return Proposal(target, Ask.SET, value, "hpa", why, evidence)

    def _behave(self, wish: float, current: float, now: float, state: "Hpa.State") -> tuple[float, "Hpa.State"]:
        """Stabilisation, then the speed limits of the direction."""
        config = self.config
        keep = max(config.up_window, config.down_window)
        # As the HPA does at its start: what stands then is the first recommendation.
        state = state if state.wishes else self.State(((now, current),))
        past = tuple((at, one) for at, one in state.wishes if at > now - keep)
        lowest = min([wish, *(one for at, one in past if at > now - config.up_window)])
        highest = max([wish, *(one for at, one in past if at > now - config.down_window)])
        value = min(max(current, lowest), highest)
        changes = tuple((at, delta) for at, delta in state.changes if at > now - PERIOD)
        before = current - math.fsum(delta for _, delta in changes)
        if value > current:
            most = max(math.ceil(before * (1 + config.up_percent / 100)), before + config.up_pods)
            value = min(value, max(most, current))
        elif value < current:
            least = math.floor(before * (1 - config.down_percent / 100))
            value = max(value, min(least, current))
        return value, self.State((*past, (now, wish)), changes)


def recommend(
    config: Hpa.Config, current: float, metrics: Sequence[float], *, pending: int = 0, missing: int = 0
) -> float:
    """The number that the metric asks for, before stabilisation and limits. `metrics` of the pods that have one, of
    which those beyond `current` are being deleted: they are in the mean and not in the number. `pending` pods are not
    scheduled or pull their image, `missing` are the others without a metric."""
    ratio = math.fsum(metrics) / len(metrics) / config.target
    idle_pending = pending if ratio > 1 else 0
    if not missing and not idle_pending:
        return current if abs(1 - ratio) <= config.tolerance else float(math.ceil(ratio * min(len(metrics), current)))
    filled = [*metrics, *[config.target if ratio < 1 else 0.0] * missing, *[0.0] * idle_pending]
    again = math.fsum(filled) / len(filled) / config.target
    if abs(1 - again) <= config.tolerance or (ratio < 1 < again) or (again < 1 < ratio):
        return current
    wanted = float(math.ceil(again * len(filled)))
    if (again < 1 and wanted > current) or (again > 1 and wanted < current):
        return current
    return wanted


def in_flight(view: View) -> list[float]:
    """Running and waiting of every replica whose scrape tells both."""
    found = []
    for _, scope in sorted(view.pool.replicas.items()):
        running, waiting = scope.get(Signal.RUNNING).value, scope.get(Signal.QUEUE_DEPTH).value
        if running is not None and waiting is not None:
            found.append(running + waiting)
    return found


def _without(owner: TargetState, current: float, known: int) -> tuple[int, int]:
    """Pods without a metric: those that are pending for Kubernetes, and the others."""
    lacking = max(0, int(current) - known)
    pending = min(lacking, sum(p.count for p in owner.pending if p.phase in ("requested", "pending", "pulling")))
    return pending, lacking - pending
