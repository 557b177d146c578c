"""Offered requests and those that met an objective, counted with bounds from increments.

A promise for one request class is counted on the histogram of that class. Who was lost or went away is known per class
only where that counter carries the class label; otherwise any number between none and all of the pool's may be of the
class, and offered lies between N and N + those. A budget needs one number: it takes of the losses without a name the
part that the class has of what was observed, so that the budgets of all classes together lose what the pool lost. The
worse end would let a class of few requests burn by the aborts of all others.
"""

from collections.abc import Mapping, Set
from typing import NamedTuple

from controller.core import histogram
from controller.core.facts import Fact
from controller.core.observation import HistogramIncrement
from controller.core.signals import Signal
from controller.core.slo import Objective

LATENCY: Mapping[Signal, Fact] = {
    Signal.TTFT: Fact.TTFT, Signal.TPOT: Fact.TPOT, Signal.ITL: Fact.ITL, Signal.E2E: Fact.E2E,
    Signal.QUEUE_TIME: Fact.QUEUE_TIME,
}  # fmt: skip
# Failures that never reach a latency histogram.
LOST = (Fact.ERRORS, Fact.REJECTED, Fact.TIMEOUTS)
# All counters that say how many were offered.
ENDINGS = (*LOST, Fact.ABORTED, Fact.RESPONSES, Fact.FINISHED)


class Span(NamedTuple):
    """A count that is known to lie between two bounds. True when it is known to be more than none."""

    lo: float
    hi: float

    def __bool__(self) -> bool:
        return self.lo > 0


class Endings(NamedTuple):
    """How requests ended: `lost` by fault of the server, `gone` with their client, `finished` well; `responses` are
    those of the HTTP layer."""

    lost: Span
    gone: Span
    finished: float
    responses: float

    def shared(self, part: float) -> "Endings":
        """One number each, taking this part (0..1) of what is in doubt."""
        lost, gone = (_exactly(s.lo + part * (s.hi - s.lo)) for s in (self.lost, self.gone))
        return Endings(lost, gone, self.finished, self.responses)


def aborts(counters: Mapping[Fact, float]) -> float:
    """Requests whose client went away: counted, or responses of the HTTP layer minus finished requests (vLLM counts an
    aborted stream as a 2xx response and nowhere else)."""
    if Fact.ABORTED in counters:
        return counters[Fact.ABORTED]
    if Fact.RESPONSES in counters and Fact.FINISHED in counters:
        return max(0.0, counters[Fact.RESPONSES] - counters[Fact.FINISHED] - counters.get(Fact.ERRORS, 0.0))
    return 0.0


def endings(counters: Mapping[Fact, float]) -> Endings:
    """How the requests of a pool ended."""
    lost, gone = sum(counters.get(fact, 0.0) for fact in LOST), aborts(counters)
    finished, responses = counters.get(Fact.FINISHED, 0.0), counters.get(Fact.RESPONSES, 0.0)
    return Endings(_exactly(lost), _exactly(gone), finished, responses)


def class_endings(own: Mapping[Fact, float], named: Set[Fact], pool: Mapping[Fact, float]) -> Endings:
    """How the requests of one class ended: `own` are its counters, `named` the facts that are told by class, `pool` the
    pool's counters, which bound those that are not."""

    def part(fact: Fact) -> Span:
        return _exactly(own.get(fact, 0.0)) if fact in named else Span(0.0, pool.get(fact, 0.0))

    lost = [part(fact) for fact in LOST]
    finished, responses = own.get(Fact.FINISHED, 0.0), own.get(Fact.RESPONSES, 0.0)
    if Fact.ABORTED in named or Fact.ABORTED in pool:
        gone = part(Fact.ABORTED)
    elif {Fact.RESPONSES, Fact.FINISHED} <= named:
        errors, left = part(Fact.ERRORS), responses - finished
        gone = Span(max(0.0, left - errors.hi), max(0.0, left - errors.lo))
    else:
        gone = Span(0.0, aborts(pool))
    return Endings(Span(sum(p.lo for p in lost), sum(p.hi for p in lost)), gone, finished, responses)


def tally(objective: Objective, histograms: Mapping[Fact, HistogramIncrement], ended: Endings) -> tuple[Span, Span]:
    """Offered requests of a pool and those that met the objective, with bounds."""
    fact = LATENCY.get(objective.signal)
    return count(objective, histograms.get(fact) if fact is not None else None, ended)


def count(objective: Objective, h: HistogramIncrement | None, ended: Endings) -> tuple[Span, Span]:
    """Offered requests and those that met the objective, with bounds.

    Only a first token can be observed before the client leaves, so for ttft any of the aborted requests may be in the
    histogram already: offered lies between the two. For the others an aborted request is never observed.
    """
    lost, gone = ended.lost, ended.gone
    if objective.signal == Signal.ERROR_RATIO:
        least, most = (max(ended.responses, ended.finished + failed) for failed in (lost.lo, lost.hi))
        return Span(least, most), Span(most - lost.hi, least - lost.lo)
    if h is None:
        return Span(0.0, 0.0), Span(0.0, 0.0)
    least = lost.lo + (max(h.count, gone.lo) if objective.signal == Signal.TTFT else h.count + gone.lo)
    hit = histogram.met(h, objective.target)
    return Span(least, h.count + lost.hi + gone.hi), Span(hit.lo, hit.hi)


def _exactly(number: float) -> Span:
    return Span(number, number)
