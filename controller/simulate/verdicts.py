"""Verdicts: what became of every request that was offered.

What counts is the request as its client sees it. A retry is no new request: the first attempt is offered, and its
latency runs from its first arrival to the answer, whichever attempt brought it. An answer that kept its promise is
good; one that kept it with a smaller model is degraded, neither hit nor miss; all others are missed, also those that
were refused, timed out, went away or were lost.

The clock ends before the last answers do. A request without an answer then, and not given up, is missed when its
promise is broken already; else it is open, and counted neither as offered nor as anything else. How many are open is
told.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from controller.simulate.ports import Jobs, Promise

DEFAULT = "default"  # the promise for classes that have none of their own
FINISHED = "finished"
GOOD, DEGRADED, MISSED, OPEN = range(4)
LATE, SLOW, LONG = "late", "slow", "long"  # the reasons that are no endings
OUTPUT_COST = 2.0  # a token of the answer costs as much as two of the prompt


@dataclass(frozen=True, slots=True)
class Verdicts:
    """One row per request, in order of the first arrival (unix seconds). `why` are places in `reasons`, `klass` and
    `tenant` in `classes` and `tenants`. `ttft` and `tpot` seconds, NaN where there was no answer. `cost` in tokens of
    the prompt; `served` whether an answer was given, kept promise or not; `pool` a number for each pool."""

    arrived: NDArray[np.float64]
    result: NDArray[np.int64]
    why: NDArray[np.int64]
    klass: NDArray[np.int64]
    tenant: NDArray[np.int64]
    pool: NDArray[np.int64]
    ttft: NDArray[np.float64]
    tpot: NDArray[np.float64]
    cost: NDArray[np.float64]
    served: NDArray[np.bool_]
    prompt: NDArray[np.int64]
    cached: NDArray[np.int64]
    output: NDArray[np.int64]
    attempts: NDArray[np.int64]
    reasons: tuple[str, ...]
    classes: tuple[str, ...]
    tenants: tuple[str, ...]


def judge(jobs: Jobs, promises: Mapping[str, Promise], now: float) -> Verdicts:
    """The verdict on every request, at the time `now` (unix seconds) at which the clock has stopped."""
    stream, origin, attempt = (jobs.column(name) for name in ("stream", "origin", "attempt"))
    order = np.lexsort((attempt, origin, stream))
    same = np.zeros(len(order), dtype=bool)
    same[1:] = (stream[order][1:] == stream[order][:-1]) & (origin[order][1:] == origin[order][:-1])
    firsts = np.flatnonzero(~same)
    lasts = np.append(firsts[1:], len(order)) - 1 if len(order) else firsts
    first, last = order[firsts], order[lasts]
    arrived = jobs.column("arrived")[first]
    reasons = (*jobs.endings, LATE, SLOW, LONG)
    ending = jobs.column("ending")[last]
    waits = (ending < 0) | (jobs.column("retried")[last] != 0)  # its answer may still come
    served = ending == tuple(jobs.endings).index(FINISHED)
    token, end = jobs.column("first_token")[last], jobs.column("ended")[last]
    tpot = jobs.column("tpot")[last]
    klass = jobs.column("klass")[last].astype(np.int64)
    # Without a first token the wait is as long as it has been so far, and the same holds for the end.
    so_far = np.where(waits, now, np.inf)
    ttft = np.where(np.isnan(token) | (waits & ~(ending < 0)), so_far, token) - arrived
    e2e = np.where(served, end, so_far) - arrived
    targets = _targets(promises, jobs.classes)[klass] if len(klass) else np.empty((0, 3))
    late, slow, long = ttft > targets[:, 0], tpot > targets[:, 1], e2e > targets[:, 2]
    why = np.select(
        [~served & ~waits, late, slow & served, long], [ending, *(reasons.index(w) for w in (LATE, SLOW, LONG))], -1
    )
    degraded = jobs.column("degraded")[last] != 0
    result = np.select([why >= 0, ~served, degraded], [MISSED, OPEN, DEGRADED], GOOD)
    prompt, output = jobs.column("prompt")[last].astype(np.int64), jobs.column("output")[last].astype(np.int64)
    rows = np.argsort(arrived, kind="stable")
    return Verdicts(
        arrived[rows], result[rows], why[rows].astype(np.int64), klass[rows],
        jobs.column("tenant")[last].astype(np.int64)[rows], jobs.column("pool")[first].astype(np.int64)[rows],
        np.where(served, ttft, np.nan)[rows], np.where(served, tpot, np.nan)[rows],
        (prompt + OUTPUT_COST * output)[rows], served[rows], prompt[rows],
        jobs.column("cached")[last].astype(np.int64)[rows], output[rows],
        (jobs.column("attempt")[last].astype(np.int64) + 1)[rows],
        reasons, tuple(jobs.classes), tuple(jobs.tenants),
    )  # fmt: skip


def _targets(promises: Mapping[str, Promise], classes: Sequence[str]) -> NDArray[np.float64]:
    """(ttft, tpot, e2e) by class, inf where nothing is promised."""
    rows = []
    for name in classes:
        promise = promises.get(name, promises.get(DEFAULT))
        told = (None, None, None) if promise is None else (promise.ttft, promise.tpot, promise.e2e)
        rows.append([np.inf if target is None else target for target in told])
    return np.array(rows, dtype=np.float64).reshape(-1, 3)
