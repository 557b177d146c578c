"""Learning of a replica: how far its step-time model is off, and when it is full.

Pure: the readings of one tick and the memory before it give the memory after it.
"""

import math

from controller.core.learned import Crowd, EstimatorSpec, OfReplica
from controller.core.model import PoolReadings
from controller.core.pace import SAMPLE, weight
from controller.core.reading import Reading, State
from controller.core.signals import Signal
from controller.core.step_model import Profile, Shape, step_time
from controller.core.stragglers import looks, others
from controller.core.stretch import Shown, Stretch

RAMP = 0.35  # kappa is frozen while the batch changes by more than this share from one sample to the next
CROWD = 0.25  # waiting per running request above which a replica counts as full
CROWD_DELAY = 2.0  # seconds of queue delay below which nobody counts as waiting for a slot
CROWDED = 10.0  # seconds of that with a batch that does not grow, after which it counts as full
MOST = 60.0  # seconds that one sample is of at most: after a pause it is no more of the version than at a long interval
GROWN = 1.1  # times the batch that have grown
FORGET_FULL = 240.0  # times as long as it was seen, a learned limit of the batch takes to grow by an e-fold
FORGOTTEN = 5.0  # e-folds at once: after days of silence there is no limit left to speak of


def learn(
    spec: EstimatorSpec, pool: PoolReadings, replicas: float | None, now: float, known: OfReplica, served: Shape | None
) -> OfReplica:
    """What is known next of so many `replicas`, whose readings are those of `pool`. Their steps are judged by the
    requests that were `served`; None while nobody can tell them."""
    tokens = pool.get(Signal.GENERATION_TOKEN_RATE).value
    gone = now - known.at if known.at is not None else None
    if not replicas or served is None or not tokens:
        if _unread(pool) and gone is not None and gone < SAMPLE:
            return known._replace(at=now)  # a look was missed, and what others have seen stays
        return known._replace(at=now, batch=None, replicas=replicas, stretch=Stretch(), crowd=None, stragglers=0)
    reading = _itl(pool)
    itl = None if reading is None else reading.value
    batch = _batch(pool, itl, tokens, replicas)
    profile, left_out = bent(spec.prior, known), known.stragglers
    stretch, shown = known.stretch.take(
        looks(pool) if itl is not None else {}, batch, gone, whole=known.replicas == replicas
    )
    sample = batch
    if shown is not None:
        itl, sample, left_out = _measured(shown, reading, profile, served)
        if shown.single:
            batch = sample
    if not batch or not sample:
        return known._replace(
            at=now, batch=None if shown is not None else known.batch, replicas=replicas, stragglers=left_out,
            stretch=stretch,
        )  # fmt: skip
    learned = known
    if shown is not None:
        # While replicas come or go the window mixes two fleets, and while the batch ramps two loads.
        steady = (
            known.batch is not None
            and abs(sample - known.batch) <= RAMP * max(sample, known.batch)
            and known.replicas == replicas
        )
        if itl is not None and steady and shown.time is not None and known.batch is not None:
            mean = (sample + known.batch) / 2 if shown.single else sample
            learned = _scaled(spec, profile, itl, mean, served, shown.time, known)
        learned = learned._replace(batch=sample)
    waiting = pool.get(Signal.QUEUE_DEPTH).usable or 0.0
    at = now - (pool.get(Signal.RUNNING).age or 0.0)
    crowd, full, full_for = _saturation(pool, replicas, batch, at, gone or 0.0, known)
    return learned._replace(
        at=now,
        seen=max(batch, known.seen or 0.0),
        kv_sequences=_kv_sequences(pool, batch, weight(gone, known.samples), known.kv_sequences),
        slots=known.slots.take(pool.replicas.values(), waiting, at) if waiting else known.slots,
        full=full,
        full_for=full_for,
        replicas=replicas,
        crowd=crowd,
        stragglers=left_out,
        stretch=stretch,
    )


