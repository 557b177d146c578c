"""Tokens waiting and tokens still to come, from the mean lengths of finished requests where they are not exposed."""

from collections.abc import Mapping

from controller.core.facts import Fact
from controller.core.judge import Judge
from controller.core.reading import Reading, State
from controller.core.signals import Signal

KEEP = 240  # window means remembered, for the bounds

# Mean prompt tokens and mean output tokens of the windows, newest last.
Lengths = tuple[tuple[float, ...], tuple[float, ...]]
NONE: Lengths = ((), ())


def learn(seen: Lengths, signals: Mapping[Signal, Reading]) -> Lengths:
    """Add the mean lengths of this window, when requests finished in it."""
    finished = signals[Signal.FINISHED_RATE].count or 0.0
    prompt, output = signals[Signal.PROMPT_TOKEN_RATE].count, signals[Signal.GENERATION_TOKEN_RATE].count
    if finished > 0 and prompt and output:
        prompts, outputs = seen
        return (*prompts[-KEEP + 1 :], prompt / finished), (*outputs[-KEEP + 1 :], output / finished)
    return seen


def tokens(j: Judge, seen: Lengths, signals: Mapping[Signal, Reading]) -> dict[Signal, Reading]:
    """Exposed, or estimated from the newest mean lengths and bounded by their extremes."""
    waiting, running = signals[Signal.QUEUE_DEPTH].value, signals[Signal.RUNNING].value
    return {
        Signal.QUEUED_TOKENS: _estimate(j, seen[0], Fact.QUEUED_TOKENS, waiting, 0.0),
        Signal.REMAINING_TOKENS: _estimate(j, seen[1], Fact.REMAINING_TOKENS, waiting, running),
    }


def _estimate(
    j: Judge, lengths: tuple[float, ...], fact: Fact, waiting: float | None, running: float | None
) -> Reading:
    if fact in j.facts.gauges:
        return j.measured(Reading(State.OK, j.facts.gauges[fact], source=j.source(fact)), windowed=False)
    if waiting is None or running is None:
        return Reading(State.MISSING, note="queue depth or running unknown")
    if waiting + running == 0:
        return Reading(State.OK, 0.0, 0.0, 0.0, source="no work in flight")
    if not lengths:
        return Reading(State.CENSORED, lo=waiting, note="no finished request yet to learn lengths from")
    # A running request is somewhere between its first and its last token: half of it is the middle guess.
    value, lo = (waiting + running / 2) * lengths[-1], waiting * min(lengths)
    hi = (waiting + running) * max(lengths)
    return j.measured(
        Reading(State.OK, value, min(lo, value), max(hi, value), None, j.age, None, "estimated from mean lengths"),
        windowed=False,
    )
