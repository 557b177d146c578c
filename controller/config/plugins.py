"""Parameters of plug-ins: from the frozen dataclass that a plug-in declares to a strict pydantic model, and back.

The wings stay free of pydantic; users still get units, bounds, refused unknown keys and one JSON Schema.
"""

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal, Union

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    Strict,
    ValidationError,
    create_model,
)
from pydantic_core import CoreSchema, core_schema

from controller import registry
from controller.config.errors import BadParts, BadValue, Path
from controller.config.report import nearest, problems_of
from controller.config.units import Duration, Ratio, Whole, Within
from controller.core.params import Mistakes, SecretRef, Unit
from controller.registry import Group

CHOICE = "x-plugin"
TAG = "kind"
_MODELS: dict[type[Any], type[BaseModel]] = {}
_STRICT = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, arbitrary_types_allowed=True)


@dataclass(frozen=True, slots=True)
class Plugin:
    """A chosen plug-in: its group, its `kind` as written, and `settings`, an instance of its ``Config``. One that is
    shared has a `name`; where it is only named, `kind` is "" and there are no settings."""

    group: Group
    kind: str
    settings: Any
    name: str = ""

    @property
    def cls(self) -> type[Any]:
        """The plug-in's class."""
        return registry.plugin(self.group, self.kind)

    def plain(self) -> dict[str, Any]:
        """As plain data for the config hash; secrets are references and stay that."""
        return {"kind": self.kind, **dataclasses.asdict(self.settings)} if self.kind else {"name": self.name}


class Secret(BaseModel):
    """Where a secret is read from: an environment variable or a file."""

    model_config = _STRICT

    env: Annotated[str, Strict()] | None = Field(None, description="name of the environment variable that holds it")
    file: Annotated[str, Strict()] | None = Field(None, description="path of the file that holds it")


def _secret(value: object) -> object:
    if isinstance(value, str):
        raise BadValue("a secret is never written into the config", "write {env: NAME} or {file: PATH}")
    if isinstance(value, Mapping) and sum(bool(value.get(name)) for name in ("env", "file")) != 1:
        raise BadValue("a secret needs exactly one of env and file", "write {env: NAME} or {file: PATH}")
    return value


def _filled(value: str) -> str:
    """What must be told is not told by nothing."""
    if not value.strip():
        raise BadValue("is empty", "write a text")
    return value


def _alone(check: Callable[[Any], object], value: Any) -> Any:
    """A value that its field can judge without the others."""
    try:
        check(value)
    except ValueError as error:
        mistake, _, mend = str(error).partition("; ")
        raise BadValue(mistake, mend) from error
    return value


def model_of(config: type[Any]) -> type[BaseModel]:
    """The strict pydantic model of a plug-in's ``Config`` dataclass; cached per class."""
    if config not in _MODELS:
        _MODELS[config] = _make_model(config)
    return _MODELS[config]


def _make_model(config: type[Any]) -> type[BaseModel]:
    hints = typing.get_type_hints(config)
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        if not field.init:
            continue
        unit = Unit(field.metadata.get("unit", Unit.PLAIN))
        bounds = {name: field.metadata.get(name) for name in ("ge", "gt", "le", "lt")}
        within = Within(**bounds, unit=unit) if any(limit is not None for limit in bounds.values()) else None
        settings: dict[str, Any] = {"description": field.metadata.get("doc", "")}
        if field.name == TAG and _kinds(config):
            pass  # always written, whatever its default in code: it tells which of several dataclasses is meant
        elif field.default is not dataclasses.MISSING:
            settings["default"] = field.default
        elif field.default_factory is not dataclasses.MISSING:
            settings["default_factory"] = field.default_factory
        annotation = _annotation(hints[field.name], unit, within)
        if hints[field.name] is str and not settings.keys() & {"default", "default_factory"}:
            annotation = Annotated[annotation, AfterValidator(_filled)]
        if (check := field.metadata.get("check")) is not None:
            annotation = Annotated[annotation, AfterValidator(partial(_alone, check))]
        fields[field.name] = (annotation, Field(**settings))
    return create_model(config.__qualname__.replace(".", ""), __config__=_STRICT, __doc__=config.__doc__, **fields)


def build(config: type[Any], data: Mapping[str, Any]) -> Any:
    """An instance of the dataclass `config` from plain data. Raises BadParts with every problem at once."""
    return _instance(config, _checked(model_of(config), data))


