"""What a HorizontalPodAutoscaler does with a recommendation: stabilisation, then the speed limits of the direction.

Written after the behaviour of kubernetes/kubernetes `pkg/controller/podautoscaler/horizontal.go` with the defaults of
autoscaling/v2. Three peers end in it: the HPA itself, the one that KEDA generates, and the one that follows WVA.

* scaling up: the lowest recommendation of the last `up_window` (0 s) counts; at most the larger of +100 % and +4 pods
  over what stood 15 s ago;
* scaling down: the highest recommendation of the last `down_window` (300 s) counts; at most to nothing within 15 s;
* what stands at the start counts as the first recommendation.
"""

import math
from dataclasses import dataclass

from controller.core.params import Unit, param
from controller.core.ports import Limits

PERIOD = 15.0  # seconds; of both default scaling policies


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """Parameters of every HPA; the defaults are those of autoscaling/v2 and of the controller manager."""

    tolerance: float = param("deviation of the ratio from 1 that changes nothing", 0.1, ge=0, lt=1)
    sync: float = param("time between two looks at the metric", 15.0, unit=Unit.DURATION, ge=0)
    up_window: float = param("stabilisation of scaling up", 0.0, unit=Unit.DURATION, ge=0)
    down_window: float = param("stabilisation of scaling down", 300.0, unit=Unit.DURATION, ge=0)
    up_percent: float = param("largest rise in 15 s, in percent of what stood before", 100.0, ge=0)
    up_pods: float = param("the same in pods; the larger of the two counts", 4.0, ge=0)
    down_percent: float = param("largest fall in 15 s, in percent of what stood before", 100.0, ge=0, le=100)


@dataclass(frozen=True, slots=True)
class Memory:
    """`wishes` are recommendations (unix seconds, replicas); `changes` what was asked for (unix seconds, delta); `at`
    unix seconds of the last look."""

    wishes: tuple[tuple[float, float], ...] = ()
    changes: tuple[tuple[float, float], ...] = ()
    at: float | None = None


def due(now: float, last: float | None, period: float) -> bool:
    """Whether it is time again for what happens every `period` seconds; a tick that is late or early by a hair
    counts."""
    return last is None or now - last >= period - 1e-3


def behave(
    config: Behaviour, wish: float, current: float, limits: Limits, now: float, memory: Memory
) -> tuple[float, Memory]:
    """The number of replicas that is written, and what is remembered."""
    keep = max(config.up_window, config.down_window)
    # As the HPA does at its start: what stands then is the first recommendation.
    wishes = memory.wishes or ((now, current),)
    past = tuple((at, one) for at, one in wishes if at > now - keep)
    lowest = min([wish, *(one for at, one in past if at > now - config.up_window)])
    highest = max([wish, *(one for at, one in past if at > now - config.down_window)])
    value = min(max(current, lowest), highest)
    changes = tuple((at, delta) for at, delta in memory.changes if at > now - PERIOD)
    before = current - math.fsum(delta for _, delta in changes)
    if value > current:
        most = max(math.ceil(before * (1 + config.up_percent / 100)), before + config.up_pods)
        value = min(value, max(most, current))
    elif value < current:
        least = math.floor(before * (1 - config.down_percent / 100))
        value = max(value, min(least, current))
    value = min(max(value, limits.min), limits.max)
    if value != current:
        changes = (*changes, (now, value - current))
    return value, Memory((*past, (now, wish)), changes, now)


def per_pod(config: Behaviour, usage: float, target: float, current: float) -> float:
    """What an external metric with a target of type AverageValue asks for: `usage` is the sum over all, `target` the
    part of one pod. Pods that do not serve yet count as supply in both directions."""
    if current > 0 and abs(1 - usage / (target * current)) <= config.tolerance:
        return current
    return float(math.ceil(usage / target - 1e-9))
