"""What flows through a pool: offered, admitted and finished requests, tokens, and what went wrong."""

from collections.abc import Mapping
from itertools import pairwise

from controller.core import queueing
from controller.core.facts import Fact
from controller.core.judge import Judge, total
from controller.core.reading import Reading, State
from controller.core.signals import Signal
from controller.core.tally import LOST
from controller.core.windows import Entry, ReplicaEntry

RATES: Mapping[Signal, Fact] = {
    Signal.FINISHED_RATE: Fact.FINISHED, Signal.PROMPT_TOKEN_RATE: Fact.PROMPT_TOKENS,
    Signal.GENERATION_TOKEN_RATE: Fact.GENERATION_TOKENS, Signal.REJECTED_RATE: Fact.REJECTED,
}  # fmt: skip
_COUNTS: Mapping[Signal, Fact] = {
    Signal.TIMEOUTS: Fact.TIMEOUTS, Signal.XID_ERRORS: Fact.XID_ERRORS, Signal.PREEMPTIONS: Fact.PREEMPTIONS,
    Signal.OOM_RESTARTS: Fact.OOM_RESTARTS,
}  # fmt: skip


def flows(j: Judge) -> dict[Signal, Reading]:
    out = {signal: j.per_second(j.count(fact)) for signal, fact in RATES.items()}
    out.update({signal: j.count(fact) for signal, fact in _COUNTS.items()})
    out[Signal.CRASH_RESTARTS] = _crashes(j)
    out[Signal.ABORTS] = _aborts(j)
    out[Signal.ADMITTED_RATE] = _admitted(j, queueing.ADMIT_WINDOW)
    out[Signal.BEGUN_RATE] = _admitted(j, j.window)
    out[Signal.OFFERED_RATE] = _offered(j)
    out[Signal.RECENT_RATE] = _younger(j)
    out[Signal.ERROR_RATIO] = _error_ratio(j)
    out[Signal.RETRY_SHARE] = _ratio(j, Fact.RETRIES, Fact.ARRIVED)
    out[Signal.PREFIX_HIT_RATE] = _hit_rate(j)
    return out


def _crashes(j: Judge) -> Reading:
    every, oom = j.count(Fact.RESTARTS), j.count(Fact.OOM_RESTARTS)
    if every.value is None:
        return every
    return Reading(every.state, max(0.0, every.value - (oom.value or 0.0)), source=every.source, note=every.note)


def _aborts(j: Judge) -> Reading:
    direct = j.count(Fact.ABORTED)
    if direct.state != State.UNSUPPORTED:
        return direct
    responses, finished, errors = map(j.count, (Fact.RESPONSES, Fact.FINISHED, Fact.ERRORS))
    if Fact.ERRORS in j.facts.fronted and Fact.ABORTED in j.sums:
        # The gateway's errors are not those of the engines' responses; the meter took each interval by the engines'.
        return Reading(
            responses.state, j.sums[Fact.ABORTED], window=j.covered, source=f"{responses.source} - {finished.source}"
        )
    if responses.state == State.UNSUPPORTED and _nobody_left(j, finished):
        return j.measured(Reading(State.OK, 0.0, window=j.covered, source="nobody left"))
    if responses.value is None or finished.value is None:
        return direct if responses.state == State.UNSUPPORTED else responses
    value = max(0.0, responses.value - finished.value - (errors.value or 0.0))
    return Reading(responses.state, value, window=j.covered, source=f"{responses.source} - {finished.source}")


def _nobody_left(j: Judge, finished: Reading) -> bool:
    """Whether no request ended in any way: none finished, and what is in flight never fell. The series of responses is
    born with the first response, so where the HTTP layer says nothing before, this still tells that nobody went away.
    """
    if not j.fresh or finished.value != 0:
        return False
    inside = [entry.gauges for entry in j.history.within(j.now, j.window)]
    ends = j.history.ends(j.now, j.window)
    levels = [_inflight(at) for at in (*((ends[0].gauges,) if ends else ()), *reversed(inside))]
    return all(a is not None and b is not None and a <= b for a, b in pairwise(levels))


