"""The host's share of a step, read off the calm intervals of a recording.

A GPU's step grows by less than n with n sequences, for its fixed cost is shared. What is done for each token, one after
the other, grows by all of n. So beyond some n

    itl = host*n        that is, tokens per second stand still at 1/host while itl grows with the batch

where the straight line would make more of them. It is looked for as a kink in itl over n, and taken only where enough
intervals lie well beyond it and the straight line alone is far off there.
"""

from dataclasses import dataclass

import numpy as np

from simulator.calibrate.log import Floats

FEWEST = 6  # intervals beyond the kink
FAR = 1.5  # times the batch at the kink that one of them must reach
BETTER = 0.5  # share of the straight line's error that may be left of them
SETTLED = 1.4  # times that the gauge's batch may differ from the mean of its interval; in a ramp it differs by more


@dataclass(frozen=True, slots=True)
class Host:
    """Seconds for each sequence of a step; over how many intervals, and up to which batch, it was seen to decide."""

    seconds: float
    intervals: int
    largest: float


NONE = Host(0.0, 0, 0.0)


def find_host(itl: Floats, rate: Floats, gauge: Floats) -> Host:
    """From mean inter-token latencies (seconds), tokens per second of one replica, and the batch by a gauge at the end
    of each interval (NaN where unknown). 0 seconds when they do not tell."""
    n = rate * itl
    with np.errstate(divide="ignore"):
        settled = ~(np.abs(np.log(gauge / n)) > np.log(SETTLED))  # an unknown one is taken as it is
    order = np.argsort(n[settled])
    n, itl = n[settled][order], itl[settled][order]
    best: tuple[float, float, Floats] | None = None
    for kink in range(FEWEST, len(n) - FEWEST + 1):
        line = _line(n[:kink], itl[:kink])
        host = float(np.median(itl[kink:] / n[kink:]))
        off = float(_off(np.maximum(_at(line, n), host * n), itl).sum())
        if best is None or off < best[0]:
            best = off, host, line
    if best is None:
        return NONE
    _, host, line = best
    bound = n >= FAR * n[host * n > _at(line, n)].min(initial=np.inf)
    if bound.sum() < FEWEST:
        return NONE
    host = float(np.median(itl[bound] / n[bound]))
    straight = _at(_line(n, itl), n)
    left, without = (_off(model, itl)[bound].mean() for model in (host * n, straight))
    return Host(host, int(bound.sum()), float(n[-1])) if left <= BETTER * without else NONE


def _line(n: Floats, itl: Floats) -> Floats:
    """Intercept and slope, none negative, by least squares of relative errors."""
    rows = np.stack([np.ones(len(n)), n], axis=1) / itl[:, None]
    found = np.linalg.lstsq(rows, np.ones(len(n)), rcond=None)[0]
    if found[0] < 0:
        return np.array([0.0, 1.0 / np.mean(n / itl)])
    return np.array([1.0 / np.mean(1.0 / itl), 0.0]) if found[1] < 0 else np.asarray(found)


def _at(line: Floats, n: Floats) -> Floats:
    return np.asarray(line[0] + line[1] * n)


def _off(model: Floats, itl: Floats) -> Floats:
    return np.asarray(np.abs(np.log(model / itl)))
