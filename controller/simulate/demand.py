"""Demand: what was offered to a recorded fleet, whatever became of it. Pure.

Engines count requests when they finish. So what came in an interval is what finished in it, and by how much the queue
and the batch grew meanwhile: while a queue builds, completions alone would say that demand falls.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from controller.core.errors import InputError
from controller.core.interval import Interval


@dataclass(frozen=True, slots=True)
class Demand:
    """From `begin` to `end` (seconds after the first sample), `rate` requests/s with `prompt` and `output` mean tokens.
    `assumed` when nothing was recorded of that time and the demand before it is taken to have gone on."""

    begin: float
    end: float
    rate: float
    prompt: float
    output: float
    assumed: bool = False


def demand(intervals: Sequence[Interval]) -> tuple[Demand, ...]:
    """The demand between each two samples. Raises InputError when the recording does not tell how long requests are."""
    told = [one for one in intervals if one.prompt is not None and one.output is not None]
    if len(intervals) < 2 or not told:
        raise InputError(
            "the recording does not tell what was asked of the fleet: rates of finished requests and of prompt and "
            "generated tokens are needed; record again with this version, or map them in the import"
        )
    lengths = told[0].prompt or 1.0, told[0].output or 1.0
    rate, found = 0.0, []
    for before, now in pairwise(intervals):
        seconds = now.at - before.at
        if now.prompt is not None and now.output is not None:
            lengths = now.prompt, now.output
        assumed = now.finished is None
        if now.finished is not None:
            grown = _grown(before.waiting, now.waiting) + _grown(before.running, now.running)
            rate = max(0.0, now.finished + grown / seconds)
        begin = before.at - intervals[0].at
        found.append(Demand(begin, begin + seconds, rate, *lengths, assumed))
    return tuple(found)


def _grown(before: float | None, now: float | None) -> float:
    return 0.0 if before is None or now is None else now - before
