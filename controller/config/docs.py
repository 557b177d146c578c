"""docs/configuration.md, made from the models, so that no key, default or bound in it can be out of date.

Print it with `python -m controller.config.docs`; a test holds the file equal to it.
"""

import dataclasses
import enum
import sys
import types
import typing
from collections.abc import Collection
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from controller import registry
from controller.config import levers, models
from controller.config.plugins import TAG, Chosen, Secret, Tagged, model_of
from controller.config.units import ByLever, Within, Written, format_rate, format_size, show
from controller.core.params import Unit
from controller.core.rules import Rate
from controller.registry import Group

_INTRO = """\
# Configuration

<!-- Made by `python -m controller.config.docs`; edit the models, not this file. -->

One YAML file. `governor init` writes a starter, `governor check FILE` names every mistake with its place and its mend,
`governor schema` prints the JSON Schema for your editor. Unknown keys are refused, and so are keys written twice,
anchors and tags.

* **Durations** carry a unit: `80ms`, `2s`, `5m`, `1h30m`, `3d` (also `us`, `ns`, `w`), and are at most
  `3650d`. A bare number is refused.
* **Ratios** are `99%` or `0.99`. A number above 1 needs the `%`.
* **Sizes** carry a unit: `256MiB`, `1GB`.
* **Rates** are an amount per time: `100%/60s`, `1/300s`.
* **Secrets** are references, `{env: NAME}` or `{file: PATH}`, never the secret itself.
* Only `true` and `false` are booleans, so `mode: off` needs no quotes.

A promise for one class of requests, `class: critical` with `labels: {class: priority}`, is judged on the series with
that label value alone, and has its own attainment and error budget. The label must be on the histogram that is promised
about (`governor doctor` says whether it is); the shipped recording rules do not keep it, so that histogram is then read
from the raw series. Lost requests whose counters do not carry the label may be of any class and widen the bounds of
each. What steers by quantiles, `pid` and the trim of `capacity`, looks at promises for all requests only.

Plug-ins are chosen by `kind`: the name of an installed one, or `module:Class` for code on the Python path. The keys
next to `kind` are its parameters.
"""


def render() -> str:
    """The whole page, ending in a newline."""
    parts = [_INTRO, *(_section(title, model) for title, model in _SECTIONS)]
    for group, title in ((Group.SOURCE, "Sources"), (Group.POLICY, "Policies"), (Group.ACTUATOR, "Actuators")):
        parts.append(f"## {title}\n")
        parts.extend(_plugin(group, kind) for kind in registry.builtin(group))
    return "\n".join(parts).rstrip() + "\n"


_SECTIONS: tuple[tuple[str, type[BaseModel]], ...] = (
    ("The file", models.GovernorConfig),
    ("`pools.NAME`", models.PoolConfig),
    ("`pools.NAME.objectives[]`", models.ObjectiveConfig),
    ("`pools.NAME.labels`", models.LabelsConfig),
    ("`pools.NAME.gateway`", models.GatewayConfig),
    ("`pools.NAME.gateway.labels`", models.GatewayLabelsConfig),
    ("`pools.NAME.workload`", models.WorkloadConfig),
    ("`pools.NAME.profile`", models.ProfileConfig),
    ("`pools.NAME.tenants.TENANT`", models.TenantConfig),
    ("`pools.NAME.classes.CLASS`", models.ClassConfig),
    ("`pools.NAME.levers.LEVER`", models.LeverConfig),
    ("`pools.NAME.levers.LEVER.pin`", models.PinConfig),
    ("`pools.NAME.levers.LEVER.cooldown`", models.CooldownConfig),
    ("`pools.NAME.levers.LEVER.rate`", models.RateConfig),
    ("`budgets.NAME`", models.BudgetConfig),
    ("`pairs.NAME`", models.PairConfig),
    ("`variants.NAME`", models.VariantsConfig),
    ("`fleet_guard`", models.FleetGuardConfig),
    ("`ledger`", models.LedgerConfig),
    ("`http`", models.HttpConfig),
    ("`error_budget`", models.ErrorBudgetConfig),
)


_LEVERS = """\
## Levers and their defaults

A lever without a key takes it from here; [levers.md](levers.md) says what each lever does. *Neutral* is the value at
which it does nothing, and to which its target returns when nobody renews it for `expiry`.

"""


def _section(title: str, model: type[BaseModel]) -> str:
    before = _LEVERS + levers.table() + "\n\n" if model is models.LeverConfig else ""
    return f"{before}## {title}\n\n{first_paragraph(model.__doc__)}\n\n{table(model)}\n"


