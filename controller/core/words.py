"""Numbers and times as people write them, the same in a plan's sentence as in what explains it."""

import math
from datetime import UTC, datetime
from functools import lru_cache

from controller.core.rest import NO_LIMIT


def number(value: float | None) -> str:
    """A value as people write it: 12, 0.25, 1,250; "?" when it is not known, and "no limit" where that is meant."""
    if value is None:
        return "?"
    if value >= NO_LIMIT:
        return "no limit"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def quantity(value: float, unit: str) -> str:
    """A value in its unit, short: seconds as ms below one, ratios as percent."""
    if math.isnan(value):
        return "?"
    if value == 0:
        return "0"
    if unit == "s":
        return f"{value * 1000:.3g} ms" if abs(value) < 1 else f"{value:.3g} s"
    if unit == "ratio":
        return percent(value)
    if unit == "1/s":
        return f"{number(value)}/s"
    return number(float(f"{value:.3g}")) if abs(value) < 1000 else number(round(value))


def percent(share: float) -> str:
    """A share as percent. Not rounded up to 100 % or down to 0 % when it is not that."""
    text = f"{share * 100:.4g}"
    if text == "100" and share < 1:
        text = ">99.99"
    if text == "0" and share > 0:
        text = "<0.01"
    return f"{text} %"


def counted(value: float, unit: str) -> str:
    """As ``quantity``, and with the unit where that does not tell it: `145 requests`, `1 request`."""
    if unit in ("s", "ratio", "1/s"):
        return quantity(value, unit)
    return f"{quantity(value, unit)} {unit.removesuffix('s') if value == 1 else unit}"


@lru_cache(maxsize=1024)
def clock(at: float, *, date: bool = False) -> str:
    """Unix seconds as UTC time of day, with the day when asked. What an old ledger has may be no day at all."""
    try:
        moment = datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):  # by the size of the number, and by platform
        return "beyond the calendar"
    return moment.strftime("%Y-%m-%d %H:%M:%S" if date else "%H:%M:%S")
