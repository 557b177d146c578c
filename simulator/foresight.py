"""Foresight: how many replicas a clairvoyant would know to need, moment by moment.

All arrivals are known, and so are their lengths. A request occupies one of the n* sequences that a replica carries at
its operating point (``controller.core.step_model``), for as long as its own prefill and its answer take there. What is
occupied at a moment, over n*, is what is needed then, in replicas. It is a first guess with the right shape: its scale
is found by trying, since hit rates, queueing and routing are in no formula.

Work is that of the requests as they are, not of one of mean length: attention grows with the square of a prompt, and
while an answer is written its context stays in memory, so that long answers weigh with the prompts that they have.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from controller.core.step_model import Profile, Shape, capacity
from simulator.job import Job
from simulator.spec import LifeSpec, LogNormal, Time

STEP = 5.0  # seconds


@dataclass(frozen=True, slots=True)
class Need:
    """`replicas[i]` are needed from `i * step` seconds after the start on; `lead` seconds from asking for a replica to
    a warm one, taken at the ninth decile of each stage."""

    step: float
    replicas: tuple[float, ...]
    lead: float


def foresee(jobs: Iterable[Job], profile: Profile, life: LifeSpec, start: float, duration: float,
            tpot: float | None) -> Need:  # fmt: skip
    """What the jobs need; `tpot` is the strictest promise, seconds per token, None when there is none."""
    rows = np.array([(job.arrived, job.request.prompt_tokens, job.output) for job in jobs]).reshape(-1, 3)
    count = max(1, math.ceil(duration / STEP))
    if not len(rows):
        return Need(STEP, (0.0,) * count, lead(life))
    prompt, output = rows[:, 1], rows[:, 2]
    shape = Shape(float(prompt.mean()), float(output.mean()))
    at = capacity(_real(profile, prompt, output), shape, 1.0, tpot, None)
    per_token = at.sequences / (at.rate * max(shape.output, 1.0))  # seconds of one step at the operating point
    prefill = profile.b * prompt + profile.e * prompt * prompt / 2
    begin = (rows[:, 0] - start) / STEP
    end = begin + (prefill + output * per_token) / STEP
    occupied = _covered(begin, end, count)
    return Need(STEP, tuple((occupied / at.sequences).tolist()), lead(life))


def _real(profile: Profile, prompt: np.ndarray, output: np.ndarray) -> Profile:
    """A profile with which a request of mean length takes as much as these requests do on average."""
    squares = float((prompt * prompt).mean() / max(prompt.mean() ** 2, 1.0))
    context = float((prompt * output + output * output / 2).mean() / max(output.mean(), 1.0))
    mean = float(prompt.mean() + output.mean() / 2)
    return replace(profile, e=profile.e * squares, d=profile.d * context / max(mean, 1.0))


def lead(life: LifeSpec) -> float:
    """Seconds from asking for a replica to a warm one, at the ninth decile of each stage."""
    return sum(map(_late, (life.provision, life.pull, life.load, life.warm)))


def _late(time: Time) -> float:
    return time.p90 if isinstance(time, LogNormal) else float(time)


def _covered(begin: np.ndarray, end: np.ndarray, count: int) -> np.ndarray:
    """How many of the intervals cover each of `count` cells on average; bounds in cells."""
    edges = np.zeros(count + 2)
    for bound, sign in ((begin, 1.0), (end, -1.0)):
        inside = np.clip(bound, 0.0, count)
        cell = inside.astype(np.int64)
        share = inside - cell
        np.add.at(edges, cell, sign * (1.0 - share))
        np.add.at(edges, cell + 1, sign * share)
    return np.cumsum(edges)[:count]
