"""Times of the week in a fixed offset from UTC: for what is known beforehand, such as office hours or a batch at night.

Pure arithmetic on unix seconds, no tables: daylight saving is not known, so write the earlier and the later time.
"""

import re

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY, WEEK = 86_400, 7 * 86_400
_MONDAY = 4 * DAY  # 1970-01-05, the first Monday of unix time


def offset(zone: str) -> int:
    """Seconds east of UTC of "UTC", "+02:00" or "-05:30". Raises ValueError."""
    if zone == "UTC":
        return 0
    found = re.fullmatch(r"([+-])(\d{2}):([0-5]\d)", zone)
    if found is None or int(found[2]) > 14:
        raise ValueError(f"{zone!r} is no offset; write UTC, +02:00 or -05:30")
    seconds = int(found[2]) * 3600 + int(found[3]) * 60
    return -seconds if found[1] == "-" else seconds


def of_day(text: str) -> int:
    """Seconds from midnight of "08:30"; "24:00" is the end of the day. Raises ValueError."""
    found = re.fullmatch(r"(\d{2}):([0-5]\d)", text)
    seconds = int(found[1]) * 3600 + int(found[2]) * 60 if found is not None else -1
    if not 0 <= seconds <= DAY:
        raise ValueError(f"{text!r} is no time of day; write 08:30")
    return seconds


def days(text: str) -> frozenset[int]:
    """Days of the week, Monday is 0, of "mon-fri", "sat,sun" or "daily". Raises ValueError."""
    if text == "daily":
        return frozenset(range(7))
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        if first not in DAYS or (last or first) not in DAYS:
            raise ValueError(f"{text!r} are no days; write daily, mon-fri or sat,sun")
        begin, end = DAYS.index(first), DAYS.index(last or first)
        found.update(day % 7 for day in range(begin, end + 1 if end >= begin else end + 8))
    return frozenset(found)


def left(now: float, on: frozenset[int], begin: int, end: int, east: int, early: float = 0.0) -> float | None:
    """The seconds from `now` (unix seconds) until the end of the [begin - early, end) that it lies in, on one of the
    days; None where it lies in none. `begin` and `end` in seconds from midnight `east` seconds east of UTC; an end that
    is not after the begin is on the next day."""
    length = (end - begin if end > begin else end + DAY - begin) + early
    at = now + east - _MONDAY
    gone = [(at - (day * DAY + begin - early)) % WEEK for day in on]
    return max((length - one for one in gone if one < length), default=None)
