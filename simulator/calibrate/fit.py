"""The step-time coefficients that make the engine run a request log as its own engine did.

The requests to fit on are run through the twin's engine, with all that were queued beside them, and the coefficients
are moved until the times agree. A prior (a library entry, scaled to the log) says where a term stays that the log does
not tell; what that is, is part of the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from controller.core.errors import InputError
from controller.core.step_model import Profile
from simulator.calibrate.design import TERMS, design, nonnegative
from simulator.calibrate.log import Floats, RequestLog
from simulator.calibrate.replay import replay
from simulator.calibrate.solve import Errors, Problem, solve
from simulator.engine.spec import EngineSpec

OWN = 0.5  # standard deviation of a prior that is meant for this engine, as a share of its value
ALIEN = 2.0  # of the default prior, which is for another model altogether
UNSURE = 0.1  # share of a full step that a term may be off by, one standard deviation; more is not identified
SCALES = (0.05, 20.0)  # how far the whole prior may be scaled to the log
SCALING = 3  # times: the requests that are held out run beside the others as the prior says, scaled as it is then
ROUGH, FINE = 1, 5  # runs with arrivals shifted within a step, averaged: a schedule turns on single milliseconds
SHIFT = 0.05  # share of the time of all steps by which a term is moved to see what it does
TOLERANCE = {"ttft": 0.05, "tpot": 0.02, "e2e": 0.02}  # what the model may be off by; TTFT turns on the phase of a step


@dataclass(frozen=True, slots=True)
class Term:
    """One coefficient, seconds. `unsure` is the share of a full step (of the prefill of a long prompt for b and e) that
    the log leaves open, `held` whether the prior's value stands."""

    name: str
    value: float
    unsure: float
    held: bool


@dataclass(frozen=True, slots=True)
class Fit:
    """`scale` is what the prior was multiplied by before the fit."""

    profile: Profile
    terms: tuple[Term, ...]
    scale: float

    @property
    def held(self) -> tuple[str, ...]:
        return tuple(term.name for term in self.terms if term.held)


def fit(log: RequestLog, count: int, spec: EngineSpec, prior: Profile | None) -> Fit:
    """Fit on the first `count` requests; `spec` has the engine's limits. Without a `prior` every term must be told by
    the log: raises InputError that names the terms that are not."""
    beside = log.head(int(np.searchsorted(log.queued, log.last[:count].max(), side="right")))
    rows = [index for index in range(count) if log.output[index] > 1]
    given = _vector(prior or Profile())
    given = np.where(given > 0, given, 1e-3 * _vector(Profile()))  # a term of 0 could not be scaled
    scale = 1.0
    for _ in range(SCALING):
        features, seconds = design(_first_part(beside, count, spec, given * scale), rows)
        scale = float(np.clip(seconds.sum() / (features @ given).sum(), *SCALES))
    base = given * scale
    features, seconds = design(_first_part(beside, count, spec, base), rows)
    shares = base * features.sum(axis=0) / seconds.sum()
    nudges = np.clip(SHIFT / np.maximum(shares, 1e-9), 0.02, 1.0)
    rough, fine = (_errors(beside, rows, spec, base, phases) for phases in (ROUGH, FINE))
    anchor = ALIEN if prior is None else OWN
    straight = nonnegative(features / seconds[:, None], np.ones(len(rows)), range(len(TERMS))) / base
    starts = [np.ones(len(TERMS)), np.where(straight > 0, np.clip(straight, *SCALES), 1.0)]
    every = Problem(rough, range(len(TERMS)), nudges, anchor, enough=0.03)
    start = min((solve(every, one) for one in starts), key=lambda solution: solution.cost).x
    free, held = list(range(len(TERMS))), set[int]()
    before: Floats | None = None  # what was unsure while every term was free
    while True:
        found = solve(Problem(fine, tuple(free), nudges, anchor), start)
        unsure = _unsure(log, spec, base * found.x, base * found.spread)
        wrong = [index for index in free if unsure[index] > UNSURE]
        if not wrong or len(free) == 1:
            break
        worst = max(wrong, key=lambda index: found.spread[index])  # of two that cannot be told apart, the lesser known
        before = unsure if before is None else before
        held.add(worst)
        free.remove(worst)
        start = _but(found.x, held)
    if before is None:
        before = unsure
    elif prior is None:
        raise InputError(_refusal(log, spec, sorted(held), before))
    value = base * found.x
    terms = tuple(
        Term(name, float(value[i]), float(before[i] if i in held else unsure[i]), i in held)
        for i, name in enumerate(TERMS)
    )
    return Fit(_profile(spec, value), terms, scale)


