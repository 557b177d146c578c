"""The files that a stream names, wherever in it: the trace itself, and those that lengths are drawn from."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

_Part = TypeVar("_Part")


def within(part: _Part, folder: str) -> _Part:
    """The same stream with its files taken relative to `folder`."""
    if not dataclasses.is_dataclass(part) or isinstance(part, type):
        return part
    changed: dict[str, Any] = {}
    for field in dataclasses.fields(part):
        value = getattr(part, field.name)
        if field.name == "file":
            changed["file"] = str(Path(folder) / value)
        elif dataclasses.is_dataclass(value):
            changed[field.name] = within(value, folder)
    return dataclasses.replace(part, **changed) if changed else part


def parts(whole: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All parts of a stream that are dataclasses, itself included, each with where it stands."""
    if not dataclasses.is_dataclass(whole) or isinstance(whole, type):
        return
    yield path, whole
    for field in dataclasses.fields(whole):
        yield from parts(getattr(whole, field.name), (*path, field.name))


def files(stream: object) -> Iterator[tuple[tuple[str, ...], str]]:
    """Where in the stream a file is named, and the file."""
    for path, part in parts(stream):
        if hasattr(part, "file"):
            yield (*path, "file"), part.file
