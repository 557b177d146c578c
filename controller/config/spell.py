"""A loaded config, spelled as its file would be: the inverse of `load`, for the ledger.

A ledger carries the config it was made with, so that `governor replay` needs nothing else. What is spelled here loads
again to a config of the same hash.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from controller.config.fields import NO_RATE
from controller.config.models import GovernorConfig, ObjectiveConfig, RateConfig
from controller.config.plugins import Plugin, model_of
from controller.config.units import Written, format_duration, format_rate, format_ratio
from controller.core.params import SecretRef, Unit
from controller.core.rules import Rate
from controller.core.signals import Signal

_MATCHER = {"=~": "regex", "!=": "not", "!~": "not_regex"}


def spell(config: GovernorConfig) -> dict[str, Any]:
    """Plain data, fit for YAML and JSON, with units in the values. Secrets are references and stay that."""
    return _model(config, type(config))


def _model(value: object, model: type[BaseModel]) -> dict[str, Any]:
    """`value` is an instance of `model`, or of the dataclass that it was made from; what is None is left out."""
    spelled: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        part = getattr(value, name)
        if part is not None:
            spelled[field.alias or name] = _spell(part, (field.annotation, *field.metadata))
        elif isinstance(value, RateConfig):
            spelled[name] = NO_RATE
    if isinstance(value, ObjectiveConfig):
        # Its unit is that of the signal, which no annotation can say.
        ratio = value.signal is Signal.ERROR_RATIO
        spelled["target"] = format_ratio(value.target) if ratio else format_duration(value.target)
    return spelled


def _spell(value: Any, kind: Any) -> Any:
    """`kind` is an annotation, or a tuple of an annotation and its metadata."""
    if isinstance(value, Plugin) and not value.kind:
        return value.name
    if isinstance(value, Plugin):
        return {"kind": value.kind, **_model(value.settings, model_of(value.cls.Config))}
    if isinstance(value, SecretRef):
        return {name: text for name, text in dataclasses.asdict(value).items() if text is not None}
    if isinstance(value, Rate):
        return format_rate(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        inner = _values(kind)
        return {_spell(name, None): _spell(part, inner) for name, part in value.items()}
    written = next(_written(kind), None)
    if written is not None and written.words == "text or matcher" and isinstance(value, tuple):
        operator, text = value
        return text if operator == "=" else {_MATCHER[operator]: text}
    if isinstance(value, BaseModel):
        return _model(value, type(value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _model(value, model_of(type(value)))
    if isinstance(value, (tuple, list)):
        return [_spell(part, kind) for part in value]
    return value if written is None or isinstance(value, (bool, str)) else _unit(value, written)


def _unit(value: float, written: Written) -> object:
    if written.words == "percentile":
        return "p" + format_ratio(value).removesuffix("%")
    if written.words == "size":
        return f"{value}B"
    if written.unit is Unit.DURATION:
        return format_duration(value)
    return format_ratio(value) if written.unit is Unit.RATIO else value


def _values(kind: Any) -> Any:
    """The annotation of the values of the mapping in `kind`."""
    if get_origin(kind) is dict:
        return get_args(kind)[1]
    parts = kind if isinstance(kind, tuple) else get_args(kind)
    return next((found for part in parts if (found := _values(part)) is not None), None)


def _written(kind: Any) -> Iterator[Written]:
    """How a value is written, wherever in the annotation it is said."""
    if isinstance(kind, Written):
        yield kind
    for part in kind if isinstance(kind, tuple) else (*get_args(kind), *getattr(kind, "__metadata__", ())):
        yield from _written(part)
