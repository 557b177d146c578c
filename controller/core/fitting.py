"""Fitting: which part of a pool's work has prompts that a smaller model may take.

    a = Σ over sizes: requests in the band · work of one          of what finished here;  work by the step model
    g = share sent · share that consents                          of the band, that went elsewhere and finishes there
    f = a / (1 - g) / ( a / (1 - g) + 1 - a )                     of what is offered
    fitting += (1 - e^(-Δt / τ)) · (f - fitting)                  τ 5 minutes; half an hour while something is sent

What was sent away is not in the engine's histogram, so a share that is sent would look like prompts that nobody sends,
and the share would rise for it. While most of the band is away (g > 0.8) little of it is seen, and what was learned is
kept.
"""

import math
from collections.abc import Callable, Mapping

from controller.core.elapsed import GAP
from controller.core.model import PoolReadings, Scope
from controller.core.signals import Signal
from controller.core.sizes import Band, Sizes

TAU, TAU_SENDING = 300.0, 1800.0  # seconds
AWAY = 0.8  # share of the band beyond which too little of it is left to judge by


def learn(
    seen: Sizes | None, band: Band, sent: float, work: Callable[[float], float], gone: float, known: float | None
) -> float | None:  # fmt: skip
    """The share of the offered work that is in the band, after `gone` seconds. `sent` is the share of the band that
    goes elsewhere; `known` what was known before, None for nothing."""
    served = seen.part(band, work) if seen is not None else None
    if served is None or (known is not None and sent > AWAY):
        return known
    left = max(1.0 - sent, 1.0 - AWAY)
    offered = min(1.0, served / left / (served / left + 1.0 - served))  # which floats may pass by a hair
    if known is None:
        return offered
    tau = TAU_SENDING if sent > 0 else TAU
    return known + (1.0 - math.exp(-min(max(gone, 0.0), GAP) / tau)) * (offered - known)


def agreeing(pool: PoolReadings, band: Band) -> float:
    """The share of the requests whose tenant and class consent, as far as that is told: no more than either part."""
    return min(_agreeing(pool.tenants, band.tenants), _agreeing(pool.classes, band.classes))


def _agreeing(scopes: Mapping[str, Scope], names: frozenset[str] | None) -> float:
    if names is None:
        return 1.0
    rates = {name: scope.get(Signal.OFFERED_RATE).usable or 0.0 for name, scope in sorted(scopes.items())}
    whole = math.fsum(rates.values())
    return math.fsum(rate for name, rate in rates.items() if name in names) / whole if whole > 0 else 1.0
