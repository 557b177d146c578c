"""Whether what is sent to a lever still goes to the same place under another config. A value that was taken at one
place is not in force at another, and of a target that cannot tell its value nothing else would ever say so.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from controller.core.model import Lever


def same_place(
    pool: str, lever: Lever, before: Mapping[str, Any], after: Mapping[str, Any], place: Sequence[str] | None = None
) -> bool:
    """`before` and `after` are configs as ``config.spell`` spells them; `place` are the settings of the actuator that
    say where its values go, all of them where it does not tell. With nobody to send anything, in both, it is the same.
    """
    one, other = place_of(pool, lever, before, place), place_of(pool, lever, after, place)
    if one is None or other is None:
        return one is other
    return not moved(one, other)


def place_of(
    pool: str, lever: Lever, config: Mapping[str, Any], place: Sequence[str] | None = None
) -> Mapping[str, Any] | None:
    """Where what is sent to a lever goes, as the settings that say so are spelled; None with nobody to send it."""
    own = _actuator(pool, lever, config)
    if own is None or place is None:
        return own
    told = {name: _setting(pool, name, own) for name in ("kind", *place)}
    return {name: value for name, value in told.items() if value is not None}


def moved(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """The settings that say of these two that they are not the same place. What only one of them has may be a setting
    that another version of Governor did not know: it tells of no move."""
    return tuple(name for name in before if name in after and before[name] != after[name])


def _setting(pool: str, name: str, own: Mapping[str, Any]) -> Any:
    """The setting of this name, a dotted one within another; of what is told of each pool, what is told of this one.
    None where there is none."""
    found: Any = own
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
        if part == "pools" and isinstance(found, Mapping):
            found = found.get(pool)
    return found


def _actuator(pool: str, lever: Lever, config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """As it is spelled, wherever that is: at the lever, or under the name that the lever has for it."""
    found = config.get("pools", {}).get(pool, {}).get("levers", {}).get(lever.value, {}).get("actuator")
    actuator: Mapping[str, Any] | None = config.get("actuators", {}).get(found) if isinstance(found, str) else found
    return actuator
