"""The truth of a run: what became of every job and every replica. For scoreboards and tests; no controller sees it."""

import math
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from controller.core.model import Target
from simulator.cluster.life import Stage
from simulator.job import Ending, Job

ENDINGS = tuple(Ending)
_CODES = {ending: code for code, ending in enumerate(ENDINGS)}
STARTING = frozenset({Stage.PROVISIONING, Stage.PULLING, Stage.LOADING, Stage.WARMING, Stage.BACKOFF})


class Names:
    """Words by number, in the order of their first use."""

    __slots__ = ("_numbers", "words")

    def __init__(self) -> None:
        self.words: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, word: str) -> int:
        """The number of a word, given to it now if it is new."""
        found = self._numbers.get(word)
        if found is None:
            found = self._numbers[word] = len(self.words)
            self.words.append(word)
        return found


class Jobs:
    """All ended jobs, one row each in the order of their ends, as columns. Times are unix seconds, durations seconds,
    NaN where there is none; words are numbers into their `Names`."""

    FLOATS = ("arrived", "ended", "ttft", "tpot", "e2e")
    WHOLE = ("id", "origin")
    SMALL = (
        "pool", "klass", "tenant", "stream", "replica", "why", "ending", "degraded", "attempt", "retried",
        "prompt", "output", "cached", "preempted",
    )  # fmt: skip

    def __init__(self) -> None:
        self.pools, self.classes, self.tenants = Names(), Names(), Names()
        self.streams, self.replicas, self.whys = Names(), Names(), Names()
        self._columns: dict[str, array[float] | array[int]] = {
            **{name: array("d") for name in self.FLOATS},
            **{name: array("q") for name in self.WHOLE},
            **{name: array("i") for name in self.SMALL},
        }
        self._put: list[Callable[[Any], None]] = [column.append for column in self._columns.values()]

    def __len__(self) -> int:
        return len(self._columns["id"])

    def add(self, pool: str, job: Job, retried: bool) -> None:
        """A job that ended, at the pool that it arrived at; `retried` says that its client comes again."""
        request, ended, ending = job.request, job.ended_at, job.ending
        if ended is None or ending is None:
            raise ValueError(f"job {request.id} has not ended")
        first, tpot = job.first_token_at, job.tpot
        row = (
            job.arrived,
            ended,
            math.nan if first is None else first - job.arrived,
            math.nan if tpot is None else tpot,
            ended - job.arrived,
            request.id,
            job.origin if job.origin >= 0 else request.id,
            self.pools.number(pool),
            self.classes.number(request.klass),
            self.tenants.number(request.tenant),
            self.streams.number(job.stream),
            self.replicas.number(job.replica),
            self.whys.number(job.why),
            _CODES[ending],
            job.degraded,
            job.attempt,
            retried,
            request.prompt_tokens,
            job.output,
            job.cached,
            job.preempted,
        )
        for put, value in zip(self._put, row, strict=True):
            put(value)

    def column(self, name: str) -> NDArray[np.float64] | NDArray[np.int64] | NDArray[np.int32]:
        """A column as an array of its own; `ending` holds places in `ENDINGS`."""
        return np.array(self._columns[name])

    def raw(self) -> bytes:
        """Every byte of it, to compare two runs by."""
        words = (self.pools, self.classes, self.tenants, self.streams, self.replicas, self.whys)
        text = repr([names.words for names in words]).encode()
        return text + b"".join(column.tobytes() for column in self._columns.values())


class Census(NamedTuple):
    """Replicas of a pool by where they are in life, from `at` (unix seconds) on. `queued` wait for a node and cost
    nothing."""

    at: float
    wanted: int
    queued: int
    starting: int
    ready: int
    draining: int


@dataclass(frozen=True, slots=True)
class Seconds:
    """Replica-seconds by where the replicas were in life."""

    queued: float = 0.0
    starting: float = 0.0
    ready: float = 0.0
    draining: float = 0.0

    @property
    def paid(self) -> float:
        """What a cloud would bill: from the node's making to its end."""
        return self.starting + self.ready + self.draining


class Move(NamedTuple):
    """A value that an actuator changed."""

    at: float
    target: Target
    before: float
    after: float


class Truth:
    """What a run has left behind so far."""

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.census: dict[str, list[Census]] = {}
        self.moves: list[Move] = []
        self.offered: dict[str, int] = {}  # jobs that arrived, by pool

    def count(self, pool: str, census: Census) -> None:
        """The replicas of a pool changed."""
        rows = self.census.setdefault(pool, [])
        if rows and rows[-1].at == census.at:
            rows[-1] = census
        elif not rows or rows[-1][1:] != census[1:]:
            rows.append(census)

    def replica_seconds(self, pool: str, begin: float, end: float) -> Seconds:
        """Replica-seconds of a pool between two times, unix seconds."""
        spent = [0.0, 0.0, 0.0, 0.0]
        rows = self.census.get(pool, [])
        for row, until in zip(rows, [*(row.at for row in rows[1:]), end], strict=False):
            lasted = min(until, end) - max(row.at, begin)
            if lasted > 0:
                for place, number in enumerate(row[2:]):
                    spent[place] += number * lasted
        return Seconds(*spent)

    def travel(self) -> Mapping[Target, tuple[int, float]]:
        """For each target that was moved, how often, and how far in all."""
        found: dict[Target, tuple[int, float]] = {}
        for move in self.moves:
            times, far = found.get(move.target, (0, 0.0))
            found[move.target] = times + 1, far + abs(move.after - move.before)
        return dict(sorted(found.items()))