def choose(group: Group, value: object, *, named: bool = False) -> Plugin:
    """The plug-in that a mapping with `kind` asks for, or that is called by its name where that is allowed. Raises
    BadValue or BadParts."""
    if isinstance(value, Plugin):
        return value
    if named and isinstance(value, str) and value:
        return Plugin(group, "", None, value)
    example = f"write {{kind: {next(iter(registry.names(group)), 'module:Class')}}}"
    if not isinstance(value, Mapping):
        raise BadValue(f"{value!r} is not {group.article} {group.noun}", example)
    kind = value.get("kind")
    if not isinstance(kind, str) or not kind:
        known = ", ".join(registry.names(group))
        raise BadParts(
            [(("kind",), "is missing" if kind is None else f"{kind!r} is not a name", f"write one of {known}")]
        )
    try:
        cls = registry.plugin(group, kind)
    except registry.PluginError as error:
        mistake, _, mend = str(error).rpartition("; ")
        raise BadParts([(("kind",), mistake, mend)]) from error
    config: type[Any] = cls.Config
    settings = build(config, {name: part for name, part in value.items() if name != "kind"})
    if group is Group.POLICY:
        try:
            cls(settings)  # policies are pure, and check in the constructor what several parameters must agree on
        except ValueError as error:
            raise BadParts(_own_words(error, settings)) from error
        except Exception as error:  # a stranger's mistake, which is no reason for a traceback
            what = f"{kind!r} cannot be made: {type(error).__name__}: {error}"
            raise BadParts([(("kind",), what, "tell its author")]) from error
    return Plugin(group, kind, settings)


def _own_words(error: ValueError, whole: Any) -> list[tuple[Path, str, str]]:
    """A plug-in's own check, said as `field: mistake; mend` or shorter, or several of them; `field` may be a dotted
    path into `whole`, a dataclass or the mapping of its fields."""
    found = []
    for said in error.said if isinstance(error, Mistakes) else (str(error),):
        path, rest = _place(said, whole)
        mistake, _, mend = rest.partition("; ")
        found.append((path, mistake, mend))
    return found


def _place(text: str, whole: Any) -> tuple[Path, str]:
    """The place in `whole` that a sentence begins with, and the rest of it. Found from what is there, since names of
    pools may have dots."""
    members: Mapping[Any, Any] = {}
    if dataclasses.is_dataclass(whole):
        members = {field.name: getattr(whole, field.name, None) for field in dataclasses.fields(whole)}
    elif isinstance(whole, Mapping):
        members = whole
    elif isinstance(whole, (tuple, list)):
        members = dict(enumerate(whole))
    for name, member in members.items():
        if text.startswith(f"{name}: "):
            return (name,), text[len(f"{name}: ") :]
        if text.startswith(f"{name}."):
            below, rest = _place(text[len(f"{name}.") :], member)
            if below:
                return (name, *below), rest
    return (), text


@dataclass(frozen=True, slots=True)
class Chosen:
    """Pydantic metadata: this field selects a plug-in of the group, or `named` one that is described elsewhere."""

    group: Group
    named: bool = False

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            lambda value: choose(self.group, value, named=self.named),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda chosen: chosen.plain()),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        chosen = {"type": "object", CHOICE: self.group.noun}  # `schema` puts the reference in: it knows the plug-ins
        return {"anyOf": [{"type": "string"}, chosen]} if self.named else chosen


SourcePlugin = Annotated[Plugin, Chosen(Group.SOURCE)]
PolicyPlugin = Annotated[Plugin, Chosen(Group.POLICY)]
ActuatorPlugin = Annotated[Plugin, Chosen(Group.ACTUATOR)]
ActuatorChoice = Annotated[Plugin, Chosen(Group.ACTUATOR, named=True)]


@dataclass(frozen=True, slots=True)
class Tagged:
    """Pydantic metadata: one of several dataclasses, told apart by their `kind`; `models` in pairs with that word. What
    is not a mapping is for the other members of the union: `plain` is their type, None where there are none."""

    models: tuple[tuple[str, type[BaseModel]], ...]
    plain: Any = None

    def check(self, value: Any) -> Any:
        """A validator in place of pydantic's own, which would tell what each member finds wrong with the value."""
        if isinstance(value, BaseModel):
            return value
        models = dict(self.models)
        if isinstance(value, Mapping):
            kind = value.get(TAG)
            if kind is None:
                raise BadParts([((TAG,), "is missing", f"write one of {', '.join(models)}")])
            if not isinstance(kind, str) or kind not in models:
                raise BadParts([((TAG,), f"{kind!r} is not a choice", nearest(str(kind), models))])
            return _checked(models[kind], value)
        if value is None and self.plain is type(None):
            return None
        if self.plain in (None, type(None)):
            raise BadValue(f"{value!r} is not a mapping", f"write {{{TAG}: {next(iter(models))}, ...}}")
        try:
            return _checked(create_model("Plain", __config__=_STRICT, plain=(self.plain, ...)), {"plain": value}).plain
        except BadParts as error:
            raise BadParts([(path[1:], mistake, mend) for path, mistake, mend in error.problems]) from error


