"""YAML text to plain data, strictly, with the line of every key.

Stricter than PyYAML on purpose, because a config file decides over capacity: only true and false are booleans (in YAML
1.1 `mode: off` is false), 1:30 is not ninety, a key written twice is a mistake rather than a silent override, and
anchors and tags are refused, so that what a reader sees at a place is what applies there.
"""

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from controller.config.errors import Path, Problem, dotted

_MAX_DEPTH = 40


_FLOAT = r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalars of YAML 1.2's core schema."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - what PyYAML looks up; not the inherited one of YAML 1.1


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(0|[1-9][0-9]*)", list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)

_OPENS = (
    yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken, yaml.BlockSequenceStartToken, yaml.BlockMappingStartToken
)  # fmt: skip
_CLOSES = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)


@dataclass(slots=True)
class Tree:
    """Plain data (dict, list, str, int, float, bool, None), the line of every path, and what was wrong on the way."""

    data: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    broken: set[Path] = field(default_factory=set)  # where something was left out, so that its absence means nothing

    def line(self, path: Path) -> int | None:
        """The line of the nearest known place at or above `path`."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path)


def parse(text: str) -> Tree:
    """The tree of one YAML document. Never raises for bad text; see `problems`."""
    tree = Tree()
    try:
        tree.problems.extend(_refused(text))
        if tree.problems:
            return tree
        loader = _Loader(text)
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        tree.problems.append(_unreadable(error))
        return tree
    except yaml.YAMLError as error:
        tree.problems.append(
            Problem("", f"not valid YAML: {' '.join(str(error).split())}", "save the file as UTF-8 text")
        )
        return tree
    if node is not None:
        tree.data = _build(node, (), tree, loader)
    return tree


def _unreadable(error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    what = " ".join(part for part in (error.context, error.problem) if part)
    mend = "indent with spaces" if "'\\t'" in what else "check indentation, colons and quotes"
    if error.context == "expected a single document in the stream":
        what, mend = "there is more than one document in the file", "write one file per config"
    return Problem("", f"not valid YAML: {what}", mend, mark.line + 1 if mark else None)


def _refused(text: str) -> list[Problem]:
    """Anchors, aliases, tags, and nesting so deep that reading on would take long and end in a stack overflow."""
    problems = []
    depth = 0
    for token in yaml.scan(text, Loader=_Loader):
        depth += isinstance(token, _OPENS) - isinstance(token, _CLOSES)
        if depth > _MAX_DEPTH:
            return [Problem("", "nested too deeply", f"nest at most {_MAX_DEPTH} levels", token.start_mark.line + 1)]
        if isinstance(token, (yaml.AnchorToken, yaml.AliasToken)):
            sign = "&" if isinstance(token, yaml.AnchorToken) else "*"
            what = f"the YAML anchor {sign}{token.value} is not allowed"
            problems.append(Problem("", what, "write the values out", token.start_mark.line + 1))
        if isinstance(token, yaml.TagToken):
            tag = "".join(part or "!" for part in token.value)
            problems.append(Problem("", f"the YAML tag {tag} is not allowed", "remove it", token.start_mark.line + 1))
    return problems


def _build(node: yaml.Node, path: Path, tree: Tree, loader: _Loader) -> Any:
    line = node.start_mark.line + 1
    tree.lines.setdefault(path, line)
    if isinstance(node, yaml.SequenceNode):
        return [_build(item, (*path, index), tree, loader) for index, item in enumerate(node.value)]
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, path, tree, loader)
    try:
        return loader.construct_object(node)
    except ValueError:  # int() refuses numbers of thousands of digits
        tree.problems.append(Problem(dotted(path), "the number is too long", "write a shorter number", line))
        tree.broken.add(path)
        return None


def _mapping(node: yaml.MappingNode, path: Path, tree: Tree, loader: _Loader) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            tree.problems.append(Problem(dotted(path), "a key must be plain text", "write `name: value`", line))
            tree.broken.add(path)
            continue
        key = key_node.value
        if key == "<<":
            tree.problems.append(Problem(dotted(path), "the merge key << is not allowed", "write the keys out", line))
            tree.broken.add(path)
            continue
        if key in result:
            first = tree.lines[(*path, key)]
            tree.problems.append(
                Problem(dotted((*path, key)), f"written twice (first in line {first})", "keep one of the two", line)
            )
            continue
        tree.lines[(*path, key)] = line
        result[key] = _build(value_node, (*path, key), tree, loader)
    return result
