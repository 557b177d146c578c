"""How long requests are: followed slowly through noise, and at once where they become longer. Pure.

The mean of a minute's requests is another one each minute, so what is learned follows it over minutes. A fleet whose
prompts become three times as long has not got these minutes: until they are over half of its demand is unseen. So a
window that says more than chance can is believed:

    change = ln(work of a request in the window / as learned)
    |change| >= CHANGE   and   |change| * sqrt(requests of the window) >= CHANCE

Work is what the prior of the step model charges for a request, so longer prompts that are in the cache are none.
Shorter requests are followed slowly all the same: capacity is not given back in a hurry. For two minutes from a jump on
all is followed at once: what was a moment's is gone again by then. And while what is learned is on its way, in either
direction, the steps of an engine are judged by the requests that it served meanwhile: by those that are learned it
would look slow, or quick, and would be taken for that long after. What is hardly known yet does not change: it is
followed fast, and what was learned of the model by it is the first there is.
"""

import math
from typing import NamedTuple

from controller.core.learned import EstimatorState
from controller.core.model import PoolReadings
from controller.core.pace import LEARN_TIME, weight
from controller.core.reading import State
from controller.core.signals import Signal
from controller.core.step_model import Profile, Shape, charges

CHANGE = 0.4  # half as much work per request again, or a third less
CHANCE = 10.0  # standard errors, were requests as varied as they are long; many, since those of one client are alike
KNOWN = 12  # samples of the model, three minutes of a usual interval, from which on a shape is known
FOLLOW = 10.0  # seconds over which longer requests are followed
AFTER = 120.0  # seconds from the last jump on: windows of a minute hold the new lengths alone by then, or the old ones
SETTLED = 2 * LEARN_TIME  # seconds from a change on, after which what is learned has arrived
_MADE_OF = (
    Signal.BEGUN_RATE, Signal.FINISHED_RATE, Signal.PROMPT_TOKEN_RATE, Signal.GENERATION_TOKEN_RATE,
    Signal.PREFIX_HIT_RATE,
)  # fmt: skip


class Requests(NamedTuple):
    """What is known of a pool's requests: the shape that is `learned`, the one that was `served` in the window as far
    as steps are to be judged by it, and when they last became longer (`jumped`) or `changed` in either direction beyond
    chance, unix seconds."""

    learned: Shape
    served: Shape
    jumped: float | None
    changed: float | None


def learn(
    profile: Profile, pool: PoolReadings, state: EstimatorState, samples: int, now: float
) -> Requests | None:  # fmt: skip
    """None while nothing finishes or no tokens are counted; `samples` of the model that there were."""
    seen = _seen(pool, state.shape)
    if seen is None:
        return None
    gone = now - state.at if state.at is not None else None
    gain, known = weight(gone, samples), state.shape
    if known is None or gone is None:
        learned = seen if known is None else _between(known, seen, gain)
        return Requests(learned, seen, state.jumped, state.changed)
    jumped, changed = state.jumped, state.changed
    change = _change(profile, known, seen)
    whole = samples >= KNOWN and _whole(pool)
    if whole and _beyond_chance(change, pool):
        jumped, changed = now if change > 0 else jumped, now
    if whole and _within(AFTER, jumped, now):
        gain = max(gain, 1 - math.exp(-gone / FOLLOW))
    learned = _between(known, seen, gain)
    return Requests(learned, seen if _within(SETTLED, changed, now) else learned, jumped, changed)


def _within(seconds: float, since: float | None, now: float) -> bool:
    return since is not None and 0 <= now - since <= seconds


def _seen(pool: PoolReadings, known: Shape | None) -> Shape | None:
    """Of the requests of the window; what could not be read of them is as it was known, and a cache that nobody asks is
    none.

    Prompt tokens are counted when a request begins and answer tokens while it runs: over those that finished, both look
    too long for as long as more begin than end, and a fleet that has just begun would be asked for threefold. All of
    one window: over the requests of another one, whatever stops or starts looks absurdly long or short."""
    finished, output = pool.get(Signal.FINISHED_RATE).value, pool.get(Signal.GENERATION_TOKEN_RATE).value
    if not finished or not output:
        return None
    before = known if known is not None else Shape(0.0, 0.0)
    begun = pool.get(Signal.BEGUN_RATE).usable or finished
    prompt, hit = pool.get(Signal.PROMPT_TOKEN_RATE), pool.get(Signal.PREFIX_HIT_RATE)
    return Shape(
        before.prompt if prompt.state is State.MISSING else (prompt.value or 0.0) / begun,
        2 * output / (begun + finished),
        before.hit_rate if hit.state is State.MISSING else min(max(hit.value or 0.0, 0.0), 1.0),
    )


def _whole(pool: PoolReadings) -> bool:
    """Whether all that a shape is made of was read in every second of the window: else some of it is too much, or too
    little, for the rest."""
    made_of = [pool.get(signal) for signal in _MADE_OF]
    failed = any(one.state is State.MISSING and one.note for one in made_of)  # without a note nobody ever tells it
    return not failed and not any(one.state in (State.UNDERFILLED, State.STALE) for one in made_of)


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
