"""Offered requests and those that met an objective, counted with bounds from increments."""

from collections.abc import Mapping
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Span:
    """A count that is known to lie between two bounds."""

    lo: float
    hi: float

    def __bool__(self) -> bool:
        return self.hi > 0


def aborts(counters: Mapping[Fact, float]) -> float:
    """Requests whose client went away: counted, or responses of the HTTP layer minus finished requests (vLLM counts an
    aborted stream as a 2xx response and nowhere else)."""
    if Fact.ABORTED in counters:
        return counters[Fact.ABORTED]
    if Fact.RESPONSES in counters and Fact.FINISHED in counters:
        return max(0.0, counters[Fact.RESPONSES] - counters[Fact.FINISHED] - counters.get(Fact.ERRORS, 0.0))
    return 0.0


def tally(
    objective: Objective, histograms: Mapping[Fact, HistogramIncrement], counters: Mapping[Fact, float]
) -> tuple[Span, Span]:
    """Offered requests and those that met the objective, with bounds.

    Only a first token can be observed before the client leaves, so for ttft any of the aborted requests may be in the
    histogram already: offered lies between the two. For the others an aborted request is never observed.
    """
    lost = sum(counters.get(fact, 0.0) for fact in LOST)
    if objective.signal == Signal.ERROR_RATIO:
        failed = lost
        ended = max(counters.get(Fact.RESPONSES, 0.0), counters.get(Fact.FINISHED, 0.0) + failed)
        return Span(ended, ended), Span(ended - failed, ended - failed)
    h = histograms.get(LATENCY[objective.signal])
    if h is None:
        return Span(0.0, 0.0), Span(0.0, 0.0)
    gone = aborts(counters)
    most = h.count + lost + gone
    least = lost + max(h.count, gone) if objective.signal == Signal.TTFT else most
    hit = histogram.met(h, objective.target)
    return Span(least, most), Span(hit.lo, hit.hi)
