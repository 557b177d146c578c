"""How long requests are: followed slowly through noise, and at once where they become longer. Pure.

The mean of a minute's requests is another one each minute, so what is learned follows it over minutes. A fleet whose
prompts become three times as long has not got these minutes: until they are over half of its demand is unseen. So a
window that says more than chance can is believed:

    change = ln(work of a request in the window / as learned)
    |change| >= CHANGE   and   |change| * sqrt(requests of the window) >= CHANCE

Work is what the prior of the step model charges for a request, so longer prompts that are in the cache are none.
Shorter requests are followed slowly all the same: capacity is not given back in a hurry. But while what is learned is
on its way, in either direction, the steps of an engine are judged by the requests that it served meanwhile: by those
that are learned it would look slow, or quick, and would be taken for that long after.
"""

import math
from typing import NamedTuple

from controller.core.learned import EstimatorState
from controller.core.model import PoolReadings
from controller.core.pace import LEARN_TIME, weight
from controller.core.signals import Signal
from controller.core.step_model import Profile, Shape, charges

CHANGE = 0.4  # half as much work per request again, or a third less
CHANCE = 10.0  # standard errors, if requests were independent and as varied as they are long: they are less and more so
FOLLOW = 10.0  # seconds over which longer requests are followed
FILLED = 60.0  # seconds from the last such change on, in which the window fills with the new lengths
SETTLED = 2 * LEARN_TIME  # seconds from it on, after which what is learned has arrived


class Requests(NamedTuple):
    """What is known of a pool's requests: the shape that is `learned`, the one by which the steps of the window are to
    be judged, and when they last `changed` beyond chance, unix seconds."""

    learned: Shape
    served: Shape
    changed: float | None


def requests(profile: Profile, pool: PoolReadings, state: EstimatorState, now: float) -> Requests | None:
    """None while nothing finishes or no tokens are counted."""
    seen = _seen(pool, state.shape)
    if seen is None:
        return None
    gone = now - state.at if state.at is not None else None
    gain, known = weight(gone, state.samples), state.shape
    if known is None or gone is None:
        return Requests(seen if known is None else _between(known, seen, gain), seen, state.changed)
    change = _change(profile, known, seen)
    changed = now if _beyond_chance(change, pool) else state.changed
    since = now - changed if changed is not None else math.inf
    if change > 0 and 0 <= since <= FILLED:
        gain = max(gain, 1 - math.exp(-gone / FOLLOW))
    learned = _between(known, seen, gain)
    return Requests(learned, seen if 0 <= since <= SETTLED else learned, changed)


def _seen(pool: PoolReadings, known: Shape | None) -> Shape | None:
    """Of the requests of the window; what is not read of them is as it was known.

    Prompt tokens are counted when a request begins and answer tokens while it runs: over those that finished, both look
    too long for as long as more begin than end, and a fleet that has just begun would be asked for threefold. All of
    one window: over the requests of another one, whatever stops or starts looks absurdly long or short."""
    finished, output = pool.get(Signal.FINISHED_RATE).value, pool.get(Signal.GENERATION_TOKEN_RATE).value
    if not finished or not output:
        return None
    before = known if known is not None else Shape(0.0, 0.0)
    begun = pool.get(Signal.BEGUN_RATE).usable or finished
    prompt, hit = pool.get(Signal.PROMPT_TOKEN_RATE).value, pool.get(Signal.PREFIX_HIT_RATE).value
    return Shape(
        before.prompt if prompt is None else prompt / begun,
        2 * output / (begun + finished),
        before.hit_rate if hit is None else min(max(hit, 0.0), 1.0),
    )


def _change(profile: Profile, known: Shape, seen: Shape) -> float:
    """How much more work a request of the window is than one that is known, as a logarithm."""
    before, after = _work(profile, known), _work(profile, seen)
    if not before or not after:  # a profile may say that sequences cost nothing, and prompts be all in the cache
        return 0.0
    return math.log(after / before)


def _work(profile: Profile, shape: Shape) -> float:
    return charges(profile, shape.hit_rate)(shape.prompt, shape.output)


def _beyond_chance(change: float, pool: PoolReadings) -> bool:
    """Whether the requests of the window are others than those that are known, and not by chance."""
    if abs(change) < CHANGE:
        return False
    begun = pool.get(Signal.BEGUN_RATE)
    if begun.usable is None:
        begun = pool.get(Signal.FINISHED_RATE)
    count = (begun.usable or 0.0) * (begun.window or 0.0)
    return abs(change) * math.sqrt(count) >= CHANCE


def _between(old: Shape, new: Shape, gain: float) -> Shape:
    """Part of the way from what is known to what is seen."""
    return Shape(
        old.prompt + gain * (new.prompt - old.prompt),
        old.output + gain * (new.output - old.output),
        old.hit_rate + gain * (new.hit_rate - old.hit_rate),
    )
