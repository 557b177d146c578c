"""Recorded sessions of agents, begun anew at times drawn by chance."""

from collections.abc import Iterator

import numpy as np

from controller.core.errors import InputError
from simulator.traffic import chance, prefixes
from simulator.traffic.arrivals import Gaps, Rate, arrival_times
from simulator.traffic.cast import Batch, Cast
from simulator.traffic.chance import Floats, Ints
from simulator.traffic.lengths import scaled
from simulator.traffic.overlap import Columns, in_order, slices
from simulator.traffic.spec import Agentic
from simulator.traffic.traces import Trace

SLICE = 256  # requests whose prefix hashes exist at once; agents' prompts are long
_ENDLESS = 1 << 62


class Sessions:
    """The sessions of a trace, without the requests that are too long. `first` and `length` are where each begins among
    `rows` and how many requests it has; `at` is the time of each row after the beginning of its session, seconds."""

    def __init__(self, stream: Agentic, trace: Trace) -> None:
        prompt = scaled(trace.prompt, stream.prompt_factor, _ENDLESS)
        self.rows: Ints = np.flatnonzero(prompt <= (_ENDLESS if stream.longest is None else stream.longest))
        if not len(self.rows):
            raise InputError(f"{stream.file}: all prompts of traffic {stream.name!r} are above longest; raise it")
        _, self.first, self.length = np.unique(trace.group[self.rows], return_index=True, return_counts=True)
        pauses = np.diff(trace.at[self.rows], prepend=0.0)
        if stream.pause is not None:
            pauses = np.minimum(pauses, stream.pause)
        sums = np.cumsum(pauses)  # what stands where a session begins is taken off again
        self.at: Floats = (sums - np.repeat(sums[self.first], self.length)) / stream.speed

    @property
    def mean_length(self) -> float:
        """Requests in a session."""
        return float(self.length.mean())

    @property
    def lasting(self) -> float:
        """Seconds that 99 % of the sessions do not outlast."""
        return float(np.quantile(self.at[self.first + self.length - 1], 0.99))


def agentic(stream: Agentic, trace: Trace, cast: Cast, seed: int, begin: float, end: float) -> Iterator[Batch]:
    """The stream's requests in order, from `begin` to `end`. An InputError, at once, when its settings leave none."""
    return _batches(stream, Sessions(stream, trace), trace, cast, seed, begin, end)


def _batches(
    stream: Agentic, sessions: Sessions, trace: Trace, cast: Cast, seed: int, begin: float, end: float
) -> Iterator[Batch]:
    root = chance.number(seed, stream.name, "text")
    for columns in in_order(_drawn(stream, sessions, cast, seed, begin, end), begin, end):
        for part in slices(columns, SLICE):
            row, number = part["row"], part["number"]
            prompt = scaled(trace.prompt[row], stream.prompt_factor, _ENDLESS)
            answer = scaled(trace.answer[row], stream.answer_factor, _ENDLESS)
            prefix = prefixes.recorded(trace, row, prompt, cast.block, prefixes.keys(root, number))
            session = [f"{stream.name}-{which}" for which in number.tolist()]
            yield Batch(part["at"], prompt, answer, part["tenant"], part["kind"], prefix, session)


def _drawn(
    stream: Agentic, sessions: Sessions, cast: Cast, seed: int, begin: float, end: float
) -> Iterator[tuple[float, Columns]]:
    rate = Rate(stream.rate / sessions.mean_length, stream.shapes)
    gaps = Gaps(stream.arrivals, chance.stream(seed, stream.name, "arrivals"))
    of_session = chance.stream(seed, stream.name, "session")
    since = begin - sessions.lasting if begin == 0 else begin  # sessions that began before the stream did
    done = 0
    for starts in arrival_times(rate, gaps, since, end, SLICE):
        count = len(starts)
        which = of_session.integers(len(sessions.length), size=count)
        tenant, kind = cast.draw(count)
        length = sessions.length[which]
        who = np.repeat(np.arange(count), length)
        place = np.arange(len(who)) - np.repeat(np.cumsum(length) - length - sessions.first[which], length)
        columns = {
            "at": starts[who] + sessions.at[place],
            "row": sessions.rows[place],
            "tenant": tenant[who],
            "kind": kind[who],
            "number": (np.arange(done, done + count))[who],
        }
        done += count
        yield float(starts[-1]), columns