def _first_part(log: RequestLog, count: int, spec: EngineSpec, value: Floats) -> RequestLog:
    """The log with the times of its first `count` requests. Those of the others, which the fit must not see, are as
    the engine gives them with the coefficients `value`."""
    run = replay(log, spec, _profile(spec, value))

    def mixed(real: Floats, twin: Floats) -> Floats:
        told = np.arange(len(log)) < count
        return np.where(told, real, np.where(np.isfinite(twin), twin, log.queued))

    return replace(
        log,
        scheduled=None if log.scheduled is None else mixed(log.scheduled, run.scheduled),
        first=mixed(log.first, run.first),
        last=mixed(log.last, run.last),
    )


def _profile(spec: EngineSpec, value: Floats) -> Profile:
    """The engine's limits with these coefficients."""
    return replace(spec.profile, **{name: float(value[i]) for i, name in enumerate(TERMS)})


def _vector(profile: Profile) -> Floats:
    return np.array([getattr(profile, name) for name in TERMS], dtype=np.float64)


def _but(start: Floats, held: set[int]) -> Floats:
    """A start with the held terms at the prior."""
    x = start.copy()
    x[sorted(held)] = 1.0
    return x


def _errors(log: RequestLog, rows: Sequence[int], spec: EngineSpec, base: Floats, phases: int) -> Errors:
    """Weighed errors of the requests `rows`, by parameters as multiples of `base`; the mean of `phases` runs."""
    step = float(np.nanmedian(log.tpot[list(rows)]))
    chance = np.random.default_rng(0)
    shifted = [log]
    for _ in range(phases - 1):
        moved = log.queued + chance.uniform(-0.5, 0.5, len(log)) * step
        shifted.append(replace(log, queued=np.sort(np.maximum(moved, 0.0))))
    picked = list(rows)
    first, last, queued = log.first[picked], log.last[picked], log.queued[picked]

    def errors(x: Floats) -> Floats:
        profile = _profile(spec, base * x)
        sums = np.zeros((len(TOLERANCE), len(picked)))
        for one in shifted:
            run = replay(one, spec, profile)
            if run.lost:
                raise InputError(
                    f"{run.lost} requests of the log do not fit into this engine's KV cache of "
                    f"{spec.profile.kv_tokens:,.0f} tokens; give the engine's own --kv-tokens"
                )
            ours, end = run.first[picked], run.last[picked]
            sums += (
                (ours - first) / (first - queued + 2 * step) / TOLERANCE["ttft"],
                np.log(np.maximum(end - ours, 1e-9) / np.maximum(last - first, 1e-9)) / TOLERANCE["tpot"],
                (end - last) / np.maximum(last - queued, 1e-9) / TOLERANCE["e2e"],
            )
        return np.asarray(sums / len(shifted))

    return errors


def _unsure(log: RequestLog, spec: EngineSpec, value: Floats, spread: Floats) -> Floats:
    """What each term's standard deviation makes of a full step; of the prefill of a long prompt for b and e."""
    n, context, prompt = reach(log, spec)
    decode = np.array([1.0, 0.0, n, n * context, 0.0])
    prefill = np.array([1.0, prompt, 0.0, 0.0, prompt * prompt / 2])
    return np.asarray(np.maximum(spread * decode / (decode @ value), spread * prefill / (prefill @ value)))


def reach(log: RequestLog, spec: EngineSpec) -> tuple[float, float, float]:
    """The largest batch that this engine will run on requests like these, their mean context, and a long prompt."""
    context = float((log.prompt + log.output / 2).mean())
    tokens = spec.profile.kv_tokens
    n = float(spec.max_num_seqs) if tokens is None else min(float(spec.max_num_seqs), tokens / context)
    return max(1.0, n), context, float(np.percentile(log.prompt, 95))


_MEND = {
    "a": "a stretch in which few requests run at a time, and one in which many do",
    "b": "prompts of differing length, or more of them beside running requests",
    "c": "a stretch in which few requests run at a time, and one in which many do",
    "d": "requests whose contexts differ, so that the tokens in the KV cache and the requests do not move as one",
    "e": "prompts of differing length, some of them long",
}


def _refusal(log: RequestLog, spec: EngineSpec, held: Sequence[int], unsure: Floats) -> str:
    n, context, _ = reach(log, spec)
    told = "; ".join(
        f"{TERMS[i]} ({_open(float(unsure[i]))} of a full step left open; it needs {_MEND[TERMS[i]]})" for i in held
    )
    return (
        f"the log does not tell {told}. A full step here is {n:.0f} requests with {context:.0f} tokens each. Log such "
        "a stretch, or name what these terms shall be taken from: --library MODEL/GPU/TP/PRECISION"
    )


def _open(share: float) -> str:
    return f"{share:.0%}" if share < 1 else "all"
