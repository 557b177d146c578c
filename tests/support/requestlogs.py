"""Request logs of engines whose coefficients are known, for they are the twin's own."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from controller.core.step_model import Profile
from simulator.calibrate.log import RequestLog
from simulator.calibrate.replay import replay
from simulator.engine.spec import EngineSpec

Floats = NDArray[np.float64]

TRUE = Profile(a=9e-3, b=22e-6, c=30e-6, d=60e-9, e=1e-9, max_num_seqs=64.0)
NOISE = 0.01  # of the time from first to last token, one standard deviation


def made(
    queued: Floats, prompt: Floats, output: Floats, *, true: Profile = TRUE, batched: int = 8192, noise: float = NOISE
) -> RequestLog:
    """The log of an engine with the coefficients `true` that got these requests."""
    nothing = np.zeros(len(queued))
    log = RequestLog(queued - queued[0], None, nothing, nothing, prompt, output, nothing)
    run = replay(log, EngineSpec(true, max_batched_tokens=batched, prefix_cache=False), true)
    factor = np.maximum(0.5, np.random.default_rng(7).normal(1.0, noise, len(queued)))
    return replace(log, first=run.first, last=run.first + (run.last - run.first) * factor)


def poisson(count: int, rate: float, seed: int = 0) -> Floats:
    """Times of arrival, seconds."""
    return np.asarray(np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count)))


def lengths(count: int, middle: float, spread: float, seed: int = 0) -> Floats:
    """Lognormal token counts around their median."""
    drawn = np.random.default_rng(seed).lognormal(np.log(middle), spread, count)
    return np.asarray(np.maximum(1.0, np.round(drawn)))


def varied(count: int = 240, rate: float = 8.0) -> RequestLog:
    """A log that tells everything: load from nothing to a full batch, lengths of all sizes."""
    return made(poisson(count, rate), lengths(count, 800, 0.8, 1), lengths(count, 200, 0.6, 2))


def csv_of(log: RequestLog, *, start: float = 1000.0) -> str:
    """The log as a table, with the engine's names of its columns."""
    rows = ["input_toks,output_toks,queued_ts,first_token_ts,last_token_ts"]
    rows += [
        f"{p:.0f},{o:.0f},{q + start:.6f},{f + start:.6f},{e + start:.6f}"
        for p, o, q, f, e in zip(log.prompt, log.output, log.queued, log.first, log.last, strict=True)
    ]
    return "\n".join(rows) + "\n"
