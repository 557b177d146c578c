"""Times on the command line: an hour lost to a zone or a typo is an outage looked for in the wrong place."""

import pytest

from controller.cli.times import parse_duration, parse_time
from controller.core.errors import InputError

NOW = 1_767_276_135.0


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("now", NOW),
        ("6h", NOW - 21_600),
        ("-90s", NOW - 90),
        ("10m ago", NOW - 600),
        ("1767225600", 1_767_225_600.0),
        ("1767225600.25", 1_767_225_600.25),
        ("2026-01-01", 1_767_225_600.0),
        ("2026-01-01T00:00:00", 1_767_225_600.0),
        ("2026-01-01T00:00:00Z", 1_767_225_600.0),
        ("2026-01-01 01:00:00+01:00", 1_767_225_600.0),
    ],
)
def test_a_time_without_a_zone_is_utc(text: str, at: float) -> None:
    assert parse_time(text, "--from", NOW) == at


@pytest.mark.parametrize("text", ["yesterday", "12:00", "6", "2026-13-01", ""])
def test_what_is_no_time_is_refused_with_the_option(text: str) -> None:
    with pytest.raises(InputError, match=r"^--from: .*write"):
        parse_time(text, "--from", NOW)


@pytest.mark.parametrize(
    "text", ["9999-12-31T23:59:59-23:59", "9999-12-31T23:59:59.999999", "0001-01-01T00:00:00+23:59"]
)
def test_a_moment_that_no_calendar_has_in_utc_is_refused_and_crashes_nothing_later(text: str) -> None:
    """It is a time where it is written; whoever prints it in UTC would crash on the year 10000."""
    with pytest.raises(InputError, match=r"^--until: .* is beyond the calendar; write"):
        parse_time(text, "--until", NOW)


@pytest.mark.parametrize("text", ["15", "0s", "soon"])
def test_a_step_needs_a_unit_and_a_length(text: str) -> None:
    with pytest.raises(InputError, match=r"^--step: "):
        parse_duration(text, "--step")


def test_no_time_at_all_is_called_that_and_not_a_step_where_none_was_asked_for() -> None:
    with pytest.raises(InputError, match=r"^--last: 0m is no time at all; write for example 15s$"):
        parse_duration("0m", "--last")
