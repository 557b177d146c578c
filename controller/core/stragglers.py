"""Replicas that are slow by themselves, left out of what is learned of all. Pure.

    own  = mean seconds per token / T(n) of the model, each replica at its batch;  left out: own > 2 * the median

One replica of nine that is three times as slow gives few tokens and many of the late ones. What it adds to the mean of
its pool says nothing of the others, and a model scaled by it takes every replica for slower than it is: then fewer
requests are let in everywhere, and more replicas asked for than one. Whoever is left out is a minority by construction.
Where none is, the readings of the pool are taken as they are.
"""

import math
from collections.abc import Mapping
from statistics import median
from typing import NamedTuple

from controller.core.model import PoolReadings
from controller.core.signals import Signal
from controller.core.step_model import Profile, Shape, terms

# Looked up by name of the module: a member of an enum takes ten times as long, and these are asked of every replica.
_ITL, _RUNNING = Signal.ITL, Signal.RUNNING
SLOW = 2.0  # times the median; scrapes of healthy fleets show more only now and then, with prompts of 32,000 tokens
LEAST = 3  # replicas of which a median says who is slow
FEW = 20.0  # gaps between tokens that make a mean


class Others(NamedTuple):
    """The replicas that are not slow: mean seconds per token, sequences per replica, and how many were `left_out`."""

    itl: float
    batch: float
    left_out: int


class Look(NamedTuple):
    """What one replica showed: mean seconds per token, how many gaps between tokens that is of, its sequences at the
    end, those that these gaps say were flowing, and of how many seconds the gaps are, 0 where that is not told."""

    itl: float
    gaps: float
    running: float
    flowing: float
    window: float = 0.0


def looks(pool: PoolReadings) -> dict[str, Look]:
    """Of all replicas that can be told of, by name, sorted."""
    found = {}
    for name, scope in sorted(pool.replicas.items()):
        latency = scope.latency(_ITL, "mean")
        count, itl, running = latency.count or 0.0, latency.usable, scope.usable(_RUNNING)
        if count and itl and running is not None:
            window = latency.window or 0.0
            found[name] = Look(itl, count, running, count * itl / window if window else 0.0, window)
    return found


def others(seen: Mapping[str, Look], profile: Profile, shape: Shape) -> Others | None:
    """What is measured without the slow ones; None when nobody is, or it cannot be told. The scale of the model does
    not matter."""
    base, each, least = terms(profile, shape, 1.0)
    found = []
    for itl, count, running, flowing, _ in seen.values():
        if count >= FEW:
            batch = max(flowing, running, 1.0)
            found.append((itl / max(base + each * batch, least * batch), itl, count, running))
    if len(found) < LEAST:
        return None
    most = SLOW * median(own for own, *_ in found)
    kept = [one for one in found if one[0] <= most]
    if len(kept) == len(found):
        return None
    tokens = math.fsum(count for _, _, count, _ in kept)
    return Others(
        math.fsum(itl * count for _, itl, count, _ in kept) / tokens,
        math.fsum(running for *_, running in kept) / len(kept),
        len(found) - len(kept),
    )
