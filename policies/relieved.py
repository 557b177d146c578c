"""Relieved: what a replica that is slow or fails may have of a router that divides what is in flight. Pure.

    slow_i    mean ITL / T(n_i) over that of the median of the others, each at its batch (``policies.pace``)
    n(s)      (0.75 * promise / s - base) / each, at most 0.75 * promise / s / least:  the batch that an engine s times
              as slow keeps its promise with
    slow      w = n(slow_i) / min(n(1), n*)   once slow_i >= `slow` by both its smoothed and its latest value, for
              `patience`, and while the others do not queue; until slow_i < sqrt(slow) by one of them
    failing   w = the least there is   once errors >= max(20 %, 5 * the rest) of >= 20 requests, again and again until
              no request is of before that was first seen; until they are below half of that, of 3
    else      w = 1, exactly

Such a router gives a slow replica fewer requests a second by itself, yet as many at a time as the others, and each of
them breaks the promise on time per token. And it takes one that fails at once for idle. Both are the breaker's first:
it sees them sooner, and a smaller share would hide from it what it needs to see. Where all queue inside their engines
the slow one is left alone: what it holds back would only slow down the others. One with a small weight may get nothing
at low load; after two minutes of silence it comes back, to be measured, and one that failed goes at the third error.
"""

import math
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from controller.core.operating import OF_THE_BATCH
from controller.core.ports import View
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.step_model import HEADROOM
from policies.pace import known
from policies.verdict import Verdict, verdicts

ERRORS = 0.2  # share of errors that is failing, as the breaker has it
BUSY = 0.5  # share of the others' sequences, of which a router that divides them gives each about as many
FEW = 3.0  # answers that say how one fares that gets few
SILENT = 120.0  # seconds without an answer, on a page that is read, after which a replica gets its share again


class Ill(NamedTuple):
    """One replica: its smoothed and its latest ln(slowness), None before there is one; since when it is `slow` by both
    and since when it is `failing`, None when it is not, and whether that is `sure`; `heard` when it last told either,
    or was met, and `now` whether it did in this tick. Unix seconds."""

    heard: float
    now: bool = False
    smooth: float | None = None
    latest: float = 0.0
    slow: float | None = None
    failing: float | None = None
    sure: bool = False

    @property
    def slowness(self) -> float:
        """How many times as slow it is for sure; below 1 for one that is faster."""
        return 1.0 if self.smooth is None else math.exp(min(self.smooth, self.latest))


def watched(
    view: View, objectives: Sequence[Objective], before: Mapping[str, Ill], cut: Mapping[str, bool], slow: float,
    smooth: float,
) -> dict[str, Ill]:  # fmt: skip
    """How each replica of `cut` fares, which says whether it has less than its share."""
    gone = view.tick.since_last or 0.0
    gain = gone / (smooth + gone) if smooth + gone > 0 else 1.0
    after = {}
    for name, said in verdicts(view, objectives, cut, cut).items():
        one = before.get(name, Ill(view.tick.at))._replace(now=False)
        one = _failing(one, said, view.tick.at, cut=cut[name])
        limit = math.sqrt(slow) if cut[name] or one.slow is not None else slow
        one = _slow(one, said, view.tick.at, gain, limit)
        after[name] = one if cut[name] or _busy(view, name) else one._replace(slow=None)
    return after


def _slow(one: Ill, said: Verdict, now: float, gain: float, limit: float) -> Ill:
    if not said.ratio:
        return one._replace(slow=None)  # what it was before a silence says nothing of how long it has been so
    latest = math.log(said.ratio)
    one = one._replace(
        heard=now, now=True, latest=latest,
        smooth=latest if one.smooth is None else one.smooth + gain * (latest - one.smooth),
    )  # fmt: skip
    return one._replace(slow=(now if one.slow is None else one.slow) if one.slowness >= limit else None)


def _busy(view: View, name: str) -> bool:
    """Whether it has about as many sequences as the others. Who has a full share and far fewer is held out by a
    breaker."""
    held = {other: scope.get(Signal.RUNNING).usable for other, scope in view.pool.replicas.items()}
    mine, others = held.get(name), [one for other, one in held.items() if other != name and one is not None]
    return mine is not None and bool(others) and mine >= BUSY * median(others)


def _failing(one: Ill, said: Verdict, now: float, *, cut: bool) -> Ill:
    """What it failed by has to be free of errors; a silence clears nobody."""
    if not (one.sure and cut):
        if not said.failing(ERRORS) or said.counted is None:
            return one._replace(failing=None, sure=False)
        since = now if one.failing is None else one.failing
        # What went out of rotation when it was first seen to fail tells of that for as long as readings look back.
        return one._replace(failing=since, sure=said.counted.begin >= since - 1e-6)
    if said.ended < FEW:
        return one
    one = one._replace(heard=now, now=True)
    return one if said.failing(ERRORS, 0.5, least=FEW) else one._replace(failing=None, sure=False)


def silent(view: View, name: str, one: Ill) -> bool:
    """Whether it is known to have had nothing to do for long."""
    scope = view.pool.replicas.get(name)
    running = scope.get(Signal.RUNNING).usable if scope is not None else None
    return running == 0 and view.tick.at - one.heard >= SILENT


def queued(view: View, name: str) -> bool:
    """Whether most of the others queue inside their engines."""
    others = [scope.get(Signal.QUEUE_DEPTH).usable for other, scope in view.pool.replicas.items() if other != name]
    depths = [depth for depth in others if depth is not None]
    return bool(depths) and median(depths) >= 1.0


def kept(view: View, objectives: Sequence[Objective], slowness: float) -> float | None:
    """The share of a healthy replica's sequences that one so many times as slow serves in time. None where nothing was
    promised per token, or there is no model."""
    promises = [one.target for one in objectives if one.signal in OF_THE_BATCH and not one.klass]
    if not promises or not known(view):
        return None
    healthy = _batch(view, min(promises), 1.0)
    if view.estimate.unit_sequences is not None:
        healthy = min(healthy, view.estimate.unit_sequences)
    return min(1.0, max(0.0, _batch(view, min(promises), slowness)) / max(healthy, 1.0))


def _batch(view: View, promise: float, slowness: float) -> float:
    base, each, least = (view.estimate.evidence.get(f"step_{name}", 0.0) for name in ("base", "each", "least"))
    room = HEADROOM * promise / slowness
    bounds = [(room - base) / each] if each > 0 else []
    bounds += [room / least] if least > 0 else []
    return min(bounds, default=math.inf if room >= base else 0.0)
