"""How the numbers of a scoreboard are written, in the terminal and in the report alike."""

import math
from collections.abc import Iterable

from controller.core.words import percent
from controller.rehearse.words import duration
from controller.simulate.board import Measure
from controller.simulate.spread import Spread

CONTENDERS = {
    "governor": "Governor",
    "none": "no controller",
    "static": "cheapest static",
    "oracle": "oracle",
    "recorded": "recorded replicas",
}
_COUNTED = (
    "Attained is the share of all offered requests that kept their promise: refused, timed-out, aborted and lost ones "
    "are misses, a retry is no new request. GPU-hours count replicas from their node on, starting and draining too."
)
_SEARCHED = {
    "static": "The cheapest static fleet attains at least as much as Governor with each seed.",
    "oracle": "The oracle knows all arrivals, and attains at least as much as Governor with each seed.",
}


def foot(contenders: Iterable[str], waiting: int) -> str:
    """What must be known to read the scoreboard; `waiting` requests of all runs together had no end when
    the clock stopped."""
    told = [_COUNTED, *(_SEARCHED[name] for name in contenders if name in _SEARCHED)]
    if waiting:
        told.append(
            f"In all runs together {waiting:,} {'request' if waiting == 1 else 'requests'} had no end yet when the "
            f"clock stopped, and {'is' if waiting == 1 else 'are'} not counted."
        )
    return " ".join(told)


def contender(name: str) -> str:
    """The name as people read it; a peer keeps its own."""
    return CONTENDERS.get(name, name)


def cell(measure: Measure, spread: Spread | None) -> str:
    """`97.30 % ± 0.42`; `never` where it did not come; `-` where there is nothing."""
    if spread is None:
        return "-"
    if math.isinf(spread.mean):
        return "never"
    text = _value(measure, spread.mean)
    if spread.count < 2:
        return text
    return f"{text} ± {_deviation(measure, spread)}"


def share(part: float) -> str:
    """A share as percent, two digits after the point. Not rounded up to 100 % when it is not that, nor down to 0."""
    text = f"{part * 100:.2f}"
    return percent(part) if text in ("100.00", "0.00") else f"{text} %"


def _value(measure: Measure, value: float) -> str:
    match measure.unit:
        case "ratio":
            return share(value)
        case "s":
            return duration(round(value)) if value else "0s"
        case "1/s" | "1/h":
            return f"{_short(value, value)}/{measure.unit[-1]}"
        case _:
            return _short(value, value)


def _deviation(measure: Measure, spread: Spread) -> str:
    """In the digits of the mean."""
    if measure.unit == "ratio":
        return f"{spread.deviation * 100:.2f}"
    if measure.unit == "s":
        return duration(round(spread.deviation)) if spread.deviation else "0s"
    return _short(spread.deviation, spread.mean)


def _short(value: float, like: float) -> str:
    """Three digits of what is `like` it."""
    decimals = 0 if abs(like) >= 100 else 1 if abs(like) >= 10 else 2
    return f"{value:,.{decimals}f}"
