"""Recovery: bad minutes, and how long after an event it took until the promises were kept again."""

from collections.abc import Sequence

RUN = 3  # good minutes in a row that count as recovered


def bad(attainment: Sequence[float | None], good: float) -> int:
    """Minutes in which less than the share `good` of what was offered was good; minutes without requests are not."""
    return sum(one is not None and one < good for one in attainment)


def recovered_after(attainment: Sequence[float | None], good: float) -> float | None:
    """Seconds from the event to recovery; `attainment` are the minutes from the event's begin on. 0 when no minute was
    bad. Else to the begin of the first good minute after a bad one that is followed by as many good ones as there are,
    up to ``RUN`` in all. None when that never came."""
    kept = [one is None or one >= good for one in attainment]
    if all(kept):
        return 0.0
    first = kept.index(False)
    for minute in range(first + 1, len(kept)):
        run = kept[minute : minute + RUN]
        if all(run) and (len(run) == RUN or minute + len(run) == len(kept)):
            return 60.0 * minute
    return None
