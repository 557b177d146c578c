"""promtool's notation: a test that means something else here than in promtool would be worse than none."""

import pytest

from controller.core.errors import InputError
from controller.rehearse.notation import parse_series, parse_values


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1+0x6", [1.0] * 7),
        ("0+5x3", [0.0, 5.0, 10.0, 15.0]),
        ("10-2x2", [10.0, 8.0, 6.0]),
        ("-2+1x2", [-2.0, -1.0, 0.0]),
        ("7x2", [7.0, 7.0, 7.0]),
        ("8", [8.0]),
        ("1.5e3", [1500.0]),
        (".5+.25x1", [0.5, 0.75]),
        ("1+0x1 _ _x2 8 stale", [1.0, 1.0, None, None, None, 8.0, None]),
        ("", []),
    ],
)
def test_values_expand_as_promtool_expands_them(text: str, values: list[float | None]) -> None:
    assert parse_values(text, "here") == values


@pytest.mark.parametrize("text", ["1+2", "NaN", "Inf", "x5", "1..2", "{{schema:1}}", "1x-2", "1e999"])
def test_what_has_no_meaning_is_refused_with_its_place(text: str) -> None:
    with pytest.raises(InputError, match="here: "):
        parse_values(text, "here")


def test_a_slip_of_the_pen_does_not_fill_the_memory() -> None:
    with pytest.raises(InputError, match="more than"):
        parse_values("1x99999999999", "here")


def test_labels_may_hold_braces_commas_and_escapes() -> None:
    name, labels = parse_series(r'vllm:x_total{ a="}" , b="q\"\\n", c = "1,2", }', "here")
    assert name == "vllm:x_total"
    assert labels == {"a": "}", "b": 'q"\\n', "c": "1,2"}
    assert parse_series("up", "here") == ("up", {})


@pytest.mark.parametrize("text", ["x{a=b}", 'x{a="b" c="d"}', "{a='b'}", "x{", 'x{a="b"', "1x"])
def test_a_series_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="here: "):
        parse_series(text, "here")
