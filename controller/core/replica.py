"""Readings of single replicas, and which of them are stuck.

Gauges are there for every replica. What a replica did over the control window, and how fast over the newest interval,
is read only where a lever moves single replicas: of a large fleet it is most of the numbers.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass

from controller.core.facts import Fact, Kind
from controller.core.gauges import GAUGES
from controller.core.judge import STUCK_SCRAPES, Judge
from controller.core.model import Scope
from controller.core.observation import PoolFacts, ReplicaFacts
from controller.core.reading import Reading, State, unsupported
from controller.core.signals import Signal
from controller.core.tally import LOST
from controller.core.windows import FILLED, Entry, ReplicaEntry

_SIGNALS = {fact: signal for signal, fact in GAUGES.items()}
_STUCK, _MOVES = Reading(State.OK, 1.0), Reading(State.OK, 0.0)


def replica(j: Judge, name: str, facts: ReplicaFacts, singles: "Singles | None" = None) -> Scope:
    """The readings of one replica; with `singles` those of its work, too."""
    if not facts.up:
        down = Reading(State.STALE, age=facts.age, note="its scrape failed")
        return Scope(signals={Signal.RUNNING: down, Signal.QUEUE_DEPTH: down, Signal.KV_USAGE: down})
    state = State.STALE if facts.age > j.stale_after else State.OK
    signals = {
        _SIGNALS[fact]: Reading(state, value, None, None, None, facts.age, None, j.source(fact))
        for fact, value in facts.gauges.items()
        if fact in _SIGNALS
    }
    signals[Signal.STUCK] = stuck(j, name)
    return Scope(signals=signals) if singles is None else singles.read(name, facts, signals)


_RATES: tuple[tuple[Signal, Fact], ...] = (
    (Signal.OFFERED_RATE, Fact.ARRIVED), (Signal.ADMITTED_RATE, Fact.ADMITTED), (Signal.FINISHED_RATE, Fact.FINISHED),
    (Signal.PROMPT_TOKEN_RATE, Fact.PROMPT_TOKENS), (Signal.GENERATION_TOKEN_RATE, Fact.GENERATION_TOKENS),
)  # fmt: skip
_COUNTS: tuple[tuple[Signal, Fact], ...] = (
    (Signal.TIMEOUTS, Fact.TIMEOUTS), (Signal.PREEMPTIONS, Fact.PREEMPTIONS),
    (Signal.OOM_RESTARTS, Fact.OOM_RESTARTS), (Signal.XID_ERRORS, Fact.XID_ERRORS),
)  # fmt: skip
_MEANS: tuple[tuple[Signal, Fact], ...] = (
    (Signal.TTFT, Fact.TTFT), (Signal.ITL, Fact.ITL), (Signal.TPOT, Fact.TPOT),
)  # fmt: skip
_COUNTED = frozenset(fact for fact in Fact if fact.kind is Kind.COUNTER)


class Singles:
    """What single replicas did over the control window, and how fast they were of late. `facts` are those of the
    engines: what a gateway tells of the pool is nothing that a replica did."""

    def __init__(self, j: Judge, facts: PoolFacts) -> None:
        self._j = j
        self._entries = j.history.within(j.now, j.window) if j.fresh else ()
        # Counters that never appeared have no child yet, unless nobody could tell.
        self._dark = facts.unsupported.keys() | facts.failed.keys()
        if facts.sources:
            self._dark |= _COUNTED - facts.sources.keys()

    def read(self, name: str, facts: ReplicaFacts, signals: dict[Signal, Reading]) -> Scope:
        """The scope of a replica that is up. `signals` are what is known of it already."""
        sums: dict[Fact, float] = {}
        newest: dict[Fact, _Interval] = {}
        seconds = 0.0
        for entry in self._entries:
            mine = entry.replicas.get(name)
            if mine is None:
                continue
            seconds += entry.at - entry.since
            for fact, value in mine.counters.items():
                sums[fact] = sums.get(fact, 0.0) + value
            _look_back(newest, entry, mine)
        if not sums or seconds <= 0:
            return Scope(signals=signals)
        window = self._Window(sums, seconds, facts.age, *self._state(facts, seconds), self._dark)
        for signal, fact in _RATES:
            if (count := window.count(fact)) is not None:
                signals[signal] = window.reading(count / seconds, count, self._j.source(fact))
        for signal, fact in _COUNTS:
            if (count := window.count(fact)) is not None:
                signals[signal] = window.reading(count, count, self._j.source(fact))
        if (restarts := window.count(Fact.RESTARTS)) is not None:
            crashes = max(0.0, restarts - (window.count(Fact.OOM_RESTARTS) or 0.0))
            signals[Signal.CRASH_RESTARTS] = window.reading(crashes, crashes, self._j.source(Fact.RESTARTS))
        if (failures := window.failures()) is not None:
            signals[Signal.ERROR_RATIO] = failures
        looked = window.count(Fact.PREFIX_QUERIES)
        if looked:
            hits = window.count(Fact.PREFIX_HITS) or 0.0
            signals[Signal.PREFIX_HIT_RATE] = window.reading(hits / looked, looked, self._j.source(Fact.PREFIX_HITS))
        latencies = {
            signal: {"mean": self._mean(newest[fact], facts.age, self._j.source(fact))}
            for signal, fact in _MEANS
            if fact in newest
        }
        return Scope(signals=signals, latencies=latencies)

    def _mean(self, of: "_Interval", age: float, source: str) -> Reading:
        """Of the newest interval alone: a mean over the control window would show a replica that turned slow when most
        of the window is slow."""
        aged = max(age, self._j.now - of.at)
        stale = aged > self._j.stale_after
        note = f"newest sample is {aged:.0f} s old" if stale else ""
        state = State.STALE if stale else State.OK
        return Reading(state, of.sum / of.count, None, None, of.count, aged, of.seconds, source, note)

    def _state(self, facts: ReplicaFacts, seconds: float) -> tuple[State, str]:
        if facts.age > self._j.stale_after:
            return State.STALE, f"newest sample is {facts.age:.0f} s old"
        if seconds < self._j.window * FILLED:
            return State.UNDERFILLED, f"{seconds:.0f} of {self._j.window:.0f} s seen"
        return State.OK, ""

    class _Window:
        """The counts of one replica over `seconds`."""

        __slots__ = ("_age", "_dark", "_note", "_state", "_sums", "seconds")

        def __init__(
            self, sums: Mapping[Fact, float], seconds: float, age: float, state: State, note: str, dark: Set[Fact]
        ) -> None:
            self._sums, self.seconds, self._age = sums, seconds, age
            self._state, self._note, self._dark = state, note, dark

        def count(self, fact: Fact) -> float | None:
            value = self._sums.get(fact)
            return 0.0 if value is None and fact not in self._dark else value

        def reading(self, value: float, count: float, source: str) -> Reading:
            return Reading(self._state, value, None, None, count, self._age, self.seconds, source, self._note)

        def failures(self) -> Reading | None:
            """Errors, refusals and time-outs of all that ended; None where it tells no errors, or nothing ended."""
            errors, finished = self.count(Fact.ERRORS), self.count(Fact.FINISHED)
            if errors is None or finished is None:
                return None
            failed = sum(self.count(fact) or 0.0 for fact in LOST)
            ended = max(self.count(Fact.RESPONSES) or 0.0, finished + failed)
            return self.reading(failed / ended, ended, "") if ended > 0 else None


@dataclass(slots=True)
class _Interval:
    """The newest interval in which a replica had samples of a histogram: it ended `at` unix seconds. Ticks are quicker
    than scrapes at times, so the ones without samples before it are of the same `seconds`."""

    sum: float
    count: float
    at: float
    seconds: float
    open: bool = True


def _look_back(newest: dict[Fact, _Interval], entry: Entry, mine: ReplicaEntry) -> None:
    """One entry further back."""
    for fact, of in newest.items():
        h = mine.histograms.get(fact)
        of.open = of.open and (h is None or h.count <= 0)
        of.seconds += entry.seconds if of.open else 0.0
    for fact, h in mine.histograms.items():
        if h.count > 0 and fact not in newest:
            newest[fact] = _Interval(h.sum, h.count, entry.at, entry.seconds)


def stuck(j: Judge, name: str) -> Reading:
    """1 when the replica held work at every one of the last scrapes and moved nothing between them."""
    if Fact.GENERATION_TOKENS in j.facts.late:
        return unsupported("tokens are counted when a request ends, so a long one looks stuck")
    seen, counted, held, moved = 0, False, True, False
    for entry in j.last:
        mine = entry.replicas.get(name)
        if mine is None:
            continue
        seen += 1
        counters, gauges = mine.counters, mine.gauges
        counted = counted or Fact.GENERATION_TOKENS in counters
        held = held and gauges.get(Fact.RUNNING, 0.0) + gauges.get(Fact.WAITING, 0.0) > 0
        moved = (
            moved
            or counters.get(Fact.GENERATION_TOKENS, 0.0) > 0
            or counters.get(Fact.PROMPT_TOKENS, 0.0) > 0
            or counters.get(Fact.FINISHED, 0.0) > 0
        )
    if not j.fresh or seen < STUCK_SCRAPES:
        return Reading(State.UNDERFILLED, note=f"{seen} of {STUCK_SCRAPES} scrapes seen")
    if not counted:
        return unsupported("no token counter per replica")
    return _STUCK if held and not moved else _MOVES


def stuck_total(replicas: Mapping[str, Scope]) -> Reading:
    known = [s.signals[Signal.STUCK] for s in replicas.values() if Signal.STUCK in s.signals]
    values = [r.value for r in known if r.value is not None]
    if not values:
        return known[0] if known else Reading(State.MISSING, note="no replica seen")
    return Reading(State.OK, sum(values), count=float(len(values)))
