"""The kinds of single values in the config file: names, labels, percentiles, addresses. Each refuses with a mend."""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

from pydantic import BeforeValidator, Field, Strict, WithJsonSchema

from controller.config.errors import BadValue
from controller.config.regex import check_regex
from controller.config.units import RATE_PATTERN, Duration, Ratio, Within, Written, rate, ratio, unix
from controller.core.params import Unit
from controller.core.ports import Matcher
from controller.core.rules import Rate

Text = Annotated[str, Strict(), Field(min_length=1)]
MaybeText = Annotated[str, Strict()]
Number = Annotated[float, Strict()]
PositiveDuration = Annotated[Duration, Within(gt=0, unit=Unit.DURATION)]
Share = Annotated[Ratio, Within(gt=0, le=1, unit=Unit.RATIO)]


def _name(value: object) -> object:
    if isinstance(value, str) and not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", value):
        raise BadValue(
            f"{value!r} is not a name",
            "use up to 63 letters, digits, '-', '_' and '.', with a letter or digit at both ends",
        )
    return value


Name = Annotated[Text, Written("name"), BeforeValidator(_name)]


def _matcher(value: object) -> tuple[str, str]:
    """(operator, value) of a selector entry."""
    operators = {"regex": "=~", "not": "!=", "not_regex": "!~"}
    mend = 'write text, {regex: "..."}, {not: "..."} or {not_regex: "..."}'
    if isinstance(value, tuple):
        return value
    if isinstance(value, str):
        return ("=", value)
    if not isinstance(value, dict) or len(value) != 1:
        raise BadValue(f"{value!r} is not a label matcher", mend)
    ((word, text),) = value.items()
    if word not in operators or not isinstance(text, str):
        raise BadValue(f"{value!r} is not a label matcher", mend)
    if word.endswith("regex"):
        check_regex(text)
    return (operators[word], text)


_WORD = {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": False}
_MATCHER_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {**_WORD, "properties": {word: {"type": "string"} for word in ("regex", "not", "not_regex")}},
    ]
}
LabelMatch = Annotated[
    tuple[str, str], Written("text or matcher"), BeforeValidator(_matcher), WithJsonSchema(_MATCHER_SCHEMA)
]


def matchers(selector: Mapping[str, tuple[str, str]]) -> tuple[Matcher, ...]:
    """A selector as the core has it, sorted by label."""
    return tuple(Matcher(label, op, value) for label, (op, value) in sorted(selector.items()))


def _label(value: object) -> object:
    if isinstance(value, str) and value and not re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", value):
        raise BadValue(f"{value!r} is not a label name", "use letters, digits and _")
    if value == "__name__":
        raise BadValue("the name of a metric selects no pool", "remove it; `engine` tells which metrics are read")
    return value


Label = Annotated[MaybeText, Written("label"), BeforeValidator(_label)]


def _percentile(value: object) -> object:
    match = re.fullmatch(r"[pP](\d+(?:\.\d+)?)", value) if isinstance(value, str) else None
    if match is None:
        mend = f"write p{value}" if re.fullmatch(r"\d+(\.\d+)?", str(value)) else "write for example p99"
        raise BadValue(f"{value!r} is not a percentile", mend)
    share = ratio(match[1] + "%")
    if not 0 < share < 1:
        raise BadValue(
            f"{value} leaves no error budget" if share >= 1 else f"{value} promises nothing",
            "write for example p99 or p99.9",
        )
    return share


def _attainment(value: object) -> float:
    share = ratio(value)
    if not 0 < share < 1:
        raise BadValue(
            f"{value} leaves no error budget" if share >= 1 else f"{value} promises nothing",
            "write for example 95% or 99.9%",
        )
    return share


Percentile = Annotated[
    float,
    Written("percentile"),
    BeforeValidator(_percentile),
    WithJsonSchema({"type": "string", "pattern": r"^[pP]\d+(\.\d+)?$"}),
]
Attainment = Annotated[Ratio, BeforeValidator(_attainment)]


NO_RATE = "none"


def _maybe_rate(value: object) -> object:
    if value is None or value == NO_RATE:
        return None
    return value if isinstance(value, Rate) else rate(value)


MaybeRate = Annotated[
    Rate | None,
    BeforeValidator(_maybe_rate),
    Written(f"rate or `{NO_RATE}`"),
    WithJsonSchema({"anyOf": [{"type": "string", "pattern": RATE_PATTERN}, {"const": NO_RATE}]}),
]


def _member(value: object) -> object:
    if isinstance(value, str) and (not value.isprintable() or value != value.strip() or len(value) > 128):
        raise BadValue(
            f"{value[:40]!r} is not a label value", "write up to 128 printable characters, without outer spaces"
        )
    return value


Member = Annotated[Text, Written("label value"), BeforeValidator(_member)]


def _listen(value: object) -> object:
    if isinstance(value, str):
        match = re.fullmatch(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s]+):(\d{1,5})", value)
        if match is None or int(match[2]) > 65535:
            raise BadValue(
                f"{value!r} is not an address", "write host:port, for example 127.0.0.1:8080 or 0.0.0.0:8080"
            )
    return value


def _moment(value: object) -> datetime:
    mend = "write for example 2026-12-24T18:00:00Z"
    if isinstance(value, datetime):
        return value
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None:
        raise BadValue(f"{value!r} is not a moment", mend)
    if moment.tzinfo is None:
        raise BadValue(f"{value} has no time zone", mend)
    unix(moment)  # refuses what could not be printed
    return moment


Moment = Annotated[
    datetime, BeforeValidator(_moment), Written("moment"), WithJsonSchema({"type": "string", "format": "date-time"})
]
Listen = Annotated[Text, BeforeValidator(_listen)]
