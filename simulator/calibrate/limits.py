"""What limited the batch: read off a request log where requests had to wait.

While requests wait the engine runs as many as it may. If that is always the same number of requests, it is the engine's
`max_num_seqs`; if it is always the same number of tokens, it is the KV cache. A log in which nothing waited tells
neither.
"""

from dataclasses import dataclass

import numpy as np

from simulator.calibrate.log import Floats, RequestLog

LONG = 4.0  # decode steps: a shorter wait is for the token budget of a step
SEEN = 40.0  # decode steps with a queue that are enough to tell
EVEN_SLOTS = 0.93  # low against usual number of running requests, where slots are the limit
EVEN_TOKENS = 0.85  # the same of tokens, where the KV cache is


@dataclass(frozen=True, slots=True)
class Load:
    """The engine between one event of the log and the next: how long (seconds), requests running, requests waiting
    for longer than the token budget explains, tokens of context in the KV cache."""

    seconds: Floats
    running: Floats
    queued: Floats
    tokens: Floats


@dataclass(frozen=True, slots=True)
class Seen:
    """The limits that a log shows, None where it does not. `largest` is the largest batch that ran, `fullest` the most
    tokens that the KV cache held."""

    max_num_seqs: int | None
    kv_tokens: int | None
    largest: int
    fullest: int


def load(log: RequestLog) -> Load:
    """The load over the time of the log. Without scheduling times a request runs from its first token on."""
    began = log.first if log.scheduled is None else log.scheduled
    step = float(np.nanmedian(log.tpot))
    late = np.minimum(log.queued + LONG * step, began)  # since when it has waited for long
    events = np.unique(np.concatenate([log.queued, began, log.last, log.first, late]))
    middle, seconds = (events[1:] + events[:-1]) / 2, np.diff(events)
    tokens = np.zeros(len(middle))
    rate = (log.output - 1) / np.maximum(log.last - log.first, 1e-9)
    running = _between(began, log.last, middle)
    queued = _between(late, began, middle)
    for index in range(len(log)):
        a, b, c = np.searchsorted(middle, (began[index], log.first[index], log.last[index]))
        tokens[a:c] += log.prompt[index]
        # Its tokens grow in a straight line.
        tokens[b:c] += 1 + (middle[b:c] - log.first[index]) * rate[index]
    return Load(seconds, running, queued, tokens)


def _between(begin: Floats, end: Floats, at: Floats) -> Floats:
    """How many have begun and not ended, at each time."""
    begun, ended = (np.searchsorted(np.sort(times), at) for times in (begin, end))
    return (begun - ended).astype(np.float64)


def read_limits(log: RequestLog) -> Seen:
    """The limits that the log shows."""
    at = load(log)
    largest = int(_quantile(at.running, at.seconds, 0.99))
    fullest = int(_quantile(at.tokens, at.seconds, 0.99))
    full = at.queued > 0
    if log.scheduled is None or at.seconds[full].sum() < SEEN * float(np.nanmedian(log.tpot)):
        return Seen(None, None, largest, fullest)
    seconds, running, tokens = at.seconds[full], at.running[full], at.tokens[full]
    usual, low = (_quantile(running, seconds, share) for share in (0.75, 0.1))
    if low >= EVEN_SLOTS * usual:
        return Seen(int(usual), None, largest, fullest)
    most, least = (_quantile(tokens, seconds, share) for share in (0.95, 0.1))
    return Seen(None, int(most) if least >= EVEN_TOKENS * most else None, largest, fullest)


def _quantile(values: Floats, weights: Floats, share: float) -> float:
    """The quantile of values by weight."""
    order = np.argsort(values, kind="stable")
    sums = np.cumsum(weights[order])
    place = int(np.searchsorted(sums, share * sums[-1]))
    return float(values[order][min(place, len(order) - 1)])
