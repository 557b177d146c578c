"""Tenant buckets: requests per second and tokens per second, each with a burst.

    level(t) = min(burst, level(t0) + rate · (t - t0))

A request takes 1 and prompt + expected answer; if either bucket has too little it is refused and takes nothing. At its
end the answer is known, and the difference is given back or taken, so that a level may fall below 0. Given back is
never more than the burst. A new rate first settles what the old one earned and refills nothing: else each tick of a
controller that moves the rate would hand out a burst. Hence admitted - given back <= burst + rate · t over any t.

    burst of tokens = max(token_burst, token_seconds · rate)
    passes if level >= min(burst, max(cost, alike) + reserve · (burst - alike))
    alike = min(token_alike, burst - token_burst)                                    0 in the bucket of requests

A few large requests come close together by chance, and a tenant well below its cap must not lose them; hence the burst
that grows with the rate. Under a cap that binds, a bucket that asks for no more than the cost serves the small requests
and refuses the large ones, and who measures what is served takes requests for shorter and replicas for stronger than
they are: so all up to `token_alike` have to find the same level, where the bucket is deep enough for that.

Classes share the bucket of their tenant, but not down to the bottom: one with a `reserve` leaves that share to those
above it. So under a cap the lower classes give way first, as far as the higher ones need it, and what those do not
need is not lost. A full bucket always serves: a reserve is no ban.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from routing.actions import Reason
from routing.knobs import Tenant

MANY = 10_000  # tenants beyond which full buckets are forgotten; they come back as they were


class Bucket:
    """One level that fills at a rate."""

    __slots__ = ("alike", "at", "burst", "level", "rate")

    def __init__(self, rate: float, burst: float, alike: float, now: float) -> None:
        self.rate = rate
        self.burst = burst
        self.alike = alike
        self.level = burst
        self.at = now

    def settle(self, now: float) -> float:
        """The level at `now`; a clock that goes back earns nothing."""
        if now > self.at:
            self.level = min(self.burst, self.level + self.rate * (now - self.at))
            self.at = now
        return self.level

    def tune(self, rate: float, burst: float, alike: float, now: float) -> None:
        """Another rate and burst from now on."""
        self.settle(now)
        self.rate, self.burst, self.alike = rate, burst, alike
        self.level = min(self.level, burst)

    def need(self, amount: float, reserve: float) -> float:
        """The level at which `amount` may be drawn by who leaves the share `reserve` to others."""
        need = max(amount, self.alike) + reserve * (self.burst - self.alike)
        return max(amount, min(self.burst, need))

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

    def take(
        self, tenant: str, caps: Tenant, prompt: int, answer: float, now: float, reserve: float = 0.0
    ) -> Debit | Refusal:
        """Pay for a request of a class that leaves the share `reserve` of each burst to others; or say why not."""
        requests = _bucket(self._requests, tenant, caps.requests_per_s, caps.request_burst, 0.0, now)
        tokens = _bucket(self._tokens, tenant, caps.tokens_per_s, caps.depth, caps.alike, now)
        if requests is not None and requests.settle(now) < (need := requests.need(1.0, reserve)):
            return Refusal(Reason.TENANT_REQUESTS, requests.wait(need))
        cost = prompt + answer
        if tokens is not None and tokens.settle(now) < (need := tokens.need(cost, reserve)):
            reason = Reason.TENANT_BURST if cost > tokens.burst else Reason.TENANT_TOKENS
            return Refusal(reason, tokens.wait(need))
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
        for name, bucket in self._requests.items():
            caps = tenants.get(name, others)
            bucket.tune(caps.requests_per_s or 0.0, caps.request_burst, 0.0, now)
        for name, bucket in self._tokens.items():
            caps = tenants.get(name, others)
            bucket.tune(caps.tokens_per_s or 0.0, caps.depth, caps.alike, now)

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


def _bucket(
    buckets: dict[str, Bucket], tenant: str, rate: float | None, burst: float, alike: float, now: float
) -> Bucket | None:
    if rate is None:
        return None
    bucket = buckets.get(tenant)
    if bucket is None:
        if len(buckets) >= MANY:
            for name in [name for name, one in buckets.items() if one.settle(now) >= one.burst]:
                del buckets[name]
        buckets[tenant] = bucket = Bucket(rate, burst, alike, now)
    return bucket
