"""Step times of a mock worker, measured from outside: what Governor is told, and what the twin's replicas are made of.

    step = a + b * prefill tokens + c * sequences + d * KV tokens

A single request's time to its first token is a step with a prefill and one sequence; the time per token of n equal
requests is a step of n sequences. The mocker's own law is another (of the second degree in the share of the cache that
is used, with a constant for each prefill), so the fit is off, and by how much is told.
"""

import asyncio
import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.second_plant import cases
from benchmarks.second_plant.client import Ask, Told, play
from benchmarks.second_plant.plant import Plant
from controller.core.step_model import Profile

PROMPTS = (200, 400, 400, 600)  # of single requests
BATCHES = tuple((prompt, count) for prompt in (200, 400, 600) for count in (1, 2, 4, 8))
ANSWER = 20
TWICE = 2  # each is measured so often, and the shortest time counts: the machine only adds


@dataclass(frozen=True, slots=True)
class Row:
    """One measured step: prefill tokens, sequences, KV tokens, seconds."""

    prefill: float
    sequences: float
    kv: float
    seconds: float

    def fitted(self, profile: Profile) -> float:
        """What a profile says of it, seconds."""
        return profile.a + profile.b * self.prefill + profile.c * self.sequences + profile.d * self.kv


def measured(python: Path, folder: Path) -> list[Row]:
    """Steps of one worker."""
    with Plant(python, folder, 1) as plant:
        return asyncio.run(_probe(plant.port))


async def _probe(port: int) -> list[Row]:
    rows = []
    for prompt in PROMPTS:
        told = await _ask(port, prompt, 1)
        rows.append(Row(prompt, 1, 0, min(one.first - one.sent for one in told)))
    for prompt, count in BATCHES:
        if count * (prompt + ANSWER) <= cases.KV_TOKENS:
            told = await _ask(port, prompt, count)
            rows.append(Row(0, count, count * (prompt + ANSWER / 2), min(one.tpot for one in told)))
    return rows


async def _ask(port: int, prompt: int, count: int) -> list[Told]:
    found = []
    for _ in range(TWICE):
        asks = [Ask(number * 1e-3, prompt, ANSWER) for number in range(count)]
        now = time.time()
        found += await play(asks, port, cases.MODEL, now, now + 60.0, time.time)
    return found


def fit(rows: Sequence[Row]) -> tuple[Profile, float]:
    """The coefficients, none negative, with the least relative squared error, and the mean relative error."""
    matrix = np.array([[1.0, row.prefill, row.sequences, row.kv] for row in rows])
    times = np.array([row.seconds for row in rows])
    scaled = matrix / times[:, None]
    best, least = np.zeros(4), np.inf
    for size in range(1, 5):
        for chosen in itertools.combinations(range(4), size):
            some, *_ = np.linalg.lstsq(scaled[:, chosen], np.ones(len(rows)), rcond=None)
            found = np.zeros(4)
            found[list(chosen)] = some
            error = float(((scaled @ found - 1) ** 2).sum())
            if (some >= 0).all() and error < least:
                best, least = found, error
    a, b, c, d = (float(one) for one in best)
    off = float(np.abs(scaled @ best - 1).mean())
    return Profile(a, b, c, d, 0.0, cases.SEATS, cases.KV_TOKENS), off
