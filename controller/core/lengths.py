"""Tokens waiting and tokens still to come, from the mean lengths of finished requests where they are not exposed."""

from collections.abc import Mapping

from controller.core.facts import Fact
from controller.core.judge import Judge
from controller.core.reading import Reading, State
from controller.core.signals import Signal

KEEP = 240  # window means remembered, for the bounds

Lengths = tuple[tuple[float, float], ...]  # mean prompt and output tokens per window, newest last


def learn(seen: Lengths, signals: Mapping[Signal, Reading]) -> Lengths:
    """Add the mean lengths of this window, when requests finished in it."""
    finished = signals[Signal.FINISHED_RATE].count or 0.0
    prompt, output = signals[Signal.PROMPT_TOKEN_RATE].count, signals[Signal.GENERATION_TOKEN_RATE].count
    if finished > 0 and prompt and output:
        return (*seen[-KEEP + 1 :], (prompt / finished, output / finished))
    return seen


def tokens(j: Judge, seen: Lengths, signals: Mapping[Signal, Reading]) -> dict[Signal, Reading]:
    """Exposed, or estimated from the newest mean lengths and bounded by their extremes."""
    waiting, running = signals[Signal.QUEUE_DEPTH].value, signals[Signal.RUNNING].value
    return {
        Signal.QUEUED_TOKENS: _estimate(j, seen, Fact.QUEUED_TOKENS, 0, waiting, 0.0),
        Signal.REMAINING_TOKENS: _estimate(j, seen, Fact.REMAINING_TOKENS, 1, waiting, running),
    }


def _estimate(j: Judge, seen: Lengths, fact: Fact, which: int, waiting: float | None, running: float | None) -> Reading:
    if fact in j.facts.gauges:
        return j.measured(Reading(State.OK, j.facts.gauges[fact], source=j.source(fact)), windowed=False)
    if waiting is None or running is None:
        return Reading(State.MISSING, note="queue depth or running unknown")
    if waiting + running == 0:
        return Reading(State.OK, 0.0, 0.0, 0.0, source="no work in flight")
    lengths = [pair[which] for pair in seen]
    if not lengths:
        return Reading(State.CENSORED, lo=waiting, note="no finished request yet to learn lengths from")
    # A running request is somewhere between its first and its last token: half of it is the middle guess.
    value, lo = (waiting + running / 2) * lengths[-1], waiting * min(lengths)
    hi = (waiting + running) * max(lengths)
    return j.measured(
        Reading(State.OK, value, min(lo, value), max(hi, value), source="estimated from mean lengths"),
        windowed=False,
    )
