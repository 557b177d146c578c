"""From a recording to a profile. Metrics are means over intervals, so less can be told than from a request log.

Only calm intervals count: nothing waits, the KV cache has room, load and replicas are as in the interval before. There

    itl  = max(A + S*n, H*n)               n sequences in the batch of each replica
    ttft = itl*1.5 + B*(prompt)            half a step until the next one, a step, and the prefill in it
    kv   = n * (prompt + output*(1 + spread^2)/2) / K

where A, S, B scale the prior's fixed cost, cost of a sequence and cost of prefill, H is the host's work (`host`) with
the prefill of its sequences, and `spread` the coefficient of variation of the answers: at any moment the long ones are
more of the batch. A gauge of running requests is one moment of the interval; its mean follows from Little's law,
n = tokens per second * itl. So itl = A / (1 - S*tokens per second), which has the measured itl on one side only.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from controller.core.errors import InputError
from controller.core.interval import Interval
from controller.core.step_model import Profile, Shape, per_sequence
from simulator.calibrate.host import SETTLED, Host, find_host
from simulator.calibrate.log import Floats
from simulator.calibrate.prior import find
from simulator.calibrate.solve import Errors, Problem, Solution, solve

FEWEST = 6  # calm intervals
ALIKE = 0.25  # change of the rate from one interval to the next in a calm stretch
ROOMY = 0.85  # KV usage up to which the cache has room
SHOWN = 0.02  # KV usage below which a gauge tells little of its capacity
TOLERANCE = (0.05, 0.15)  # what the model may be off by: itl, ttft
ANCHOR = 0.7  # standard deviation of the prior, as a share
UNSURE = 0.15  # share of a full step that the cost of a sequence may be off by; more is not identified
BLURRED = 0.5  # standard deviation of the cost of prefill, as a share, beyond which it is not identified
BLOCK = 16  # tokens of a KV block; the last one of a sequence is half empty
PARTS = ("a", "sequence", "prefill")


@dataclass(frozen=True, slots=True)
class Calm:
    """Calm intervals as columns: tokens per second of one replica, mean tokens, latencies (seconds, ttft NaN where
    unknown), and of the moment at its end sequences in the batch of one replica and KV usage (NaN where unknown); the
    mean of KV usage at its beginning and end, and by how much it grew per second.
    `spread` is the coefficient of variation of the answers."""

    rate: Floats
    prompt: Floats
    output: Floats
    itl: Floats
    ttft: Floats
    batch: Floats
    kv: Floats
    kv_between: Floats
    filling: Floats
    spread: float = 0.0

    def part(self, begin: int, end: int | None) -> "Calm":
        """Some of the intervals."""
        cut = slice(begin, end)
        return Calm(
            self.rate[cut], self.prompt[cut], self.output[cut], self.itl[cut], self.ttft[cut], self.batch[cut],
            self.kv[cut], self.kv_between[cut], self.filling[cut], self.spread,
        )  # fmt: skip

    @property
    def sequences(self) -> Floats:
        """Mean sequences in the batch of one replica, by Little's law."""
        return self.rate * self.itl

    @property
    def context(self) -> Floats:
        """Mean tokens of a sequence in the KV cache, with the empty half of its last block."""
        return self.alike + self.output * self.spread**2 / 2

    @property
    def alike(self) -> Floats:
        """The same if all answers were alike."""
        return self.prompt + self.output / 2 + BLOCK / 2

    def __len__(self) -> int:
        return len(self.rate)


@dataclass(frozen=True, slots=True)
class Error:
    """How far off one signal was in intervals that were not fitted: bias and median of the absolute error, shares."""

    signal: str
    intervals: int
    bias: float
    typical: float


@dataclass(frozen=True, slots=True)
class RecordingFit:
    """A profile from a recording. `factors` are what the prior's parts (PARTS) were multiplied by, `held` the parts
    that the recording does not tell and that moved along with the others, `largest` the largest batch seen. `errors`
    are those of a fit to the first part of the calm intervals on the others; the profile is fitted to all."""

    profile: Profile
    factors: tuple[float, float, float]
    held: tuple[str, ...]
    calm: int
    intervals: int
    largest: float
    errors: tuple[Error, ...]
    notes: tuple[str, ...]


