"""Knative's pod autoscaler (KPA) on concurrency: emulation of its source.

Written after the behaviour of knative/serving `pkg/autoscaler/scaling/autoscaler.go` (at 00a4a55c) with the defaults of
`config/core/configmaps/autoscaler.yaml` (at 98e5ef90). In short, with ready = replicas that serve, at least 1:

* stable and panic value = mean of all requests in flight over the last 60 s and the last 6 s;
* pods = ceil(value / (target x 0.7)), within [floor(ready / 2), ceil(1000 x ready)];
* ceil of the panic value over ready >= 2 begins or prolongs a panic, which ends a stable window after the last such
  moment. In it the larger of both counts and nothing ever shrinks. With more than one replica it starts in a panic, so
  that lost history shrinks nothing;
* with `down_delay`, the highest of the last seconds counts;
* without a sample in the stable window nothing changes.

Tuned is `target`, the concurrency that one replica is meant to hold. What this emulation cannot know: Knative scrapes
every second and decides every two; here a sample is a tick, so the panic window holds the newest tick alone. The
activator, which holds requests back and probes before the last replica goes, is not emulated: the twin's gateway stands
in its place, and what waits there counts as in flight, as it does at the activator.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.peers import seen
from controller.core.model import Lever, Proposal
from controller.core.params import Unit, param
from controller.core.ports import Brief, View
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why


class Kpa:
    """Replicas by concurrency, with a panic mode."""

    TUNED = "target"
    GRID = (10.0, 14.0, 18.0, 24.0, 30.0, 36.0, 44.0, 56.0, 72.0)
    ABOUT = (
        "Knative's KPA on concurrency: stable and panic windows, panic threshold, rates, scale-down delay and the "
        "start in panic follow its source and defaults. It decides at the bench's ticks and not every two seconds, and "
        "its panic window holds the newest tick alone; what waits at the gateway counts as at the activator, which "
        "itself is not emulated."
    )

    levers = (Lever.REPLICAS,)
    reads = frozenset({Signal.RUNNING, Signal.QUEUE_DEPTH})

    @dataclass(frozen=True, slots=True)
    class Config:
        """Parameters of the emulated autoscaler; the defaults are those of its config map."""

        target: float = param("container-concurrency-target: requests in flight that one replica is to hold", gt=0)
        utilisation: float = param("container-concurrency-target-percentage", 0.7, unit=Unit.RATIO, gt=0, le=1)
        stable: float = param("stable-window", 60.0, unit=Unit.DURATION, gt=0)
        panic: float = param("panic-window-percentage, as time", 6.0, unit=Unit.DURATION, gt=0)
        threshold: float = param("panic-threshold-percentage, as a factor", 2.0, gt=1)
        up_rate: float = param("max-scale-up-rate", 1000.0, gt=1)
        down_rate: float = param("max-scale-down-rate", 2.0, gt=1)
        down_delay: float = param("scale-down-delay", 0.0, unit=Unit.DURATION, ge=0)

    @dataclass(frozen=True, slots=True)
    class State:
        """`samples` of all requests in flight and `wishes` of the delay window: (unix seconds, number). `panicking`
        since when, unix seconds; `most` replicas asked for in it; `begun` whether there was a first tick."""

        samples: tuple[tuple[float, float], ...] = ()
        wishes: tuple[tuple[float, float], ...] = ()
        panicking: float | None = None
        most: float = 0.0
        begun: bool = False

    def __init__(self, config: "Kpa.Config") -> None:
        if config.panic > config.stable:
            raise ValueError("panic: is longer than stable; write a part of it")
        self.config = config

    def initial(self) -> "Kpa.State":
        return self.State()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "Kpa.State"
    ) -> tuple[Sequence[Proposal], "Kpa.State"]:
        """SET for the one target of the pool; nothing while its replicas cannot be read."""
        found = seen.pool_target(view)
        if found is None:
            return (), state
        target, owner, current = found
        now, limits, ready = view.tick.at, view.limits[target], seen.ready(owner)
        samples = tuple(one for one in state.samples if one[0] > now - self.config.stable)
        value = seen.summed(view)
        if value is not None:
            samples = (*samples, (now, value))
        panicking, most = state.panicking, state.most
        if not state.begun and ready > 1:
            panicking, most = now, ready
        state = self.State(samples, state.wishes, panicking, most, True)
        if not samples:
            return (seen.stay(target, current, "kpa", Why.MISSING),), state
        wish, state = self._scale(now, ready, state)
        wish = min(max(wish, limits.min), limits.max)
        return (seen.ask(target, wish, current, "kpa", stable=_mean(samples), most=state.most),), state

    def _scale(self, now: float, ready: float, state: "Kpa.State") -> tuple[float, "Kpa.State"]:
        """The number of pods, and what is remembered."""
        config, pods = self.config, max(1.0, ready)
        each = config.target * config.utilisation
        stable = math.ceil(_mean(state.samples) / each - 1e-9)
        newest = [one for one in state.samples if one[0] > now - config.panic]
        panic = math.ceil(_mean(newest) / each - 1e-9) if newest else 0
        least, largest = math.floor(pods / config.down_rate), math.ceil(config.up_rate * pods)
        wish = float(min(max(stable, least), largest))
        over = panic / pods >= config.threshold
        panicking, most = state.panicking, state.most
        if over:
            panicking = now
        elif panicking is not None and panicking + config.stable < now:
            panicking, most = None, 0.0
        if panicking is not None:
            most = max(most, wish, float(min(max(panic, least), largest)))
            wish = most
        wishes: tuple[tuple[float, float], ...] = ()
        if config.down_delay > 0:
            wishes = (*(one for one in state.wishes if one[0] > now - config.down_delay), (now, wish))
            wish = max(one for _, one in wishes)
        return wish, self.State(state.samples, wishes, panicking, most, True)


def _mean(samples: Sequence[tuple[float, float]]) -> float:
    return math.fsum(value for _, value in samples) / len(samples)
