"""How many requests one simulated engine serves per second of CPU time, and what its macro-steps are worth.

The engine is the prior of the step model (an 8B model on one H100, 256 seats). Prompts have 1,024 tokens, half of them
a system prompt that one in twenty shares; answers 256 in the mean; three priorities; the prefix cache is on. The same
jobs go to the engine, to the same engine one step at a time, and to the one that steps token by token.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import inf
from statistics import median
from unittest.mock import patch

import numpy as np

from controller.core.step_model import Profile
from routing.model import Request
from simulator.engine import scheduler
from simulator.engine.batch import Batch
from simulator.engine.engine import Engine
from simulator.engine.spec import EngineSpec
from simulator.job import Job

LOADS = {"light": 5.0, "half": 15.0, "near saturation": 28.0, "overload": 50.0}  # requests/s; it serves 33 at most
REQUESTS = 2000
SEEDS = 5
PROMPT, BLOCK, SHARED, FAMILIES = 1024, 64, 8, 20
SHORTEST, LONGEST = 128, 384
KV_TOKENS = 420_000.0


class OneStep(Batch):
    """Each step a plan of its own, counted for the whole batch at once."""

    __slots__ = ()

    def reach(self) -> int:
        return min(1, self.n)


@dataclass(frozen=True, slots=True)
class Speed:
    """One load: medians over the seeds. Requests per second of CPU time, with macro-steps, with single steps and token
    by token; the ratios are medians of ratios. `steps` of the engine per request."""

    load: str
    rate: float
    macro: float
    single: float
    tokens: float
    over_single: float
    over_tokens: float
    steps: float
    hit_rate: float


def jobs(rate: float, seed: int, count: int) -> list[Job]:
    """Poisson arrivals."""
    draw = np.random.default_rng((seed, 1024, 256))
    at = np.cumsum(draw.exponential(1.0 / rate, count)).tolist()
    outputs = draw.integers(SHORTEST, LONGEST, count, endpoint=True).tolist()
    families = draw.integers(0, FAMILIES, count).tolist()
    priorities = draw.integers(0, 3, count).tolist()
    made: list[Job] = []
    for number in range(count):
        shared = tuple(families[number] * 1000 + index for index in range(SHARED))
        own = tuple(10**6 + number * 1000 + index for index in range(PROMPT // BLOCK - SHARED))
        request = Request(
            number, PROMPT, outputs[number], prefix=shared + own, block=BLOCK, priority=priorities[number]
        )
        made.append(Job(request, outputs[number], at[number]))
    return made


def run(engine: Engine, work: Sequence[Job]) -> float:
    """Seconds of CPU time, calls of a fleet included: one each time something may have happened."""
    ended = 0
    start = time.process_time()
    for job in work:
        while engine.next_at <= job.arrived:
            ended += len(engine.advance(engine.next_at))
        engine.submit(job, job.arrived)
    while engine.next_at < inf:
        ended += len(engine.advance(engine.next_at))
    spent = time.process_time() - start
    if ended != len(work):
        raise SystemExit(f"{len(work) - ended} of {len(work)} requests never ended")
    return spent


def measure(count: int = REQUESTS, seeds: int = SEEDS) -> Iterator[Speed]:
    """Each load. The three ways take turns, seed by seed, so that they meet the same machine."""
    spec = EngineSpec(replace(Profile(), kv_tokens=KV_TOKENS))
    ways: dict[str, Callable[[], Engine]] = {
        "macro": lambda: Engine(spec, 0.0),
        "single": lambda: _single(spec),
        "tokens": lambda: Engine(spec, 0.0, stepping=True),
    }
    for load, rate in LOADS.items():
        spent: dict[str, list[float]] = {name: [] for name in ways}
        steps: list[float] = []
        hits: list[float] = []
        for seed in range(seeds):
            for name, make in ways.items():
                engine = make()
                spent[name].append(run(engine, jobs(rate, seed, count)))
                if name == "macro":
                    steps.append(engine.counts.steps / count)
                    hits.append(engine.counts.prefix_hits / engine.counts.prefix_queries)
        macro, single, tokens = spent["macro"], spent["single"], spent["tokens"]
        yield Speed(
            load, rate, count / median(macro), count / median(single), count / median(tokens),
            median(slow / fast for slow, fast in zip(single, macro, strict=True)),
            median(slow / fast for slow, fast in zip(tokens, macro, strict=True)),
            median(steps), median(hits),
        )  # fmt: skip


def _single(spec: EngineSpec) -> Engine:
    with patch.object(scheduler, "Batch", OneStep):
        return Engine(spec, 0.0)


def line(one: Speed) -> str:
    """One line for the terminal."""
    return (
        f"engine, {one.load} ({one.rate:g}/s): {one.macro:,.0f} requests per second of CPU, single steps "
        f"{one.single:,.0f} ({one.over_single:.1f}x), token by token {one.tokens:,.0f} ({one.over_tokens:.1f}x)"
    )


HEADING = "\n## The simulated engine\n"
SECTION = (
    HEADING
    + """
Requests that one simulated engine serves per second of CPU time on one core, calls of its fleet included (one each time
something may have happened): 1,024 prompt tokens of which half are a shared system prompt, 128 to 384 answer tokens,
three priorities, prefix cache on, 256 seats, the step times of an 8B model on one H100. Medians over {seeds} seeds of
{count:,} requests; the three ways take turns on the same jobs. "Single steps" takes one decode step at a time but
counts it for the whole batch at once; "token by token" touches every sequence in every step, and is what the tests hold
the engine's every count against. Near saturation some request joins or leaves at nearly every step, so there is little
to leap over; what is left of the gain is that a step costs the same for 2 sequences and for 200. Measured {when}.

| load | requests/s of CPU | wanted | single steps | times | token by token | times | wanted | steps a request |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
"""
)


def section(rows: Sequence[Speed]) -> str:
    """Its part of docs/performance.md."""
    lines = [SECTION.format(seeds=SEEDS, count=REQUESTS, when=datetime.now(UTC).strftime("%Y-%m-%d"))]
    for one in rows:
        speed = f"{one.macro:,.0f}" + ("" if one.macro >= 8000 else " **(missed)**")
        times = f"{one.over_tokens:.1f}" + ("" if one.over_tokens >= 2 else " **(missed)**")
        lines.append(
            f"| {one.load}, {one.rate:g}/s | {speed} | ≥ 8,000 | {one.single:,.0f} | {one.over_single:.1f} "
            f"| {one.tokens:,.0f} | {times} | ≥ 2 | {one.steps:.1f} |\n"
        )
    return "".join(lines)


def replaced(page: str, new: str) -> str:
    """The page with its part about engines, which is the last, anew."""
    return page.partition(HEADING)[0] + new
