"""Numbers as people write them, the same in a plan's sentence as in what explains it."""

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
