"""How long a request that joins now must expect to wait.

Engines write the queue time of a request when it finishes, so the histogram is blind while the queue is worst: it said
0.297 s while 43 requests waited. Three views are combined, and the largest counts: the p99 of finished requests, the
time to drain the queue at the rate at which requests leave it, and how long the oldest one must already have waited.
"""

from collections.abc import Sequence
from typing import NamedTuple

from controller.core.facts import Fact
from controller.core.reading import Reading, State
from controller.core.tally import aborts
from controller.core.windows import Entry, History, counted, left_queue

ADMIT_WINDOW = 30.0  # seconds over which the rate of leaving the queue is measured


class Admitted(NamedTuple):
    """How many requests left the queue, in how many seconds that could be read, and what tells it."""

    many: float
    seconds: float
    fact: Fact


def admitted(history: History, now: float, window: float) -> Admitted | None:
    """Requests that left the queue within the window: counted as such, else by their first token."""
    entries = list(history.within(now, window))
    for fact in (Fact.ADMITTED, Fact.TTFT, Fact.FINISHED):
        if any(fact in e.counters or fact in e.histograms for e in entries):
            read = [e for e in entries if fact not in e.failed]
            return Admitted(sum(counted(e, fact) for e in read), sum(e.seconds for e in read), fact)
    return None


def oldest_wait(entries: Sequence[Entry], now: float) -> float:
    """Seconds that the oldest waiting request has waited at least, first come first served.

    If w requests waited at time t and fewer than w have left the queue since, served or given up, one of them still
    waits: it has waited for now - t or longer.
    """
    bound, left = 0.0, 0.0
    for newer, older in zip(reversed(entries), list(reversed(entries))[1:], strict=False):
        left += left_queue(newer) + aborts(newer.counters)
        waiting = older.gauges.get(Fact.WAITING, 0.0)
        if waiting <= 0:
            break
        if waiting > left:
            bound = now - older.at
    return bound


def delay(history: History, now: float, waiting: Reading, finished_p99: Reading) -> Reading:
    """Queue delay in seconds. `ok` with the largest of the three views; `censored` with a lower bound alone when
    requests wait and none has left the queue; 0 when the queue is known to be empty."""
    if waiting.value is None:
        return Reading(State.MISSING, note="queue depth unknown") if waiting.state != State.UNSUPPORTED else waiting
    finished = finished_p99.usable if finished_p99.state != State.BELOW_FIRST else finished_p99.hi
    if waiting.value <= 0:
        # The p99 of a queue that has emptied is history; a joining request starts at once.
        return Reading(State.OK, value=0.0, lo=0.0, hi=0.0, source=waiting.source)
    age = oldest_wait(list(history.entries), now)
    gone = admitted(history, now, ADMIT_WINDOW)
    if gone is None or not gone.many or gone.seconds <= 0:
        lo = max(age, finished or 0.0)
        return Reading(State.CENSORED, lo=lo, source=waiting.source, note="requests wait and none left the queue")
    drain = waiting.value * gone.seconds / gone.many
    value = max(drain, age, finished or 0.0)
    return Reading(State.OK, value=value, lo=age, count=gone.many, window=gone.seconds, source=waiting.source)
