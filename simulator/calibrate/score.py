"""How far a replayed log is from the real one: mean and 99th percentile of the three latencies."""

from dataclasses import dataclass

import numpy as np

from simulator.calibrate.log import Floats, RequestLog
from simulator.calibrate.replay import Replayed

KINDS = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True)
class Score:
    """One latency of some requests, seconds, in the log and in the twin. `typical` is the median of the error of single
    requests, a share."""

    kind: str
    requests: int
    real_mean: float
    twin_mean: float
    real_p99: float
    twin_p99: float
    typical: float

    @property
    def mean_error(self) -> float:
        """Of the mean, a share of the real one."""
        return self.twin_mean / self.real_mean - 1.0

    @property
    def p99_error(self) -> float:
        """Of the 99th percentile, a share of the real one."""
        return self.twin_p99 / self.real_p99 - 1.0


def score(log: RequestLog, twin: Replayed, part: slice) -> tuple[Score, ...]:
    """The errors over the requests of `part`, in the order of KINDS."""
    ours = latencies(log, twin.first, twin.last)
    theirs = latencies(log, log.first, log.last)
    return tuple(_score(kind, theirs[kind][part], ours[kind][part]) for kind in KINDS)


def latencies(log: RequestLog, first: Floats, last: Floats) -> dict[str, Floats]:
    """Per request by kind, seconds; NaN where a request has none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        tpot = np.where(log.output > 1, (last - first) / (log.output - 1), np.nan)
    return {"ttft": first - log.queued, "tpot": tpot, "e2e": last - log.queued}


def _score(kind: str, real: Floats, twin: Floats) -> Score:
    both = np.isfinite(real) & np.isfinite(twin)
    real, twin = real[both], twin[both]
    return Score(
        kind,
        len(real),
        float(real.mean()),
        float(twin.mean()),
        float(np.percentile(real, 99)),
        float(np.percentile(twin, 99)),
        float(np.median(np.abs(twin - real) / np.maximum(real, 1e-9))),
    )
