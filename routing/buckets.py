"""Tenant buckets: requests per second and tokens per second, each with a burst.

    level(t) = min(burst, level(t0) + rate · (t - t0))

A request takes 1 and prompt + expected answer; if either bucket has too little it is refused and takes nothing. At its
end the answer is known, and the difference is given back or taken, so that a level may fall below 0. Given back is
never more than the burst. A new rate first settles what the old one earned and refills nothing: else each tick of a
controller that moves the rate would hand out a burst. Hence admitted - given back <= burst + rate · t over any t.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from routing.actions import Reason
from routing.knobs import Tenant

MANY = 10_000  # tenants beyond which full buckets are forgotten; they come back as they were


class Bucket:
    """One level that fills at a rate."""

    __slots__ = ("at", "burst", "level", "rate")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate = rate
        self.burst = burst
        self.level = burst
        self.at = now

    def settle(self, now: float) -> float:
        """The level at `now`; a clock that goes back earns nothing."""
        if now > self.at:
            self.level = min(self.burst, self.level + self.rate * (now - self.at))
            self.at = now
        return self.level

    def tune(self, rate: float, burst: float, now: float) -> None:
        """Another rate and burst from now on."""
        self.settle(now)
        self.rate, self.burst = rate, burst
        self.level = min(self.level, burst)

    def wait(self, amount: float) -> float | None:
        """Seconds until `amount` is there; None when it never will be."""
        if amount > self.burst or self.rate <= 0.0:
            return None
        return max(0.0, (amount - self.level) / self.rate)


@dataclass(frozen=True, slots=True)
class Debit:
    """What a request took: from its tenant's buckets of requests and tokens."""

    tenant: str
    requests: float
    tokens: float
    prompt_tokens: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a tenant's request does not pass, and when one of its size would; None if never."""

    reason: Reason
    wait: float | None


class Buckets:
    """The buckets of all tenants that have caps."""

    def __init__(self) -> None:
        self._requests: dict[str, Bucket] = {}
        self._tokens: dict[str, Bucket] = {}

    def take(self, tenant: str, caps: Tenant, prompt: int, answer: float, now: float) -> Debit | Refusal:
        """Pay for a request, or say why not."""
        requests = _bucket(self._requests, tenant, caps.requests_per_s, caps.request_burst, now)
        tokens = _bucket(self._tokens, tenant, caps.tokens_per_s, caps.token_burst, now)
        if requests is not None and requests.settle(now) < 1.0:
            return Refusal(Reason.TENANT_REQUESTS, requests.wait(1.0))
        cost = prompt + answer
        if tokens is not None and tokens.settle(now) < cost:
            reason = Reason.TENANT_BURST if cost > tokens.burst else Reason.TENANT_TOKENS
            return Refusal(reason, tokens.wait(cost))
        if requests is not None:
            requests.level -= 1.0
        if tokens is not None:
            tokens.level -= cost
        return Debit(tenant, 1.0 if requests is not None else 0.0, cost if tokens is not None else 0.0, prompt)

    def served(self, debit: Debit, output_tokens: float, now: float) -> None:
        """The true length of an answer: what was taken too much comes back, what was too little is taken."""
        if debit.tokens:
            self._pay_back(self._tokens, debit.tenant, debit.tokens - debit.prompt_tokens - output_tokens, now)

    def undo(self, debit: Debit, now: float) -> None:
        """The request was not served at all."""
        self._pay_back(self._requests, debit.tenant, debit.requests, now)
        self._pay_back(self._tokens, debit.tenant, debit.tokens, now)

    def tune(self, tenants: Mapping[str, Tenant], others: Tenant, now: float) -> None:
        """New caps for those that have buckets; a tenant whose cap is off keeps its bucket, frozen, for when it is on
        again."""
        for buckets, rate, burst in (
            (self._requests, "requests_per_s", "request_burst"),
            (self._tokens, "tokens_per_s", "token_burst"),
        ):
            for name, bucket in buckets.items():
                caps = tenants.get(name, others)
                bucket.tune(getattr(caps, rate) or 0.0, getattr(caps, burst), now)

    def levels(self, now: float) -> dict[str, tuple[float | None, float | None]]:
        """What each tenant may take at once: requests and tokens, None without a cap."""
        names = sorted(self._requests.keys() | self._tokens.keys())
        return {
            name: (
                self._requests[name].settle(now) if name in self._requests else None,
                self._tokens[name].settle(now) if name in self._tokens else None,
            )
            for name in names
        }

    @staticmethod
    def _pay_back(buckets: dict[str, Bucket], tenant: str, amount: float, now: float) -> None:
        bucket = buckets.get(tenant)
        if bucket is not None and amount:
            bucket.level = min(bucket.burst, bucket.settle(now) + amount)


def _bucket(buckets: dict[str, Bucket], tenant: str, rate: float | None, burst: float, now: float) -> Bucket | None:
    if rate is None:
        return None
    bucket = buckets.get(tenant)
    if bucket is None:
        if len(buckets) >= MANY:
            for name in [name for name, one in buckets.items() if one.settle(now) >= one.burst]:
                del buckets[name]
        buckets[tenant] = bucket = Bucket(rate, burst, now)
    return bucket