def _checked(model: type[BaseModel], value: Any) -> Any:
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise BadParts(problems_of(error, model)) from error


def _kinds(config: Any) -> tuple[str, ...]:
    """The words that a dataclass accepts as its `kind`; empty when it is none that says so."""
    if not (isinstance(config, type) and dataclasses.is_dataclass(config)):
        return ()
    hint = typing.get_type_hints(config).get(TAG)
    return tuple(typing.get_args(hint)) if typing.get_origin(hint) is Literal else ()


def _union(parts: tuple[Any, ...], unit: Unit, within: Within | None) -> Any:
    """A union; members with a `kind` are chosen by it alone, so that mistakes are those of the one that was meant."""
    tagged = {kind: model_of(part) for part in parts for kind in _kinds(part)}
    rest = tuple(_annotation(part, unit, within) for part in parts if not _kinds(part))
    plain: Any = Union[rest] if rest else None  # noqa: UP007 - built at run time
    if not tagged:
        return plain
    either: Any = Union[tuple(dict.fromkeys(tagged.values()))]  # noqa: UP007
    if len(set(tagged.values())) > 1:
        either = Annotated[either, Field(discriminator=TAG)]
    if rest:
        either = Union[either, plain]  # noqa: UP007
    rule = Tagged(tuple(tagged.items()), plain)
    return Annotated[either, rule, PlainValidator(rule.check, json_schema_input_type=either)]


def _annotation(hint: Any, unit: Unit, within: Within | None) -> Any:
    """`hint` with strict leaves, and the unit and bounds on every number in it."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        return _union(parts, unit, within)
    if origin is Literal or hint is type(None) or hint is Any:
        return hint
    if origin in (tuple, list, frozenset):
        inner = tuple(part if part is Ellipsis else _annotation(part, unit, within) for part in parts)
        return origin[inner if origin is tuple else inner[0]]
    if _is_mapping(origin):
        return dict[parts[0], _annotation(parts[1], unit, within)]  # type: ignore[misc,valid-type]
    leaf: Any = hint
    if hint is SecretRef:
        return Annotated[Secret, BeforeValidator(_secret)]
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return model_of(hint)
    if hint in (int, float) and unit is not Unit.PLAIN:
        leaf = Duration if unit is Unit.DURATION else Ratio
    elif hint is int:
        leaf = Whole
    elif hint in (float, str, bool):
        leaf = Annotated[hint, Strict()]
    return Annotated[leaf, within] if within is not None and hint in (int, float) else leaf


def _instance(config: type[Any], valid: BaseModel) -> Any:
    """The dataclass from its model. Raises BadParts with what the dataclasses themselves found wrong, inner ones first:
    one whose parts are wrong is not asked."""
    hints = typing.get_type_hints(config)
    parts: dict[str, Any] = {}
    problems: list[tuple[Path, str, str]] = []
    for field in dataclasses.fields(config):
        if field.init:
            parts[field.name] = _value(hints[field.name], getattr(valid, field.name), (field.name,), problems)
    if problems:
        raise BadParts(problems)
    try:
        return config(**parts)
    except ValueError as error:
        raise BadParts(_own_words(error, parts)) from error


def _value(hint: Any, value: Any, path: Path, problems: list[tuple[Path, str, str]]) -> Any:
    """Back from the model's value to what the dataclass declares; what is wrong on the way goes to `problems`."""
    if isinstance(value, Secret):
        return SecretRef(env=value.env, file=value.file)
    members = typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)
    if isinstance(value, BaseModel):
        options = [p for p in members if isinstance(p, type) and dataclasses.is_dataclass(p)]
        try:
            return next(_instance(o, value) for o in options if isinstance(value, model_of(o)))
        except BadParts as error:
            problems.extend(((*path, *below), mistake, mend) for below, mistake, mend in error.problems)
            return None
    if isinstance(value, (tuple, list)) and not isinstance(value, Enum):
        inner = next((typing.get_args(m)[0] for m in members if typing.get_origin(m) in (tuple, list)), Any)
        return type(value)(_value(inner, item, (*path, index), problems) for index, item in enumerate(value))
    if isinstance(value, dict):
        inner = next((typing.get_args(m)[1] for m in members if _is_mapping(typing.get_origin(m))), Any)
        return {key: _value(inner, item, (*path, key), problems) for key, item in value.items()}
    return value


def _is_mapping(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, Mapping)
