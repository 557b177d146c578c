"""llm-d's Workload Variant Autoscaler (WVA), saturation V2, with the HPA that follows it: emulation of its source.

Written after the behaviour of llm-d/llm-d-workload-variant-autoscaler
`internal/engines/analyzers/saturation_v2/analyzer.go` (at b28a4f66; the charge by role and the ladder's names at
deanlorenz' fork 2976e4ee), `internal/engines/pipeline/cost_aware_optimizer.go` (at 74afe4ce), llm-d/llm-d-autoscaling
`internal/config/saturation_scaling.go` (at 78625232: defaults) and `internal/collector/registration/saturation.go` (at
3300e6f8: queries), and its pages on the HPA. In short, every 60 s, with the highest KV usage and queue of each replica
in the last minute and mean lengths I and O of five minutes:

* demand = sum over replicas of KV tokens in use + queue x (I + O); and of the gateway's queue x (I x (1 - hits) + O);
* k1 = all KV tokens x 0.8; k2 = tokens in use where at least 5 wait (P1), else the mean of the last ten such (P2) for
  outputs of that length, else min(B x O / (I + O), S) x (I + O / 2) (P3), else k1 (P4);
* P = median over replicas of min(k1, k2); the last known one where no replica tells anything (P0);
* more: ceil((demand / 0.85 - all replicas x P) / P), where all that was asked for counts; else
  fewer: floor((serving replicas x P - demand / 0.70) / P), where only what serves counts;
* the HPA looks every 15 s at that number as an external metric with a target of 1 per replica: a change of less than
  10 % does nothing, then as in ``behaviour``;
* without any metric the last number stands.

Tuned is `up`; `down` follows it in the published proportion unless it is given. What this emulation cannot know: the
peak of a minute is taken over the bench's ticks and not over all scrapes; lengths are those of the whole pool and not
of each replica; `kv_tokens`, which WVA reads from ``vllm:cache_config_info``, and the engine's limits are given. One
variant alone, so its choice of variants by cost has nothing to choose.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from benchmarks.peers import seen
from benchmarks.peers.behaviour import Behaviour, Memory, behave, due, per_pod
from controller.core.model import Lever, Proposal
from controller.core.params import Unit, param
from controller.core.ports import Brief, View
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why

PEAK, MEANS = 60.0, 300.0  # seconds; windows of its queries
KEPT = 10  # observations of k2 that are averaged
BUCKETS = (100.0, 500.0, 1500.0, 3000.0, 6000.0)  # output tokens; edges between histories of k2
PROPORTION = 0.70 / 0.85


class Wva:
    """Replicas by tokens in use over tokens that a replica can hold."""

    TUNED = "up"
    GRID = (0.2, 0.28, 0.36, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95)
    ABOUT = (
        "llm-d's WVA, saturation V2: demand in tokens, capacity by memory and by the observed, remembered or derived "
        "compute bound, pending replicas as supply for more and not for fewer, thresholds and loop follow its source "
        "and defaults; its number goes through an HPA with the defaults of autoscaling/v2, whose tolerance of 10 % "
        "swallows single replicas of a large pool. The size of the KV cache is given; peaks are those of the bench's "
        "ticks."
    )

    levers = (Lever.REPLICAS,)
    reads = frozenset(
        {
            Signal.KV_USAGE, Signal.QUEUE_DEPTH, Signal.PROMPT_TOKEN_RATE, Signal.GENERATION_TOKEN_RATE,
            Signal.ADMITTED_RATE, Signal.FINISHED_RATE, Signal.PREFIX_HIT_RATE,
        }
    )  # fmt: skip

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Config(Behaviour):
        """Parameters of the emulated autoscaler and of its HPA; the defaults are published ones."""

        kv_tokens: float = param("tokens that the KV cache of one replica holds (num_gpu_blocks x block_size)", gt=0)
        up: float = param("scaleUpThreshold", 0.85, unit=Unit.RATIO, gt=0, le=1)
        down: float = param("scaleDownBoundary; 0 is 70/85 of up", 0.0, unit=Unit.RATIO, ge=0, lt=1)
        kv_threshold: float = param("kvCacheThreshold", 0.80, unit=Unit.RATIO, gt=0, le=1)
        queue_threshold: float = param("queueLengthThreshold: waiting requests that show a full replica", 5.0, gt=0)
        interval: float = param("reconcileInterval", 60.0, unit=Unit.DURATION, gt=0)
        max_batched: float = param("max_num_batched_tokens of the engine", 8192.0, gt=0)
        max_seqs: float = param("max_num_seqs of the engine", 256.0, gt=0)

    @dataclass(frozen=True, slots=True)
    class State:
        """`peaks` (unix seconds, replica, KV usage, waiting), `means` (unix seconds, requests/s, mean prompt, mean
        answer), `full` observations of k2 (bucket, tokens), `stored` the last P in tokens, `desired` the number
        that is told, computed at `at`."""

        hpa: Memory = field(default_factory=Memory)
        peaks: tuple[tuple[float, str, float, float], ...] = ()
        means: tuple[tuple[float, float, float, float], ...] = ()
        full: tuple[tuple[int, float], ...] = ()
        stored: float = 0.0
        desired: float | None = None
        at: float | None = None

    def __init__(self, config: "Wva.Config") -> None:
        if config.down >= config.up:
            raise ValueError("down: is not below up; write less, or leave it out")
        self.config = config

    def initial(self) -> "Wva.State":
        return self.State()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "Wva.State"
    ) -> tuple[Sequence[Proposal], "Wva.State"]:
        """SET for the one target of the pool; nothing while its replicas cannot be read."""
        found = seen.pool_target(view)
        if found is None:
            return (), state
        target, owner, current = found
        now = view.tick.at
        state = _remember(view, now, state)
        if due(now, state.at, self.config.interval):
            state = replace(self._analyse(view, current, min(current, seen.ready(owner)), state), at=now)
        if state.desired is None or current <= 0:
            return (seen.stay(target, current, "wva", Why.MISSING),), state
        if not due(now, state.hpa.at, self.config.sync):
            return (seen.stay(target, current, "wva", Why.NOT_DUE),), state
        wish = per_pod(self.config, state.desired, 1.0, current)
        value, memory = behave(self.config, wish, current, view.limits[target], now, state.hpa)
        proposal = seen.ask(target, value, current, "wva", desired=state.desired, capacity=state.stored)
        return (proposal,), replace(state, hpa=memory)

    def _analyse(self, view: View, current: float, serving: float, state: "Wva.State") -> "Wva.State":
        """The number that is told from now on; the old one where no replica tells anything."""
        config = self.config
        prompt, output = lengths(state.means)
        charge = prompt + output
        demand, bounds, full = 0.0, [], list(state.full)
        for name in sorted({name for _, name, _, _ in state.peaks} & set(view.pool.replicas)):
            used = max(kv for _, one, kv, _ in state.peaks if one == name) * config.kv_tokens
            waiting = max(depth for _, one, _, depth in state.peaks if one == name)
            demand += used + waiting * charge
            bounds.append(self._bound(used, waiting, prompt, output, full))
        if not bounds and not state.stored:
            return state
        if not bounds and not seen.at_gateway(view):
            return state
        each = median(bounds) if bounds else state.stored
        hits = view.pool.get(Signal.PREFIX_HIT_RATE).value or 0.0
        demand += seen.at_gateway(view) * (prompt * (1 - hits) + output)
        kept = tuple(full[-KEPT * (len(BUCKETS) + 1) :])
        desired = self._desired(demand, each, current, serving)
        return replace(state, full=kept, stored=each, desired=desired)

    def _bound(
        self, used: float, waiting: float, prompt: float, output: float, full: list[tuple[int, float]]
    ) -> float:  # fmt: skip
        """min(k1, k2) of one replica in tokens; an observation of k2 is added to `full`."""
        config = self.config
        k1 = config.kv_tokens * config.kv_threshold
        bucket = sum(output >= edge for edge in BUCKETS)
        if waiting >= config.queue_threshold and used > 0:
            full.append((bucket, used))
            return min(k1, used)
        past = [tokens for one, tokens in full if one == bucket][-KEPT:]
        if past:
            return min(k1, math.fsum(past) / len(past))
        if output > 0:
            steady = min(config.max_batched * output / (prompt + output), config.max_seqs)
            return min(k1, steady * (prompt + output / 2))
        return k1

    def _desired(self, demand: float, each: float, current: float, serving: float) -> float:
        config = self.config
        down = config.down or config.up * PROPORTION
        lacking = demand / config.up - current * each
        if lacking > 0:
            return current + math.ceil(lacking / each - 1e-9)
        spare = serving * each - demand / down
        return max(1.0, current - math.floor(spare / each + 1e-9)) if spare > 0 else current


class WvaDerived(Wva):
    """The same with `queue_threshold` out of reach, so that no replica is taken for full: a replica that has just come
    is sent many requests at once, holds a queue with little in use, and is remembered as small."""

    GRID = (0.3, 0.38, 0.46, 0.54, 0.62, 0.7, 0.78, 0.86, 0.95)
    ABOUT = (
        "WVA as above with queueLengthThreshold out of reach, as somebody would set it who has seen what it does here: "
        "replicas that have just come get many requests at once, are taken for full with little in use, and that is "
        "remembered as what a replica can hold. Capacity is then derived from the engine's limits and lengths alone."
    )

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Config(Wva.Config):
        """As of ``Wva``."""

        queue_threshold: float = param("queueLengthThreshold: waiting requests that show a full replica", 1e9, gt=0)


def lengths(means: Sequence[tuple[float, float, float, float]]) -> tuple[float, float]:
    """Mean tokens of prompt and answer per request; 0 where there was none."""
    count = math.fsum(one[1] for one in means)
    if count <= 0:
        return 0.0, 0.0
    return math.fsum(one[1] * one[2] for one in means) / count, math.fsum(one[1] * one[3] for one in means) / count


def _remember(view: View, now: float, state: Wva.State) -> Wva.State:
    """What this tick adds to the windows of its queries."""
    peaks = [one for one in state.peaks if one[0] > now - PEAK]
    for name, scope in sorted(view.pool.replicas.items()):
        kv, depth = scope.get(Signal.KV_USAGE).value, scope.get(Signal.QUEUE_DEPTH).value
        if kv is not None or depth is not None:
            peaks.append((now, name, kv or 0.0, depth or 0.0))
    means = [one for one in state.means if one[0] > now - MEANS]
    mean = seen.lengths(view.pool)
    if mean is not None:
        means.append((now, *mean))
    return replace(state, peaks=tuple(peaks), means=tuple(means))
