"""What the steps of each request held, as far as a log tells: rows of a design matrix of the step-time model.

Between its first and its last token a request took part in one step per token. In the same time the others made their
tokens, read their contexts and computed their prompts; the log bounds each of these by two times. So the time from
first to last token is, to a good approximation, a sum of known features times the five coefficients. The approximation
serves for a start and for what each term matters; the fit itself is done by simulation (`solve`).
"""

from collections.abc import Sequence

import numpy as np

from simulator.calibrate.log import Floats, RequestLog

TERMS = ("a", "b", "c", "d", "e")


def design(log: RequestLog, rows: Sequence[int]) -> tuple[Floats, Floats]:
    """For each of the requests `rows` the features of its decode (steps, prompt tokens computed, tokens made, contexts
    read, prompt tokens times context) and its duration, seconds."""
    prompt = np.maximum(log.prompt - log.cached, 1.0)
    step = float(np.nanmedian(log.tpot))
    began = np.maximum(log.queued, log.first - 2 * step) if log.scheduled is None else log.scheduled
    rate = (log.output - 1) / np.maximum(log.last - log.first, 1e-9)
    features = np.empty((len(rows), len(TERMS)))
    for row, index in enumerate(rows):
        begin, end = log.first[index], log.last[index]
        before = (np.clip(begin, log.first, log.last) - log.first) * rate
        after = (np.clip(end, log.first, log.last) - log.first) * rate
        made = after - before
        inside = np.minimum(log.first, end) - np.maximum(began, begin)
        share = np.clip(inside / np.maximum(log.first - began, 1e-9), 0.0, 1.0)
        features[row] = (
            log.output[index] - 1,
            share @ prompt,
            made.sum(),
            made @ (log.prompt + (before + after) / 2),
            share @ (prompt * (log.cached + prompt / 2)),
        )
    return features, (log.last - log.first)[list(rows)]


def nonnegative(features: Floats, wanted: Floats, free: Sequence[int]) -> Floats:
    """Least squares with no coefficient below 0; those that are not `free`, or that no row has, are 0."""
    scale = np.abs(features).max(axis=0)
    kept = [index for index in free if scale[index] > 0]
    while True:
        found = np.linalg.lstsq(features[:, kept] / scale[kept], wanted, rcond=None)[0]
        if len(kept) == 1 or (found >= 0).all():
            break
        kept.pop(int(np.argmin(found)))
    x = np.zeros(features.shape[1])
    x[kept] = np.maximum(found, 0.0) / scale[kept]
    return x
