"""Resume: what a new process takes over from the ledger of its predecessor.

What was learned of the fleet (kappa, cold-start times, forecasts) and what laws and guards remember, so that a restart
neither forgets a rate limit nor learns everything anew; and the writes that were planned and whose outcomes nobody
wrote down. Positions are never taken over: they are read back. Windows start empty, and the guards hold relaxing moves
until they are full.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import structlog

from controller.core.decide import DecideState
from controller.core.estimate import EstimatorState
from controller.core.fleet import FleetHold
from controller.core.guards import GuardState
from controller.core.ports import Policy
from controller.run import codec
from controller.run.ledger import LedgerError, Record, ledger_files, read_ledger
from controller.run.loop import ControlLoop

log = structlog.get_logger("governor.resume")


def resume(loop: ControlLoop, path: Path) -> None:
    """Take over from the newest file of the ledger at `path`. What cannot be read is left behind and said: a damaged
    ledger must not keep the fleet without its controller."""
    files = [file for file in ledger_files(path) if file.stat().st_size] if path.exists() else []
    if not files:
        return
    try:
        full, last = _newest(files[-1])
    except LedgerError as error:
        log.warning("ledger_not_resumed", error=str(error))
        return
    if full is not None and full.states is not None:
        _take_memory(loop, full)
    if last is not None and not last.complete and last.mode == loop.parts.mode == "live":
        loop.hands.must_verify([d for d in last.plan.decisions if d.send])


def restore(
    states: Mapping[str, Any], laws: Mapping[str, Policy[Any]]
) -> tuple[DecideState, dict[str, EstimatorState]]:
    """The states of a full record, for the laws at hand; a law without a recorded state starts anew. Raises KeyError,
    TypeError or ValueError for states of another version."""
    policies = {
        key: codec.decode(type(laws[key].initial()), data) for key, data in states["policies"].items() if key in laws
    }
    guards = {codec.target_of(text): codec.decode(GuardState, data) for text, data in states["guards"].items()}
    learned = {pool: codec.decode(EstimatorState, data) for pool, data in states["learned"].items()}
    fleet = codec.decode(FleetHold, states["fleet"]) if states["fleet"] is not None else None
    return DecideState(policies, guards, fleet), learned


def _take_memory(loop: ControlLoop, record: Record) -> None:
    try:
        memory, learned = restore(record.states or {}, loop.parts.policies)
    except (KeyError, TypeError, ValueError) as error:
        log.warning("memory_of_another_version", version=record.version, error=str(error))
        return
    loop.learned = {pool: state for pool, state in learned.items() if pool in loop.parts.estimators}
    if record.config_hash == loop.parts.config_hash:
        loop.state = memory


def _newest(file: Path) -> tuple[Record | None, Record | None]:
    """The last full record and the last record of a file."""
    full = last = None
    for record in read_ledger(file):
        last = record
        if record.states is not None:
            full = record
    return full, last
