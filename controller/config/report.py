"""Pydantic's errors in the user's words."""

import difflib
import types
import typing
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from controller.config.errors import BadParts, BadValue, Path

_EXPECTED = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "string_type": "text",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "dict_type": "a mapping of names to values",
    "mapping_type": "a mapping of names to values",
    "model_type": "a mapping of names to values",
    "tuple_type": "a list",
    "list_type": "a list",
    "finite_number": "a finite number",
}


def problems_of(error: ValidationError, model: type[BaseModel]) -> list[tuple[Path, str, str]]:
    """(path, mistake, mend) of every error; `model` is what was validated, for suggestions on unknown keys."""
    found: dict[tuple[Path, str], str] = {}
    for detail in error.errors(include_url=False):
        for path, mistake, mend in _one(detail, model):
            found.setdefault((path, mistake), mend)
    return [(path, mistake, mend) for (path, mistake), mend in found.items()]


def _one(detail: ErrorDetails, model: type[BaseModel]) -> Iterable[tuple[Path, str, str]]:
    path = _clean(detail["loc"], model)
    kind, given = detail["type"], detail["input"]
    context = detail.get("ctx", {})
    cause = context.get("error")
    if isinstance(cause, BadParts):
        return [((*path, *below), mistake, mend) for below, mistake, mend in cause.problems]
    if isinstance(cause, BadValue):
        return [(path, cause.mistake, cause.mend)]
    if kind == "missing":
        return [(path, "is missing", _missing(path, model))]
    if kind == "extra_forbidden":
        known = fields_at(model, path[:-1])
        return [(path, "is not a known key", nearest(str(path[-1]), known))]
    if given is None:
        return [(path, "is empty", "give it a value or remove the key")]
    if kind in ("too_short", "string_too_short"):
        return [(path, "is empty", "write at least one" if kind == "too_short" else "write a text")]
    if kind == "too_long":
        most = int(context["max_length"])
        return [(path, f"has {context['actual_length']} entries, and {most} are meant", f"write {most}")]
    if kind in ("literal_error", "enum"):
        options = [option.strip(" '") for option in str(context["expected"]).replace(" or ", ", ").split(",")]
        return [(path, f"{given!r} is not a choice", nearest(str(given), options))]
    if kind in _EXPECTED:
        return [(path, f"{_short(given)} is not {_EXPECTED[kind]}", _mend(kind, given))]
    return [(path, f"{_short(given)}: {detail['msg']}", "see docs/configuration.md")]


def nearest(given: str, known: Iterable[str]) -> str:
    """A suggestion for a misspelt word: the nearest known one, or all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(given, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]}?" if close else f"write one of {', '.join(known)}" if known else "remove it"


def fields_at(model: type[BaseModel], path: Path) -> list[str]:
    """The keys that may be written at `path` below `model`."""
    hint: Any = model
    for part in path:
        hint = _step(hint, part)
    return [field.alias or name for name, field in hint.model_fields.items()] if _is_model(hint) else []


def _missing(path: Path, model: type[BaseModel]) -> str:
    hint: Any = model
    for part in path[:-1]:
        hint = _step(hint, part)
    if _is_model(hint):
        for name, field in hint.model_fields.items():
            if path[-1] in (name, field.alias) and field.description:
                return f"add it: {field.description}"
    return "add it"


def _step(hint: Any, part: str | int) -> Any:
    """The type found below `hint` at one step of a path, None when it cannot be known."""
    hint = _bare(hint)
    if _is_model(hint):
        for name, field in hint.model_fields.items():
            if part in (name, field.alias):
                return _bare(field.annotation)
        return None
    parts = typing.get_args(hint)
    origin = typing.get_origin(hint)
    if origin is dict and len(parts) == 2:
        return _bare(parts[1])
    if origin in (tuple, list) and parts:
        return _bare(parts[0])
    return None


def _bare(hint: Any) -> Any:
    """`hint` without Annotated and None; of several models the first."""
    while typing.get_origin(hint) is typing.Annotated:
        hint = typing.get_args(hint)[0]
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        options = [_bare(part) for part in typing.get_args(hint) if part is not type(None)]
        return next((option for option in options if _is_model(option)), options[0])
    return hint


def _is_model(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, BaseModel)


def _clean(loc: Path, model: type[BaseModel]) -> Path:
    """Pydantic puts the branch of a union and the key marker of a mapping into the path; the file has neither."""
    result: list[str | int] = []
    hint: Any = model
    for part in loc:
        if part == "[key]":
            continue
        below = _step(hint, part)
        if (
            below is None
            and not _is_model(_bare(hint))
            and isinstance(part, str)
            and typing.get_origin(_bare(hint)) is not dict
        ):
            continue
        result.append(part)
        hint = below
    return tuple(result)


def _mend(kind: str, given: object) -> str:
    if kind == "string_type" and isinstance(given, (bool, int, float)):
        return f'write "{str(given).lower() if isinstance(given, bool) else given}" in quotes'
    if kind in ("int_type", "int_from_float", "float_type") and isinstance(given, str):
        return "write the number without quotes or unit"
    if kind in ("int_type", "int_from_float"):
        return "write a number without a point, such as 4"
    if kind == "float_type":
        return "write a number, such as 4"
    if kind == "finite_number":
        return "write a number, such as 100"
    if kind in ("bool_type", "bool_parsing"):
        return "write true or false"
    if kind == "string_type":
        return "write a text"
    if kind in ("dict_type", "mapping_type", "model_type"):
        return "write `name: value`, one per line, indented below it"
    if kind in ("tuple_type", "list_type"):
        return "write [a, b] or lines that begin with -"
    return "see docs/configuration.md"


def _short(given: object) -> str:
    if isinstance(given, dict):
        return "a mapping"
    if isinstance(given, (list, tuple)):
        return "a list"
    text = repr(given)
    return text if len(text) <= 60 else text[:57] + "..."