def _plugin(group: Group, kind: str) -> str:
    config = registry.plugin(group, kind).Config
    model = model_of(config)
    lines = [f"### `kind: {kind}`\n", f"{first_paragraph(config.__doc__)}\n"]
    if not model.model_fields:
        return "\n".join([*lines, "It has no parameters.\n"])
    lines.append(f"{table(model)}\n")
    lines.extend(
        f"`{name}`{_kind_of(part)}: {first_paragraph(part.__doc__)}\n\n{table(part)}\n"
        for name, field in model.model_fields.items()
        for part in _models_in(field.annotation)
    )
    return "\n".join(lines)


def table(model: type[BaseModel], without: Collection[str] = ()) -> str:
    """The model's fields as a Markdown table, except some; nothing when there are none."""
    rows = ["| key | value | default | meaning |", "| --- | --- | --- | --- |"]
    fields = {name: field for name, field in model.model_fields.items() if name not in without}
    if not fields:
        return ""
    for name, field in fields.items():
        hint = typing.get_type_hints(model, include_extras=True).get(name, field.annotation)
        unit, words = _words(hint)
        cells = (f"`{field.alias or name}`", words, _default(field, unit, words), field.description or "")
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def _words(hint: Any) -> tuple[Unit, str]:
    """Unit and description of what may be written, with its bounds."""
    metadata = _metadata(hint)
    unit = next((part.unit for part in metadata if isinstance(part, Written)), Unit.PLAIN)
    within = next((part for part in metadata if isinstance(part, Within)), None)
    limits = str(dataclasses.replace(within, unit=unit)) if within else ""
    return unit, f"{_name(hint)}, {limits}" if limits else _name(hint)


def _metadata(hint: Any) -> list[Any]:
    """All Annotated metadata at any depth."""
    found = list(getattr(hint, "__metadata__", ()))
    for part in typing.get_args(hint):
        found.extend(_metadata(part))
    return found


def _name(hint: Any) -> str:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        for part in hint.__metadata__:
            if isinstance(part, Written):
                return part.words
            if isinstance(part, Chosen):
                return f"one of the {part.group.noun} plug-ins"
            if isinstance(part, Tagged):
                kinds = f"mapping with `{TAG}` " + " or ".join(f"`{kind}`" for kind, _ in part.models)
                return kinds if part.plain in (None, type(None)) else f"{_name(part.plain)} or {kinds}"
        return _name(parts[0])
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_name(part) for part in parts if part is not type(None)))
    if origin is typing.Literal:
        return " or ".join(f"`{part}`" for part in parts)
    if origin in (tuple, list):
        return f"list of {_name(parts[0])}"
    if origin is dict:
        return f"mapping of {_name(parts[0])} to {_name(parts[1])}"
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return (
            "one of " + ", ".join(f"`{member.value}`" for member in hint) if len(hint) <= 8 else hint.__name__.lower()
        )
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return "secret" if hint is Secret else "mapping"
    return _PLAIN.get(hint, str(getattr(hint, "__name__", hint)))


_PLAIN: dict[Any, str] = {
    Any: "anything",
    str: "text",
    int: "whole number",
    float: "number",
    bool: "`true` or `false`",
    Rate: "rate",
}


def _default(field: FieldInfo, unit: Unit, words: str) -> str:
    if any(isinstance(part, ByLever) for part in field.metadata):
        return "by lever"
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined or value is None or value in ("", (), {}, []):
        return ""
    if isinstance(value, BaseModel):
        return "see below"
    if dataclasses.is_dataclass(value) and not isinstance(value, Rate):
        written = _written(value)
        return f"`{{{written}}}`" if written else "see below"
    if isinstance(value, Rate):
        return f"`{format_rate(value)}`"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(map(str, value))}]`"
    if isinstance(value, int) and words.startswith("size"):
        return f"`{format_size(value)}`"
    return f"`{show(value, unit)}`"


def _written(value: Any) -> str:
    """A dataclass as it would be written, without what is as it would be anyway."""
    parts = []
    for field in dataclasses.fields(value):
        part = getattr(value, field.name)
        if field.name != TAG and (part == field.default or field.default_factory is not dataclasses.MISSING):
            continue
        nested = dataclasses.is_dataclass(part)
        unit = Unit(field.metadata.get("unit", Unit.PLAIN))
        parts.append(f"{field.name}: {f'{{{_written(part)}}}' if nested else show(part, unit)}")
    return ", ".join(parts)


def _models_in(hint: Any) -> list[type[BaseModel]]:
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return [] if hint is Secret else [hint]
    return [model for part in typing.get_args(hint) for model in _models_in(part)]


def _kind_of(model: type[BaseModel]) -> str:
    """What tells the model from the others that may stand in its place."""
    kind = model.model_fields.get(TAG)
    return f" with {TAG} {_name(kind.annotation)}" if kind is not None else ""


def first_paragraph(text: str | None) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((text or "").strip().split("\n\n")[0].split())


if __name__ == "__main__":
    sys.stdout.write(render())
