"""The forms that a file of values can have."""

import json
from collections.abc import Mapping
from typing import Any

import yaml


class BadForm(ValueError):
    """The text is not of its form."""


def parse(text: str, form: str) -> dict[str, Any]:
    """The keys of a file; raises BadForm."""
    try:
        if form == "json":
            document = json.loads(text, parse_constant=_no_constant)
        elif form == "yaml":
            document = yaml.safe_load(text) or {}
        else:
            document = dict(_line(line) for line in text.splitlines() if line.strip() and not line.startswith("#"))
    except (ValueError, yaml.YAMLError) as error:
        raise BadForm(str(error)) from error
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise BadForm("the top level must be a mapping with text keys")
    return document


def render(keys: Mapping[str, Any], form: str) -> str:
    """The text of a file with these keys."""
    if form == "json":
        return json.dumps(keys, indent=2, sort_keys=True, allow_nan=False) + "\n"
    if form == "yaml":
        return yaml.safe_dump(dict(keys), sort_keys=True)
    return "".join(f"{key}: {value}\n" for key, value in keys.items())


def number(text: str) -> float | None:
    """The number that a line holds."""
    try:
        return float(text)
    except ValueError:
        return None


def _line(line: str) -> tuple[str, str]:
    key, separator, value = line.rpartition(": ")
    if not separator:
        raise ValueError(f"no `key: value` in {line!r}")
    return key.strip(), value.strip()


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
