"""Readings of single replicas and tenants, and which replicas are stuck."""

from collections.abc import Mapping

from controller.core.facts import Fact
from controller.core.flows import RATES
from controller.core.gauges import GAUGES
from controller.core.judge import STUCK_SCRAPES, Judge
from controller.core.model import Scope
from controller.core.observation import ReplicaFacts
from controller.core.reading import Reading, State, unsupported
from controller.core.signals import Signal

_SIGNALS = {fact: signal for signal, fact in GAUGES.items()}
_STUCK, _MOVES = Reading(State.OK, 1.0), Reading(State.OK, 0.0)


def replica(j: Judge, name: str, facts: ReplicaFacts) -> Scope:
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
    return Scope(signals=signals)


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


def tenant(j: Judge, counters: Mapping[Fact, float]) -> dict[Signal, Reading]:
    last = j.history.entries[-1] if j.history.entries else None
    if last is None or not j.fresh:
        return {}
    rates = {**RATES, Signal.OFFERED_RATE: Fact.ARRIVED}
    return {
        signal: Reading(State.OK, counters[fact] / last.seconds, window=last.seconds)
        for signal, fact in rates.items()
        if fact in counters
    }
