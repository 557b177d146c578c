"""Lengths: how many tokens a prompt or an answer has."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from controller.core.params import Unit, param
from simulator.traffic import chance
from simulator.traffic.chance import Ints
from simulator.traffic.traces import Format, read

_Z99 = 2.3263478740408408  # the 99th percentile of the standard normal law
_Z9999 = 3.719016485455709  # and the 99.99th


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
    longest: int | None = param("longer ones are cut, tokens; the 99.99th percentile when not given", None, ge=1)

    def __post_init__(self) -> None:
        if (self.p99 is None) == (self.cv is None):
            raise ValueError("p99: a lognormal law needs exactly one of p99 and cv; write one of them")
        if self.p99 is not None and not 1 < self.p99 / self.mean <= 14.9:
            raise ValueError(
                f"p99: no lognormal law has a mean of {self.mean:g} and a p99 of {self.p99:g}; "
                "write more than the mean and at most 14.9 times it"
            )
        if self.shortest > self.most:
            raise ValueError(f"shortest: it is above the longest, {self.most}; lower it, or raise longest")

    @property
    def most(self) -> int:
        if self.longest is not None:
            return self.longest
        sigma = self.sigma
        return max(1, math.ceil(math.exp(math.log(self.mean) - sigma**2 / 2 + sigma * _Z9999)))

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
        return np.clip(np.rint(values), self.shortest, self.most).astype(np.int64)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Empirical:
    """The lengths in a trace, drawn with replacement; prompts and answers apart."""

    kind: Literal["empirical"] = param("the law", "empirical")
    format: Format = param("kind of the trace")
    file: str = param("path of the trace")
    column: Literal["prompt", "answer"] = param("which of its lengths")
    factor: float = param("what they are multiplied by", 1.0, gt=0, le=100)
    longest: int = param("longer ones are cut, tokens", 131072, ge=1)

    @property
    def most(self) -> int:
        return int(self._scaled(self._lengths.max(keepdims=True))[0])

    @property
    def _lengths(self) -> Ints:
        trace = read(self.format, self.file)
        return trace.prompt if self.column == "prompt" else trace.answer

    def _scaled(self, values: Ints) -> Ints:
        return scaled(values, self.factor, self.longest)

    def draw(self, rng: np.random.Generator, count: int) -> Ints:
        lengths = self._lengths
        return self._scaled(lengths[rng.integers(len(lengths), size=count)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairs:
    """Prompt and answer of the same request of a trace, so that long prompts keep the answers that go with them."""

    format: Format = param("kind of the trace")
    file: str = param("path of the trace")
    prompt_factor: float = param("what prompts are multiplied by", 1.0, gt=0, le=100)
    answer_factor: float = param("what answers are multiplied by", 1.0, gt=0, le=100)
    longest: int = param("longer prompts and answers are cut, tokens", 131072, ge=1)

    @property
    def most(self) -> int:
        """The longest answer, tokens."""
        answers = read(self.format, self.file).answer
        return int(scaled(answers.max(keepdims=True), self.answer_factor, self.longest)[0])

    def draw(self, rng: np.random.Generator, count: int) -> tuple[Ints, Ints]:
        """Prompts and answers."""
        trace = read(self.format, self.file)
        row = rng.integers(len(trace.prompt), size=count)
        return (
            scaled(trace.prompt[row], self.prompt_factor, self.longest),
            scaled(trace.answer[row], self.answer_factor, self.longest),
        )


def scaled(values: Ints, factor: float, longest: int) -> Ints:
    """Multiplied, rounded and cut, and never below 1."""
    return np.asarray(np.clip(np.rint(values * factor), 1, longest), dtype=np.int64)


Length = Fixed | Lognormal | Bimodal | Empirical


class Sizes:
    """Draws what a stream says of prompts and answers, one request after the other."""

    def __init__(self, prompt: Length, answer: Length, pairs: Pairs | None, seed: int, stream: str) -> None:
        self._prompt, self._answer, self._pairs = prompt, answer, pairs
        self._of_prompt = chance.stream(seed, stream, "prompt")
        self._of_answer = chance.stream(seed, stream, "answer")
        self.most = answer.most if pairs is None else pairs.most  # the longest answer, tokens

    def draw(self, count: int) -> tuple[Ints, Ints]:
        """Prompts and answers, tokens."""
        if self._pairs is not None:
            return self._pairs.draw(self._of_prompt, count)
        return self._prompt.draw(self._of_prompt, count), self._answer.draw(self._of_answer, count)
