"""Learning of a replica: how long its requests are, how far its step-time model is off, and when it is full.

Pure: the readings of one tick and the memory before it give the memory after it.
"""

import math

from controller.core import forecast as ahead_of
from controller.core import shape as of_requests
from controller.core.learned import Crowd, EstimatorSpec, EstimatorState, Scale
from controller.core.model import PoolReadings
from controller.core.signals import Signal
from controller.core.step_model import Profile, Shape, step_time
from controller.core.stragglers import looks, others
from controller.core.stretch import ENOUGH as STRETCH
from controller.core.stretch import Stretch
from controller.core.tilt import Tilt

LEARN_TIME = 180.0  # seconds over which kappa and the shape of requests follow what is measured
STOOD = 60.0  # seconds between the scales that are remembered: until then a jump shows in windows of a minute
RAMP = 0.35  # kappa is frozen while the batch changes by more than this share from one sample to the next
CROWD = 0.25  # waiting per running request above which a replica counts as full
CROWD_DELAY = 2.0  # seconds of queue delay below which nobody counts as waiting for a slot
CROWDED = 10.0  # seconds of that with a batch that does not grow, after which it counts as full
GROWN = 1.1  # times the batch that have grown
FORGET_FULL = 240.0  # times as long as it was seen, a learned limit of the batch takes to grow by an e-fold
FORGOTTEN = 5.0  # e-folds at once: after days of silence there is no limit left to speak of


def learn(
    spec: EstimatorSpec, pool: PoolReadings, replicas: float | None, now: float, state: EstimatorState,
    memory: ahead_of.ForecastState, *, told: bool, shape: Shape | None = None,
) -> EstimatorState:  # fmt: skip
    """The next state. `memory` of the forecast, `told` whether KV usage was ever read, and a `shape` that is known
    already (the pool's, where these are some of its replicas) go into it as they are."""
    finished = pool.get(Signal.FINISHED_RATE)
    prompt, output = pool.get(Signal.PROMPT_TOKEN_RATE), pool.get(Signal.GENERATION_TOKEN_RATE)
    if not replicas or not finished.value or not output.value:
        return state._replace(
            at=now, batch=None, replicas=replicas, forecast=memory, cache_told=told, stretch=Stretch()
        )  # fmt: skip
    gone = now - state.at if state.at is not None else None
    gain, jumped = _gain(gone, state.samples), state.jumped
    if shape is None:
        seen = of_requests.measured(pool, prompt.value or 0.0, output.value, finished.value)
        shape, jumped = of_requests.followed(spec.prior, pool, seen, state, gain, now)
    itl = _itl(pool)
    batch = _batch(pool, itl, output.value, replicas)
    profile, left_out = bent(spec.prior, state), state.stragglers
    stretch, shown = state.stretch.take(
        looks(pool) if itl is not None else {}, gone, replicas, whole=state.replicas == replicas
    )
    if shown is not None:
        # Who is slow by itself says nothing of the others, and the model is of one that is not.
        rest = others(shown, profile, shape)
        left_out = 0
        if rest is not None:
            itl, batch, left_out = rest
    if not batch:
        return state._replace(
            at=now, shape=shape, jumped=jumped, batch=None, replicas=replicas, forecast=memory, cache_told=told,
            stragglers=left_out, stretch=stretch,
        )  # fmt: skip
    # While replicas come or go the window mixes two fleets, while the batch ramps two loads, and while requests change
    # the model is asked for others than those that were served.
    steady = (
        state.batch is not None
        and not of_requests.changing(jumped, now)
        and abs(batch - state.batch) <= RAMP * max(batch, state.batch)
        and state.replicas == replicas
    )
    kappa, samples, tilt = state.kappa, state.samples, state.tilt
    stood = _stood(state, jumped, now)
    if jumped == now and stood:
        _, kappa, tilt = stood[0]  # what was learned since was of requests that nobody knew of
    if shown is not None and itl is not None and steady and gone is not None and state.batch is not None:
        # The latency is of the whole stretch, the batch of its ends.
        time = state.stretch.time + gone
        weight = _gain(time, samples)
        kappa, tilt = _kappa(spec, profile, itl, (batch + state.batch) / 2, shape, weight, time, state)
        samples += 1
    waiting = pool.get(Signal.QUEUE_DEPTH).usable or 0.0
    crowd, full, full_for = _saturation(pool, replicas, batch, now, state)
    return state._replace(
        at=now,
        kappa=kappa,
        samples=samples,
        tilt=tilt,
        stood=stood,
        batch=batch if shown is not None else state.batch,
        seen=max(batch, state.seen or 0.0),
        kv_sequences=_kv_sequences(pool, batch, gain, state.kv_sequences),
        slots=state.slots.take(pool.replicas.values(), waiting, now) if waiting else state.slots,
        full=full,
        full_for=full_for,
        replicas=replicas,
        crowd=crowd,
        shape=shape,
        jumped=jumped,
        forecast=memory,
        cache_told=told,
        stragglers=left_out,
        stretch=stretch,
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
) -> tuple[Crowd | None, float | None, float]:  # fmt: skip
    """Since when replicas are crowded, the batch at which they are full, and for how long that was seen. A batch that
    does not grow while many wait for long is as large as this engine makes it; a short queue is normal between two
    steps and says nothing, and a batch that does grow has more coming, from a gateway that begins with little. What was
    seen for a moment is soon forgotten, what was seen for hours is not."""
    waiting = (pool.get(Signal.QUEUE_DEPTH).value or 0.0) / replicas
    delay = pool.get(Signal.QUEUE_DELAY).usable or 0.0
    gone = now - state.at if state.at is not None else 0.0
    full, full_for = state.full, state.full_for
    if pool.get(Signal.STUCK).value:
        return None, full, full_for  # an engine that stands still is not full
    crowd = None
    if waiting >= max(1.0, CROWD * batch) and delay >= CROWD_DELAY:
        crowd = state.crowd
        if crowd is None or batch > GROWN * crowd.batch:
            crowd = Crowd(now, batch)
        elif now - crowd.since >= CROWDED:
            return crowd, max(batch, state.seen or 0.0), full_for + gone  # what it once held, it can hold
    if full is not None and not waiting:
        full = max(full * math.exp(min(gone / (FORGET_FULL * max(full_for, 1.0)), FORGOTTEN)), batch)
    return crowd, full, full_for


