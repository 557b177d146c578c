"""Units in config values: "80ms", "99%", "256MiB", "100%/60s". Parsing, printing, and the pydantic types made of them.

Arithmetic is decimal until the very end, so "80ms" is 0.08 and not 80 * 0.001, and printing a value and reading it back
gives the same float.
"""

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, Strict, WithJsonSchema
from pydantic_core import CoreSchema, core_schema

from controller.config.errors import BadValue
from controller.core.params import Unit
from controller.core.rules import Rate

_SECONDS = {
    "w": Decimal(604800),
    "d": Decimal(86400),
    "h": Decimal(3600),
    "m": Decimal(60),
    "s": Decimal(1),
    "ms": Decimal("1e-3"),
    "us": Decimal("1e-6"),
    "ns": Decimal("1e-9"),
}
_BYTES = {
    "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
}  # fmt: skip
# What is longer is a slip of the finger, and clocks and sockets overflow on it when it is too late to say so.
LONGEST = 3650 * 86400.0
LARGEST = 1024 * 2**40
MOST = 10**15
_PART = re.compile(r"(\d+(?:\.\d+)?)(ns|us|µs|ms|[smhdw])", re.ASCII)
DURATION_PATTERN = r"^(\d+(\.\d+)?(ns|us|µs|ms|s|m|h|d|w))+$"
RATIO_PATTERN = r"^\d+(\.\d+)?%$"
SIZE_PATTERN = r"^\d+(\.\d+)?(B|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB)$"
RATE_PATTERN = r"^\d+(\.\d+)?%?/(\d+(\.\d+)?(ns|us|µs|ms|s|m|h|d|w))+$"


def duration(value: object) -> float:
    """Seconds of "2s", "80ms", "1h30m". Raises BadValue for anything else; a bare number has no unit and is refused."""
    if _is_number(value) and math.isfinite(float(value)):  # type: ignore[arg-type]
        raise BadValue(f"{value} has no unit", f"write {value}s if seconds are meant")
    if not isinstance(value, str):
        raise BadValue(f"{_short(value)} is not a duration", "write for example 80ms, 2s, 5m or 3d")
    text = value.strip()
    if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII):
        raise BadValue(f"{value!r} has no unit", f"write {text}s if seconds are meant")
    parts = _PART.findall(text)
    units = [unit.replace("µ", "u") for _, unit in parts]
    order = list(_SECONDS)
    if not parts or "".join(n + u for n, u in parts) != text or units != sorted(set(units), key=order.index):
        raise BadValue(f"{_short(value)} is not a duration", "write for example 80ms, 2s, 5m, 1h30m or 3d")
    seconds = float(sum((Decimal(n) * _SECONDS[u] for (n, _), u in zip(parts, units, strict=True)), Decimal(0)))
    if seconds > LONGEST:
        raise BadValue(
            f"{_short(value)} is longer than any duration may be", f"write at most {format_duration(LONGEST)}"
        )
    return seconds


def format_duration(seconds: float) -> str:
    """The shortest exact spelling: 0.08 -> "80ms", 5400 -> "1h30m". `seconds` is finite and not negative."""
    rest = Decimal(repr(seconds))
    if rest == 0:
        return "0s"
    if rest < 1:
        unit = next((u for u in ("ms", "us") if rest >= _SECONDS[u]), "ns")
        return _plain(rest / _SECONDS[unit]) + unit
    text = ""
    for unit in ("d", "h", "m"):
        whole = rest // _SECONDS[unit]
        rest -= whole * _SECONDS[unit]
        text += f"{whole}{unit}" if whole else ""
    return text + (_plain(rest) + "s" if rest else "")


def unix(moment: datetime) -> float:
    """Unix seconds of a moment with a time zone. Raises BadValue where UTC has no such day: whoever prints it would
    fail on the year 10000 or 0."""
    try:
        seconds = moment.timestamp()
        datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError) as error:  # by the size of the number, and by platform
        mend = "write for example 2026-12-24T18:00:00Z"
        raise BadValue(f"{moment.isoformat()} is beyond the calendar", mend) from error
    return seconds


def ratio(value: object) -> float:
    """0.99 of "99%" or 0.99. Raises BadValue; a number above 1 without % could mean either and is refused."""
    if _is_number(value):
        number = float(value)  # type: ignore[arg-type]
        if not math.isfinite(number) or number < 0:
            raise BadValue(f"{value} is not a ratio", "write for example 99% or 0.99")
        if number > 1:
            raise BadValue(f"{value} is not a ratio between 0 and 1", f"write {value}% or {_plain(_percent(value))}")
        return number
    text = value.strip() if isinstance(value, str) else ""
    if re.fullmatch(RATIO_PATTERN[1:-1], text, re.ASCII):
        number = float(_percent(text[:-1]))
        if math.isfinite(number):
            return number
    raise BadValue(f"{_short(value)} is not a ratio", "write for example 99% or 0.99")


def format_ratio(value: float) -> str:
    """0.99 -> "99%"."""
    return _plain(Decimal(repr(value)) * 100) + "%"


