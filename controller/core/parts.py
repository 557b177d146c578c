"""Whose demand it is: a pool's demand split over tenants, or over request classes, by measured work.

    part_i = demand * lambda_i * w_i / sum(lambda_j * w_j)

with lambda the requests/s offered and w the work of one request by the step model, so that a tenant of long prompts is
charged for them. What nobody is named for counts as requests of the pool's mean shape, and is no one's part.

Prompt tokens count when a request begins, and requests when they end. While a cap closes on a tenant far fewer begin
than end: over one window, who floods looks cheap and its victims look dear. So what was done for a tenant is averaged
for longer before tokens are divided by requests.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from controller.core.model import Scope
from controller.core.signals import Signal
from controller.core.step_model import Profile, Shape, charges

# Looked up by name of the module: a member of an enum takes ten times as long, and these are asked of every tenant.
_PROMPT, _OUTPUT = Signal.PROMPT_TOKEN_RATE, Signal.GENERATION_TOKEN_RATE
_FINISHED, _OFFERED = Signal.FINISHED_RATE, Signal.OFFERED_RATE
ENOUGH = 5.0  # requests that must have finished before their mean lengths are believed
FOLLOW = 300.0  # seconds over which what was done is averaged
_tuple = tuple.__new__  # past the one of named tuples, which takes twice as long


class Done(NamedTuple):
    """What was done for a tenant or class, per second: prompt tokens, answer tokens, requests finished."""

    prompt: float
    output: float
    finished: float


def followed(scopes: Mapping[str, Scope], before: Mapping[str, Done], gone: float) -> dict[str, Done]:
    """What was done for each, averaged with what was known `gone` seconds ago; with nothing known, of the window."""
    gain = 1.0 - math.exp(-gone / FOLLOW)
    done = {}
    for name, scope in scopes.items():
        old, new = before.get(name), _lately(scope)
        if old is None:
            if new is not None and (scope.get(_FINISHED).count or ENOUGH) >= ENOUGH:
                done[name] = Done(*new)
        elif new is None:
            done[name] = old
        else:
            (prompt, output, finished), (prompts, outputs, finishes) = old, new
            averaged = (
                prompt + gain * (prompts - prompt),
                output + gain * (outputs - output),
                finished + gain * (finishes - finished),
            )
            done[name] = _tuple(Done, averaged)
    return done


def split(
    demand: float, offered: float, scopes: Mapping[str, Scope], done: Mapping[str, Done], profile: Profile,
    shape: Shape,
) -> dict[str, float]:  # fmt: skip
    """Replica-equivalents of each tenant or class that is read, sorted by name. `offered` requests/s of the pool,
    `shape` its mean request, and `done` what tells the lengths of each one's own."""
    charge = charges(profile, shape.hit_rate)
    usual = charge(shape.prompt, shape.output)
    rates, weighed = [], {}
    for name, scope in sorted(scopes.items()):
        rate = scope.usable(_OFFERED)
        if rate is None:  # where only that is told, what finished: a part that is too small is better than none
            rate = scope.usable(_FINISHED)
        if rate is not None:
            rates.append(rate)
            weighed[name] = rate * _cost(done.get(name), charge, usual) / usual
    nameless = max(0.0, offered - math.fsum(rates))
    whole = math.fsum(weighed.values()) + nameless
    if whole <= 0:
        return {}
    return {name: demand * weight / whole for name, weight in weighed.items()}


def _lately(scope: Scope) -> tuple[float, float, float] | None:
    """What the window tells, as in ``Done``; None where it does not tell all of it."""
    prompt, output = scope.usable(_PROMPT), scope.usable(_OUTPUT)
    finished = scope.usable(_FINISHED)
    if prompt is None or output is None or finished is None:
        return None
    return prompt, output, finished


def _cost(done: Done | None, charge: Callable[[float, float], float], usual: float) -> float:
    """The work of one request; the usual one where its lengths are not told or not believed yet."""
    if done is None:
        return usual
    prompt, output, finished = done
    return charge(prompt / finished, output / finished) if prompt and output and finished else usual
