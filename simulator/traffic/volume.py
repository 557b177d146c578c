"""How many requests a stream will make, told before any is made."""

import numpy as np

from controller.core.errors import InputError
from simulator.traffic.arrivals import Rate
from simulator.traffic.spec import Agentic, Generated, ServeGen, Stream
from simulator.traffic.traces import read, read_windows


def expected(stream: Stream, duration: float) -> float:
    """About as many requests come in a run of `duration` seconds, before any client tries again. 0 for a trace that is
    replayed once and not copied: it has its file's requests at most. 0 also for a file that cannot be read: who reads
    it in earnest says why."""
    try:
        return _expected(stream, duration)
    except InputError:
        return 0.0


def _expected(stream: Stream, duration: float) -> float:
    end = duration if stream.end is None else min(stream.end, duration)
    lasts = end - stream.start
    if lasts <= 0:
        return 0.0
    if isinstance(stream, Generated | Agentic):
        return Rate(stream.rate, stream.shapes).mean(stream.start, end)
    if isinstance(stream, ServeGen):
        if stream.factor <= 1 and stream.speed <= 1:
            return 0.0
        windows = read_windows(stream.file)
        opens = (windows.at - stream.since) / stream.speed
        inside = np.minimum(opens + stream.window / stream.speed, lasts) - np.maximum(opens, 0.0)
        return float(np.dot(windows.rate, np.maximum(inside, 0.0))) * stream.factor * stream.speed
    if stream.factor <= 1 and not stream.repeat:
        return 0.0
    trace = read(stream.kind, stream.file)
    until = trace.end if stream.until is None else min(stream.until, trace.end)
    length = max((until - stream.since) / stream.speed, 1e-3)  # as `replay` has it
    at = (trace.at[(trace.at >= stream.since) & (trace.at <= until)] - stream.since) / stream.speed
    rounds = max(1, int(lasts // length)) if stream.repeat else 1
    return float(np.count_nonzero(at <= lasts)) * stream.factor * rounds
