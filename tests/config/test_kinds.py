"""One of several shapes, told apart by `kind`: a mistake is told for the shape that was meant, not once per shape."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pytest

from controller.config import docs
from controller.config.errors import BadParts
from controller.config.plugins import build, model_of
from controller.core.params import Unit, param


@dataclass(frozen=True)
class Steady:
    """The same all the time."""

    kind: Literal["steady"] = param("steady")
    rate: float = param("requests per second", 1.0, gt=0)


@dataclass(frozen=True)
class Burst:
    """Nothing, then much."""

    length: float = param("how long", unit=Unit.DURATION)
    most: int = param("requests", 10)
    kind: Literal["burst", "flash"] = param("burst", "burst")

    def __post_init__(self) -> None:
        if self.most > 100:
            raise ValueError(f"most: {self.most} is too many; write 100 or less")


@dataclass(frozen=True)
class Streams:
    """What uses them, in every way."""

    first: Steady | Burst = param("one of them")
    list: tuple[Steady | Burst, ...] = param("several", ())
    named: Mapping[str, Steady | Burst] | None = param("by name", None)
    maybe: Steady | Burst | None = param("perhaps one", None)
    number: float | Steady | Burst = param("a rate, or more about it", 1.0)
    lists: Mapping[str, tuple[Steady | Burst, ...]] = param("lists by name", {})


FIRST: dict[str, Any] = {"first": {"kind": "steady"}}


def mistakes(data: dict[str, Any]) -> list[tuple[tuple[str | int, ...], str, str]]:
    with pytest.raises(BadParts) as caught:
        build(Streams, data)
    return list(caught.value.problems)


def test_the_kind_chooses_the_dataclass_wherever_it_stands() -> None:
    made = build(
        Streams,
        {
            "first": {"kind": "burst", "length": "2s"},
            "list": [{"kind": "steady"}, {"kind": "flash", "length": "1m", "most": 3}],
            "named": {"a": {"kind": "steady", "rate": 2.0}},
            "maybe": {"kind": "steady"},
            "number": {"kind": "steady"},
            "lists": {"b": [{"kind": "steady"}]},
        },
    )
    assert made == Streams(
        first=Burst(2.0),
        list=(Steady("steady"), Burst(60.0, 3, "flash")),
        named={"a": Steady("steady", 2.0)},
        maybe=Steady("steady"),
        number=Steady("steady"),
        lists={"b": (Steady("steady"),)},
    )
    assert build(Streams, {**FIRST, "number": 4.0}).number == 4.0
    assert build(Streams, {**FIRST, "maybe": None}).maybe is None


@pytest.mark.parametrize(
    ("data", "path", "mistake", "mend"),
    [
        ({"first": {}}, ("first", "kind"), "is missing", "write one of steady, burst, flash"),
        ({"first": {"kind": "stedy"}}, ("first", "kind"), "'stedy' is not a choice", "did you mean steady?"),
        ({"first": {"kind": 7}}, ("first", "kind"), "7 is not a choice", "write one of burst, flash, steady"),
        ({"first": 7}, ("first",), "7 is not a mapping", "write {kind: steady, ...}"),
        ({"first": {"kind": "burst"}}, ("first", "length"), "is missing", "add it: how long"),
        ({"first": {"kind": "steady", "length": "2s"}}, ("first", "length"), "is not a known key", "rate"),
        ({**FIRST, "list": [{"kind": "steady", "rate": 0}]}, ("list", 0, "rate"), "0 is out of bounds", "more than 0"),
        ({**FIRST, "maybe": 3}, ("maybe",), "3 is not a mapping", "write {kind: steady, ...}"),
        ({**FIRST, "number": "x"}, ("number",), "'x' is not a number", "write the number without quotes or unit"),
        ({**FIRST, "named": {"a": {"kind": "no"}}}, ("named", "a", "kind"), "'no' is not a choice", "steady"),
        ({**FIRST, "lists": {"a": [{"kind": "burst"}]}}, ("lists", "a", 0, "length"), "is missing", "add it: how long"),
    ],
)
def test_a_mistake_is_told_once_at_its_place(
    data: dict[str, Any], path: tuple[str | int, ...], mistake: str, mend: str
) -> None:
    ((found, said, how),) = mistakes(data)
    assert (found, said) == (path, mistake)
    assert mend in how


def test_what_a_part_finds_wrong_itself_is_told_with_the_path_of_the_part() -> None:
    burst = {"kind": "burst", "length": "2s"}
    data = {**FIRST, "list": [burst, {**burst, "most": 101}], "lists": {"a": [{**burst, "most": 102}]}}
    assert [(path, said) for path, said, _ in mistakes(data)] == [
        (("list", 1, "most"), "101 is too many"),
        (("lists", "a", 0, "most"), "102 is too many"),
    ]


def test_the_schema_requires_the_kind_and_the_docs_name_the_kinds() -> None:
    schema = model_of(Streams).model_json_schema()
    assert schema["properties"]["first"]["discriminator"]["propertyName"] == "kind"
    assert all("kind" in schema["$defs"][name]["required"] for name in ("Steady", "Burst"))
    page = docs.table(model_of(Streams))
    assert "| `first` | mapping with `kind` `steady` or `burst` or `flash` | required | one of them |" in page
    assert "| `number` | number or mapping with `kind` `steady` or `burst` or `flash` | `1` |" in page
