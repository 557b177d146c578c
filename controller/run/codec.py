"""Frozen values to plain JSON data and back, by their type hints. Lossless: floats keep every bit, targets and enums
become their text, defaults are left out.

Encoders and decoders are built once per type; a ledger writes thousands of readings a tick.
"""

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeVar

from controller.core.model import Lever, Target
from controller.core.reading import Reading, State

T = TypeVar("T")
Encoder = Callable[[Any], Any]
Decoder = Callable[[Any], Any]
_ENCODERS: dict[Any, Encoder] = {}
_DECODERS: dict[Any, Decoder] = {}
_ABSENT = object()
_PLAIN = (str, int, float, bool, type(None))
FOREIGN = (ValueError, KeyError, TypeError, AttributeError, IndexError)  # what data of another version may raise


def encode(value: Any) -> Any:
    """Plain data for `value`, a frozen dataclass of the core."""
    return _encoder(type(value))(value)


def decode(kind: type[T], data: Any) -> T:
    """The value of type `kind` from plain data. Raises one of ``FOREIGN`` for data of another version."""
    return typing.cast(T, _decoder(kind)(data))


def target_of(text: str) -> Target:
    """The target that ``str(target)`` named."""
    pool, lever, *member = text.split("/", 2)
    return Target(pool, Lever(lever), member[0] if member else "")


def _encoder(kind: type[Any]) -> Encoder:
    found = _ENCODERS.get(kind)
    if found is None:
        found = _ENCODERS[kind] = _make_encoder(kind)
    return found


def _make_encoder(kind: type[Any]) -> Encoder:
    if kind is Reading:
        return _encode_reading
    if kind is Target:
        return str
    if kind in _PLAIN:
        return _same
    if issubclass(kind, str):  # every enum here is one, and JSON writes it as the text that it is
        return _same
    if dataclasses.is_dataclass(kind):
        return _dataclass_encoder(kind)
    if issubclass(kind, Mapping):
        return _mapping_encoder
    if issubclass(kind, (tuple, list, frozenset)):
        return lambda value: [_encoder(type(v))(v) for v in value]
    raise TypeError(f"cannot write a {kind.__name__} into the ledger")


def _dataclass_encoder(kind: type[Any]) -> Encoder:
    fields = [(f.name, _default(f)) for f in dataclasses.fields(kind)]

    def run(value: Any) -> dict[str, Any]:
        out = {}
        for name, default in fields:
            part = getattr(value, name)
            if part != default or default is dataclasses.MISSING:
                out[name] = _encoder(type(part))(part)
        return out

    return run


def _default(field: Any) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _encode_reading(r: Reading) -> list[Any]:
    if r.note:
        return [r.state, r.value, r.lo, r.hi, r.count, r.age, r.window, r.source, r.note]
    if r.source:
        return [r.state, r.value, r.lo, r.hi, r.count, r.age, r.window, r.source]
    row: list[Any] = [r.state, r.value, r.lo, r.hi, r.count, r.age, r.window]
    while row[-1] is None:
        row.pop()
    return row


def _decode_reading(row: list[Any]) -> Reading:
    return Reading(State(row[0]), *row[1:])


def _decoder(kind: Any) -> Decoder:
    found = _DECODERS.get(kind)
    if found is None:
        found = _DECODERS[kind] = _make_decoder(kind)
    return found


def _make_decoder(kind: Any) -> Decoder:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Reading:
        return _decode_reading
    if kind is Target:
        return target_of
    if kind is Any or kind in _PLAIN:
        return _same
    if origin in (typing.Union, types.UnionType):
        inner = [_decoder(a) for a in args if a is not type(None)]
        if len(inner) != 1:
            return _same
        return lambda data: None if data is None else inner[0](data)
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            each = _decoder(args[0])
            return lambda data: tuple(each(item) for item in data)
        parts = [_decoder(a) for a in args]
        return lambda data: tuple(part(item) for part, item in zip(parts, data, strict=True))
    if origin is frozenset:
        member = _decoder(args[0])
        return lambda data: frozenset(member(item) for item in data)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        key, value = _decoder(args[0]), _decoder(args[1])
        return lambda data: {key(k): value(v) for k, v in data.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        fields = {f.name: _decoder(hints[f.name]) for f in dataclasses.fields(kind)}
        return lambda data: kind(**{name: fields[name](part) for name, part in data.items()})  # type: ignore[operator]
    raise TypeError(f"cannot read a {kind} from the ledger")


def _mapping_encoder(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {
        k if isinstance(k, str) else str(k): _encode_reading(v) if type(v) is Reading else _encoder(type(v))(v)
        for k, v in value.items()
    }  # most of what there is are readings, so these go without a look-up


def _same(value: Any) -> Any:
    return value


def diff(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any] | None:
    """What must be told to someone who has `old`, None when nothing: "=" new values by key, "~" changes of the same
    kind within a value, "-" keys that are gone. Keys, which may be anything, are never on one level with these marks.
    """
    fresh: dict[str, Any] = {}
    within: dict[str, Any] = {}
    kept = 0
    for key, value in new.items():
        before = old.get(key, _ABSENT)
        if before is _ABSENT:
            fresh[key] = value
            continue
        kept += 1
        if type(value) is dict and type(before) is dict:  # not compared as a whole first: most have changed somewhere
            if (inner := diff(before, value)) is not None:
                within[key] = inner
        elif before != value:
            fresh[key] = value
    change: dict[str, Any] = {}
    if fresh:
        change["="] = fresh
    if within:
        change["~"] = within
    if kept < len(old):
        change["-"] = [key for key in old if key not in new]
    return change or None


def patch(old: Mapping[str, Any], change: Mapping[str, Any] | None) -> dict[str, Any]:
    """The inverse of ``diff``. Raises one of ``FOREIGN`` for what is none."""
    out = dict(old)
    if change:
        for key in change.get("-", ()):
            del out[key]
        out.update(change.get("=", {}))
        for key, part in change.get("~", {}).items():
            out[key] = patch(out[key], part)
    return out
