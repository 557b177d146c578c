"""Traces replayed: a window of one, at another speed, with more or fewer requests than it has."""

import math
from collections.abc import Iterator

import numpy as np

from controller.core.errors import InputError
from simulator.traffic import chance, prefixes
from simulator.traffic.cast import Batch, Cast
from simulator.traffic.chance import Floats, Ints
from simulator.traffic.lengths import scaled
from simulator.traffic.spec import Mooncake, Replay
from simulator.traffic.traces import Trace

SLICE = 512  # requests whose prefix hashes exist at once
_ENDLESS = 1 << 62


def replay(stream: Replay, trace: Trace, cast: Cast, seed: int, begin: float, end: float) -> Iterator[Batch]:
    """The stream's requests in order, from `begin` to `end`. An InputError, at once, when its settings leave none."""
    until = math.inf if stream.until is None else stream.until
    chosen = np.flatnonzero((trace.at >= stream.since) & (trace.at < until))
    if stream.longest is not None:
        chosen = chosen[_prompts(stream, trace.prompt[chosen]) <= stream.longest]
    if not len(chosen):
        raise InputError(
            f"{stream.file}: nothing of traffic {stream.name!r} is left between since and until, up to the longest"
            f" prompt; the trace lasts {trace.end:g} s, widen them"
        )
    return _rounds(stream, trace, chosen, min(until, trace.end), cast, seed, begin, end)


def _rounds(
    stream: Replay, trace: Trace, chosen: Ints, until: float, cast: Cast, seed: int, begin: float, end: float
) -> Iterator[Batch]:
    at = trace.at[chosen]
    length = (until - stream.since) / stream.speed
    if isinstance(stream, Mooncake) and stream.quantum > 0:
        at = spread(at, stream.quantum, chance.stream(seed, stream.name, "spread"))
        length += stream.quantum / stream.speed
    at = (at - stream.since) / stream.speed
    first, number = begin, 0
    while first < end:
        rng = chance.stream(seed, stream.name, "scaling", number)
        when, row, copy = scale(stream, at, trace.group[chosen], length, rng)
        inside = int(np.searchsorted(when, end - first, side="left"))
        for low in range(0, inside, SLICE):
            part = slice(low, min(low + SLICE, inside))
            copies = copy[part] + number * 1_000_000  # the text of each round and of each copy is its own
            yield _batch(stream, trace, cast, seed, first + when[part], chosen[row[part]], copies)
        if not stream.repeat:
            return
        first, number = first + max(length, 1e-3), number + 1


def spread(at: Floats, quantum: float, rng: np.random.Generator) -> Floats:
    """Requests of one coarse time stamp, spread up to the next stamp but at most `quantum` on; their order stays."""
    stamps, which = np.unique(at, return_inverse=True)
    room = np.minimum(np.diff(stamps, append=math.inf), quantum)
    return np.asarray(np.sort(at + rng.random(len(at)) * room[which]))


def scale(
    stream: Replay, at: Floats, group: Ints, length: float, rng: np.random.Generator
) -> tuple[Floats, Ints, Ints]:
    """When which request comes: times in order, indices into `at`, and which copy each is. What belongs together is
    kept, left out and copied together."""
    count = len(at)
    if stream.factor == 1:
        return at, np.arange(count), np.zeros(count, dtype=np.int64)
    unit = np.arange(count)  # of each request
    if (group >= 0).all():
        _, starts, unit = np.unique(group, return_index=True, return_inverse=True)
        rank = np.empty(len(starts), dtype=np.int64)
        rank[np.argsort(starts, kind="stable")] = np.arange(len(starts))  # in order of their first request
        unit, began = rank[unit], at[np.sort(starts)]
    else:
        began = at
    units = len(began)
    if stream.scaling == "even":
        edges = np.floor(rng.random() + stream.factor * np.arange(units + 1))
        copies = np.diff(edges).astype(np.int64)
    else:
        copies = (math.floor(stream.factor) + (rng.random(units) < stream.factor % 1)).astype(np.int64)
    number = copies[unit]
    row = np.repeat(np.arange(count), number)
    copy = np.arange(len(row)) - np.repeat(np.cumsum(number) - number, number)
    if stream.scaling == "even":
        room = np.diff(began, append=max(length, float(began[-1])))
        when = at[row] + copy / np.maximum(number[row], 1) * room[unit[row]]
    else:
        # One shift for a whole copy of the trace, so that it keeps its bursts; round the end to the beginning.
        shifts = rng.uniform(-stream.shift / stream.speed, stream.shift / stream.speed, math.ceil(stream.factor) + 1)
        shifts[0] = 0.0
        moved = began[unit[row]] + shifts[copy]
        if length > 0:
            moved = np.where(copy > 0, moved % length, moved)
        when = moved + (at - began[unit])[row]
    order = np.argsort(when, kind="stable")
    order = order[when[order] <= length]
    return when[order], row[order], copy[order]


def _prompts(stream: Replay, tokens: Ints) -> Ints:
    return scaled(tokens, stream.prompt_factor, _ENDLESS)


def _batch(stream: Replay, trace: Trace, cast: Cast, seed: int, at: Floats, row: Ints, copy: Ints) -> Batch:
    prompt = _prompts(stream, trace.prompt[row])
    answer = scaled(trace.answer[row], stream.answer_factor, _ENDLESS)
    root = chance.number(seed, stream.name, "text")
    own = prefixes.keys(root, copy)
    if trace.tenants:
        tenant = trace.tenant[row]
    elif len(trace.ids):
        tenant = cast.assign(prefixes.keys(root, trace.group[row] * 1_000_003 + copy))
    else:
        tenant = cast.tenants(len(row))
    prefix = prefixes.recorded(trace, row, prompt, cast.block, own) if len(trace.ids) else None
    return Batch(at, prompt, answer, tenant, cast.kinds(tenant), prefix)
