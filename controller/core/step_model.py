"""What one replica can serve: the step-time model and the capacity that follows from it.

    T(n) = kappa * (a + b * uncached/o * n + c * n + d * n * (p + o/2) + e * uncached*(cached + uncached/2)/o * n)

is the time in seconds of one decode step with n sequences, of requests with p prompt tokens (some of them cached) and o
output tokens; each step also carries the prefill of the requests that replace the finished ones. Without this
prefill it lasts kappa * host * n at least: what the host does for each token bounds tokens per second. The operating
point is the largest n whose T(n) keeps the inter-token target and whose KV fits; one replica then serves n / (o * T(n))
requests per second. kappa scales the whole model to the measured inter-token latency. Formulas: design.md, Control.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

HEADROOM = 0.75  # share of the inter-token target that the operating point may use
KV_FILL = 0.9  # share of the KV cache that the operating point may use
REACH = 1.3  # kappa is not trusted beyond this multiple of the largest batch seen
CERTAIN = 0.25  # share of the operating point that needs no proof


@dataclass(frozen=True, slots=True)
class Profile:
    """Step-time coefficients in seconds: per step, per prefill token, per sequence, per KV token, per prefill token
    squared; the limits of the engine; and the host's seconds per sequence, under which no decode is. The default is a
    prior for an 8B dense model on one H100 (fitted, see docs/policies.md); kappa corrects its scale, so it need not be
    the user's model."""

    a: float = 6.071e-3
    b: float = 15.35e-6
    c: float = 13.8e-6
    d: float = 41.5e-9
    e: float = 1.41e-9
    max_num_seqs: float = 256.0
    kv_tokens: float | None = None
    host: float = 0.0


class Shape(NamedTuple):
    """Mean tokens per request: prompt, output, and the share of the prompt found in the prefix cache."""

    prompt: float
    output: float
    hit_rate: float = 0.0


def per_sequence(profile: Profile, shape: Shape) -> float:
    """Seconds that one more running sequence adds to a step."""
    return _each(profile, shape, _prefill(profile, shape))


def _each(profile: Profile, shape: Shape, prefill: float) -> float:
    return profile.c + profile.d * (shape.prompt + shape.output / 2) + prefill


def _prefill(profile: Profile, shape: Shape) -> float:
    """The part of it that is the prefill of the request that replaces a finished one."""
    prompt, output, hit_rate = shape
    uncached = prompt * (1.0 - hit_rate)
    cached = prompt - uncached
    return (profile.b * uncached + profile.e * uncached * (cached + uncached / 2)) / max(output, 1.0)


def step_time(profile: Profile, shape: Shape, n: float, kappa: float = 1.0) -> float:
    """Seconds of one decode step with n sequences."""
    base, each, least = terms(profile, shape, kappa)
    return max(base + each * n, least * n)


def terms(profile: Profile, shape: Shape, kappa: float) -> tuple[float, float, float]:
    """Seconds of a step that hold for any batch, per sequence, and per sequence at least: T(n) = max(base + each * n,
    least * n)."""
    prefill = _prefill(profile, shape)
    return kappa * profile.a, kappa * _each(profile, shape, prefill), kappa * (profile.host + prefill)


def charges(profile: Profile, hit_rate: float) -> Callable[[float, float], float]:
    """Replica-seconds that one request takes of a replica whose steps cost nothing by themselves, by its prompt and
    output tokens: ``per_sequence`` over its steps. Requests of every shape add up in it, so a tenant with long prompts
    is charged for them. Tens of thousands of tenants are weighed at each tick, with the cache of their pool."""
    b, c, d, e, miss = profile.b, profile.c, profile.d, profile.e, 1.0 - hit_rate

    def charge(prompt: float, output: float) -> float:
        uncached = prompt * miss
        steps = output if output > 1.0 else 1.0  # noqa: FURB136 - in a fifth of the time of max
        prefill = (b * uncached + e * uncached * (prompt - uncached + uncached / 2)) / steps
        return (c + d * (prompt + output / 2) + prefill) * steps

    return charge


class Capacity(NamedTuple):
    """One replica at its operating point: sequences, requests per second, and what limits it."""

    sequences: float
    rate: float
    limit: str  # latency | slots | kv


def capacity(
    profile: Profile,
    shape: Shape,
    kappa: float,
    itl_target: float | None,
    kv_sequences: float | None,
    full: float | None = None,
) -> Capacity:
    """The operating point. `itl_target` seconds per output token or None; `kv_sequences` how many sequences the KV
    cache was measured to hold, None when unknown; `full` the batch at which requests had to wait, None when that was
    never seen."""
    slots = profile.max_num_seqs if full is None else min(full, profile.max_num_seqs)
    base, each, least = unscaled = terms(profile, shape, 1.0)
    n, limit = _sequences(profile, shape, unscaled, kappa, itl_target, kv_sequences, slots)
    step = max(kappa * base + kappa * each * n, kappa * least * n)
    return Capacity(n, n / (max(shape.output, 1.0) * step), limit)


def unseated(
    profile: Profile, shape: Shape, kappa: float, itl_target: float | None, kv_sequences: float | None
) -> float:  # fmt: skip
    """The sequences at the operating point of the same engine with as many seats as anybody wants."""
    return _sequences(profile, shape, terms(profile, shape, 1.0), kappa, itl_target, kv_sequences, math.inf)[0]


def _sequences(
    profile: Profile, shape: Shape, unscaled: tuple[float, float, float], kappa: float, itl_target: float | None,
    kv_sequences: float | None, slots: float,
) -> tuple[float, str]:  # fmt: skip
    """How many, and what limits them; `unscaled` are the ``terms`` without kappa."""
    bounds = {"slots": slots}
    if itl_target is not None:
        room, (base, each, least) = HEADROOM * itl_target / kappa, unscaled
        # Prompts that are all in the cache may cost nothing.
        most = (room - base) / each if each else math.inf
        bounds["latency"] = max(1.0, min(most, room / least) if profile.host else most)
    if profile.kv_tokens is not None:
        bounds["kv"] = KV_FILL * profile.kv_tokens / (shape.prompt + shape.output / 2)
    if kv_sequences is not None:
        bounds["kv"] = min(bounds.get("kv", kv_sequences), KV_FILL * kv_sequences)
    n, limit = min([(value, name) for name, value in bounds.items()])
    return max(1.0, n), limit


def proven(profile: Profile, shape: Shape, kappa: float, at: Capacity, seen: float | None) -> float:
    """Requests per second that one replica has shown it can serve, or that is little enough to need no proof: what
    may be counted on when replicas are taken away. `seen` is the largest batch seen."""
    n = min(at.sequences, max(REACH * (seen or 0.0), CERTAIN * at.sequences, 1.0))
    return n / (max(shape.output, 1.0) * step_time(profile, shape, n, kappa))
