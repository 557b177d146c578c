"""What is learned of a pool: demand and its forecast, the capacity of a replica, how long a replica takes to come.

Pure: readings and the previous state in, an estimate and the next state out. One home for everything learned, so that
policies stay laws and the ledger holds all memory.
"""

import math
from dataclasses import dataclass, field, replace

from controller.core import burn
from controller.core import forecast as ahead_of
from controller.core.model import PoolReadings, TargetState
from controller.core.parts import split
from controller.core.ports import Estimate
from controller.core.reading import Reading
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.step_model import KV_FILL, Capacity, Profile, Shape, capacity, proven, step_time, terms
from controller.core.tilt import Tilt

LEARN_TIME = 180.0  # seconds over which kappa and the shape of requests follow what is measured
RAMP = 0.35  # kappa is frozen while the batch changes by more than this share per tick
CROWD = 0.25  # waiting per running request above which a replica counts as full
CROWD_DELAY = 2.0  # seconds of queue delay below which nobody counts as waiting for a slot
FORGET_FULL = 240.0  # times as long as it was seen, a learned limit of the batch takes to grow by an e-fold
BURN_MARGIN = 0.15  # extra capacity while the error budget burns too fast
DRAIN = 60.0  # seconds in which a backlog should be gone
MARGIN_QUANTILE = 0.8
PASSING = 0.5  # share of the tightest promised wait; who waits no longer is between two steps of the engine
UNPROMISED = 2.0  # seconds of wait that count as promised where nothing is
_PRIOR = Profile()  # of a pool that has none of its own
# What an estimate is made of. A policy that goes by it names these among what it reads, else they are not fetched.
READS = frozenset(
    {
        Signal.OFFERED_RATE, Signal.ADMITTED_RATE, Signal.FINISHED_RATE, Signal.RETRY_SHARE, Signal.PROMPT_TOKEN_RATE,
        Signal.GENERATION_TOKEN_RATE, Signal.PREFIX_HIT_RATE, Signal.ITL, Signal.RUNNING, Signal.KV_USAGE,
        Signal.QUEUE_DEPTH, Signal.QUEUE_DELAY, Signal.READY_REPLICAS, Signal.STUCK,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class EstimatorSpec:
    """What the estimator must know of a pool. `profile` None means the default prior; `cold_start` is the prior for the
    seconds from asking for a replica to its first answer; `lead` what a decision loses on top (a tick, a window);
    `budget_period` the seconds over which failures may add up."""

    pool: str
    objectives: tuple[Objective, ...]
    profile: Profile | None = None
    cold_start: float = 180.0
    lead: float = 30.0
    budget_period: float = burn.PERIOD
    give_up: float = 900.0

    @property
    def itl_target(self) -> float | None:
        """Seconds per output token that the strictest objective allows."""
        targets = [o.target for o in self.objectives if o.signal in (Signal.ITL, Signal.TPOT)]
        return min(targets) if targets else None

    @property
    def passing(self) -> float:
        """Seconds of wait that are no queue: half of the tightest wait that is promised."""
        waits = [o.target for o in self.objectives if o.signal in (Signal.TTFT, Signal.QUEUE_TIME)]
        return PASSING * min(waits, default=UNPROMISED)

    @property
    def kappa_bounds(self) -> tuple[float, float]:
        # A profile that the user gave may be wrong in scale by two; the default prior is for another model altogether.
        return (0.5, 2.0) if self.profile is not None else (0.1, 20.0)


@dataclass(frozen=True, slots=True)
class EstimatorState:
    """`batch` is the sequences per replica at the last tick, `seen` the most so far; `kv_sequences` how many sequences
    fill the KV cache of one replica; `full` the batch at which requests had to wait, where that was
    seen, and `full_for` how many seconds of that; `asked` capacity that was asked for and is awaited: (replicas, unix
    seconds); `lags` seconds that capacity took to come, newest last; `cache_told` whether KV usage was ever read."""

    at: float | None = None
    kappa: float = 1.0
    samples: int = 0
    tilt: Tilt = field(default_factory=Tilt)
    batch: float | None = None
    seen: float | None = None
    kv_sequences: float | None = None
    full: float | None = None
    full_for: float = 0.0
    replicas: float | None = None
    crowded: bool = False
    shape: Shape | None = None
    forecast: ahead_of.ForecastState = field(default_factory=ahead_of.ForecastState)
    accepted: float | None = None
    asked: tuple[tuple[float, float], ...] = ()
    lags: tuple[float, ...] = ()
    cache_told: bool = False


def update(
    spec: EstimatorSpec, pool: PoolReadings, target: TargetState | None, now: float, state: EstimatorState
) -> tuple[Estimate, EstimatorState]:
    """One tick of one pool."""
    replicas = _serving(pool, target)
    state = _cold_start(spec, target, replicas, now, state)
    horizon = _horizon(spec, state)
    offered = _offered(pool)
    told = state.cache_told or pool.get(Signal.KV_USAGE).usable is not None
    state = _learn(spec, pool, replicas, now, state, state.forecast, told=told)
    profile = _bent(spec.profile or _PRIOR, state)
    served = _capacity(spec, profile, state)
    ahead, state = _ahead(spec, served, offered, now, horizon, state)
    shown = None
    if served is not None and state.shape is not None:
        shown = proven(profile, _thinner(state.shape, replicas), state.kappa, served, state.seen)
    burning = any(burn.burning(readings, spec.budget_period) for readings in pool.burn.values())
    found = _assemble(pool, replicas, served, shown, offered, ahead, horizon, burning, state, profile)
    found = replace(found, passing=spec.passing)
    if state.shape is not None:  # so that laws can compare replicas whose batches differ
        base, each, least = terms(profile, state.shape, state.kappa)
        more = {"step_base": base, "step_each": each, "step_least": least, **_kv_tokens(profile, state.shape, state)}
        found = replace(found, evidence={**found.evidence, **more})
    return found, state


def _ahead(
    spec: EstimatorSpec, served: Capacity | None, offered: float | None, now: float, horizon: float,
    state: EstimatorState,
) -> tuple[ahead_of.Forecast | None, EstimatorState]:  # fmt: skip
    """The forecast in replica-equivalents. What is forecast is work: requests times the replica-seconds that each is
    by the model, so that prompts that get longer are seen as well; and what is learned of the model's scale meanwhile
    is no trend of the load."""
    if offered is None or (state.shape is None and offered > 0):
        return None, state
    unit = 1.0
    if state.shape is not None:
        unit = capacity(spec.profile or _PRIOR, state.shape, 1.0, spec.itl_target, None).rate
    ahead, memory = ahead_of.update(state.forecast, now, offered / unit, horizon, MARGIN_QUANTILE)
    state = replace(state, forecast=memory)
    if served is None:
        return None, state
    scale = unit / served.rate
    made = replace(ahead, value=ahead.value * scale, upper=ahead.upper * scale, now=ahead.now * scale)
    return made, state


def _kv_tokens(profile: Profile, shape: Shape, state: EstimatorState) -> dict[str, float]:
    """Tokens that the KV cache of one replica holds: by the profile, else as many as the sequences that fill it have.
    A prefix that they share counts for each of them, so what is measured is rather too much."""
    if profile.kv_tokens is not None:
        return {"kv_tokens": profile.kv_tokens}
    if state.kv_sequences is None:
        return {}
    return {"kv_tokens": state.kv_sequences * (shape.prompt + shape.output / 2)}


def _assemble(
    pool: PoolReadings, replicas: float | None, served: Capacity | None, shown: float | None, offered: float | None,
    ahead: ahead_of.Forecast | None, horizon: float, burning: bool, state: EstimatorState, profile: Profile,
) -> Estimate:  # fmt: skip
    demands: dict[str, float] = {}
    if served is not None and offered is not None:
        demands["compute"] = offered / served.rate
    kv = pool.get(Signal.KV_USAGE)
    if kv.usable is not None and replicas:
        demands["kv"] = replicas * kv.usable / KV_FILL
    waiting = pool.get(Signal.QUEUE_DEPTH).usable or 0.0
    left = _still_waiting(pool, waiting, offered, horizon)
    evidence = {f"demand_{name}": value for name, value in demands.items()}
    evidence.update(kappa=state.kappa, horizon=horizon, waiting=waiting, still_waiting=left)
    if served is not None:
        evidence.update(unit_rate=served.rate, unit_sequences=served.sequences)
    if shown is not None:
        evidence["proven_rate"] = shown
    if offered is not None:
        evidence["offered"] = offered
    if replicas is not None:
        evidence["serving"] = replicas
    expected = None
    if served is not None and ahead is not None:
        expected = ahead.upper
        evidence.update(forecast_rate=ahead.value * served.rate, forecast_upper=ahead.upper * served.rate)
    hit = pool.get(Signal.PREFIX_HIT_RATE)
    demand = max(demands.values()) if demands else None
    flows: dict[str, float] = {}
    klasses: dict[str, float] = {}
    unit_tokens = None
    if served is not None and state.shape is not None:
        unit_tokens = served.rate * (state.shape.prompt + state.shape.output)
        if demand is not None and offered is not None:
            flows = split(demand, offered, pool.tenants, profile, state.shape)
            klasses = split(demand, offered, pool.classes, profile, state.shape)
    return Estimate(
        offered=offered,
        demand=demand,
        forecast=expected,
        level=ahead.now if ahead is not None else None,
        noise=ahead.noise if ahead is not None else 0.0,
        backlog=left / (served.rate * DRAIN) if served is not None else 0.0,
        unit_rate=served.rate if served is not None else None,
        hit_rate=hit.value,
        kappa=state.kappa,
        horizon=horizon,
        margin=BURN_MARGIN if burning else 0.0,
        burning=burning,
        cache_told=state.cache_told,
        trusted=_trusted(pool, offered, served),
        evidence=evidence,
        unit_tokens=unit_tokens,
        unit_sequences=served.sequences if served is not None else None,
        flows=flows,
        classes=klasses,
    )


def _still_waiting(pool: PoolReadings, waiting: float, offered: float | None, horizon: float) -> float:
    """Of the requests that wait now, those that would still wait when a replica asked for now is warm. A queue that
    clears by itself before that is not helped by it. A queue that grows is in the demand already."""
    leaving = pool.get(Signal.ADMITTED_RATE).usable
    if leaving is None or offered is None:
        return waiting
    return max(0.0, waiting - max(0.0, leaving - offered) * horizon)


def _trusted(pool: PoolReadings, offered: float | None, served: Capacity | None) -> bool:
    """Whether less capacity may be justified: demand and queue are read from fresh, whole, full windows. With no
    load at all the capacity of a replica does not matter."""
    rate, depth = pool.get(Signal.OFFERED_RATE), pool.get(Signal.QUEUE_DEPTH)
    return rate.trusted and depth.trusted and offered is not None and (served is not None or offered <= 0)


def _offered(pool: PoolReadings) -> float | None:
    """Requests offered per second, each once: the reading counts no retry, where anybody can tell one."""
    return pool.get(Signal.OFFERED_RATE).usable


def _serving(pool: PoolReadings, target: TargetState | None) -> float | None:
    """Replicas that serve: those whose scrapes we see, else what the owner says is ready."""
    seen = sum(1 for scope in pool.replicas.values() if scope.get(Signal.QUEUE_DEPTH).value is not None
               or scope.get(Signal.KV_USAGE).value is not None)  # fmt: skip
    if seen:
        return float(seen)
    ready: Reading = pool.get(Signal.READY_REPLICAS)
    if ready.value is not None:
        return ready.value
    return target.ready if target is not None else None


def _learn(
    spec: EstimatorSpec, pool: PoolReadings, replicas: float | None, now: float, state: EstimatorState,
    memory: ahead_of.ForecastState, *, told: bool,
) -> EstimatorState:  # fmt: skip
    """The next state; `memory` of the forecast and `told` whether KV usage was ever read go into it as they are."""
    finished = pool.get(Signal.FINISHED_RATE)
    prompt, output = pool.get(Signal.PROMPT_TOKEN_RATE), pool.get(Signal.GENERATION_TOKEN_RATE)
    if not replicas or not finished.value or not output.value:
        return replace(state, at=now, batch=None, replicas=replicas, forecast=memory, cache_told=told)
    gain = _gain(state.at, now, state.samples)
    hit = min(max(pool.get(Signal.PREFIX_HIT_RATE).value or 0.0, 0.0), 1.0)
    # Prompt tokens are counted when a request begins and answer tokens while it runs: over those that finished, both
    # look too long for as long as more begin than end, and a fleet that has just begun would be asked for threefold.
    begun = pool.get(Signal.ADMITTED_RATE).usable or finished.value
    seen = Shape((prompt.value or 0.0) / begun, 2 * output.value / (begun + finished.value), hit)
    shape = _blend(state.shape, seen, gain)
    itl = _itl(pool)
    batch = _batch(pool, itl, output.value, replicas)
    if not batch:
        return replace(
            state, at=now, shape=shape, batch=None, replicas=replicas, forecast=memory, cache_told=told
        )  # fmt: skip
    # While replicas come or go the window mixes two fleets, and while the batch ramps two loads.
    steady = (
        state.batch is not None
        and abs(batch - state.batch) <= RAMP * max(batch, state.batch)
        and state.replicas == replicas
    )
    kappa, samples, tilt = state.kappa, state.samples, state.tilt
    if itl is not None and steady and state.at is not None and state.batch is not None:
        # The latency is of the whole interval, the batch of its ends.
        kappa, tilt = _kappa(spec, itl, (batch + state.batch) / 2, shape, gain, now - state.at, state)
        samples += 1
    crowded, full, full_for = _saturation(pool, replicas, batch, now, state)
    return EstimatorState(
        at=now,
        kappa=kappa,
        samples=samples,
        tilt=tilt,
        batch=batch,
        seen=max(batch, state.seen or 0.0),
        kv_sequences=_kv_sequences(pool, batch, gain, state.kv_sequences),
        full=full,
        full_for=full_for,
        replicas=replicas,
        crowded=crowded,
        shape=shape,
        forecast=memory,
        accepted=state.accepted,
        asked=state.asked,
        lags=state.lags,
        cache_told=told,
    )


def _batch(pool: PoolReadings, itl: float | None, tokens: float, replicas: float) -> float | None:
    """Sequences per replica: measured, or by Little's law from tokens per second and seconds per token."""
    running = pool.get(Signal.RUNNING).value
    if running is not None:
        return running / replicas
    return None if itl is None else tokens * itl / replicas


def _kv_sequences(pool: PoolReadings, batch: float, gain: float, before: float | None) -> float | None:
    """Sequences that would fill the KV cache; a nearly empty cache says nothing about that."""
    kv = pool.get(Signal.KV_USAGE).value
    if kv is None or kv <= 0.05:
        return before
    return batch / kv if before is None else before + gain * (batch / kv - before)


def _saturation(
    pool: PoolReadings, replicas: float, batch: float, now: float, state: EstimatorState
) -> tuple[bool, float | None, float]:
    """Whether replicas are crowded, the batch at which they are full, and for how long that was seen. A batch that does
    not grow while many wait for long, twice in a row, is as large as this engine makes it; a short queue is normal
    between two steps and says nothing. What was seen for a moment is soon forgotten, what was seen for hours is not."""
    waiting = (pool.get(Signal.QUEUE_DEPTH).value or 0.0) / replicas
    delay = pool.get(Signal.QUEUE_DELAY).usable or 0.0
    gone = now - state.at if state.at is not None else 0.0
    full, full_for = state.full, state.full_for
    if pool.get(Signal.STUCK).value:
        return False, full, full_for  # an engine that stands still is not full
    crowded = waiting >= max(1.0, CROWD * batch) and delay >= CROWD_DELAY
    if crowded and state.crowded:
        return crowded, max(batch, state.seen or 0.0), full_for + gone  # what it once held, it can hold
    if full is not None and not waiting:
        full = max(full * math.exp(gone / (FORGET_FULL * max(full_for, 1.0))), batch)
    return crowded, full, full_for


def _kappa(
    spec: EstimatorSpec, itl: float, batch: float, shape: Shape, gain: float, gone: float, state: EstimatorState
) -> tuple[float, Tilt]:
    """Follow measured over modelled step time, in logs and slowly, and how it changes with the batch."""
    lo, hi = spec.kappa_bounds
    profile = spec.profile or _PRIOR
    bent = step_time(_bent(profile, state), shape, batch)
    ratio = min(max(itl / bent, lo), hi)
    kappa = math.exp(math.log(state.kappa) + gain * (math.log(ratio) - math.log(state.kappa)))
    modelled, base = step_time(profile, shape, batch), terms(profile, shape, 1.0)[0]
    return kappa, state.tilt.take(gone, min(max(1.0 - base / modelled, 0.0), 1.0), min(max(itl / modelled, lo), hi))


def _bent(profile: Profile, state: EstimatorState) -> Profile:
    """The profile with its fixed and its growing part as they were learned; kappa scales both."""
    fixed, grows = state.tilt.factors()
    if (fixed, grows) == (1.0, 1.0):
        return profile
    return replace(
        profile, a=profile.a * fixed, b=profile.b * grows, c=profile.c * grows, d=profile.d * grows,
        e=profile.e * grows, host=profile.host * grows,
    )  # fmt: skip


def _itl(pool: PoolReadings) -> float | None:
    for signal in (Signal.ITL, Signal.TPOT):
        reading = pool.latency(signal, "mean")
        if reading.value:
            return reading.value
    return None


def _gain(before: float | None, now: float, samples: int) -> float:
    """Weight of a new sample: by the time that passed, and fast while there are few; the prior counts as one."""
    gone = now - before if before is not None else LEARN_TIME
    return max(1 - math.exp(-gone / LEARN_TIME), 1.0 / (samples + 2))


def _blend(old: Shape | None, new: Shape, g: float) -> Shape:
    if old is None:
        return new
    return Shape(
        old.prompt + g * (new.prompt - old.prompt),
        old.output + g * (new.output - old.output),
        old.hit_rate + g * (new.hit_rate - old.hit_rate),
    )


def _capacity(spec: EstimatorSpec, profile: Profile, state: EstimatorState) -> Capacity | None:
    if state.shape is None:
        return None
    return capacity(profile, state.shape, state.kappa, spec.itl_target, state.kv_sequences, state.full)


def _thinner(shape: Shape, replicas: float | None) -> Shape:
    """The same requests with one replica fewer: its part of the prefix cache goes with it."""
    if not replicas or replicas <= 1:
        return shape
    return Shape(shape.prompt, shape.output, shape.hit_rate * (1 - 1 / replicas))


def _horizon(spec: EstimatorSpec, state: EstimatorState) -> float:
    """Seconds until a replica asked for now is warm: the 90 % quantile of what was seen, but never the single
    longest of few; the prior before there are three."""
    if len(state.lags) < 3:
        return spec.cold_start + spec.lead
    ranked = sorted(state.lags)
    return ranked[min(len(ranked) - 2, math.ceil(0.9 * len(ranked)) - 1)] + spec.lead


def _cold_start(
    spec: EstimatorSpec, target: TargetState | None, replicas: float | None, now: float, state: EstimatorState
) -> EstimatorState:
    """Time from a raised spec to that many replicas serving."""
    if target is None or target.accepted is None or replicas is None:
        return state
    asked, lags = state.asked, state.lags
    if state.accepted is not None and target.accepted > state.accepted:
        asked = (*asked, (target.accepted, now))
    elif state.accepted is not None and target.accepted < state.accepted:
        asked = tuple((count, since) for count, since in asked if count <= target.accepted)
    # What came after it was given up says how long a quota lasted, not how long a start takes.
    asked = tuple((count, since) for count, since in asked if now - since < spec.give_up)
    come = [(count, since) for count, since in asked if replicas >= count]
    lags = (*lags, *(now - since for _, since in come))[-20:]
    asked = tuple(a for a in asked if a not in come)
    if (target.accepted, asked, lags) == (state.accepted, state.asked, state.lags):
        return state
    return replace(state, accepted=target.accepted, asked=asked, lags=lags)
