"""Whether a pool is still the same fleet under another config. What was learned of one model on one engine is wrong for
another, also where the pool keeps its name."""

from collections.abc import Mapping
from typing import Any

_MEANING = ("engine", "selector", "profile")


def same_pool(pool: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """`before` and `after` are configs as ``config.spell`` spells them."""
    one, other = (config.get("pools", {}).get(pool, {}) for config in (before, after))
    return all(one.get(key) == other.get(key) for key in _MEANING)