def fit_intervals(
    intervals: Sequence[Interval],
    *,
    prior: Profile | None = None,
    hold_out: float = 0.5,
    max_num_seqs: int | None = None,
    kv_tokens: int | None = None,
    spread: float = 0.0,
) -> RecordingFit:
    """Fit to the intervals of one pool, in order of time; where time goes back another recording of the same engine
    begins. `spread` is the coefficient of variation of the answers. Raises InputError when too few are calm."""
    given = prior or Profile()
    seats = given.max_num_seqs if max_num_seqs is None else float(max_num_seqs)
    table = replace(calm(intervals, seats), spread=spread)
    if not 0.1 <= hold_out <= 0.9:
        raise InputError(f"--hold-out {hold_out:.0%}: leaves too little to fit on or to check with; write 10% to 90%")
    if len(table) < FEWEST:
        raise InputError(
            f"{len(table)} of {len(intervals)} intervals are calm (nothing waits, KV usage below {ROOMY:.0%}, load and "
            f"replicas as before, ITL and rates known); {FEWEST} are the fewest. Record a longer and quieter stretch"
        )
    notes = [] if prior is not None else ["the default prior (8B on one H100) was scaled; --library names a nearer one"]
    cut = max(FEWEST // 2, round(len(table) * (1.0 - hold_out)))
    first = table.part(0, cut)
    partly = replace(given, host=_host(first).seconds)
    taught, _, _ = _fit(first, partly)
    errors = _errors(table.part(cut, None), taught, partly, _cache(first))
    host = _host(table)
    given = replace(given, host=host.seconds)
    factors, held, unsure = _fit(table, given)
    if host.seconds:
        notes.append(
            f"one replica makes {1 / host.seconds:,.0f} tokens per second at most: in {host.intervals} intervals, with "
            f"up to {host.largest:.0f} sequences, ITL grew by all that the batch did"
        )
    if "sequence" in held:
        low, high = table.sequences.min(), table.sequences.max()
        notes.append(
            f"the cost of a sequence moved along with the fixed cost: with {low:.0f} to {high:.0f} sequences the "
            f"recording leaves {unsure:.0%} of a full step open; record high and low load"
        )
    if "prefill" in held:
        notes.append("the cost of prefill moved along with that of a sequence: TTFT does not tell it apart")
    tokens = kv_tokens
    if tokens is None:
        seen = _cache(table)
        tokens = None if seen is None else round(seen)
        if tokens is not None:
            notes.append(f"KV cache of {tokens:,} tokens: what was held over what was said to be in use")
    if tokens is None and given.kv_tokens is not None:
        tokens = int(given.kv_tokens)
        notes.append(f"KV cache of {tokens:,} tokens: the library's; the recording has too little of KV usage")
    fixed, sequence, prefill = factors
    profile = replace(
        given,
        a=given.a * fixed,
        b=given.b * prefill,
        c=given.c * sequence,
        d=given.d * sequence,
        e=given.e * prefill,
        host=max(0.0, host.seconds - prefill * float(np.median(_prefill(table, given) / table.output))),
        max_num_seqs=seats,
        kv_tokens=None if tokens is None else float(tokens),
    )
    return RecordingFit(
        profile, factors, held, len(table), len(intervals), float(table.sequences.max()), errors, tuple(notes)
    )


def calibrate_recording(
    intervals: Sequence[Interval],
    *,
    entry: str = "",
    hold_out: float = 0.5,
    max_num_seqs: int | None = None,
    kv_tokens: int | None = None,
    spread: float = 0.0,
) -> RecordingFit:
    """The same with the library's `entry` model/gpu/tp/precision[/engine] as prior."""
    prior = find(entry).profile if entry else None
    return fit_intervals(
        intervals, prior=prior, hold_out=hold_out, max_num_seqs=max_num_seqs, kv_tokens=kv_tokens, spread=spread
    )


def calm(intervals: Sequence[Interval], seats: float) -> Calm:
    """The calm ones. Where Little's law wants more sequences than an engine has `seats`, load was not as before."""
    rows = []
    for before, now in pairwise(intervals):
        usable = _known(now) and _known(before) and now.at > before.at
        if not usable or before.replicas != now.replicas or (before.waiting or 0) > 0 or (now.waiting or 0) > 0:
            continue
        rate, earlier = now.finished or 0.0, before.finished or 0.0
        if abs(rate - earlier) > ALIKE * max(rate, earlier) or max(now.kv_usage or 0, before.kv_usage or 0) > ROOMY:
            continue
        replicas = now.replicas or 1.0
        if rate * (now.output or 0.0) * (now.itl or 0.0) > seats * replicas:
            continue
        rows.append(
            (
                rate * (now.output or 0.0) / replicas,
                now.prompt or 0.0,
                now.output or 0.0,
                now.itl or 0.0,
                _or_nan(now.ttft),
                math.nan if now.running is None else now.running / replicas,
                _or_nan(now.kv_usage),
                _or_nan(((now.kv_usage or 0.0) + (before.kv_usage or 0.0)) / 2),
                ((now.kv_usage or 0.0) - (before.kv_usage or 0.0)) / (now.at - before.at),
            )
        )
    table = np.array(rows, dtype=np.float64).reshape(len(rows), 9)
    return Calm(*table.T)


def _known(one: Interval) -> bool:
    values = (one.replicas, one.finished, one.prompt, one.output, one.itl)
    return all(value is not None and math.isfinite(value) and value > 0 for value in values)


def _or_nan(value: float | None) -> float:
    return math.nan if value is None or value <= 0 else value


def _fit(table: Calm, prior: Profile) -> tuple[tuple[float, float, float], tuple[str, ...], float]:
    """Factors of the prior's parts, those that are held, and what is unsure of a full step."""
    scale = float(np.clip(np.median(table.itl / _itl(table, prior, np.ones(3))), 0.05, 20.0))
    told = _solve(lambda x: _off(table, prior, x * scale)).spread[2] <= BLURRED
    itl_alone = 1 if not told else None

    def solved(tied: tuple[int, int, int]) -> tuple[Floats, Floats]:
        """Parameters and their spread when parts move together as in `tied`."""
        which = list(tied)
        found = _solve(lambda x: _off(table, prior, x[which] * scale)[:itl_alone], tuple(sorted(set(tied))))
        return found.x[which], found.spread[which]

    # Prefill that TTFT does not tell moves along with the sequence, which else would be told by prefill.
    x, spread = solved((0, 1, 2) if told else (0, 1, 1))
    seats = min(prior.max_num_seqs, 3.0 * table.sequences.max())  # three times as far as was seen is far enough
    fixed, full = prior.a, seats * float(np.median(_per_sequence(table, prior, np.ones(3))))
    unsure = float(spread[1] * full / (x[0] * fixed + x[1] * full))
    if unsure > UNSURE:
        x, _ = solved((0, 0, 2) if told else (0, 0, 0))
    held = (("sequence",) if unsure > UNSURE else ()) + (() if told else ("prefill",))
    return (float(x[0]) * scale, float(x[1]) * scale, float(x[2]) * scale), held, unsure


def _off(table: Calm, prior: Profile, factors: Floats) -> Floats:
    """Weighed errors of itl and, where it is known, of ttft."""
    ttft = np.log(_ttft(table, prior, factors, table.itl) / table.ttft) / TOLERANCE[1]
    return np.array([np.log(_itl(table, prior, factors) / table.itl) / TOLERANCE[0], np.nan_to_num(ttft)])


def _solve(errors: Errors, free: Sequence[int] = (0, 1, 2)) -> Solution:
    return solve(Problem(errors, free, np.full(3, 0.01), ANCHOR), np.ones(3))


def _per_sequence(table: Calm, prior: Profile, x: Floats) -> Floats:
    """Seconds that one more sequence adds to a step, per interval."""
    profile = replace(prior, b=prior.b * x[2], c=prior.c * x[1], d=prior.d * x[1], e=prior.e * x[2])
    shapes = zip(table.prompt, table.output, strict=True)
    alike = np.array([per_sequence(profile, Shape(float(prompt), float(output))) for prompt, output in shapes])
    return np.asarray(alike + profile.d * (table.context - table.alike))


def _itl(table: Calm, prior: Profile, x: Floats) -> Floats:
    """The model's inter-token latency, seconds."""
    full = _per_sequence(table, prior, x) * table.rate
    gpu = prior.a * x[0] / np.maximum(1.0 - full, 0.02)  # 50 times the fixed cost is far beyond calm
    return np.asarray(np.maximum(gpu, prior.host * table.sequences))


def _ttft(table: Calm, prior: Profile, x: Floats, itl: Floats) -> Floats:
    """The model's time to first token when nothing waits, seconds."""
    return np.asarray(1.5 * itl + x[2] * _prefill(table, prior))


def _prefill(table: Calm, prior: Profile) -> Floats:
    """Seconds of prefill of one request."""
    return np.asarray(prior.b * table.prompt + prior.e * table.prompt**2 / 2)


def _host(table: Calm) -> Host:
    """What finished, and by how much the answers in the making grew, is what the host had to do with."""
    tokens = _cache(table)
    if tokens is None:
        return find_host(table.itl, table.rate, table.batch)
    gauge = np.where(np.isfinite(table.batch), table.batch, table.kv * tokens / table.context)
    growth = table.filling * tokens * (1.0 - table.prompt / table.context)
    return find_host(table.itl, table.rate + growth, gauge)


def _cache(table: Calm) -> float | None:
    """Tokens that the KV cache of one replica holds; None when too few intervals tell."""
    # A gauge of running requests is of the same moment as that of KV usage; a mean is of the time between two of these.
    moment = np.isfinite(table.batch)
    usage = np.where(moment, table.kv, table.kv_between)
    told = np.isfinite(usage) & (usage >= SHOWN)
    with np.errstate(divide="ignore", invalid="ignore"):
        settled = np.abs(np.log(table.kv / (2 * table.kv_between - table.kv))) <= np.log(SETTLED)
    told &= moment | settled  # in a ramp the middle of two gauges is no mean
    if told.sum() < FEWEST // 2:
        return None
    held = np.where(moment, table.batch, table.sequences) * table.context
    ratio, usage = (held / usage)[told], usage[told]
    # Few sequences make a noisy gauge, and what limits is the full cache: the intervals that came near it decide.
    order = np.argsort(ratio)
    weight = np.cumsum(usage[order] ** 2)
    return float(ratio[order][np.searchsorted(weight, weight[-1] / 2)])


def _errors(
    table: Calm, factors: tuple[float, float, float], prior: Profile, tokens: float | None
) -> tuple[Error, ...]:
    """The errors of a fit on intervals that it did not see."""
    x = np.array(factors)
    itl = _itl(table, prior, x)
    twins = {"itl": (itl, table.itl), "ttft": (_ttft(table, prior, x, itl), table.ttft)}
    if tokens is not None:
        held = np.where(np.isfinite(table.batch), table.batch, table.sequences) * table.context
        twins["kv_usage"] = (held / tokens, np.where(table.kv >= SHOWN, table.kv, np.nan))
    return tuple(_error(signal, *pair) for signal, pair in twins.items() if np.isfinite(pair[1]).any())


def _error(signal: str, twin: Floats, real: Floats) -> Error:
    off = (twin / real - 1.0)[np.isfinite(real)]
    return Error(signal, len(off), float(off.mean()), float(np.median(np.abs(off))))
