"""A wrong unit is a factor of a thousand in a promise."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.config.errors import BadValue
from controller.config.units import (
    LARGEST,
    LONGEST,
    duration,
    format_duration,
    format_rate,
    format_ratio,
    format_size,
    rate,
    ratio,
    size,
)
from controller.core.rules import Rate

TOO_LONG = "9" * 400 + "d"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("80ms", 0.08), ("2s", 2.0), ("5m", 300.0), ("1h30m", 5400.0), ("3d", 259200.0), ("2w", 1209600.0),
        ("15.35us", 15.35e-6), ("15.35µs", 15.35e-6), ("41.5ns", 41.5e-9), ("0s", 0.0), ("1m0.5s", 60.5), (" 2s ", 2.0),
    ],
)  # fmt: skip
def test_durations_mean_what_they_say(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    "wrong",
    [
        2,
        2.0,
        "2",
        "2.5",
        "",
        "s",
        "2 s",
        "2S",
        "2sec",
        "-2s",
        "1s1s",
        "1s1m",
        "1e3s",
        "٣s",
        True,
        None,
        [2],
        TOO_LONG,
        math.nan,
    ],
)
def test_what_is_not_clearly_a_duration_is_refused(wrong: object) -> None:
    with pytest.raises(BadValue) as caught:
        duration(wrong)
    assert caught.value.mend


def test_a_bare_number_is_mended_to_seconds() -> None:
    for given_, mend in ((2, "write 2s"), ("2.5", "write 2.5s")):
        with pytest.raises(BadValue) as caught:
            duration(given_)
        assert caught.value.mend.startswith(mend)


@given(st.floats(min_value=0, max_value=LONGEST, allow_nan=False))
def test_a_printed_duration_reads_back_as_the_same_float(seconds: float) -> None:
    assert duration(format_duration(seconds)) == seconds


@given(st.floats(min_value=0, max_value=1e6, allow_nan=False))
def test_a_printed_ratio_reads_back_as_the_same_float(value: float) -> None:
    assert ratio(format_ratio(value)) == value


@pytest.mark.parametrize("text", ["2GB", "256MiB", "1000KiB", "1536MiB", "5MB", "999B", "0B", "3TB"])
def test_a_size_is_echoed_as_nobody_wrote_it(text: str) -> None:
    """2GB is 1953125KiB."""
    assert format_size(size(text)) == text


@given(st.integers(min_value=0, max_value=LARGEST))
def test_a_printed_size_reads_back_as_the_same_number(count: int) -> None:
    assert size(format_size(count)) == count


@pytest.mark.parametrize("value", ["3651d", "99999999999d", "9" * 30 + "d", "9" * 45 + "d", TOO_LONG, "9" * 5000 + "s"])
def test_a_duration_that_clocks_overflow_on_is_refused_with_the_longest_there_may_be(value: str) -> None:
    """Thirty digits broke the check of the config itself, and fewer than that the clock, much later."""
    with pytest.raises(BadValue, match="longer than any duration may be") as caught:
        duration(value)
    assert caught.value.mend == "write at most 3650d"
    assert len(caught.value.mistake) < 80
    with pytest.raises(BadValue, match="longer than any duration may be"):
        rate(f"1/{value}")


@pytest.mark.parametrize("value", ["1025TiB", "9" * 400 + "TB", "9" * 5000 + "B"])
def test_a_size_that_no_disk_has_is_refused_with_the_largest_there_may_be(value: str) -> None:
    with pytest.raises(BadValue, match="larger than any size may be") as caught:
        size(value)
    assert caught.value.mend == "write at most 1024TiB"


def test_the_longest_duration_and_the_largest_size_are_taken() -> None:
    assert duration("3650d") == LONGEST
    assert size("1024TiB") == LARGEST


@given(
    st.floats(min_value=0.01, max_value=1e4, allow_nan=False).map(lambda x: float(f"{x:.4g}")),
    st.floats(min_value=1, max_value=1e6),
    st.booleans(),
)
def test_a_printed_rate_reads_back_as_the_same_rate(amount: float, period: float, relative: bool) -> None:
    assert rate(format_rate(Rate(amount, period, relative))) == Rate(amount, period, relative)


def test_printed_durations_are_short() -> None:
    shown = [format_duration(s) for s in (0.08, 5400, 300, 0, 86400 * 30, 41.5e-9, 1.5)]
    assert shown == ["80ms", "1h30m", "5m", "0s", "30d", "41.5ns", "1.5s"]


@pytest.mark.parametrize(
    ("written", "value"), [("99%", 0.99), ("99.9%", 0.999), (0.99, 0.99), (1, 1.0), (0, 0.0), ("150%", 1.5)]
)
def test_ratios(written: object, value: float) -> None:
    assert ratio(written) == value


@pytest.mark.parametrize("wrong", [99, 1.01, -0.1, "0.99", "99 %%", "-1%", True, None, math.nan, math.inf])
def test_a_ratio_that_could_be_a_percentage_is_refused(wrong: object) -> None:
    with pytest.raises(BadValue):
        ratio(wrong)


def test_sizes() -> None:
    assert [size(text) for text in ("256MiB", "1GB", "1.5KiB", "100B")] == [256 * 2**20, 10**9, 1536, 100]
    for wrong in (256, "256", "256M", "MiB", None, "-1B"):
        with pytest.raises(BadValue):
            size(wrong)


def test_rates() -> None:
    assert rate("100%/60s") == Rate(1.0, 60.0, relative=True)
    assert rate("1/300s") == Rate(1.0, 300.0)
    for wrong in ("1", "1/2", "1/0s", "0%/60s", "x/60s", "1/60s/60s", 5, None):
        with pytest.raises(BadValue):
            rate(wrong)
