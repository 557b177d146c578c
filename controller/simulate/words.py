"""How the numbers of a scoreboard are written, in the terminal and in the report alike."""

import math

from controller.rehearse.words import duration, percent
from controller.simulate.board import Measure
from controller.simulate.spread import Spread

CONTENDERS = {
    "governor": "Governor",
    "none": "no controller",
    "static": "cheapest static",
    "oracle": "oracle",
}
FOOT = (
    "Attained is the share of all offered requests that kept their promise: refused, timed-out, aborted and lost ones "
    "are misses, a retry is no new request. GPU-hours count replicas from their node on, starting and draining too. "
    "Cheapest static and oracle attain at least as much as Governor with each seed; the oracle knows all arrivals."
)


def contender(name: str) -> str:
    """The name as people read it; a peer keeps its own."""
    return CONTENDERS.get(name, name)


def cell(measure: Measure, spread: Spread | None) -> str:
    """`97.3 % ± 0.4`; `never` where it did not come; `-` where there is nothing."""
    if spread is None:
        return "-"
    if math.isinf(spread.mean):
        return "never"
    text = _value(measure, spread.mean)
    if spread.count < 2:
        return text
    deviation = _value(measure, spread.deviation).removesuffix(" %").removesuffix("/s").removesuffix("/h")
    return f"{text} ± {deviation}"


def _value(measure: Measure, value: float) -> str:
    match measure.unit:
        case "ratio":
            return _percent(value)
        case "s":
            return duration(round(value)) if value else "0s"
        case "1/s" | "1/h":
            return f"{_short(value)}/{measure.unit[-1]}"
        case _:
            return _short(value)


def _percent(share: float) -> str:
    """Two digits after the point. Not rounded up to 100 % when it is not that."""
    text = f"{share * 100:.2f}"
    return percent(share) if text == "100.00" or share <= 0 else f"{text} %"


def _short(value: float) -> str:
    if value == int(value) and abs(value) < 1000:
        return f"{int(value)}"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
