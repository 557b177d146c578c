"""Times and durations as people type them on the command line."""

import re
from datetime import UTC, datetime

from controller.config.errors import BadValue
from controller.config.units import duration, unix
from controller.core.errors import InputError


def parse_time(text: str, option: str, now: float) -> float:
    """Unix seconds of `now`, `2h` (ago), `1767225600`, `2026-01-01` or `2026-01-01T12:30:00Z`. A time without a zone is
    UTC, as in Prometheus. Raises InputError."""
    plain = text.strip()
    if plain == "now":
        return now
    if re.fullmatch(r"\d{9,11}(\.\d+)?", plain):
        return float(plain)
    try:
        return now - duration(plain.removeprefix("-").removesuffix(" ago"))
    except BadValue:
        pass  # not a duration, so it is a date or a mistake
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError as error:
        raise InputError(
            f"{option}: {text!r} is not a time; write 2026-01-01T12:30:00Z, unix seconds, 2h (ago) or now"
        ) from error
    try:
        return unix(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except BadValue as error:
        raise InputError(f"{option}: {text!r} is beyond the calendar; {error.mend}") from error


def parse_duration(text: str, option: str) -> float:
    """Seconds > 0. Raises InputError."""
    try:
        seconds = duration(text)
    except BadValue as error:
        raise InputError(f"{option}: {error.mistake}; {error.mend}") from error
    if seconds <= 0:
        raise InputError(f"{option}: {text} is no time at all; write for example 15s")
    return seconds
