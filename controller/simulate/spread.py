"""Spread: one number over several seeds, and differences between contenders seed by seed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, standard deviation of the sample (0 for one), least and greatest, of `count` values. A value that is
    infinite (what never came) makes the mean infinite: it must not be left out where it is the worst."""

    mean: float
    deviation: float
    low: float
    high: float
    count: int

    @staticmethod
    def of(values: Sequence[float | None]) -> "Spread | None":
        """Over those that are known; None when none is."""
        known = [value for value in values if value is not None and not math.isnan(value)]
        if not known:
            return None
        if not all(map(math.isfinite, known)):
            return Spread(math.inf, 0.0, min(known), max(known), len(known))
        mean = math.fsum(known) / len(known)
        squares = math.fsum((value - mean) ** 2 for value in known)
        deviation = math.sqrt(squares / (len(known) - 1)) if len(known) > 1 else 0.0
        return Spread(mean, deviation, min(known), max(known), len(known))
