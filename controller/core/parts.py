"""Whose demand it is: a pool's demand split over tenants, or over request classes, by measured work.

    part_i = demand * lambda_i * w_i / sum(lambda_j * w_j)

with lambda the requests/s offered and w the work of one request by the step model, so that a tenant of long prompts is
charged for them. What nobody is named for counts as requests of the pool's mean shape, and is no one's part.
"""

import math
from collections.abc import Callable, Mapping

from controller.core.model import Scope
from controller.core.signals import Signal
from controller.core.step_model import Profile, Shape, charges

ENOUGH = 5.0  # requests that must have finished before their mean lengths are believed


def split(
    demand: float, offered: float, scopes: Mapping[str, Scope], profile: Profile, shape: Shape
) -> dict[str, float]:
    """Replica-equivalents of each tenant or class that is read, sorted by name. `offered` requests/s of the pool and
    `shape` its mean request."""
    charge = charges(profile, shape.hit_rate)
    usual = charge(shape.prompt, shape.output)
    rates, weighed = [], {}
    for name, scope in sorted(scopes.items()):
        rate = _offered(scope)
        if rate is not None:
            rates.append(rate)
            weighed[name] = rate * _cost(scope, charge, usual) / usual
    nameless = max(0.0, offered - math.fsum(rates))
    whole = math.fsum(weighed.values()) + nameless
    if whole <= 0:
        return {}
    return {name: demand * weight / whole for name, weight in weighed.items()}


def _offered(scope: Scope) -> float | None:
    """What is offered; where only that is told, what finished: a part that is too small is better than none."""
    rate = scope.get(Signal.OFFERED_RATE).usable
    return rate if rate is not None else scope.get(Signal.FINISHED_RATE).usable


def _cost(scope: Scope, charge: Callable[[float, float], float], usual: float) -> float:
    """The work of one of its requests; the usual one where its lengths are not told or not believed yet."""
    finished = scope.get(Signal.FINISHED_RATE)
    rate = finished.usable
    if not rate or (finished.count or ENOUGH) < ENOUGH:
        return usual
    prompt, output = scope.get(Signal.PROMPT_TOKEN_RATE).usable, scope.get(Signal.GENERATION_TOKEN_RATE).usable
    if not prompt or not output:
        return usual
    return charge(prompt / rate, output / rate)
