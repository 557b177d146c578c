"""Latencies of a pool: quantiles over the control window, and attainment of each objective over its own."""

from collections.abc import Mapping, Sequence
from functools import cache

from controller.core import histogram
from controller.core.facts import Fact
from controller.core.judge import Judge
from controller.core.observation import HistogramIncrement
from controller.core.reading import Reading, State
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.tally import LATENCY, Span, count

STATS = (0.5, 0.95, 0.99)


def quantiles(j: Judge, signal: Signal, objectives: Sequence[Objective]) -> dict[str, Reading]:
    """Quantiles and mean over the control window, keyed p50, p95, p99, mean and whatever the objectives name."""
    fact = LATENCY[signal]
    names = _names(frozenset(o.share for o in objectives if o.signal == signal and o.share is not None))
    h = j.histogram(fact, j.window) if j.fresh else None
    if h is None or h.count <= 0:
        nothing = j.silence(fact, seen=h is not None)
        return dict.fromkeys([*names, "mean"], nothing)
    source = j.source(fact)
    state, note = j.windowed(fact)
    if state is State.UNDERFILLED and j.full:
        return {name: _doubted(reading, note) for name, reading in _read(j, fact, h, names, source).items()}
    return _read(j, fact, h, names, source)


def _read(j: Judge, fact: Fact, h: HistogramIncrement, names: Mapping[str, float], source: str) -> dict[str, Reading]:
    age = j.age_of(fact)
    out = {name: j.measured(histogram.quantile(h, q, source, j.covered, age), fact) for name, q in names.items()}
    out["mean"] = j.measured(histogram.mean(h, source, j.covered, age), fact)
    return out


def _doubted(r: Reading, note: str) -> Reading:
    """The same reading over a window of which a part could not be read."""
    return Reading(State.UNDERFILLED, r.value, r.lo, r.hi, r.count, r.age, r.window, r.source, note)


@cache
def _names(shares: frozenset[float]) -> Mapping[str, float]:
    """The quantiles by name, those of everybody and those that an objective asks for."""
    return {f"p{share * 100:g}": share for share in sorted({*STATS, *shares})}


def attainment(j: Judge, objective: Objective) -> Reading:
    """Share of the offered requests that met the objective over its own window, with bounds."""
    fact = primary(objective)
    if fact in j.facts.unsupported or fact in j.facts.failed or not j.fresh:
        return j.absent(fact)
    total = j.histogram(fact, objective.window) if fact.kind == "histogram" else None
    offered, hits = count(objective, total, j.ended(objective.window))
    if not offered:
        return j.silence(fact, seen=True)
    return share_met(j, objective, total, offered, hits)


def primary(objective: Objective) -> Fact:
    """The fact without which the objective cannot be judged."""
    return Fact.ERRORS if objective.signal == Signal.ERROR_RATIO else LATENCY[objective.signal]


def share_met(j: Judge, objective: Objective, total: HistogramIncrement | None, offered: Span, hits: Span) -> Reading:
    """The attainment of an objective that some requests are known to count for; `total` is their histogram."""
    lo, hi = hits.lo / offered.hi, min(1.0, hits.hi / max(offered.lo, hits.hi))
    covered = j.covered if objective.window == j.window else j.history.covered(j.now, objective.window)
    value = lo + (hi - lo) / 2
    if total is not None:
        value = min(max(histogram.met(total, objective.target).value / offered.hi, lo), hi)
    fact = primary(objective)
    state, note = j.state(fact, windowed=False)
    if state is State.OK and not j.history.full(j.now, objective.window):
        state, note = State.UNDERFILLED, f"{covered:.0f} of {objective.window:.0f} s seen"
    return Reading(state, value, lo, hi, offered.hi, j.age_of(fact), covered, j.source(fact), note)
