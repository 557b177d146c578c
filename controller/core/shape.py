"""How long requests are: followed slowly through noise, and at once where they become longer. Pure.

The mean of a minute's requests is another one each minute, so what is learned follows it over minutes. A fleet whose
prompts become three times as long has not got these minutes: until they are over half of its demand is unseen. So a
window that says more than chance can is believed:

    change = ln(work of a request in the window / as learned) >= JUMP   and   change * sqrt(its requests) >= CHANCE

Work is what the prior of the step model charges for a request, so longer prompts that are in the cache are none.
Shorter requests are followed slowly all the same: capacity is not given back in a hurry. And what is hardly known yet
cannot jump: it is followed fast, and what was learned of the model is the first there is.
"""

import math

from controller.core.learned import EstimatorState
from controller.core.model import PoolReadings
from controller.core.signals import Signal
from controller.core.step_model import Profile, Shape, charges

JUMP = 0.4  # half as much work per request again
CHANCE = 10.0  # standard errors, if requests were independent and as varied as they are long: they are less and more so
KNOWN = 12  # samples of the model, three minutes of a usual interval, from which on a shape is known
FOLLOW = 10.0  # seconds over which a jump is followed
AFTER = 120.0  # seconds from the last such change on: windows of a minute hold the new lengths alone by then


def followed(
    profile: Profile, pool: PoolReadings, seen: Shape, state: EstimatorState, gain: float, now: float
) -> tuple[Shape, float | None]:  # fmt: skip
    """What is learned of the shape from the one that is `seen`, and when it last jumped, unix seconds. `gain` is the
    weight of what is seen where nothing jumps."""
    jumped = now if _jumps(profile, pool, seen, state) else state.jumped
    if changing(jumped, now) and state.at is not None:
        gain = max(gain, 1 - math.exp((state.at - now) / FOLLOW))
    return _blend(state.shape, seen, gain), jumped


def changing(jumped: float | None, now: float) -> bool:
    """Whether requests have just become longer."""
    return jumped is not None and now - jumped <= AFTER


def _jumps(profile: Profile, pool: PoolReadings, seen: Shape, state: EstimatorState) -> bool:
    """Whether the requests of the window are longer than those that are known, and not by chance."""
    if state.shape is None or state.samples < KNOWN:
        return False
    begun = pool.get(Signal.BEGUN_RATE)
    if begun.usable is None:
        begun = pool.get(Signal.FINISHED_RATE)
    count = (begun.usable or 0.0) * (begun.window or 0.0)
    before, after = _work(profile, state.shape), _work(profile, seen)
    if not before or not after:  # a profile may say that sequences cost nothing, and prompts be all in the cache
        return False
    change = math.log(after / before)
    return change >= JUMP and change * math.sqrt(count) >= CHANCE


def _work(profile: Profile, shape: Shape) -> float:
    return charges(profile, shape.hit_rate)(shape.prompt, shape.output)


def measured(pool: PoolReadings, prompt: float, output: float, finished: float) -> Shape:
    """Of the requests of the window, from tokens and requests per second.

    Prompt tokens are counted when a request begins and answer tokens while it runs: over those that finished, both look
    too long for as long as more begin than end, and a fleet that has just begun would be asked for threefold. All of
    one window: over the requests of another one, whatever stops or starts looks absurdly long or short."""
    hit = min(max(pool.get(Signal.PREFIX_HIT_RATE).value or 0.0, 0.0), 1.0)
    begun = pool.get(Signal.BEGUN_RATE).usable or finished
    return Shape(prompt / begun, 2 * output / (begun + finished), hit)


def _blend(old: Shape | None, new: Shape, gain: float) -> Shape:
    """Part of the way from what is known to what is seen; all of it where nothing is known."""
    if old is None:
        return new
    return Shape(
        old.prompt + gain * (new.prompt - old.prompt),
        old.output + gain * (new.output - old.output),
        old.hit_rate + gain * (new.hit_rate - old.hit_rate),
    )