def _admitted(j: Judge, window: float) -> Reading:
    if not j.fresh:
        return j.absent(Fact.ADMITTED)
    gone = queueing.admitted(j.history, j.now, window)
    if gone is None or gone.seconds <= 0:
        return j.absent(Fact.ADMITTED)
    source = j.source(Fact.ADMITTED) or j.source(Fact.TTFT)
    state, note = (State.OK, "") if gone.fact not in j.unread else j.windowed(gone.fact)
    value = gone.many / gone.seconds
    return j.measured(Reading(state, value, count=gone.many, window=gone.seconds, source=source, note=note))


def _offered(j: Judge) -> Reading:
    """Requests offered per second, each once: counted arrivals without the retries among them, else what ended plus the
    change of what is in flight. `hi` counts every attempt. Where nobody tells a retry from a first attempt, that is the
    value, and `lo` is what is left if everyone who was failed or refused has come again within the window. A bound that
    is the value is left out."""
    arrived = j.count(Fact.ARRIVED)
    if arrived.value is not None and Fact.ARRIVED in j.sums:
        return _unique(j, arrived)
    responses, finished = j.count(Fact.RESPONSES), j.count(Fact.FINISHED)
    ended = max((r.value for r in (responses, finished) if r.value is not None), default=None)
    if ended is None:
        return finished if finished.state != State.UNSUPPORTED else arrived
    rejected = j.count(Fact.REJECTED).value or 0.0
    grown = _growth(j)
    value = max(0.0, ended + rejected + grown) / j.covered if j.covered > 0 else 0.0
    least = max(0.0, min(finished.value or 0.0, ended) + grown) / j.covered if j.covered > 0 else 0.0
    kind = "responses" if (responses.value or 0.0) > (finished.value or 0.0) else "finished"
    source = f"{kind} + change of in-flight"
    if Fact.ARRIVED in j.facts.fronted and arrived.value is None:
        # Who was refused at the gateway, or still waits there, did not come this far.
        note = arrived.note or "the gateway did not tell who came"
        return Reading(State.PARTIAL, value, least, None, window=j.covered, source=source, note=note)
    if finished.value is None and finished.state != State.UNSUPPORTED:
        # Responses tell how many ended, though not how many of them well.
        return Reading(State.PARTIAL, value, least, None, window=j.covered, source=source, note=finished.note)
    known = finished if finished.value is not None else responses
    return Reading(known.state, value, _other(least, value), window=j.covered, source=source)


def _unique(j: Judge, arrived: Reading) -> Reading:
    every, seconds = arrived.value or 0.0, arrived.window or 0.0
    if seconds <= 0:
        return arrived
    again = j.count(Fact.RETRIES).value
    if again is not None:
        value = least = max(0.0, every - again)
    else:
        failed = sum(j.count(fact).value or 0.0 for fact in (*LOST, Fact.ABORTED))
        value, least = every, max(0.0, every - failed)
    return Reading(
        arrived.state, value / seconds, _other(least / seconds, value / seconds),
        _other(every / seconds, value / seconds), value, arrived.age, seconds, arrived.source, arrived.note,
    )  # fmt: skip


def _younger(j: Judge) -> Reading:
    """Requests offered per second, each once, of the younger half of the window, where arrivals are counted. It knows
    of a crowd a quarter of a window earlier than the whole, and swings more."""
    whole = j.count(Fact.ARRIVED)
    if whole.value is None or Fact.ARRIVED not in j.sums:
        return whole
    half = j.window / 2
    counted, seconds = j.counters(half), j.history.covered(j.now, half)
    if seconds <= 0:
        return whole
    value = max(0.0, counted.get(Fact.ARRIVED, 0.0) - counted.get(Fact.RETRIES, 0.0))
    return Reading(
        whole.state, value / seconds, count=value, age=whole.age, window=seconds, source=whole.source, note=whole.note
    )


