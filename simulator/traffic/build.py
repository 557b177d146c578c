"""From a scenario's streams to jobs: merged in order of time, made as they are asked for."""

import heapq
from collections.abc import Iterator, Sequence

from routing.model import Request
from simulator.job import Job
from simulator.traffic import generate
from simulator.traffic.cast import Row
from simulator.traffic.spec import Stream


def build(streams: Sequence[Stream], *, seed: int, start: float, duration: float) -> Iterator[Job]:
    """The jobs that arrive from `start` (unix seconds) on, for `duration` seconds, in order, with ids from 0. Nothing
    is drawn before it is asked for. The same seed gives the same jobs, bit for bit; a stream's jobs do not depend on
    the other streams."""
    if twice := next((s.name for s in streams if sum(s.name == other.name for other in streams) > 1), None):
        raise ValueError(f"streams: {twice!r} is there twice; give each stream a name of its own")
    names = [stream.name for stream in streams]
    sources = [_rows(stream, index, seed, start, duration) for index, stream in enumerate(streams)]
    return _jobs(heapq.merge(*sources), names)


def _rows(stream: Stream, index: int, seed: int, start: float, duration: float) -> Iterator[Row]:
    return generate.rows(stream, index, seed, start, duration)


def _jobs(rows: Iterator[Row], names: Sequence[str]) -> Iterator[Job]:
    for number, (at, index, _, output, patience, fields) in enumerate(rows):
        yield Job(Request(number, *fields), output, at, number, 0, patience, names[index])  # type: ignore[arg-type]
