"""Demand: what was offered to a recorded fleet, whatever became of it. Pure.

Engines count requests when they finish. So what came in an interval is what finished in it, and by how much the queue
and the batch grew meanwhile: while they grow, completions alone would say that demand falls. Those that finish while
they grow are the short ones, those that finish while they shrink the long ones. So prompts and answers are means over
many intervals around.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from controller.core.errors import InputError
from controller.core.interval import Interval

AROUND = 15  # intervals before and after one that tell how long its requests are


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


def demand(intervals: Sequence[Interval], kv_tokens: float | None = None, spread: float = 0.0) -> tuple[Demand, ...]:
    """The demand between the samples. Where nobody counts the batch, it follows from KV usage of `kv_tokens` per
    replica, with answers of the coefficient of variation `spread`. Raises InputError when the recording does not tell
    how long requests are."""
    lengths = _lengths(intervals, AROUND)
    if len(intervals) < 2 or lengths is None:
        raise InputError(
            "the recording does not tell what was asked of the fleet: rates of finished requests and of prompt and "
            "generated tokens are needed; record again with this version, or map them in the import"
        )
    batches = [_batch(one, kv_tokens, *many, spread) for one, many in zip(intervals, lengths, strict=True)]
    begin, rate, found = intervals[0].at, 0.0, []
    for index, (before, now) in enumerate(pairwise(intervals)):
        if now.finished is not None:
            grown = _grown(before.waiting, now.waiting) + _grown(batches[index], batches[index + 1])
            rate = max(0.0, now.finished + grown / (now.at - before.at))
        found.append(
            Demand(before.at - begin, now.at - begin, rate, *lengths[index + 1], assumed=now.finished is None)
        )  # fmt: skip
    return tuple(_stepped(found))


def _lengths(intervals: Sequence[Interval], around: int) -> list[tuple[float, float]] | None:
    """Mean prompt and answer of the requests that finished around each interval, tokens."""
    total, sums = (0.0, 0.0, 0.0), [(0.0, 0.0, 0.0)]  # requests/s, and times prompt and answer
    for one in intervals:
        if one.finished and one.prompt is not None and one.output is not None:
            parts = one.finished, one.finished * one.prompt, one.finished * one.output
            total = total[0] + parts[0], total[1] + parts[1], total[2] + parts[2]
        sums.append(total)
    if total[0] <= 0:
        return None
    found = []
    for index in range(len(intervals)):
        first, last = sums[max(0, index - around)], sums[min(len(intervals), index + around + 1)]
        if last[0] <= first[0]:
            first, last = sums[0], total
        weight = last[0] - first[0]
        found.append(((last[1] - first[1]) / weight, (last[2] - first[2]) / weight))
    return found


def _batch(one: Interval, kv_tokens: float | None, prompt: float, output: float, spread: float) -> float | None:
    """Sequences in all batches. At any moment long answers are more of them."""
    if one.running is not None or one.kv_usage is None or one.replicas is None or kv_tokens is None:
        return one.running
    return one.kv_usage * one.replicas * kv_tokens / max(1.0, prompt + output * (1.0 + spread**2) / 2)


def _grown(before: float | None, now: float | None) -> float:
    return 0.0 if before is None or now is None else now - before


def _stepped(found: Sequence[Demand]) -> Iterator[Demand]:
    """A mean between those before and after it is that of a step from the one to the other within the interval."""
    for index, one in enumerate(found):
        before = found[index - 1].rate if index else one.rate
        after = found[index + 1].rate if index + 1 < len(found) else one.rate
        if min(before, after) < one.rate < max(before, after):
            at = one.begin + (one.end - one.begin) * (after - one.rate) / (after - before)
            yield replace(one, end=at, rate=before)
            yield replace(one, begin=at, rate=after)
        else:
            yield one
