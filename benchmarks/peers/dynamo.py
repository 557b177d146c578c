"""NVIDIA Dynamo's planner in SLA mode for aggregated workers, throughput and load loop: emulation of its source.

Written after the behaviour of ai-dynamo/dynamo, in `components/src/dynamo/planner/`: `core/throughput_scaling.py` (at
0c9050c9), `core/load_scaling.py` (at 0c6da1ec), `core/perf_model/agg.py` (at 518a7027), `core/load/predictors.py` (at
260b6ae9) and `config/defaults.py` (at 1ca60155). In short:

* throughput loop, every 180 s: requests, mean prompt, answer and hit rate of the interval are forecast one interval
  ahead (see ``predictors``); the floor is ceil(requests/s / requests/s of one engine), the latter at the largest batch
  whose step keeps the ITL and whose prefill keeps the TTFT, within the KV cache, the slots and what prefill can follow;
* load loop, every 5 s or at each tick if those are longer: one more when TTFT of **all** engines, or ITL of all, is
  estimated above its SLA; one fewer when both stay within 0.8 of it (TTFT: of what its own prefill leaves) with
  N / (N - 1) of the load each, and the KV cache holds that; never below the floor, to which it jumps at once;
* nothing while replicas are on their way or leave, or when fewer engines tell their state than there should be. A
  replica that never comes blocks it, as it did the planner (issue 14251);
* an interval whose requests could not be read counts as one without any (issue 14765): `unreadable_zero`.

Where the planner fits a linear regression to its engines' steps, this has the step-time model that it is given, which
has the right form, and learns its scale from the measured ITL over the last 64 looks (`learn`): the emulation knows
more than the planner would. The SLAs are means; those of the pool's objectives are quantiles. Tuned is `sla`: the share
of each promise that the planner is given as its SLA.

What this emulation cannot know: queued prompts are taken at their mean length, and steps are not read one by one. The
later rule that a fall must be wanted for a while (pull request 14671, merged 2026-09) is not in it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from benchmarks.peers import predictors, seen
from benchmarks.peers.behaviour import due
from benchmarks.peers.predictors import Noise, Traffic
from controller.core.model import Lever, Proposal, Scope
from controller.core.params import Unit, param
from controller.core.ports import Brief, View
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.step_model import Profile, Shape, step_time
from controller.core.why import Why

LOOKS = 64  # ratios of measured to modelled ITL that are kept
ENOUGH = 5  # of them before the scale follows


class Dynamo:
    """Replicas by a forecast floor and a step up or down from estimated latencies."""

    TUNED = "sla"
    GRID = (0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0)
    ABOUT = (
        "Dynamo's planner in SLA mode, throughput and load loop together: intervals, predictors, the search for an "
        "engine's rate, the estimates of TTFT and ITL, steps of one, the consolidation check and the wait for what is "
        "under way follow its source and defaults. In place of the fitted regression it is given the step-time model "
        "and learns its scale; the ARIMA's order is fixed. It does not see what waits at a gateway, but counts what "
        "was offered there."
    )

    levers = (Lever.REPLICAS,)
    reads = frozenset(
        {
            Signal.RUNNING, Signal.QUEUE_DEPTH, Signal.KV_USAGE, Signal.OFFERED_RATE, Signal.ADMITTED_RATE,
            Signal.FINISHED_RATE, Signal.PROMPT_TOKEN_RATE, Signal.GENERATION_TOKEN_RATE, Signal.PREFIX_HIT_RATE,
            Signal.ITL,
        }
    )  # fmt: skip

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Config:
        """Parameters of the planner; the defaults are published ones, and the coefficients Governor's prior."""

        a: float = param("seconds of a step", 6.071e-3, ge=0)
        b: float = param("seconds per prefill token", 15.35e-6, ge=0)
        c: float = param("seconds per sequence", 13.8e-6, ge=0)
        d: float = param("seconds per KV token", 41.5e-9, ge=0)
        e: float = param("seconds per prefill token squared", 1.41e-9, ge=0)
        host: float = param("seconds of the host per sequence", 0.0, ge=0)
        kv_tokens: float = param("max_kv_tokens; 0 is unknown", 0.0, ge=0)
        max_seqs: float = param("max_num_seqs", 256.0, ge=1)
        max_batched: float = param("max_num_batched_tokens", 8192.0, ge=2)
        sla: float = param("share of each promise that is the SLA", 1.0, gt=0, le=2)
        ttft: float = param("TTFT SLA where no objective names one", 0.5, unit=Unit.DURATION, gt=0)
        itl: float = param("ITL SLA where no objective names one", 0.05, unit=Unit.DURATION, gt=0)
        predictor: str = param("load_predictor: constant, arima or kalman", predictors.ARIMA)
        q_level: float = param("kalman_q_level", 1.0, gt=0)
        q_trend: float = param("kalman_q_trend", 0.1, gt=0)
        r: float = param("kalman_r", 10.0, gt=0)
        interval: float = param("throughput_adjustment_interval", 180.0, unit=Unit.DURATION, gt=0)
        load_interval: float = param("load_adjustment_interval", 5.0, unit=Unit.DURATION, gt=0)
        sensitivity: float = param("load_scaling_down_sensitivity", 0.8, unit=Unit.RATIO, gt=0, le=1)
        min_endpoint: int = param("min_endpoint", 1, ge=1)
        throughput: bool = param("enable_throughput_scaling", True)
        load: bool = param("enable_load_scaling", True)
        learn: bool = param("whether the scale of the step time follows the measured ITL", True)
        unreadable_zero: bool = param("whether requests that cannot be read count as none", True)

    @dataclass(frozen=True, slots=True)
    class State:
        """`samples` of the running interval: offered and begun requests/s, mean prompt and answer, hits.
        `planned` and `looked` unix seconds of the loops; `floor` replicas; `ratios` measured over modelled ITL."""

        samples: tuple[tuple[float, float, float, float, float], ...] = ()
        traffic: Traffic = field(default_factory=Traffic)
        planned: float | None = None
        looked: float | None = None
        floor: float = 0.0
        ratios: tuple[float, ...] = ()

    def __init__(self, config: "Dynamo.Config") -> None:
        if config.predictor not in predictors.KINDS:
            raise ValueError(
                f"predictor: unknown {config.predictor!r}; write one of {', '.join(predictors.KINDS)}"
            )  # fmt: skip
        if not config.throughput and not config.load:
            raise ValueError("load: neither loop is on; switch one on")
        self.config = config
        self.profile = Profile(
            config.a, config.b, config.c, config.d, config.e, config.max_seqs, config.kv_tokens or None, config.host
        )

    def initial(self) -> "Dynamo.State":
        return self.State()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "Dynamo.State"
    ) -> tuple[Sequence[Proposal], "Dynamo.State"]:
        """SET for the one target of the pool; nothing while its replicas cannot be read."""
        found = seen.pool_target(view)
        if found is None:
            return (), state
        target, owner, current = found
        config, now, limits = self.config, view.tick.at, view.limits[target]
        slas = self._slas(objectives)
        state = self._learned(view, self._sampled(view, state))
        planned = False
        if state.planned is None:
            state = replace(state, planned=now, samples=())  # the first interval begins
        elif config.throughput and due(now, state.planned, config.interval):
            state, planned = self._plan(now, slas, state), True
        wish, why = current, Why.NOT_DUE
        if config.load and due(now, state.looked, config.load_interval):
            state = replace(state, looked=now)
            if owner.pending or seen.ready(owner) != current or len(seen.per_replica(view)) != current:
                why = Why.IN_FLIGHT if seen.answers(view) else Why.MISSING
            else:
                wish, why = max(self._load(view, slas, current, state), state.floor), Why.STEADY
        elif planned and not config.load and state.floor:
            wish = state.floor
        wish = min(max(wish, limits.min), limits.max)
        if wish == current:
            return (seen.stay(target, current, "dynamo", why),), state
        return (seen.ask(target, wish, current, "dynamo", floor=state.floor, scale=self._scale(state)),), state

    def _slas(self, objectives: Sequence[Objective]) -> tuple[float, float]:
        """TTFT and ITL in seconds."""
        first = [o.target for o in objectives if o.signal is Signal.TTFT]
        each = [o.target for o in objectives if o.signal in (Signal.ITL, Signal.TPOT)]
        share = self.config.sla
        return min(first, default=self.config.ttft) * share, min(each, default=self.config.itl) * share

    # --- throughput loop ---------------------------------------------------------------------------------------------

    def _sampled(self, view: View, state: "Dynamo.State") -> "Dynamo.State":
        """This tick's part of the interval."""
        offered = view.pool.get(Signal.OFFERED_RATE).value
        if offered is None:
            return state
        mean, hits = seen.lengths(view.pool) or (0.0, 0.0, 0.0), _rate(view.pool, Signal.PREFIX_HIT_RATE)
        return replace(state, samples=(*state.samples, (offered, *mean, hits)))

    def _plan(self, now: float, slas: tuple[float, float], state: "Dynamo.State") -> "Dynamo.State":
        """The floor for the next interval."""
        config, samples, traffic = self.config, state.samples, state.traffic
        state = replace(state, samples=(), planned=now)
        if not samples and not config.unreadable_zero:
            return state
        noise = Noise(config.q_level, config.q_trend, config.r)
        offered = math.fsum(one[0] for one in samples) / len(samples) if samples else 0.0
        traffic = replace(traffic, requests=predictors.add(traffic.requests, offered * config.interval, noise))
        begun = math.fsum(one[1] for one in samples)
        if begun > 0:  # lengths are carried over intervals without any request
            prompt, output, hits = (math.fsum(one[1] * one[i] for one in samples) / begun for i in (2, 3, 4))
            traffic = replace(
                traffic,
                prompt=predictors.add(traffic.prompt, prompt, noise),
                output=predictors.add(traffic.output, output, noise),
                hits=predictors.add(traffic.hits, hits, noise),
            )
        state = replace(state, traffic=traffic)
        shape = self._shape(traffic)
        if shape is None:
            return state
        rate = self._engine_rate(shape, slas, self._scale(state))
        requests = max(0.0, predictors.predict(traffic.requests, config.predictor)) / config.interval
        return replace(state, floor=max(float(math.ceil(requests / rate - 1e-9)), float(config.min_endpoint)))

    def _shape(self, traffic: Traffic) -> Shape | None:
        """Forecast lengths; None before any request finished."""
        prompt, output, hits = (
            predictors.predict(one, self.config.predictor) for one in (traffic.prompt, traffic.output, traffic.hits)
        )
        return Shape(prompt, output, min(max(hits, 0.0), 1.0)) if prompt > 0 and output > 0 else None

    def _engine_rate(self, shape: Shape, slas: tuple[float, float], scale: float) -> float:
        """Requests per second of one engine at the largest batch that keeps both SLAs; of a batch of one where none
        does."""
        config = self.config
        context = shape.prompt + shape.output / 2
        caps = [config.max_seqs, shape.output * config.max_batched / (shape.prompt + shape.output)]
        if config.kv_tokens:
            caps.append(config.kv_tokens / context)
        rate = 0.0
        for n in range(1, max(1, math.floor(min(caps))) + 1):
            step = step_time(self.profile, shape, n, scale)
            ahead = min(n * shape.prompt * (1 - shape.hit_rate) / max(1.0, shape.output), config.max_batched)
            first = self._ttft(ahead + shape.prompt, n, n * context, scale)
            if n > 1 and (step > slas[1] or first > slas[0]):
                break
            rate = n / (shape.output * step)
            if step > slas[1] or first > slas[0]:
                break
        return rate

    def _ttft(self, tokens: float, n: float, kv: float, scale: float) -> float:
        """Seconds until `tokens` of prompts are through, in chunks beside n sequences with `kv` tokens."""
        p, left, total = self.profile, tokens, 0.0
        while left > 0:
            chunk = min(left, self.config.max_batched)
            prefill = p.b * chunk + p.e * chunk * chunk / 2
            total += self._step(n, kv, prefill, scale)
            left -= chunk
        return total

    # --- load loop ---------------------------------------------------------------------------------------------------

    def _load(self, view: View, slas: tuple[float, float], current: float, state: "Dynamo.State") -> float:
        """One more, one fewer, or what stands."""
        shape = self._shape(state.traffic) or _shape_now(view.pool)
        if shape is None:
            return current
        config, scale = self.config, self._scale(state)
        firsts, gaps, fewer = [], [], current > 1
        more = current / (current - 1) if current > 1 else 1.0
        for name in sorted(seen.per_replica(view)):
            scope = view.pool.replicas[name]
            n, waiting = _rate(scope, Signal.RUNNING), _rate(scope, Signal.QUEUE_DEPTH)
            usage = scope.get(Signal.KV_USAGE).value
            kv = usage * config.kv_tokens if usage is not None and config.kv_tokens else n * _context(shape)
            queued = waiting * shape.prompt
            firsts.append(self._ttft((queued + shape.prompt) * (1 - shape.hit_rate), n, kv, scale))
            gaps.append(self._gap(shape, n, kv + _context(shape), n, scale))
            if fewer:
                fewer = self._consolidates(shape, slas, (n, kv, queued), more, scale)
        if firsts and (min(firsts) > slas[0] or min(gaps) > slas[1]):
            return current + 1
        return max(current - 1, float(config.min_endpoint)) if fewer and firsts else current

    def _consolidates(
        self, shape: Shape, slas: tuple[float, float], held: tuple[float, float, float], more: float, scale: float
    ) -> bool:
        """Whether an engine would keep the SLAs with `more` times of what it holds (sequences, KV tokens, prompt
        tokens waiting)."""
        config = self.config
        n, kv, queued = (one * more for one in held)
        if config.kv_tokens and kv + queued >= config.kv_tokens:
            return False
        fresh = 1 - shape.hit_rate
        own = self._ttft(shape.prompt * fresh, n, kv, scale)
        left = (slas[0] - own) * config.sensitivity
        wait = self._ttft((queued + shape.prompt) * fresh, n, kv, scale) - own
        gap = self._gap(shape, n, kv + queued + _context(shape), held[0], scale)
        return left > 0 and wait < left and gap < slas[1] * config.sensitivity

    def _gap(self, shape: Shape, n: float, kv: float, mean: float, scale: float) -> float:
        """Seconds of a step with n sequences that hold `kv` tokens and the part of prefill that `mean` bring with
        them."""
        p, fresh = self.profile, shape.prompt * (1 - shape.hit_rate)
        each = (p.b * fresh + p.e * fresh * (shape.prompt - fresh / 2)) / max(1.0, shape.output)
        return self._step(n, kv, each * mean, scale)

    def _step(self, n: float, kv: float, prefill: float, scale: float) -> float:
        """Seconds of a step with n sequences that hold `kv` tokens, and `prefill` seconds of prompts."""
        p = self.profile
        return scale * (max(p.a + p.c * n + p.d * kv, p.host * n) + prefill)

    # --- the scale of the model --------------------------------------------------------------------------------------

    def _learned(self, view: View, state: "Dynamo.State") -> "Dynamo.State":
        """One more ratio of measured to modelled ITL."""
        shape, mine = _shape_now(view.pool), seen.per_replica(view)
        measured = view.pool.latency(Signal.ITL, "mean").value
        running = [_rate(view.pool.replicas[name], Signal.RUNNING) for name in mine]
        if not self.config.learn or shape is None or not measured or not running or not math.fsum(running):
            return state
        n = math.fsum(running) / len(running)
        ratio = measured / step_time(self.profile, shape, n)
        return replace(state, ratios=(*state.ratios, ratio)[-LOOKS:])

    def _scale(self, state: "Dynamo.State") -> float:
        ratios = state.ratios
        return math.fsum(ratios) / len(ratios) if len(ratios) >= ENOUGH else 1.0


def _rate(scope: Scope, signal: Signal) -> float:
    return scope.get(signal).value or 0.0


def _shape_now(pool: Scope) -> Shape | None:
    """Mean lengths in the newest window; None where nothing moves."""
    mean = seen.lengths(pool)
    if mean is None:
        return None
    return Shape(mean[1], mean[2], min(max(_rate(pool, Signal.PREFIX_HIT_RATE), 0.0), 1.0))


def _context(shape: Shape) -> float:
    """Mean KV tokens of a sequence."""
    return shape.prompt + shape.output / 2
