"""The cap on requests in flight: what it must not be lowered below, and what it must not be lowered for.

    final >= min( current, n* )     while every promise on ITL and TPOT is read and kept;   n* = Estimate.unit_sequences

What is above the cap waits before the engine. So all that grows with that wait (TTFT, the queue's delay and depth,
refusals) grows when the cap falls, and a law that lowered it for them would lower it again. ITL and TPOT are what a
batch does to the requests that were let in: they fall with the cap. While they are kept a replica at n* does its work,
and a lower cap would only lengthen the queue. Where one of them is broken or not read the cap may fall further; the law
that lowered it raises it again as they are kept.
"""

from collections.abc import Sequence

from controller.core.model import PoolReadings
from controller.core.ports import Estimate
from controller.core.reading import State
from controller.core.signals import Signal
from controller.core.slo import Objective

CONCURRENCY = "concurrency"  # the set-point of admission that this is about
ON_FIRST_TOKEN = frozenset({Signal.TTFT, Signal.QUEUE_TIME})  # promises that a wait before the first token breaks
OF_THE_BATCH = frozenset({Signal.ITL, Signal.TPOT})
GROWS_WITH_BATCH = OF_THE_BATCH | {Signal.RUNNING, Signal.KV_USAGE, Signal.KV_USAGE_MAX, Signal.PREEMPTIONS}
GROWS_WITH_WAIT = frozenset(
    {
        Signal.TTFT, Signal.E2E, Signal.QUEUE_TIME, Signal.QUEUE_DELAY, Signal.QUEUE_DEPTH, Signal.QUEUED_TOKENS,
        Signal.REJECTED_RATE, Signal.RETRY_SHARE, Signal.TIMEOUTS, Signal.ABORTS,
    }
)  # fmt: skip


def least(pool: PoolReadings | None, objectives: Sequence[Objective], estimate: Estimate) -> float | None:
    """Requests in flight per replica below which the cap is not lowered; None while nothing shows that a replica does
    its work."""
    holds = estimate.unit_sequences
    promised = [one for one in objectives if one.signal in OF_THE_BATCH and not one.klass]
    if pool is None or holds is None or not holds > 0 or not promised:
        return None
    for one in promised:
        reading = pool.latency(one.signal, one.stat)
        if reading.state is State.CENSORED or reading.usable is None or reading.usable > one.target:
            return None
    return holds
