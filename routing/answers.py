"""How many tokens of answer a gateway's laws expect: the mean of what this tenant was answered in this class.

An exponential mean over about 50 answers, never above max_tokens. It costs a microsecond, for buckets and queue;
what they paid too much or too little is put right at the end. `routing.lengths` is the careful sibling, with
quantiles and an error of its own, for a strategy that must not overrun a memory.
"""

from routing.model import Request

GAIN = 0.04
MANY = 10_000  # means that are kept; then they are learned anew


class Answers:
    """Means by class and tenant; one that is new gets the mean of all, and `prior` tokens stands for none yet."""

    def __init__(self, prior: float) -> None:
        self.prior = prior
        self._all: float | None = None
        self._means: dict[tuple[str, str], float] = {}

    def expected(self, request: Request) -> float:
        """Tokens, above 0."""
        mean = self._means.get((request.klass, request.tenant), self._all)
        if mean is None:
            mean = self.prior
        return mean if mean < request.max_tokens else float(request.max_tokens)

    def learn(self, request: Request, output_tokens: int) -> None:
        """The length of an answer that came to its end."""
        key = (request.klass, request.tenant)
        mean = self._means.get(key, self._all)
        if len(self._means) > MANY:
            self._means.clear()
        self._means[key] = output_tokens if mean is None else mean + GAIN * (output_tokens - mean)
        self._all = output_tokens if self._all is None else self._all + GAIN * (output_tokens - self._all)
