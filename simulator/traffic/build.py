"""From a scenario's streams to jobs: merged in order of time, made as they are asked for."""

import heapq
from collections.abc import Iterator, Sequence
from itertools import count

from routing.model import Request
from simulator.job import Job
from simulator.traffic.agentic import agentic
from simulator.traffic.cast import Batch, Cast, Row
from simulator.traffic.files import parts
from simulator.traffic.generate import generate
from simulator.traffic.lengths import Empirical, Pairs, Sizes, scaled
from simulator.traffic.replay import replay
from simulator.traffic.servegen import servegen, tenants
from simulator.traffic.spec import Agentic, Generated, ServeGen, Stream
from simulator.traffic.traces import read, read_windows


def build(
    streams: Sequence[Stream], *, seed: int, start: float, duration: float, first: int = 0, step: int = 1
) -> Iterator[Job]:
    """The jobs that arrive from `start` (unix seconds) on, for `duration` seconds, in order, with ids from `first` on,
    each `step` above the one before, so that several sources side by side can have ids of their own.

    Files are read at once, and what is wrong with them is an InputError; jobs are drawn as they are asked for. The same
    seed gives the same jobs, bit for bit, and a stream's jobs do not depend on the other streams."""
    names = [stream.name for stream in streams]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"streams: {twice!r} is there twice; give each stream a name of its own")
    rows = [_rows(stream, index, seed, start, duration) for index, stream in enumerate(streams)]
    return _jobs(heapq.merge(*rows), names, count(first, step))


def _rows(stream: Stream, index: int, seed: int, start: float, duration: float) -> Iterator[Row]:
    end = duration if stream.end is None else min(stream.end, duration)
    cast, batches = _source(stream, index, seed, stream.start, end)
    return _dated(cast, batches, start) if stream.start < end else iter(())


def _source(stream: Stream, index: int, seed: int, begin: float, end: float) -> tuple[Cast, Iterator[Batch]]:
    for _, part in parts(stream):
        if isinstance(part, Empirical | Pairs):
            read(part.format, part.file)  # now, so that a mistake in it is found before anything runs
    if isinstance(stream, Generated):
        sizes = Sizes(stream.prompt, stream.answer, stream.pairs, seed, stream.name)
        cast = Cast(stream, index, seed, sizes.most)
        return cast, generate(stream, cast, sizes, seed, begin, end)
    if isinstance(stream, ServeGen):
        windows = read_windows(stream.file)
        sizes = Sizes(stream.prompt, stream.answer, stream.pairs, seed, stream.name)
        cast = Cast(stream, index, seed, sizes.most, named=tenants(windows))
        return cast, servegen(stream, windows, cast, sizes, seed, begin, end)
    trace = read(stream.kind, stream.file)
    longest = int(scaled(trace.answer.max(keepdims=True), stream.answer_factor, 1 << 62)[0])
    block = max(1, round(trace.block * stream.prompt_factor)) if len(trace.ids) else None
    cast = Cast(stream, index, seed, longest, block, trace.tenants)
    if isinstance(stream, Agentic):
        return cast, agentic(stream, trace, cast, seed, begin, end)
    return cast, replay(stream, trace, cast, seed, begin, end)


def _dated(cast: Cast, batches: Iterator[Batch], start: float) -> Iterator[Row]:
    for batch in batches:
        batch.at = batch.at + start
        yield from cast.rows(batch)


def _jobs(rows: Iterator[Row], names: Sequence[str], ids: Iterator[int]) -> Iterator[Job]:
    for number, (at, index, _, output, patience, after, fields) in zip(ids, rows, strict=False):
        request = Request(number, *fields)  # type: ignore[arg-type]
        yield Job(request, output, at, number, 0, patience, names[index], after)
