"""Tokens waiting and tokens still to come, from the mean lengths of finished requests where they are not exposed."""

from collections import deque
from collections.abc import Mapping

from controller.core.facts import Fact
from controller.core.judge import Judge
from controller.core.reading import Reading, State
from controller.core.signals import Signal

KEEP = 240  # window means remembered, for the bounds


class Means:
    """The means of the last windows, the newest of them and the extremes of all."""

    def __init__(self) -> None:
        self._kept: deque[float] = deque(maxlen=KEEP)
        self.newest = self.lo = self.hi = 0.0

    def __bool__(self) -> bool:
        return bool(self._kept)

    def add(self, mean: float) -> None:
        """The mean of one more window. All are looked at only when an extreme is forgotten."""
        kept = self._kept
        forgotten = kept[0] if len(kept) == KEEP else None
        kept.append(mean)
        self.newest = mean
        if len(kept) == 1 or (forgotten is not None and not self.lo < forgotten < self.hi):
            self.lo, self.hi = min(kept), max(kept)
        else:
            self.lo, self.hi = min(self.lo, mean), max(self.hi, mean)


class Lengths:
    """Mean prompt tokens and mean output tokens of requests, window by window."""

    def __init__(self) -> None:
        self.prompt, self.output = Means(), Means()

    def learn(self, signals: Mapping[Signal, Reading]) -> None:
        """Add the mean lengths of this window, when requests finished in it."""
        finished = signals[Signal.FINISHED_RATE].count or 0.0
        prompt, output = signals[Signal.PROMPT_TOKEN_RATE].count, signals[Signal.GENERATION_TOKEN_RATE].count
        if finished > 0 and prompt and output:
            self.prompt.add(prompt / finished)
            self.output.add(output / finished)


def tokens(j: Judge, seen: Lengths, signals: Mapping[Signal, Reading]) -> dict[Signal, Reading]:
    """Exposed, or estimated from the newest mean lengths and bounded by their extremes."""
    waiting, running = signals[Signal.QUEUE_DEPTH].value, signals[Signal.RUNNING].value
    return {
        Signal.QUEUED_TOKENS: _estimate(j, seen.prompt, Fact.QUEUED_TOKENS, waiting, 0.0),
        Signal.REMAINING_TOKENS: _estimate(j, seen.output, Fact.REMAINING_TOKENS, waiting, running),
    }


def _estimate(j: Judge, lengths: Means, fact: Fact, waiting: float | None, running: float | None) -> Reading:
    if fact in j.facts.gauges:
        exposed = j.facts.gauges[fact]
        if held := j.facts.gauges.get(Fact.HELD, 0.0):
            exposed += held * lengths.newest  # no engine knows of what waits at the gateway
        return j.measured(Reading(State.OK, exposed, source=j.source(fact)), Fact.WAITING, windowed=False)
    if waiting is None or running is None:
        return Reading(State.MISSING, note="queue depth or running unknown")
    if waiting + running == 0:
        return Reading(State.OK, 0.0, 0.0, 0.0, source="no work in flight")
    if not lengths:
        return Reading(State.CENSORED, lo=waiting, note="no finished request yet to learn lengths from")
    # A running request is somewhere between its first and its last token: half of it is the middle guess.
    value, lo = (waiting + running / 2) * lengths.newest, waiting * lengths.lo
    hi = (waiting + running) * lengths.hi
    return j.measured(
        Reading(State.OK, value, min(lo, value), max(hi, value), None, j.age, None, "estimated from mean lengths"),
        Fact.WAITING,
        windowed=False,
    )
