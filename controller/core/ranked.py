"""Medians of numbers that are ranked once, for many that are each compared with the others."""

from bisect import bisect_left
from collections.abc import Sequence


def middle(ranked: Sequence[float]) -> float:
    """The median of sorted numbers, at least one."""
    half = len(ranked) // 2
    return ranked[half] if len(ranked) % 2 else (ranked[half - 1] + ranked[half]) / 2


def middle_of_others(ranked: Sequence[float], one: float) -> float:
    """The median of sorted numbers, at least two, without `one` of them."""
    at, half = bisect_left(ranked, one), (len(ranked) - 1) // 2
    upper = ranked[half + (half >= at)]
    return upper if len(ranked) % 2 == 0 else (ranked[half - 1 + (half - 1 >= at)] + upper) / 2
