"""Kubernetes' HorizontalPodAutoscaler, version 2, on requests per replica: emulation of its source.

Written after the behaviour of kubernetes/kubernetes `pkg/controller/podautoscaler/replica_calculator.go` (a metric of
type Pods with a target of type AverageValue), and the page "Horizontal Pod Autoscaling" of the Kubernetes
documentation. In short:

* usage ratio = mean of the metric over pods that have one / target; within the tolerance nothing changes;
* without gaps: ceil(ratio x pods that have one);
* pods without a metric count as at their target when the ratio asks for less, as idle when it asks for more, and
  pending pods as idle when it asks for more; the ratio is then taken anew over all of them, and when it is now within
  the tolerance or asks for the opposite, or the number would move the other way, nothing changes;
* stabilisation and speed limits: see ``behaviour``.

Tuned is `target`. What this emulation cannot know: Kubernetes' own pod readiness delays, which matter for CPU metrics
alone. A metric of pods does not see what waits at a gateway; the HPA that KEDA generates does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from benchmarks.peers import seen
from benchmarks.peers.behaviour import Behaviour, Memory, behave, due
from controller.core.model import Lever, Proposal, TargetState
from controller.core.params import param
from controller.core.ports import Brief, View
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why


class Hpa:
    """Replicas by the ratio of a metric of the pods to its target."""

    TUNED = "target"
    GRID = (6.0, 9.0, 12.0, 16.0, 20.0, 24.0, 28.0, 32.0, 40.0, 52.0)
    ABOUT = (
        "Kubernetes HPA v2 with a metric of type Pods (requests running and waiting, or waiting alone) and a target of "
        "type AverageValue: ratio, tolerance, treatment of missing and pending pods, stabilisation and speed limits "
        "follow the source of the controller with the defaults of autoscaling/v2. It looks every 15 s. It sees the "
        "engines and not the queue of a gateway, as a metric of pods does."
    )

    levers = (Lever.REPLICAS,)
    reads = frozenset({Signal.RUNNING, Signal.QUEUE_DEPTH})

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Config(Behaviour):
        """Parameters of the emulated autoscaler; the defaults are those of autoscaling/v2."""

        target: float = param("the metric per replica", gt=0)
        metric: str = param("in_flight (requests running and waiting) or queue (waiting alone)", seen.IN_FLIGHT)

    State: TypeAlias = Memory

    def __init__(self, config: "Hpa.Config") -> None:
        seen.check(config.metric)
        self.config = config

    def initial(self) -> Memory:
        return Memory()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: Memory
    ) -> tuple[Sequence[Proposal], Memory]:
        """SET for the one target of the pool; nothing when no pod has a metric, as the HPA then does."""
        found = seen.pool_target(view)
        metrics = list(seen.per_replica(view, self.config.metric).values())
        if found is None or not metrics:
            return (), state
        target, owner, current = found
        if not due(view.tick.at, state.at, self.config.sync):
            return (seen.stay(target, current, "hpa", Why.NOT_DUE),), state
        pending, missing = _without(owner, current, len(metrics))
        wish = recommend(self.config, current, metrics, pending=pending, missing=missing)
        value, state = behave(self.config, wish, current, view.limits[target], view.tick.at, state)
        measure = math.fsum(metrics) / len(metrics)
        return (seen.ask(target, value, current, "hpa", measure=measure, target=self.config.target),), state


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


def _without(owner: TargetState, current: float, known: int) -> tuple[int, int]:
    """Pods without a metric: those that are pending for Kubernetes, and the others."""
    lacking = max(0, int(current) - known)
    pending = min(lacking, sum(p.count for p in owner.pending if p.phase in ("requested", "pending", "pulling")))
    return pending, lacking - pending
