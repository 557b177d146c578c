"""What targets say when they are only asked: reachable, allowed, in whose hands. Writes nothing."""

import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from controller.config import GovernorConfig
from controller.core.model import Target, TargetState
from controller.core.ports import Ack, Finding
from controller.run.assembly import RunMode, assemble, diagnosing
from controller.run.loop import ControlLoop


def look(config: GovernorConfig) -> list[Finding]:
    """Read every target once, as a dry run does, and let each actuator tell what it knows beyond that. Raises
    AssemblyError."""
    with tempfile.TemporaryDirectory() as folder:
        loop = assemble(config, mode=RunMode.DRY_RUN, ledger_path=Path(folder))
        try:
            now = time.time()
            states = loop.tick(now).snapshot.targets
            said = [*_said(config, states)]
            known = {(one.level, one.subject) for one in said}  # an actuator may tell the same in words of its own
            return [*said, *(one for one in _told(loop, now) if (one.level, one.subject) not in known)]
        finally:
            loop.close()


def _said(config: GovernorConfig, states: Mapping[Target, TargetState]) -> Iterator[Finding]:
    for target, state in sorted(states.items()):
        if state.error:
            yield Finding("error", str(target), state.error)
        elif state.foreign_writer:
            mend = "two writers undo each other; take the target from one of them"
            yield Finding("error", str(target), f"{state.foreign_writer} writes it too; {mend}")
        elif state.assumed and _tells_its_version(config, target):
            text = f"no Governor tells it now: it stands at {state.accepted:g}, or will when what was told has expired"
            yield Finding("info", str(target), text)
        elif state.assumed:
            text = f"nothing tells its value, {state.accepted:g} is assumed; a restart would go unnoticed"
            yield Finding("warning", str(target), text)


def _tells_its_version(config: GovernorConfig, target: Target) -> bool:
    """Whether the target runs what it is told and says so, and so has nothing of its own that would go unseen."""
    plugin = config.actuator(target.pool, target.lever)
    can = plugin.cls.describe(plugin.settings).get(target.lever) if plugin is not None else None
    return can is not None and can.ack is Ack.VERSION


def _told(loop: ControlLoop, now: float) -> Iterator[Finding]:
    for place, diagnose in diagnosing(loop.parts.actuators):
        try:
            for one in diagnose(now):
                yield replace(one, text=one.text.removeprefix(f"{one.subject}: "))  # an error may name its target, too
        except Exception as error:  # noqa: BLE001 - a plug-in's mistake must not hide what the others say
            yield Finding("error", place, f"cannot be looked at: {type(error).__name__}: {error}")
