"""AIBrix' application-specific pod autoscaler (APA): emulation of its source.

Written after the behaviour of vllm-project/aibrix `pkg/controller/podautoscaler/algorithm/apa.go` (at 4148b7a1),
`context/context.go` (at 2576b186: the defaults), `metrics/client.go` (windows; at e3e10f9e), pull request 2671 (what is
on its way) and issue 2821 (cooldown windows). In short:

* value = the metric's mean over pods, and of that the mean over the last 60 s; ratio = value / target;
* ratio > 1 + 0.1: ceil(replicas x ratio), at most ceil(2 x replicas); ratio < 1 - 0.1: ceil(replicas x ratio), at least
  floor(replicas / 2); else what stands;
* while replicas that were asked for do not serve, they count as idle when more is asked for and as at their target when
  less is, and a recommendation that turns by that is dropped (`guard`; merged 2026-09);
* scaling down waits for the highest recommendation of the last 300 s, scaling up for the lowest of the last 0 s.

Its known mistakes are **not** emulated unless asked for. Until 2026-09 the cooldown windows took the wrong end of the
past, so that they held nothing (issue 2821): `inverted` brings that back. Metrics that could not be fetched read as 0
(issue 2592): here they are left out, as after the mend; with none at all nothing changes.

Tuned is `target`. What this emulation cannot know: AIBrix reads the pods themselves every 10 s and takes one metric of
one name; requests running and waiting together are what its gateway counts. What waits at another gateway it does not
see.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.peers import seen
from benchmarks.peers.behaviour import due
from controller.core.model import Lever, Proposal
from controller.core.params import Unit, param
from controller.core.ports import Brief, View
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why


class Apa:
    """Replicas by the ratio of a metric of the pods to its target, with tolerances and rates."""

    TUNED = "target"
    GRID = (6.0, 9.0, 12.0, 16.0, 20.0, 24.0, 28.0, 32.0, 40.0, 52.0)
    ABOUT = (
        "AIBrix' APA on requests in flight per replica: tolerances, rates, cooldown windows and the guard for replicas "
        "on their way follow its source and defaults. Its known mistakes are mended in the emulation: cooldown windows "
        "work as they were meant to (issue 2821), and a metric that cannot be fetched is no zero (issue 2592)."
    )

    levers = (Lever.REPLICAS,)
    reads = frozenset({Signal.RUNNING, Signal.QUEUE_DEPTH})

    @dataclass(frozen=True, slots=True)
    class Config:
        """Parameters of the emulated autoscaler; the defaults are those of its scaling context."""

        target: float = param("targetValue: the metric per replica", gt=0)
        metric: str = param("in_flight (requests running and waiting) or queue (waiting alone)", seen.IN_FLIGHT)
        up_tolerance: float = param("up-fluctuation-tolerance", 0.1, ge=0)
        down_tolerance: float = param("down-fluctuation-tolerance", 0.1, ge=0, lt=1)
        up_rate: float = param("max-scale-up-rate", 2.0, gt=1)
        down_rate: float = param("max-scale-down-rate", 2.0, gt=1)
        up_cooldown: float = param("scale-up-cooldown-window", 0.0, unit=Unit.DURATION, ge=0)
        down_cooldown: float = param("scale-down-cooldown-window", 300.0, unit=Unit.DURATION, ge=0)
        window: float = param("time over which the metric is averaged", 60.0, unit=Unit.DURATION, gt=0)
        sync: float = param("time between two decisions", 10.0, unit=Unit.DURATION, ge=0)
        guard: bool = param("whether replicas on their way damp a recommendation", True)
        inverted: bool = param("whether the cooldown windows take the wrong end of the past", False)

    @dataclass(frozen=True, slots=True)
    class State:
        """`samples` of the metric per pod and `wishes`: (unix seconds, number); `at` of the last decision."""

        samples: tuple[tuple[float, float], ...] = ()
        wishes: tuple[tuple[float, float], ...] = ()
        at: float | None = None

    def __init__(self, config: "Apa.Config") -> None:
        seen.check(config.metric)
        self.config = config

    def initial(self) -> "Apa.State":
        return self.State()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "Apa.State"
    ) -> tuple[Sequence[Proposal], "Apa.State"]:
        """SET for the one target of the pool; nothing while its replicas cannot be read."""
        found = seen.pool_target(view)
        if found is None:
            return (), state
        target, owner, current = found
        now, limits = view.tick.at, view.limits[target]
        if not due(now, state.at, self.config.sync):
            return (seen.stay(target, current, "apa", Why.NOT_DUE),), state
        mine = list(seen.per_replica(view, self.config.metric).values())
        if not mine or current <= 0:
            return (seen.stay(target, current, "apa", Why.MISSING),), state
        samples = (
            *(one for one in state.samples if one[0] > now - self.config.window),
            (now, math.fsum(mine) / len(mine)),
        )
        value = math.fsum(one for _, one in samples) / len(samples)
        wish = self._guarded(value, current, max(0.0, current - seen.ready(owner)))
        wish = min(max(wish, limits.min), limits.max)
        wanted, state = self._cool(wish, current, now, replace(state, samples=samples, at=now))
        return (seen.ask(target, wanted, current, "apa", measure=value, target=self.config.target),), state

    def _guarded(self, value: float, current: float, lacking: float) -> float:
        wish = recommend(self.config, value, current)
        if not self.config.guard or not lacking or wish == current:
            return wish
        idle = 0.0 if wish > current else self.config.target
        again = recommend(self.config, (value * (current - lacking) + idle * lacking) / current, current)
        return again if (again > current) == (wish > current) else current

    def _cool(self, wish: float, current: float, now: float, state: "Apa.State") -> tuple[float, "Apa.State"]:
        """What the cooldown windows leave of a recommendation. What stood at the start is the first of them."""
        config = self.config
        wishes = (*(state.wishes or ((now, current),)), (now, wish))
        wishes = tuple(one for one in wishes if one[0] > now - max(config.up_cooldown, config.down_cooldown))
        state = replace(state, wishes=wishes)
        window = config.up_cooldown if wish > current else config.down_cooldown
        recent = [wish, *(one for at, one in wishes if at > now - window)]
        if wish > current:
            return (max(recent) if config.inverted else max(current, min(recent))), state
        if wish < current:
            return (min(recent) if config.inverted else min(current, max(recent))), state
        return current, state


def recommend(config: Apa.Config, value: float, current: float) -> float:
    """The number that the metric per pod asks for."""
    ratio = value / config.target
    if ratio > 1 + config.up_tolerance:
        return float(min(math.ceil(current * ratio - 1e-9), math.ceil(config.up_rate * current)))
    if ratio < 1 - config.down_tolerance:
        return float(max(math.ceil(current * ratio - 1e-9), math.floor(current / config.down_rate)))
    return current
