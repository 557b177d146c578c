"""How fast what is learned follows what is seen. Pure."""

import math

LEARN_TIME = 180.0  # seconds over which kappa and the shape of requests follow what is measured
SAMPLE = 14.0  # seconds of which a sample is, a little less than the usual interval


def weight(seconds: float | None, samples: int) -> float:
    """Weight of what was seen over so many seconds, after so many samples: by the time, and fast while there are few;
    the prior counts as one. What is looked at more often than there are samples has its part of one at each look."""
    if seconds is None:
        seconds = LEARN_TIME
    first = 1.0 / (samples + 2)
    if seconds < SAMPLE:
        first = 1 - (1 - first) ** (seconds / SAMPLE)
    return max(1 - math.exp(-seconds / LEARN_TIME), first)
