"""What is remembered, after the clock was set back: every moment in it as much earlier.

Laws, guards and what was learned of the fleet remember when things happened. With a clock that shows less than these, a
cooldown would last until the clock has caught up, and so would every limit on the pace. How long ago each thing was is
true still, so all moments move with the clock; what is remembered has no other numbers of their size.
"""

from collections.abc import Mapping
from typing import Any

_EPOCH = 1e9  # unix seconds; a clock that shows less is none of a wall
_REACH = 30 * 86_400.0  # seconds from now within which a number of that size is a moment


def earlier(plain: Any, by: float, now: float) -> Any:
    """Plain data in which each moment is `by` seconds earlier; `now` is the latest moment that it was made at."""
    if now < _EPOCH:
        return plain
    if isinstance(plain, Mapping):
        return {key: earlier(value, by, now) for key, value in plain.items()}
    if isinstance(plain, (list, tuple)):
        return [earlier(value, by, now) for value in plain]
    if isinstance(plain, (int, float)) and not isinstance(plain, bool) and abs(plain - now) <= _REACH:
        return plain - by
    return plain
