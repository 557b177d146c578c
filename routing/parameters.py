"""Parameters of strategies and laws: plain frozen dataclasses whose fields say unit, bounds and meaning.

A mapping that a person or a controller wrote becomes such a value by `build`; what is wrong in it is said as
`field: mistake; mend`.
"""

import dataclasses
import difflib
import math
from collections.abc import Mapping
from typing import Any, TypeVar

P = TypeVar("P")
Value = float | str | bool


def knob(
    doc: str,
    default: Value,
    *,
    unit: str = "",
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """A field: its sentence for the docs, default, unit (as prose: seconds, tokens), bounds, and the words allowed."""
    return dataclasses.field(
        default=default, metadata={"doc": doc, "unit": unit, "ge": ge, "gt": gt, "le": le, "choices": choices}
    )


def build(cls: type[P], values: Mapping[str, Value]) -> P:
    """`cls` with these values, the rest at their defaults. Raises ValueError as `field: mistake; mend`."""
    fields = {field.name: field for field in dataclasses.fields(cls)}  # type: ignore[arg-type]
    made: dict[str, Value] = {}
    for name, value in values.items():
        if name not in fields:
            raise ValueError(f"{name}: is not a parameter; {_known(name, fields)}")
        made[name] = _checked(fields[name], value)
    return cls(**made)


def _known(name: str, fields: Mapping[str, object]) -> str:
    if not fields:
        return "it has none"
    near = difflib.get_close_matches(name, fields, 1)
    return f"did you mean {near[0]}?" if near else f"write one of {', '.join(fields)}"


def _checked(field: "dataclasses.Field[Any]", value: Value) -> Value:
    kind: type[object] = type(field.default)
    if kind is bool:
        if not isinstance(value, bool):
            raise ValueError(f"{field.name}: {value!r} is neither true nor false; write true or false")
        return value
    if kind is str:
        return _word(field, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{field.name}: {value!r} is not a number; write {bounds(field)}")
    if not math.isfinite(value) or not _within(field, value):
        raise ValueError(f"{field.name}: {value} is out of bounds; write {bounds(field)}")
    if kind is int:
        if value != int(value):
            raise ValueError(f"{field.name}: {value} is not whole; write {bounds(field)}")
        return int(value)
    return float(value)


def _word(field: "dataclasses.Field[Any]", value: Value) -> str:
    choices = field.metadata.get("choices", ())
    if not isinstance(value, str):
        raise ValueError(f"{field.name}: {value!r} is not text; write {bounds(field)}")
    if choices and value not in choices:
        raise ValueError(f"{field.name}: {value!r} is unknown; write {bounds(field)}")
    return value


def _within(field: "dataclasses.Field[Any]", value: float) -> bool:
    ge, gt, le = (field.metadata.get(bound) for bound in ("ge", "gt", "le"))
    return (ge is None or value >= ge) and (gt is None or value > gt) and (le is None or value <= le)


def bounds(field: "dataclasses.Field[Any]") -> str:
    """What may be written, in words."""
    kind: type[object] = type(field.default)
    if kind is bool:
        return "true or false"
    if kind is str:
        return " or ".join(field.metadata.get("choices", ())) or "text"
    limits = [
        f"{word} {field.metadata[bound]:g}"
        for bound, word in (("ge", ">="), ("gt", ">"), ("le", "<="))
        if field.metadata.get(bound) is not None
    ]
    unit = field.metadata.get("unit", "")
    return " ".join(
        part
        for part in ("a whole number" if kind is int else "a number", unit and f"of {unit}", " and ".join(limits))
        if part
    )