def _other(bound: float, value: float) -> float | None:
    """A bound that says more than the value: a large fleet's ledger keeps each."""
    return bound if bound != value else None


def _growth(j: Judge) -> float:
    """How much the work in flight grew over the window. A replica that vanished took its requests with it, and one
    whose scrape failed and came back brought nothing new: only replicas seen at both ends count, and those that are
    new. What waits at a gateway counts when it was seen at both ends."""
    ends = j.history.ends(j.now, j.window)
    if ends is None:
        return 0.0
    start, end = ends
    before, after = _held(start.replicas), _held(end.replicas)
    own = _recent(start, end, start.seen, end.seen)
    if not after or not before:
        first, last = _inflight(start.gauges), _inflight(end.gauges)
        return own * (last - first) if first is not None and last is not None else 0.0
    grown = sum(
        _recent(start, end, start.replicas[name].seen, end.replicas[name].seen) * (after[name] - before[name])
        for name in after
        if name in before
    )
    if Fact.HELD in start.gauges and Fact.HELD in end.gauges:
        grown += own * (end.gauges[Fact.HELD] - start.gauges[Fact.HELD])
    return grown + sum(
        held for name, held in after.items() if name not in before and not j.history.knew(name, start.at)
    )


def _recent(start: Entry, end: Entry, before: float | None, after: float | None) -> float:
    """The part of a change of gauges that lies between two entries: in an outage the old one is repeated, and what it
    grew by is that of a longer time."""
    if before is None or before >= start.at:
        return 1.0
    last = end.at if after is None else after
    return max(0.0, last - start.at) / (last - before) if last > before else 1.0


def _held(replicas: Mapping[str, ReplicaEntry]) -> dict[str, float]:
    levels = {name: _inflight(one.gauges) for name, one in replicas.items()}
    return {name: level for name, level in levels.items() if level is not None}


def _inflight(gauges: Mapping[Fact, float]) -> float | None:
    return total(gauges.get(Fact.RUNNING), gauges.get(Fact.WAITING))


def _ratio(j: Judge, part: Fact, whole: Fact) -> Reading:
    top, bottom = j.count(part), j.count(whole)
    if top.value is None or bottom.value is None:
        return top if top.value is None else bottom
    if bottom.value <= 0:
        return j.measured(Reading(State.NO_TRAFFIC, count=0.0, window=j.covered, source=bottom.source))
    return Reading(
        top.state, top.value / bottom.value, count=bottom.value, window=j.covered,
        source=f"{top.source} / {bottom.source}",
    )  # fmt: skip


def _hit_rate(j: Judge) -> Reading:
    if Fact.PREFIX_QUERIES in j.facts.unsupported and Fact.PREFIX_HIT_RATIO in j.facts.gauges:
        value, source = j.facts.gauges[Fact.PREFIX_HIT_RATIO], j.source(Fact.PREFIX_HIT_RATIO)
        return j.measured(Reading(State.OK, value, source=source), windowed=False)
    return _ratio(j, Fact.PREFIX_HITS, Fact.PREFIX_QUERIES)


def _error_ratio(j: Judge) -> Reading:
    """Requests that the server failed: errors, refusals and time-outs, which contracts keep apart."""
    errors, finished, responses = map(j.count, (Fact.ERRORS, Fact.FINISHED, Fact.RESPONSES))
    if errors.value is None:
        return errors
    failed = errors.value + sum(j.count(fact).value or 0.0 for fact in (Fact.REJECTED, Fact.TIMEOUTS))
    ended = max(responses.value or 0.0, (finished.value or 0.0) + failed)
    if ended <= 0:
        return j.silence(Fact.ERRORS, seen=True)
    return Reading(errors.state, failed / ended, count=ended, window=j.covered, source=errors.source, note=errors.note)
