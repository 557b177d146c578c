"""What is learned of a pool: demand and its forecast, the capacity of a replica, how long a replica takes to come.

Pure: readings and the previous state in, an estimate and the next state out. One home for everything learned, so that
policies stay laws and the ledger holds all memory.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from controller.core import burn, cold_start, fitting, versions, worse
from controller.core import forecast as ahead_of
from controller.core.learn import bent
from controller.core.learned import EstimatorSpec, EstimatorState
from controller.core.model import PoolReadings, TargetState
from controller.core.parts import followed, split
from controller.core.ports import Estimate
from controller.core.reading import Reading
from controller.core.signals import Signal
from controller.core.sizes import Band
from controller.core.step_model import KV_FILL, Capacity, Profile, Shape, capacity, charges, proven, terms, unseated

# Looked up by name of the module: a member of an enum takes ten times as long, and these are asked of every replica.
_DEPTH, _KV = Signal.QUEUE_DEPTH, Signal.KV_USAGE
BURN_MARGIN = 0.15  # extra capacity while the error budget burns too fast
BLAME = 300.0  # seconds for which the failures of a version are in the short window of the budget
DRAIN = 60.0  # seconds in which a backlog should be gone
MARGIN_QUANTILE = 0.9
# What an estimate is made of. A policy that goes by it names these among what it reads, else they are not fetched.
READS = frozenset(
    {
        Signal.OFFERED_RATE, Signal.RECENT_RATE, Signal.ADMITTED_RATE, Signal.BEGUN_RATE, Signal.FINISHED_RATE,
        Signal.RETRY_SHARE,
        Signal.PROMPT_TOKEN_RATE, Signal.GENERATION_TOKEN_RATE, Signal.PREFIX_HIT_RATE, Signal.ITL, Signal.RUNNING,
        Signal.KV_USAGE, Signal.QUEUE_DEPTH, Signal.QUEUE_DELAY, Signal.READY_REPLICAS, Signal.STUCK,
    }
)  # fmt: skip


def update(
    spec: EstimatorSpec, pool: PoolReadings, target: TargetState | None, now: float, state: EstimatorState,
    out: Collection[str] = (), sent: float = 0.0,
) -> tuple[Estimate, EstimatorState]:  # fmt: skip
    """One tick of one pool; `out` are replicas that a breaker holds out of rotation, where versions are told apart,
    `sent` the share of what consents that is downgraded now."""
    before = state.at
    replicas = _serving(pool, target)
    state = cold_start.watch(spec, target, replicas, now, state)
    horizon = cold_start.horizon(spec, state)
    offered = _offered(pool)
    state = versions.learn(spec, pool, replicas, now, state)
    gone = now - before if before is not None else 0.0
    tenants = followed(pool.tenants, state.tenants, gone) if pool.tenants else state.tenants
    profile = bent(spec.prior, state.replica)
    served, shown, rates = _capacity(spec, profile, state, replicas, versions.serving(pool, out))
    ahead, memory = _ahead(spec, served, offered, _recent(pool), now, horizon, state)
    told = state.cache_told or pool.get(Signal.KV_USAGE).usable is not None
    state = state._replace(tenants=tenants, forecast=memory, cache_told=told)
    made = _assemble(spec, pool, replicas, served, shown, offered, ahead, horizon, state, profile)
    if len(state.versions) > 1:
        made, state = _told_apart(made, pool, rates, now, spec, state)
    if spec.band is not None:
        made, state = _by_size(made, spec.band, pool, profile, sent, gone, state)
    return made, state


def _by_size(
    made: Estimate, band: Band, pool: PoolReadings, profile: Profile, sent: float, gone: float, state: EstimatorState
) -> tuple[Estimate, EstimatorState]:  # fmt: skip
    """With the share of the work that a downgrade may take by the size of its prompts."""
    if state.shape is not None:
        charge, answer = charges(profile, state.shape.hit_rate), state.shape.output
        away = sent * fitting.agreeing(pool, band)
        known = fitting.learn(pool.sizes, band, away, lambda prompt: charge(prompt, answer), gone, state.fitting)
        state = state._replace(fitting=known)
    return replace(made, fitting=state.fitting), state


def _told_apart(
    made: Estimate, pool: PoolReadings, rates: Mapping[str, float], now: float, spec: EstimatorSpec,
    state: EstimatorState,
) -> tuple[Estimate, EstimatorState]:  # fmt: skip
    """What is to be said where replicas run several versions. What one of them fails is no want of capacity, so the
    error budget that it burns asks for none."""
    fails = worse.failing(pool)
    if fails:
        state = state._replace(blamed=now)
    blamed = state.blamed is not None and now - state.blamed < BLAME
    lags = worse.slow(versions.steps(spec, state, versions.serving(pool)), state.version) if not fails else None
    said = fails[0] if fails else lags
    margin = 0.0 if blamed else made.margin
    return replace(
        made, versions=rates, unproven=versions.unproven(state), worse=said, also_worse=fails[1:], margin=margin
    ), state


def _ahead(
    spec: EstimatorSpec, served: Capacity | None, offered: float | None, recent: float | None, now: float,
    horizon: float, state: EstimatorState,
) -> tuple[ahead_of.Forecast | None, ahead_of.ForecastState]:  # fmt: skip
    """The forecast in replica-equivalents. What is forecast is work: requests times the replica-seconds that each is
    by the model, so that prompts that get longer are seen as well; and what is learned of the model's scale meanwhile
    is no trend of the load."""
    if offered is None or (state.shape is None and offered > 0):
        return None, state.forecast
    unit = 1.0
    if state.shape is not None:
        unit = capacity(spec.prior, state.shape, 1.0, spec.itl_target, None).rate
    late = None if recent is None else recent / unit
    ahead, memory = ahead_of.update(state.forecast, now, offered / unit, horizon, MARGIN_QUANTILE, late)
    if served is None:
        return None, memory
    scale = unit / served.rate
    made = ahead._replace(value=ahead.value * scale, upper=ahead.upper * scale, now=ahead.now * scale)
    return made, memory


def _kv_tokens(profile: Profile, shape: Shape, state: EstimatorState) -> dict[str, float]:
    """Tokens that the KV cache of one replica holds: by the profile, else as many as the sequences that fill it have.
    A prefix that they share counts for each of them, so what is measured is rather too much."""
    if profile.kv_tokens is not None:
        return {"kv_tokens": profile.kv_tokens}
    full = state.replica.kv_sequences
    return {} if full is None else {"kv_tokens": full * (shape.prompt + shape.output / 2)}


def _batches(spec: EstimatorSpec, profile: Profile, shape: Shape, state: EstimatorState) -> dict[str, float]:
    """What limits the batch: `slots` that an engine has, where that is known, and how many sequences would be in time
    if it had more. Laws of what may be in flight tell the two apart: the first is counted, the second is a model that
    measurements correct. And how many replicas are slow by themselves."""
    # That of the default profile is another engine's.
    told = spec.profile.max_num_seqs if spec.profile is not None else spec.max_num_seqs
    one = state.replica
    most = [limit for limit in (one.slots.limit, told) if limit is not None]
    found = {"in_time": unseated(profile, shape, one.kappa, spec.itl_target, one.kv_sequences)}
    if most:
        found["slots"] = min(most)
    if state.stragglers:
        found["stragglers"] = float(state.stragglers)
    return {name: value for name, value in found.items() if math.isfinite(value)}


def _assemble(
    spec: EstimatorSpec, pool: PoolReadings, replicas: float | None, served: Capacity | None, shown: float | None,
    offered: float | None, ahead: ahead_of.Forecast | None, horizon: float, state: EstimatorState, profile: Profile,
) -> Estimate:  # fmt: skip
    burning = any(burn.burning(readings, spec.budget_period) for readings in pool.burn.values())
    demands: dict[str, float] = {}
    if served is not None and offered is not None:
        demands["compute"] = offered / served.rate
    kv = pool.get(Signal.KV_USAGE)
    if kv.usable is not None and replicas:
        demands["kv"] = replicas * kv.usable / KV_FILL
    waiting = pool.get(Signal.QUEUE_DEPTH).usable or 0.0
    left = _still_waiting(pool, waiting, offered, horizon)
    evidence = {f"demand_{name}": value for name, value in demands.items()}
    evidence.update(kappa=state.replica.kappa, horizon=horizon, waiting=waiting, still_waiting=left)
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
    if state.shape is not None:  # so that laws can compare replicas whose batches differ
        base, each, least = terms(profile, state.shape, state.replica.kappa)
        evidence.update(step_base=base, step_each=each, step_least=least)
        evidence.update(_kv_tokens(profile, state.shape, state))
        evidence.update(_batches(spec, profile, state.shape, state))
    hit = pool.get(Signal.PREFIX_HIT_RATE)
    demand = max(demands.values()) if demands else None
    flows: dict[str, float] = {}
    klasses: dict[str, float] = {}
    unit_tokens = None
    if served is not None and state.shape is not None:
        unit_tokens = served.rate * (state.shape.prompt + state.shape.output)
        if demand is not None and offered is not None:
            flows = split(demand, offered, pool.tenants, state.tenants, profile, state.shape)
            # Nobody is capped by class: what the window tells of them is no worse than what a longer one does.
            lately = followed(pool.classes, {}, 0.0)
            klasses = split(demand, offered, pool.classes, lately, profile, state.shape)
    return Estimate(
        offered=offered,
        demand=demand,
        forecast=expected,
        point=ahead.value if ahead is not None else None,
        level=ahead.now if ahead is not None else None,
        noise=ahead.noise if ahead is not None else 0.0,
        backlog=left / (served.rate * DRAIN) if served is not None else 0.0,
        unit_rate=served.rate if served is not None else None,
        hit_rate=hit.value,
        kappa=state.replica.kappa,
        horizon=horizon,
        margin=BURN_MARGIN if burning else 0.0,
        burning=burning,
        passing=spec.passing,
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


def _recent(pool: PoolReadings) -> float | None:
    """The same of the younger half of the window; None where nobody counts arrivals or the count is in doubt."""
    reading = pool.get(Signal.RECENT_RATE)
    return reading.value if reading.trusted else None


def _serving(pool: PoolReadings, target: TargetState | None) -> float | None:
    """Replicas that serve: those whose scrapes we see, else what the owner says is ready."""
    seen = sum([
        scope.get(_DEPTH).value is not None or scope.get(_KV).value is not None for scope in pool.replicas.values()
    ])  # fmt: skip
    if seen:
        return float(seen)
    ready: Reading = pool.get(Signal.READY_REPLICAS)
    if ready.value is not None:
        return ready.value
    return target.ready if target is not None else None


def _capacity(
    spec: EstimatorSpec, profile: Profile, state: EstimatorState, replicas: float | None,
    groups: Mapping[str, Sequence[str]],
) -> tuple[Capacity | None, float | None, Mapping[str, float]]:  # fmt: skip
    """The operating point of a replica, the rate that one has shown it can serve, and the rate of each version where
    replicas of several serve."""
    if state.shape is None:
        return None, None, {}
    thinner = _thinner(state.shape, replicas)
    if len(state.versions) > 1 and groups:
        return versions.mixed(spec, state, state.shape, thinner, groups)
    one = state.replica
    most = [limit for limit in (one.full, one.slots.limit) if limit is not None]
    served = capacity(profile, state.shape, one.kappa, spec.itl_target, one.kv_sequences, min(most, default=None))
    return served, proven(profile, thinner, one.kappa, served, one.seen), {}


def _thinner(shape: Shape, replicas: float | None) -> Shape:
    """The same requests with one replica fewer: its part of the prefix cache goes with it."""
    if not replicas or replicas <= 1:
        return shape
    return Shape(shape.prompt, shape.output, shape.hit_rate * (1 - 1 / replicas))
