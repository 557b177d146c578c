"""Lengths: how many tokens a prompt or an answer has."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from controller.core.params import Unit, param
from simulator.traffic.chance import Ints

_Z99 = 2.3263478740408408  # the 99th percentile of the standard normal law


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """Always the same."""

    kind: Literal["fixed"] = param("the law", "fixed")
    tokens: int = param("tokens", ge=1)

    @property
    def most(self) -> int:
        return self.tokens

    def draw(self, rng: np.random.Generator, count: int) -> Ints:
        return np.full(count, self.tokens, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lognormal:
    """Lognormal by its mean and either its 99th percentile or its coefficient of variation; the usual shape of chat."""

    kind: Literal["lognormal"] = param("the law", "lognormal")
    mean: float = param("mean, tokens, before `shortest` and `longest` cut", ge=1)
    p99: float | None = param("99th percentile, tokens; above the mean, and at most 14.9 times it", None, ge=1)
    cv: float | None = param("standard deviation over mean, in place of p99", None, gt=0, le=20)
    shortest: int = param("shorter ones are made so long, tokens", 1, ge=1)
    longest: int = param("longer ones are cut, tokens", 131072, ge=1)

    def __post_init__(self) -> None:
        if (self.p99 is None) == (self.cv is None):
            raise ValueError("p99: a lognormal law needs exactly one of p99 and cv; write one of them")
        if self.p99 is not None and not 1 < self.p99 / self.mean <= 14.9:
            raise ValueError(
                f"p99: no lognormal law has a mean of {self.mean:g} and a p99 of {self.p99:g}; "
                "write more than the mean and at most 14.9 times it"
            )
        if self.shortest > self.longest:
            raise ValueError("shortest: it is above longest; lower it")

    @property
    def most(self) -> int:
        return self.longest

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        if self.cv is not None:
            return math.sqrt(math.log1p(self.cv**2))
        ratio = math.log((self.p99 or self.mean) / self.mean)
        return _Z99 - math.sqrt(_Z99**2 - 2 * ratio)

    def draw(self, rng: np.random.Generator, count: int) -> Ints:
        sigma = self.sigma
        values = np.exp(math.log(self.mean) - sigma**2 / 2 + sigma * rng.standard_normal(count))
        return np.clip(np.rint(values), self.shortest, self.longest).astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bimodal:
    """Two kinds of request in one stream: short ones and, in a share of cases, long ones."""

    kind: Literal["bimodal"] = param("the law", "bimodal")
    short: Fixed | Lognormal = param("the usual ones")
    long: Fixed | Lognormal = param("the long ones")
    share: float = param("share of the long ones", 0.05, unit=Unit.RATIO, ge=0, le=1)

    @property
    def most(self) -> int:
        return max(self.short.most, self.long.most)

    def draw(self, rng: np.random.Generator, count: int) -> Ints:
        is_long = rng.random(count) < self.share
        return np.where(is_long, self.long.draw(rng, count), self.short.draw(rng, count))


Length = Fixed | Lognormal | Bimodal
