"""Promises for one request class, judged on the facts of that class over the same windows as the pool's.

Latencies stay those of the pool; a class has the attainment and the burn of its own promises. A class that did not come
up while others did has had no requests: its series are born with the first one. A fact that no class has, though the
pool has it, does not carry the label, and nothing can be said.
"""

from collections.abc import Mapping, Sequence

from controller.core.facts import Fact, Kind
from controller.core.histogram import add
from controller.core.judge import Judge
from controller.core.latency import primary, share_met
from controller.core.observation import Facts, HistogramIncrement, PoolFacts
from controller.core.reading import Reading, State, unsupported
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.tally import ENDINGS, Endings, Span, class_endings, count
from controller.core.windows import Entry

_NOTHING = HistogramIncrement((), (), 0.0, 0.0)
_NONE = Facts()
_ENDED = (Fact.FINISHED, Fact.RESPONSES)  # either tells how many of a class ended, with or without errors
# Once a request runs, these have been observed or will be within moments, so only the queue can hide a class.
_BEFORE_RUNNING = frozenset({Signal.TTFT, Signal.QUEUE_TIME})


def named(facts: PoolFacts) -> frozenset[Fact]:
    """Facts that are told by class: those that some class has."""
    return frozenset(fact for one in facts.classes.values() for fact in (*one.histograms, *one.counters))


def spent(objective: Objective, entry: Entry) -> tuple[Span, Span]:
    """Offered requests of the objective's class in one entry and those that met it; of losses that name no class, its
    fair part."""
    own = entry.classes.get(objective.klass, _NONE)
    fact = primary(objective)
    h = own.histograms.get(fact, _NOTHING) if fact in entry.named else None
    ended = class_endings(own.counters, entry.named, entry.counters)
    return count(objective, h, ended.shared(_part(objective, own, entry)))


def _part(objective: Objective, own: Facts, entry: Entry) -> float:
    """The part that the class has of the requests that the pool observed in an entry."""
    for fact in _ENDED if objective.signal == Signal.ERROR_RATIO else (primary(objective),):
        if fact in entry.named:
            mine, everyone = _observed(own, fact), _observed(entry, fact)
            return min(1.0, mine / everyone) if everyone > 0 else 0.0
    return 0.0


def _observed(facts: Facts | Entry, fact: Fact) -> float:
    if fact.kind is Kind.HISTOGRAM:
        return facts.histograms.get(fact, _NOTHING).count
    return facts.counters.get(fact, 0.0)


def attainment(j: Judge, objective: Objective, label: str) -> Reading:
    """Share of the offered requests of the objective's class that met it. `label` is the name of the class label."""
    fact, window = primary(objective), objective.window
    if fact in j.facts.unsupported or fact in j.facts.failed or not j.fresh:
        return j.absent(fact)
    basis = _ENDED if objective.signal == Signal.ERROR_RATIO else (fact,)
    if failures := [j.facts.class_failed[f] for f in basis if f in j.facts.class_failed]:
        return Reading(State.MISSING, source=j.source(fact), note=f"by {label}: {failures[0]}")
    entries = j.history.within(j.now, window)
    told = frozenset[Fact]().union(*(entry.named for entry in entries))
    total = None
    if objective.signal != Signal.ERROR_RATIO and fact in told:
        parts = (e.classes[objective.klass].histograms.get(fact) for e in entries if objective.klass in e.classes)
        total = add(h for h in parts if h is not None) or _NOTHING
    pool = j.counters(window)
    ended = class_endings(_sums(entries, objective.klass), told, {f: pool[f] for f in ENDINGS if f in pool})
    offered, hits = count(objective, total, ended)
    if offered:
        return share_met(j, objective, total, offered, hits)
    seen = not told.isdisjoint(basis)
    if not seen and (silent := [f for f in basis if _counted(j, f, window)]):
        return unsupported(f"{j.source(silent[0]) or silent[0]} does not carry the label {label}")
    return _silence(j, objective, ended, seen=seen)


def _sums(entries: Sequence[Entry], klass: str) -> Mapping[Fact, float]:
    sums: dict[Fact, float] = {}
    for entry in entries:
        for fact, value in entry.classes.get(klass, _NONE).counters.items():
            sums[fact] = sums.get(fact, 0.0) + value
    return sums


def _counted(j: Judge, fact: Fact, window: float) -> bool:
    """Whether the pool counted anything of a fact."""
    if fact.kind is Kind.HISTOGRAM:
        h = j.histogram(fact, window)
        return h is not None and h.count > 0
    return j.counters(window).get(fact, 0.0) > 0


def _silence(j: Judge, objective: Objective, ended: Endings, *, seen: bool) -> Reading:
    """Nothing of the class: because there was none, or because it has not finished, or ended unnamed."""
    fact, klass = primary(objective), objective.klass
    inflight = j.facts.gauges.get(Fact.WAITING) if objective.signal in _BEFORE_RUNNING else j.inflight
    if Fact.WAITING in j.facts.doubted and not inflight:
        inflight = None  # nobody waits where somebody looked
    source = j.source(fact)
    if inflight is None:
        return Reading(State.MISSING, source=source, note="no finished request, and work in flight is unknown")
    if inflight > 0:
        note = f"nothing of class {klass} observed in the window; {inflight:g} requests in flight may be of it"
        return Reading(State.CENSORED, count=0.0, window=j.covered, source=source, note=note)
    unnamed = ended.lost.hi + ended.gone.hi
    if unnamed > 0:
        note = f"nothing of class {klass} observed in the window; {unnamed:g} lost requests of the pool may be of it"
        return Reading(State.MISSING, source=source, note=note)
    if not seen and not j.is_healthy(fact):
        return j.absent(fact)
    return j.measured(Reading(State.NO_TRAFFIC, count=0.0, window=j.covered, source=source), fact)
