"""Somebody else's value, by the ledger: who set it, and until when Governor leaves it alone."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from controller.config import GovernorConfig
from controller.core.model import Target, TargetState
from controller.run.ledger import Record, ledger_files, read_ledger


@dataclass(frozen=True, slots=True)
class Foreign:
    """A value that is not Governor's. `until` (unix seconds) is when it is left alone no longer if nobody writes it
    again; None where nothing tells that."""

    writer: str
    value: float | None
    until: float | None


def foreign(
    config: GovernorConfig, ledger: Path, newest: Record | None, target: Target, now: float
) -> Foreign | None:  # fmt: skip
    """Who else writes the target, by the `newest` record of its ledger; None where nobody does, or did for so long that
    it is over by now."""
    state = newest.snapshot.targets.get(target) if newest is not None else None
    if newest is None or state is None or not state.foreign_writer:
        return None
    plugin = config.actuator(target.pool, target.lever)
    held = getattr(plugin.settings, "yield_for", None) if plugin is not None else None
    if held is None:
        return Foreign(state.foreign_writer, state.accepted, None)
    until = _since(ledger, target, newest) + held
    if until <= newest.at:  # it is told for longer than a write is: whoever owns the target goes on with it
        return Foreign(state.foreign_writer, state.accepted, None)
    return Foreign(state.foreign_writer, state.accepted, until) if until > now else None


def _since(ledger: Path, target: Target, newest: Record) -> float:
    """When the foreign value that is there was first seen (unix seconds)."""
    since, value = newest.at, newest.snapshot.targets[target].accepted
    for at, state in _back(ledger, target):
        if state is None or not state.foreign_writer or state.accepted != value:
            break
        since = min(since, at)
    return since


def _back(ledger: Path, target: Target) -> Iterator[tuple[float, TargetState | None]]:
    """The target at each tick, the newest first."""
    for file in reversed(ledger_files(ledger)):
        yield from reversed([(record.at, record.snapshot.targets.get(target)) for record in read_ledger(file, [])])
