"""Paired differences over seeds with their 95 % intervals. Pure.

Both of a pair met the same requests, so that what chance gave the one it gave the other. The interval is Student's t on
the mean of the differences.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# Student's t, two-sided 95 %, by degrees of freedom; beyond, that of the last one, which is a little wide.
_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean of `count` values and half the width of its interval; the half is infinite with one value."""

    value: float
    half: float
    count: int

    @property
    def low(self) -> float:
        return self.value - self.half

    @property
    def high(self) -> float:
        return self.value + self.half

    @property
    def certain(self) -> bool:
        """Whether the interval leaves out 0."""
        return self.low > 0 or self.high < 0


def mean(values: Sequence[float]) -> Mean | None:
    """Over the values; None when there are none."""
    count = len(values)
    if not count:
        return None
    middle = math.fsum(values) / count
    if count == 1:
        return Mean(middle, math.inf, 1)
    spread = math.sqrt(math.fsum((one - middle) ** 2 for one in values) / (count - 1))
    return Mean(middle, _T[min(count - 2, len(_T) - 1)] * spread / math.sqrt(count), count)


def paired(ours: Sequence[float | None], theirs: Sequence[float | None]) -> Mean | None:
    """Ours less theirs, of the pairs that are known."""
    pairs = zip(ours, theirs, strict=True)
    return mean([mine - other for mine, other in pairs if mine is not None and other is not None])
