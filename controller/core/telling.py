"""Telling: the words for one decision's reasons, the same in a plan's sentence, in `explain`, in the log and over HTTP.
Pure.

Most reasons have one sentence in the catalogue. Some say more where the decision knows more: which signal is held at
its target, which of several things a cap stands at, what of the past a lever follows, until when.
"""

from collections.abc import Callable, Iterable, Mapping

from controller.core.model import Decision, Lever, TargetState
from controller.core.signals import INFO, Signal, SignalInfo
from controller.core.why import SENTENCE, Why
from controller.core.words import clock

UNTIL, TRIED = "until", "tried_at"  # evidence that is a time, unix seconds: what holds until then, what is tried then
TIMES = frozenset({UNTIL, TRIED})
_OF_A_HELD = "the signal that is held"


def because(decision: Decision, why: Why | None = None, state: TargetState | None = None) -> str:
    """The clause that says a reason of this decision, its own unless another is given. `state` is the target as it was
    read, where that is at hand: it knows who else writes."""
    why = decision.why if why is None else why
    if why is Why.FOREIGN_WRITER and state is not None and state.foreign_writer:
        return _foreign(state)
    told = _TOLD.get(why)
    return SENTENCE[why] if told is None else told(decision, SENTENCE[why])


def alike(decisions: Iterable[Decision], why: Why) -> str:
    """The clause for several: what is true of all of them."""
    words = {because(one, why) for one in decisions}
    return words.pop() if len(words) == 1 else SENTENCE[why]


def signal_of(evidence: Mapping[str, float]) -> tuple[str, SignalInfo] | None:
    """The signal that a law held at a target or against thresholds, as the evidence names it."""
    if "measure" not in evidence:
        return None
    return next(((name, INFO[Signal(name)]) for name in evidence if name in INFO), None)


def until(decisions: Iterable[Decision]) -> str:
    """`until 14:03:15 UTC`, `tried again at about 14:03:15 UTC`; of several the first time, "" where one has none."""
    for name, words, several in (
        (UNTIL, "until", "until"), (TRIED, "tried again at about", "the first of them tried again at about")
    ):  # fmt: skip
        times = [one.evidence.get(name) for one in decisions]
        known = [one for one in times if one is not None]
        if known and len(known) == len(times):
            return f"{words if len(known) == 1 else several} {clock(min(known))} UTC"
    return ""


def holds_until(decision: Decision, state: TargetState | None = None) -> float | None:
    """Until when the reason of a decision holds, unix seconds; None where nobody knows beforehand."""
    if decision.why is Why.FOREIGN_WRITER and state is not None:
        return state.foreign_until
    known = decision.evidence.get(UNTIL)
    return decision.evidence.get(TRIED) if known is None else known


def _foreign(state: TargetState) -> str:
    if state.foreign_until is None:
        return f"{state.foreign_writer} writes this target too, so it is left alone"
    return f"{state.foreign_writer} changed this target, so it is left alone until {clock(state.foreign_until)} UTC"


def _held(decision: Decision, text: str) -> str:
    """With the name of the signal: a queue that is long is no latency. Laws that name none hold a latency. Where the
    newest measure is on the other side of the target, what was smoothed over the last ones is what was meant."""
    named, evidence = signal_of(decision.evidence), decision.evidence
    if named is None:
        return text.replace(_OF_A_HELD, "latency")
    above = evidence["measure"] > evidence.get("target", evidence["measure"])
    smoothed = above == (text is SENTENCE[Why.LATENCY_LOW])
    return text.replace(_OF_A_HELD, f"smoothed {named[0]}" if smoothed else named[0])


def _compared(decision: Decision, text: str) -> str:
    named = signal_of(decision.evidence)
    return text if named is None else text.replace("the signal", _name(named[0], decision.evidence))


def _name(signal: str, evidence: Mapping[str, float]) -> str:
    return signal if evidence[signal] == evidence["measure"] else f"{signal} per replica"


def _past(decision: Decision, _text: str) -> str:
    return f"{recent(decision.target.lever)} still counts"


def recent(lever: Lever) -> str:
    """What of the recent past a lever follows."""
    if lever is Lever.REPLICAS:
        return "the highest need of the recent past, the older the less,"
    return "the most careful value of the recent past"


_DECIDES = {
    "of_guarantee": "its guarantee",
    "of_use": "its busiest use and room beyond it",
    "of_spare": "what it uses now and most of what is spare",
    "of_least": "the least that any tenant gets",
    "of_part": "the part of a newcomer, by weight",
}


def _standing(decision: Decision, text: str) -> str:
    """Which of the things that a standing cap is the highest of."""
    words = next((words for name, words in _DECIDES.items() if name in decision.evidence), None)
    return text if words is None else f"the tenant's standing cap is {words}"


def _partial(decision: Decision, text: str) -> str:
    """A pool that was scaled to zero on purpose is no incident."""
    if decision.target.lever is Lever.REPLICAS and decision.current == 0:
        return "there is no replica that could answer"
    return text


_TOLD: Mapping[Why, Callable[[Decision, str], str]] = {
    Why.LATENCY_HIGH: _held,
    Why.LATENCY_LOW: _held,
    Why.LATENCY_FALLS: _held,
    Why.ABOVE_THRESHOLD: _compared,
    Why.BELOW_THRESHOLD: _compared,
    Why.STABILISE: _past,
    Why.STANDING_CAP: _standing,
    Why.PARTIAL: _partial,
}