def _kappa(
    spec: EstimatorSpec, as_learned: Profile, itl: float, batch: float, shape: Shape, gain: float, gone: float,
    state: EstimatorState,
) -> tuple[float, Tilt]:  # fmt: skip
    """Follow measured over modelled step time, in logs and slowly, and how it changes with the batch."""
    lo, hi = spec.kappa_bounds
    profile = spec.prior
    ratio = min(max(itl / step_time(as_learned, shape, batch), lo), hi)
    kappa = math.exp(math.log(state.kappa) + gain * (math.log(ratio) - math.log(state.kappa)))
    modelled = step_time(profile, shape, batch)
    grows = min(max(1.0 - profile.a / modelled, 0.0), 1.0)
    return kappa, state.tilt.take(gone, grows, min(max(itl / modelled, lo), hi))


def _stood(state: EstimatorState, jumped: float | None, now: float) -> tuple[Scale, ...]:
    """The scale a minute and two minutes ago; as it was before, while requests change."""
    if of_requests.changing(jumped, now) or (state.stood and now - state.stood[-1].at < STOOD):
        return state.stood
    return *state.stood[-1:], Scale(now, state.kappa, state.tilt)


def bent(profile: Profile, state: EstimatorState) -> Profile:
    """The profile with its fixed and its growing part as they were learned; kappa scales both."""
    fixed, grows = state.tilt.factors()
    if (fixed, grows) == (1.0, 1.0):
        return profile
    return Profile(
        profile.a * fixed, profile.b * grows, profile.c * grows, profile.d * grows, profile.e * grows,
        profile.max_num_seqs, profile.kv_tokens, profile.host * grows,
    )  # fmt: skip


def _itl(pool: PoolReadings) -> float | None:
    for signal in (Signal.ITL, Signal.TPOT):
        reading = pool.latency(signal, "mean")
        if reading.value:
            return reading.value
    return None


def _gain(gone: float | None, samples: int) -> float:
    """Weight of a new sample: by the time that passed, and fast while there are few; the prior counts as one. What is
    looked at more often than there are samples has its part of one at each look."""
    if gone is None:
        gone = LEARN_TIME
    first = 1.0 / (samples + 2)
    if gone < STRETCH:
        first = 1 - (1 - first) ** (gone / STRETCH)
    return max(1 - math.exp(-gone / LEARN_TIME), first)