def size(value: object) -> int:
    """Bytes of "256MiB". Raises BadValue."""
    if _is_number(value):
        raise BadValue(f"{value} has no unit", f"write {value}B, {value}MiB or {value}GiB")
    match = (
        re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kKMGT]i?B|B)", value.strip(), re.ASCII) if isinstance(value, str) else None
    )
    if match is None or match[2] not in _BYTES:
        raise BadValue(f"{_short(value)} is not a size", "write for example 256MiB or 1GB")
    count = Decimal(match[1]) * _BYTES[match[2]]
    if count > LARGEST:
        raise BadValue(f"{_short(value)} is larger than any size may be", f"write at most {format_size(LARGEST)}")
    return int(count)


def format_size(count: int) -> str:
    """Bytes in the largest unit that divides them: 268435456 -> "256MiB", 2000000000 -> "2GB"."""
    units = ("TiB", "TB", "GiB", "GB", "MiB", "MB", "KiB", "kB")
    unit = next((unit for unit in units if count and count % _BYTES[unit] == 0), "B")
    return f"{count // _BYTES.get(unit, 1)}{unit}"


def format_rate(value: Rate) -> str:
    """Rate(1.0, 60.0, relative) -> "100%/1m"."""
    return f"{format_ratio(value.amount) if value.relative else f'{value.amount:g}'}/{format_duration(value.period)}"


def rate(value: object) -> Rate:
    """The Rate of "100%/60s" or "1/300s". Raises BadValue."""
    mend = "write amount/time, for example 100%/60s or 1/300s"
    if not isinstance(value, str) or value.count("/") != 1:
        raise BadValue(f"{value!r} is not a rate", mend)
    left, right = (part.strip() for part in value.split("/"))
    period = duration(right)
    if not re.fullmatch(r"\d+(\.\d+)?%?", left, re.ASCII):
        raise BadValue(f"{left!r} is not an amount", mend)
    amount = ratio(left) if left.endswith("%") else float(left)
    if not 0 < amount < math.inf or period == 0:
        raise BadValue(
            f"{value!r} allows no change at all", "write a rate above zero, or mode: observe to stop a lever"
        )
    return Rate(amount, period, relative=left.endswith("%"))


@dataclass(frozen=True, slots=True)
class Written:
    """What a value is called in the docs, and its unit. Pydantic metadata without effect."""

    words: str
    unit: Unit = Unit.PLAIN


@dataclass(frozen=True, slots=True)
class ByLever:
    """The default of this key depends on the lever (``controller.config.levers``). Pydantic metadata without effect."""


@dataclass(frozen=True, slots=True)
class Within:
    """Bounds on a parsed value, reported in the unit the user wrote. Used as pydantic metadata."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    unit: Unit = Unit.PLAIN

    def check(self, value: Any) -> Any:
        """`value` when it is within the bounds, else BadValue."""
        for limit, words, broken in (
            (self.ge, "at least", self.ge is not None and not value >= self.ge),
            (self.gt, "more than", self.gt is not None and not value > self.gt),
            (self.le, "at most", self.le is not None and not value <= self.le),
            (self.lt, "less than", self.lt is not None and not value < self.lt),
        ):
            if broken and limit is not None:
                raise BadValue(f"{self.show(value)} is out of bounds", f"write {words} {self.show(limit)}")
        return value

    def show(self, value: float) -> str:
        return show(value, self.unit)

    def __str__(self) -> str:
        signs = ((">=", self.ge), (">", self.gt), ("<=", self.le), ("<", self.lt))
        return ", ".join(f"{sign} {self.show(limit)}" for sign, limit in signs if limit is not None)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        json = handler(schema)
        if self.unit is Unit.PLAIN:
            names = (
                ("minimum", self.ge),
                ("exclusiveMinimum", self.gt),
                ("maximum", self.le),
                ("exclusiveMaximum", self.lt),
            )
            json.update({name: limit for name, limit in names if limit is not None})
        return json


def show(value: object, unit: Unit) -> str:
    """A parsed value in the spelling of the config file."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if unit is Unit.DURATION:
            return format_duration(float(value))
        if unit is Unit.RATIO:
            return format_ratio(float(value))
        return f"{value:g}" if isinstance(value, float) else str(value)
    return str(value)


def whole(value: int) -> int:
    """A whole number that floats and the ledger can hold. Raises BadValue."""
    if abs(value) > MOST:
        raise BadValue(f"{_short(value)} is larger than any number may be", f"write at most {MOST}")
    return value


_RATIO_SCHEMA = {
    "anyOf": [{"type": "string", "pattern": RATIO_PATTERN}, {"type": "number", "minimum": 0, "maximum": 1}]
}

Whole = Annotated[int, Strict(), AfterValidator(whole)]
Duration = Annotated[
    float,
    BeforeValidator(duration),
    WithJsonSchema({"type": "string", "pattern": DURATION_PATTERN}),
    Written("duration", Unit.DURATION),
]
Ratio = Annotated[float, BeforeValidator(ratio), WithJsonSchema(_RATIO_SCHEMA), Written("ratio", Unit.RATIO)]
Size = Annotated[
    int, BeforeValidator(size), WithJsonSchema({"type": "string", "pattern": SIZE_PATTERN}), Written("size")
]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:21]}{text[0]}..." if isinstance(value, str) else f"{text[:40]}..."


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _percent(value: object) -> Decimal:
    try:
        return Decimal(str(value)) / 100
    except InvalidOperation as error:
        raise BadValue(f"{value!r} is not a ratio", "write for example 99% or 0.99") from error


def _plain(number: Decimal) -> str:
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
