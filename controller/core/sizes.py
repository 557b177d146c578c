"""Sizes: how long the prompts of a window were, and which part of their work lies in a band.

Answers are taken to be as long whatever the prompt. Within a bucket, prompts are even in their logarithm.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

ENOUGH = 20.0  # requests in a window that say something of their sizes


@dataclass(frozen=True, slots=True)
class Band:
    """Prompts of `least` to `most` tokens, `most` None for any length; of the tenants and classes that consent, None
    where nobody is told apart."""

    least: float = 0.0
    most: float | None = None
    tenants: frozenset[str] | None = None
    classes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many requests finished with prompts of which size: `cumulative[i]` of them had up to `edges[i]` tokens,
    `count` is all of them."""

    edges: tuple[float, ...]
    cumulative: tuple[float, ...]
    count: float

    def part(self, band: Band, work: Callable[[float], float]) -> float | None:
        """The share of the work that is in the band, None where there are too few requests to say."""
        if self.count < ENOUGH or not self.edges:
            return None
        inside: list[float] = []
        outside: list[float] = []
        low, before = 0.0, 0.0
        top = self.edges[-1]
        rows = [*zip(self.edges, self.cumulative, strict=True), (2.0 * top, self.count)]
        for high, upto in rows:
            many = max(0.0, upto - before)
            if many > 0:
                begin = max(low, high / 10.0)  # the first bucket begins nowhere
                for share, lo, hi in _cut(begin, high, band):
                    (inside if lo >= band.least - 1e-9 and _within(hi, band) else outside).append(
                        many * share * work(math.sqrt(lo * hi))
                    )
            low, before = high, upto
        whole = math.fsum(inside) + math.fsum(outside)
        return math.fsum(inside) / whole if whole > 0 else None


def _within(high: float, band: Band) -> bool:
    return band.most is None or high <= band.most + 1e-9


def _cut(low: float, high: float, band: Band) -> list[tuple[float, float, float]]:
    """A bucket in the parts that the band cuts it into: share of its requests, lowest and highest size."""
    cuts = [low, *(at for at in (band.least, band.most) if at is not None and low < at < high), high]
    width = math.log(high / low)
    if width <= 0:
        return [(1.0, low, high)]
    return [(math.log(hi / lo) / width, lo, hi) for lo, hi in pairwise(cuts)]
