"""What each installed actuator can do with each lever, as it says itself: for `governor actuators` and the docs.

Print the tables of docs/actuators.md with `python -m controller.config.matrix`; a test holds the page equal to them.
"""

import sys
from collections.abc import Iterable

from controller import registry
from controller.config.units import format_duration
from controller.core.model import Lever
from controller.core.ports import Capability
from controller.registry import Group

Claim = tuple[str, Lever, Capability]


def claims(kinds: Iterable[str] | None = None) -> list[Claim]:
    """Kind, lever and capability, in the order of kinds and levers; of all that is installed without `kinds`. Raises
    PluginError."""
    found: list[Claim] = []
    for kind in registry.names(Group.ACTUATOR) if kinds is None else kinds:
        can = registry.actuator(kind).describe()
        found += [(kind, lever, can[lever]) for lever in Lever if lever in can]
    return found


def cells(one: Capability) -> dict[str, str]:
    """A capability in words."""
    return {
        "unit": one.unit,
        "step": f"{one.quantum:g}",
        "in force": _in_force(one),
        "a batch": "as one" if one.atomic else "one by one",
        "compares before it writes": "yes" if one.cas else "no",
        "when Governor dies": "falls back by itself" if one.expiry else "stays",
        "after a restart of the target": "kept" if one.persistent else "forgotten",
        "reaches": one.reach.value,
        "read back": one.ack.value,
        "note": one.note,
    }


def _in_force(one: Capability) -> str:
    when = f"after {format_duration(one.settle)}" if one.settle else "at once"
    return when if one.hot else f"{when}, by a restart"


def tables() -> str:
    """The matrix of the built-in actuators in Markdown, and the details below it."""
    kinds = registry.builtin(Group.ACTUATOR)
    can = {(kind, lever): one for kind, lever, one in claims(kinds)}
    matrix = _table(
        ["", *(f"`{lever}`" for lever in Lever)],
        [[f"`{kind}`", *(_cell(can.get((kind, lever))) for lever in Lever)] for kind in kinds],
    )
    names = list(cells(next(iter(can.values()))))
    details = _table(
        ["actuator", "lever", *names],
        [[f"`{kind}`", f"`{lever}`", *cells(one).values()] for (kind, lever), one in can.items()],
    )
    return f"{matrix}\n\n{details}\n"


def _table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows))


def _cell(one: Capability | None) -> str:
    if one is None:
        return "cannot"
    return "yes, expires" if one.expiry else "yes, stays"


if __name__ == "__main__":
    sys.stdout.write(tables())
