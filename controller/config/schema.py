"""JSON Schema of the config file, plug-ins included, for editors and for `governor schema`."""

from typing import Any

from controller import registry
from controller.config.models import GovernorConfig
from controller.config.plugins import CHOICE, model_of
from controller.registry import Group

_CHOOSERS = (Group.SOURCE, Group.POLICY, Group.ACTUATOR)


def json_schema() -> dict[str, Any]:
    """Draft 2020-12, plug-ins as a union told apart by `kind`. Raises PluginError when one cannot be imported.

    `module:Class` is accepted with any parameters, since code that is not installed cannot be looked into.
    """
    schema = GovernorConfig.model_json_schema(by_alias=True)
    defs = schema.setdefault("$defs", {})
    for group in _CHOOSERS:
        options: list[dict[str, Any]] = []
        for kind in registry.names(group):
            plugin = model_of(registry.plugin(group, kind).Config).model_json_schema(
                by_alias=True, ref_template=f"#/$defs/{group.noun}-{kind}-{{model}}"
            )
            for name, part in plugin.pop("$defs", {}).items():
                defs[f"{group.noun}-{kind}-{name}"] = part
            plugin["properties"] = {"kind": {"const": kind}, **plugin.get("properties", {})}
            plugin["required"] = ["kind", *plugin.get("required", [])]
            plugin["title"] = f"{group.noun} {kind}"
            defs[f"{group.noun}-{kind}"] = plugin
            options.append({"$ref": f"#/$defs/{group.noun}-{kind}"})
        options.append(
            {
                "type": "object",
                "title": f"{group.noun} module:Class",
                "properties": {"kind": {"type": "string", "pattern": ":"}},
                "required": ["kind"],
            }
        )
        defs[group.noun] = {"oneOf": options}
    schema = _link(schema)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Inference Governor configuration",
        "description": "The config file of Inference Governor, format version 1.",
        **{key: value for key, value in schema.items() if key not in ("title", "description")},
    }


def _link(node: Any) -> Any:
    """`node` with every place that chooses a plug-in pointing to the union of its group."""
    if isinstance(node, list):
        return [_link(item) for item in node]
    if not isinstance(node, dict):
        return node
    if CHOICE in node:
        rest = {key: value for key, value in node.items() if key not in (CHOICE, "type")}
        return {"$ref": f"#/$defs/{node[CHOICE]}", **rest}
    return {key: _link(value) for key, value in node.items()}
