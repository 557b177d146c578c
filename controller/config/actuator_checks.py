"""What a lever and the actuator that carries it out must agree on."""

from collections.abc import Iterator, Mapping

from controller.config.errors import Finding, Path
from controller.config.models import LeverConfig
from controller.config.plugins import Plugin
from controller.core.model import Lever, Mode
from controller.core.ports import Capability

# What these levers leave behind when every Governor is dead refuses, degrades or takes out replicas for good, unless
# the target lets go of it by itself.
MUST_EXPIRE = frozenset({Lever.BREAKER, Lever.TENANT_CAP, Lever.ADMISSION, Lever.DOWNGRADE})


def able(place: Path, lever: Lever, settings: LeverConfig, plugin: Plugin) -> Iterator[Finding]:
    """Why this actuator cannot carry out this lever as it is configured; `place` is the lever's path."""
    can: Mapping[Lever, Capability] = plugin.cls.describe(plugin.settings)
    one = can.get(lever)
    who = (*place, "actuator")
    if one is None:
        moves = ", ".join(sorted(can)) or "nothing"
        mend = f"it moves {moves}; choose another, see `governor actuators`"
        yield Finding(who, f"{plugin.kind} cannot move {lever}", mend)
        return
    yield from _steps(place, settings, plugin, one)
    acts = settings.mode in (Mode.AUTO, Mode.PROTECT)
    if lever in MUST_EXPIRE and acts and not one.expiry and not settings.fail_static:
        yield Finding(
            who,
            f"{plugin.kind} cannot drop a value by itself, so {lever} would stay as it is when every Governor is dead",
            "write fail_static: true beside it to accept that, or choose an actuator whose target enforces expiry",
        )


def _steps(place: Path, settings: LeverConfig, plugin: Plugin, one: Capability) -> Iterator[Finding]:
    steps = settings.quantum / one.quantum
    if abs(steps - round(steps)) > 1e-6 or round(steps) == 0:
        yield Finding(
            (*place, "quantum"),
            f"{settings.quantum:g} is not a multiple of {one.quantum:g}, the smallest step of {plugin.kind}",
            f"write quantum: {one.quantum:g}",
            ((*place, "actuator"),),
        )
    if settings.min < one.low:
        yield Finding(
            (*place, "min"),
            f"{settings.min:g} is below {one.low:g}, the least that {plugin.kind} takes",
            f"write min: {one.low:g}",
            ((*place, "actuator"),),
        )
