"""A full KV cache that looks like no real one, so that policies learn to see what never comes.

512 users who talk without a pause to one replica with 512 seats: as in a public one-second recording of vLLM with
Llama-3.3-70B (12 runs). While conversations grow the cache fills; from then on it is full, running falls, waiting grows
by as much, and preemptions go on. One function tells that of the twin and of the recording.
"""

import csv
import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from simulator import library
from simulator.engine.engine import Engine
from simulator.engine.spec import EngineSpec
from tests.support.engines import job
from tests.support.streams import shared

USERS = 512
UNTIL = 900.0
EVERY = 5.0
FULL = 0.95


@dataclass(frozen=True, slots=True)
class Sample:
    """One scrape: KV usage 0..1, requests, and counters."""

    kv: float
    running: int
    waiting: int
    preemptions: int
    finished: int


class Users:
    """Each asks again as soon as it is answered, with all that was said before, and starts anew when that is long."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._draw = np.random.default_rng(5)
        self._asked = 0
        self._said = [0] * USERS
        self._topic = [0] * USERS
        self._owner: dict[int, int] = {}
        for user in range(USERS):
            self._ask(user, 0.0)

    def _ask(self, user: int, now: float) -> None:
        if self._said[user] > 4000:
            self._said[user] = 0
            self._topic[user] += 1
        new = self._draw.lognormal(5.3, 0.6) if self._said[user] else self._draw.lognormal(6.9, 0.5)
        prompt = self._said[user] + int(new) + 1
        output = int(min(4000, self._draw.lognormal(6.1, 0.8))) + 1
        self._said[user] = prompt + output
        text = (user * 1000 + self._topic[user]) * 10_000
        blocks = [text + index for index in range((prompt + output) // 64)]
        self._engine.submit(
            job(
                self._asked, prompt, output, at=now, prefix=tuple(blocks[: prompt // 64]), block=64,
                after=tuple(blocks[prompt // 64 :]),
            ),
            now,
        )  # fmt: skip
        self._owner[self._asked] = user
        self._asked += 1

    def until(self, at: float) -> None:
        while self._engine.next_at <= at:
            now = self._engine.next_at
            for one in self._engine.advance(now):
                self._ask(self._owner.pop(one.request.id), now)
        self._engine.advance(at)


def simulated() -> Iterator[Sample]:
    profile = library.profile("llama-3.1-70b", "b200", 1, "fp4")
    engine = Engine(EngineSpec(replace(profile, max_num_seqs=512.0, kv_tokens=600_000.0), max_context=16_384), 0.0)
    users = Users(engine)
    for index in range(1, int(UNTIL / EVERY) + 1):
        users.until(index * EVERY)
        counts = engine.counts
        yield Sample(engine.kv_usage, engine.running, engine.waiting, counts.preemptions, sum(counts.finished.values()))


def recorded(run: str) -> Iterator[Sample]:
    path = shared("recordings/inferencex_vllm_server_metrics_1hz.csv.gz")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            if row["run"].endswith(run) and float(row["relative_time_sec"]) <= UNTIL:
                yield Sample(
                    float(row["kv_cache_usage_pct"]) / 100,
                    int(row["num_requests_running"]),
                    int(row["num_requests_waiting"]),
                    int(row["num_preemptions_total"]),
                    int(row["request_success_total"]),
                )


def saturates(samples: Sequence[Sample]) -> None:
    full = next(index for index, one in enumerate(samples) if one.kv >= FULL)
    before, after = samples[:full], samples[full:]
    assert len(after) > len(samples) / 2
    assert before[-1].preemptions == 0
    assert np.mean([one.kv >= FULL for one in after]) > 0.9  # it stays full
    tenth = max(1, len(after) // 10)
    first, last = after[:tenth], after[-tenth:]
    running = [float(np.mean([one.running for one in part])) for part in (first, last)]
    waiting = [float(np.mean([one.waiting for one in part])) for part in (first, last)]
    assert running[1] < 0.7 * running[0]
    assert waiting[1] > waiting[0] + 100
    assert running[1] + waiting[1] == pytest.approx(USERS, rel=0.02)  # who does not run waits
    lost = [part[-1].preemptions - part[0].preemptions for part in (after, last)]
    answered = after[-1].finished - after[0].finished
    assert 0.05 < lost[0] / answered < 0.5
    assert lost[1] > 0  # and it does not stop


def test_a_full_cache_in_the_recording() -> None:
    saturates(list(recorded("tp1_bs512_offloadoff")))


def test_a_full_cache_in_the_twin() -> None:
    saturates(list(simulated()))