def _measured(
    shown: Shown, reading: Reading | None, profile: Profile, served: Shape
) -> tuple[float | None, float | None, int]:  # fmt: skip
    """Mean seconds per token, sequences per replica, and how many were left out as slow by themselves: those say
    nothing of the others, and the model is of one that is not."""
    rest = others(shown.replicas, profile, served)
    if rest is not None:
        return rest
    itl = None if reading is None else reading.value
    if reading is not None and reading.window is not None and shown.time is not None and reading.window < shown.time:
        itl = shown.itl or itl  # a window that is longer than the stretch says it better
    return itl, shown.batch, 0


def _unread(pool: PoolReadings) -> bool:
    """Whether nobody knows if anything finished, or was generated."""
    rates = (pool.get(Signal.FINISHED_RATE), pool.get(Signal.GENERATION_TOKEN_RATE))
    return any(one.state is State.MISSING for one in rates)


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
    pool: PoolReadings, replicas: float, batch: float, at: float, gone: float, known: OfReplica
) -> tuple[Crowd | None, float | None, float]:  # fmt: skip
    """Since when replicas are crowded, the batch at which they are full, and for how long that was seen. A batch that
    does not grow while many wait for long is as large as this engine makes it; a short queue is normal between two
    steps and says nothing, and a batch that does grow has more coming, from a gateway that begins with little. What was
    seen for a moment is soon forgotten, what was seen for hours is not. The batch was read `at` some time, unix
    seconds: read once, it has not stayed, however often one looks; and the last look was `gone` seconds ago."""
    waiting = (pool.get(Signal.QUEUE_DEPTH).value or 0.0) / replicas
    delay = pool.get(Signal.QUEUE_DELAY).usable or 0.0
    full, full_for = known.full, known.full_for
    if pool.get(Signal.STUCK).value:
        return None, full, full_for  # an engine that stands still is not full
    crowd = None
    if waiting >= max(1.0, CROWD * batch) and delay >= CROWD_DELAY:
        crowd = known.crowd
        if crowd is None or batch > GROWN * crowd.batch:
            crowd = Crowd(at, batch)
        elif at - crowd.since >= CROWDED:
            return crowd, max(batch, known.seen or 0.0), full_for + gone  # what it once held, it can hold
        elif replicas > (known.replicas or 0.0):
            crowd = Crowd(crowd.since, min(crowd.batch, batch))  # shared by more, and it grows from there
    if full is not None:
        if not waiting:
            full *= math.exp(min(gone / (FORGET_FULL * max(full_for, 1.0)), FORGOTTEN))
        full = max(full, batch)
    return crowd, full, full_for


def _scaled(
    spec: EstimatorSpec, as_learned: Profile, itl: float, batch: float, served: Shape, seconds: float,
    known: OfReplica,
) -> OfReplica:  # fmt: skip
    """After one more sample, of so many seconds: kappa follows measured over modelled step time, in logs and slowly,
    and the tilt how it changes with the batch."""
    lo, hi = spec.kappa_bounds
    gain = weight(seconds, known.samples)
    ratio = min(max(itl / step_time(as_learned, served, batch), lo), hi)
    kappa = math.exp(math.log(known.kappa) + gain * (math.log(ratio) - math.log(known.kappa)))
    modelled = step_time(spec.prior, served, batch)
    grows = min(max(1.0 - spec.prior.a / modelled, 0.0), 1.0)
    tilt = known.tilt.take(seconds, grows, min(max(itl / modelled, lo), hi))
    return known._replace(
        kappa=kappa, tilt=tilt, samples=known.samples + 1, trained=known.trained + min(seconds, MOST)
    )  # fmt: skip


def bent(profile: Profile, known: OfReplica) -> Profile:
    """The profile with its fixed and its growing part as they were learned; kappa scales both."""
    fixed, grows = known.tilt.factors()
    if (fixed, grows) == (1.0, 1.0):
        return profile
    return Profile(
        profile.a * fixed, profile.b * grows, profile.c * grows, profile.d * grows, profile.e * grows,
        profile.max_num_seqs, profile.kv_tokens, profile.host * grows,
    )  # fmt: skip


def _itl(pool: PoolReadings) -> Reading | None:
    for signal in (Signal.ITL, Signal.TPOT):
        reading = pool.latency(signal, "mean")
        if reading.value:
            return reading
    return None
