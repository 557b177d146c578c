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
    one, other = _actuator(pool, lever, before), _actuator(pool, lever, after)
    if one is None or other is None:
        return one is other
    # What only one of them has may be a setting that another version of Governor did not know: it tells of no move.
    keys = one.keys() & other.keys()
    return all(one[key] == other[key] for key in (keys if place is None else keys & {"kind", *place}))


def _actuator(pool: str, lever: Lever, config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """As it is spelled, wherever that is: at the lever, or under the name that the lever has for it."""
    found = config.get("pools", {}).get(pool, {}).get("levers", {}).get(lever.value, {}).get("actuator")
    actuator: Mapping[str, Any] | None = config.get("actuators", {}).get(found) if isinstance(found, str) else found
    return actuator
