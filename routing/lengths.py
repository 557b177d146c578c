"""How long will the answer be? Nobody knows when it is sent; these are estimates from what came before.

Two are kept per kind of request, and the one that has erred less of late is asked: the mean of the recent past, and a
straight line on prompt length. A kind is (model, tenant, class, how much is asked for at most), then the same without
the last, then (model, class), then everything: the first of them that has been seen often enough. What is asked for
counts by doublings. Memory is bounded: at most `_KINDS` kinds of `_BINS` numbers each.
"""

import math
from collections import OrderedDict
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from routing.model import Request

_KINDS: Final = 1024  # the least recently seen is forgotten
_BINS: Final = 72  # four to the doubling: up to 2^18 tokens
_ERROR_KEPT: Final = 0.5 ** (1.0 / 30.0)  # per answer: trust is lost sooner than history is unlearned
_LARGE: Final = 1e12  # weights are scaled down beyond it


@dataclass(frozen=True, slots=True)
class Length:
    """Tokens of answer: `expected` for what it costs, `high` (a quantile) for what it may need of memory. Neither is
    more than the request's `max_tokens`."""

    expected: float
    high: float


class _Kind:
    """Recent answers of one kind. Each observation weighs `growth` times the one before, which is decay without
    touching the old ones."""

    def __init__(self) -> None:
        self.seen = 0
        self.weight = 1.0  # of the next observation
        self.bins = [0.0] * _BINS
        self.n = self.x = self.y = self.xx = self.xy = 0.0
        self.mean_error = self.line_error = 0.0
        self._high: tuple[float, float] | None = None  # (quantile, tokens), until the next observation

    def mean(self) -> float:
        return self.y / self.n

    def line(self, prompt: float) -> float:
        """Least squares, never below one token, nor above twice what was ever common."""
        spread = self.n * self.xx - self.x * self.x
        if spread <= 1e-9 * self.n * self.xx:
            return self.mean()
        slope = (self.n * self.xy - self.x * self.y) / spread
        return min(max(1.0, self.mean() + slope * (prompt - self.x / self.n)), 2.0 * self.high(0.99))

    def expected(self, prompt: float) -> float:
        return self.line(prompt) if self.line_error < self.mean_error else self.mean()

    def high(self, quantile: float) -> float:
        """The upper edge of the bin that holds the quantile, tokens."""
        if self._high is None or self._high[0] != quantile:
            below = accumulate(self.bins)
            place = next((place for place, weight in enumerate(below) if weight >= quantile * self.n), _BINS - 1)
            self._high = (quantile, 2.0 ** ((place + 1) / 4) - 1.0)
        return self._high[1]

    def observe(self, prompt: float, output: float, growth: float) -> None:
        weight = self.weight
        if self.seen:
            self.mean_error += weight * abs(self.mean() - output)
            self.line_error += weight * abs(self.line(prompt) - output)
        self.bins[min(int(4 * math.log2(1.0 + output)), _BINS - 1)] += weight
        self.n += weight
        self.x += weight * prompt
        self.y += weight * output
        self.xx += weight * prompt * prompt
        self.xy += weight * prompt * output
        self.seen += 1
        self.weight = weight * growth
        self._high = None
        if self.weight > _LARGE:
            self._scale(1.0 / self.weight)

    def _scale(self, by: float) -> None:
        self.bins = [weight * by for weight in self.bins]
        self.n, self.x, self.y, self.xx, self.xy = (sum_ * by for sum_ in (self.n, self.x, self.y, self.xx, self.xy))
        self.mean_error, self.line_error, self.weight = self.mean_error * by, self.line_error * by, self.weight * by


class Lengths:
    """The estimates and how wrong they have been. `half_life` is in observations: an answer that many answers ago
    counts half. `prior` tokens are expected before anything was seen, `enough` observations make a kind believed."""

    def __init__(self, half_life: float = 200.0, prior: float = 256.0, enough: int = 20) -> None:
        self.half_life = half_life
        self.prior = prior
        self.enough = enough
        self._kinds: OrderedDict[tuple[str | int, ...], _Kind] = OrderedDict()
        self._error = self._error_weight = 0.0

    @property
    def error(self) -> float:
        """By what factor estimates are off, typically: 1 is exact, 3 is thrice too long or too short. The geometric
        mean over the recent past; 1 while nothing is known."""
        return math.exp(self._error / self._error_weight) if self._error_weight else 1.0

    @property
    def observations(self) -> float:
        """How many recent ones the error rests on."""
        return self._error_weight

    def expect(self, request: Request, quantile: float = 0.9) -> Length:
        """What to expect of a request that is about to be sent."""
        cap = float(request.max_tokens)
        for key in self._keys(request):
            kind = self._kinds.get(key)
            if kind is not None and kind.seen >= self.enough:
                expected = kind.expected(request.prompt_tokens)
                return Length(min(expected, cap), min(max(expected, kind.high(quantile)), cap))
        return Length(min(self.prior, cap), min(2.0 * self.prior, cap))

    def observe(self, request: Request, output_tokens: int, said: float) -> None:
        """An answer has come to its end; `said` is what had been expected of it when it was sent."""
        self._error = self._error * _ERROR_KEPT + abs(math.log((said + 1.0) / (output_tokens + 1.0)))
        self._error_weight = self._error_weight * _ERROR_KEPT + 1.0
        growth = 2.0 ** (1.0 / self.half_life)
        for key in self._keys(request):
            kind = self._kinds.get(key)
            if kind is None:
                self._kinds[key] = kind = _Kind()
                if len(self._kinds) > _KINDS:
                    self._kinds.popitem(last=False)
            self._kinds.move_to_end(key)
            kind.observe(request.prompt_tokens, output_tokens, growth)

    def _keys(self, request: Request) -> tuple[tuple[str | int, ...], ...]:
        model, tenant, klass = request.model, request.tenant, request.klass
        return (model, tenant, klass, request.max_tokens.bit_length()), (model, tenant, klass), (model, klass), ()
