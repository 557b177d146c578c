"""Frozen values to plain JSON data and back, by their type hints. Lossless: floats keep every bit, targets and enums
become their text, defaults are left out.

Encoders and decoders are built once per type; a ledger writes thousands of readings a tick.
"""

import dataclasses
import functools
import math
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
    """Plain data for `value`, a frozen dataclass or a named tuple of the core."""
    return _encoder(type(value))(value)


def decode(kind: type[T], data: Any) -> T:
    """The value of type `kind` from plain data. Raises one of ``FOREIGN`` for data of another version."""
    return typing.cast(T, _decoder(kind)(data))


def salvage(kind: type[T], data: Mapping[str, Any]) -> tuple[T, tuple[str, ...]]:
    """A record of type `kind` from what another version wrote of it, and the names of what cannot be read, which is as
    by default; of a record in it only that part. Raises one of ``FOREIGN`` where it is no record's."""
    hints, lost = typing.get_type_hints(kind), list[str]()
    parts: dict[str, Any] = {}
    for name, part in data.items():
        inner = hints.get(name)
        try:
            if inner is not None and _is_record(inner) and isinstance(part, Mapping):
                parts[name], gone = salvage(inner, part)
                lost.extend(f"{name}.{one}" for one in gone)
            else:
                parts[name] = _decoder(hints[name])(part)
        except FOREIGN:
            lost.append(name)
    return kind(**parts), tuple(lost)


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
    if kind is float:
        return _finite
    if kind in _PLAIN:
        return _same
    if issubclass(kind, str):  # every enum here is one, and JSON writes it as the text that it is
        return _same
    if _is_record(kind):
        return _encode_parts
    if issubclass(kind, Mapping):
        return _encode_mapping
    if issubclass(kind, (tuple, list, frozenset)):
        return lambda value: tuple([_encoder(type(v))(v) for v in value])
    raise TypeError(f"cannot write a {kind.__name__} into the ledger")


def _encode_parts(value: Any) -> dict[str, Any]:
    return {name: _encoder(type(part))(part) for name, part in _parts(value).items()}


def _is_record(kind: Any) -> bool:
    """Whether it has named fields: a dataclass or a named tuple."""
    return dataclasses.is_dataclass(kind) or hasattr(kind, "_field_defaults")


def _parts(value: Any) -> Mapping[Any, Any]:
    """A mapping as it is, and the fields of a record by name, without those that are as by default."""
    kind: Any = type(value)
    fields = None if kind is dict else _fields(kind)
    if fields is None:
        mapping: Mapping[Any, Any] = value
        return mapping
    parts = {}
    for name, default in fields:
        part = getattr(value, name)
        if part is not default and (part != default or default is dataclasses.MISSING):
            parts[name] = part
    return parts


@functools.cache
def _fields(kind: Any) -> tuple[tuple[str, Any], ...] | None:
    """Names and defaults; None of a mapping."""
    if issubclass(kind, Mapping):
        return None
    if issubclass(kind, tuple):
        return tuple((name, kind._field_defaults.get(name, dataclasses.MISSING)) for name in kind._fields)
    return tuple(
        (f.name, f.default if f.default_factory is dataclasses.MISSING else f.default_factory())
        for f in dataclasses.fields(kind)
    )


@functools.cache
def _nested(kind: Any) -> bool:
    """Whether a value of this type is encoded as a mapping."""
    return _encoder(kind) in (_encode_parts, _encode_mapping)


def _text(key: Any) -> str:
    return key if isinstance(key, str) else str(key)


def _encode_reading(r: Reading) -> tuple[Any, ...]:
    """Its fields in order, up to the last one that is not as by default."""
    if r[8]:
        return r[:9]
    if r[7]:
        return r[:8]
    end = 7
    while r[end - 1] is None:
        end -= 1
    return r[:end]


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
    if _is_record(kind):
        hints = typing.get_type_hints(kind)
        fields = {name: _decoder(hints[name]) for name, _ in _fields(kind) or ()}
        return lambda data: kind(**{name: fields[name](part) for name, part in data.items()})
    raise TypeError(f"cannot read a {kind} from the ledger")


def _encode_mapping(value: Mapping[Any, Any]) -> dict[str, Any]:
    return {
        _text(k): _encode_reading(v) if type(v) is Reading else _encoder(type(v))(v) for k, v in value.items()
    }  # most of what there is are readings, so these go without a look-up


def _same(value: Any) -> Any:
    return value


def _finite(value: float) -> float:
    """What JSON cannot tell is refused: a ledger must not give back something else than it was given."""
    if not math.isfinite(value):
        raise ValueError(f"cannot write {value} into the ledger")
    return value


def diff(old: Any, new: Any) -> dict[str, Any] | None:
    """What must be told to someone who has ``encode(old)`` to have ``encode(new)``, None when nothing; both are of one
    kind, a mapping or a record. "=" new values by key, "~" changes of the same kind within a value, "-" keys that
    are gone. Keys, which may be anything, are never on one level with these marks.

    Compared before they are encoded: most of a large fleet stands as it stood, and is not looked at any further.
    """
    before, after = _parts(old), _parts(new)
    fresh: dict[str, Any] = {}
    within: dict[str, Any] = {}
    kept = 0
    for key, value in after.items():
        was = before.get(key, _ABSENT)
        if was is value:
            kept += 1
            continue
        kind: Any = type(value)
        if was is _ABSENT:
            fresh[_text(key)] = _encoder(kind)(value)
            continue
        kept += 1
        if kind is Reading:  # most of what there is, so without calls; and most has a source and no note
            if value != was:
                row = value[:8] if value[7] and not value[8] else _encode_reading(value)
                fresh[key if isinstance(key, str) else str(key)] = row
        elif _nested(kind) and type(was) is kind:
            if (inner := diff(was, value)) is not None:
                within[_text(key)] = inner
        elif value != was:
            fresh[_text(key)] = _encoder(kind)(value)
    change: dict[str, Any] = {}
    if fresh:
        change["="] = fresh
    if within:
        change["~"] = within
    if kept < len(before):
        change["-"] = [_text(key) for key in before if key not in after]
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
