"""A glance at PromQL: which metrics an expression reads. Enough for expressions of our own making."""

import re

_STRING = re.compile(r'"[^"]*"')
_NAME = re.compile(r"\b(?:governor|process)_[a-z0-9_]+")


def names(expr: str) -> set[str]:
    """The metrics of Governor (and of its process) that `expr` names."""
    return set(_NAME.findall(_STRING.sub('""', expr)))
