"""How the page writes its numbers."""

import math

from benchmarks.control.stats import Mean


def percent(found: Mean | None) -> str:
    """A share with its interval: `12.3 % (11.0 to 13.6)`."""
    if found is None:
        return "-"
    text = f"{found.value * 100:.1f} %"
    return text if math.isinf(found.half) else f"{text} ({found.low * 100:.1f} to {found.high * 100:.1f})"


def points(value: float) -> str:
    """A difference of shares."""
    return f"{value * 100:.2f} points"


def times(found: Mean) -> str:
    """A ratio with its interval."""
    text = f"{found.value:.2f}"
    return text if math.isinf(found.half) else f"{text} ({found.low:.2f} to {found.high:.2f})"


def signed(found: Mean | None, scale: float = 1.0, digits: int = 2) -> str:
    """A difference with the half of its interval: `+1.20 ± 0.30`; bold where it leaves out 0."""
    if found is None:
        return "-"
    text = f"{found.value * scale:+.{digits}f}"
    if math.isinf(found.half):
        return text
    text += f" ± {found.half * scale:.{digits}f}"
    return f"**{text}**" if found.certain else text


def share(value: float | None) -> str:
    """A share as percent with two digits; never 100 when it is not that."""
    if value is None:
        return "-"
    text = f"{value * 100:.2f}"
    return "<100" if text == "100.00" and value < 1 else text


def number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
