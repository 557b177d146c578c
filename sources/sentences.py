"""Sentences about replicas: the same for every source."""

from collections.abc import Collection

_NAMED = 3


def listed(names: Collection[str]) -> str:
    """The names in their order; of many the first ones."""
    known = sorted(names)
    return ", ".join(known[:_NAMED]) + (f" and {len(known) - _NAMED} more" if len(known) > _NAMED else "")


def not_a_number(metric: str, members: Collection[str]) -> str:
    """Which replicas (or parts of a split) of a pool gave NaN or an infinity; the name "" stands for none."""
    named = set(members) - {""}
    return f"{metric} of {listed(named)} is not a number" if named else f"{metric} is not a number"
