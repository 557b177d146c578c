"""Resume: what a new process takes over from the ledger of its predecessor.

What was learned of the fleet (kappa, cold-start times, forecasts) and what laws and guards remember, so that a restart
neither forgets a rate limit nor learns everything anew; the writes whose outcomes nobody knows; and where each target
was, for those that cannot tell it themselves. All others are read back. Windows start empty, and the guards hold
relaxing moves until they are full.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from controller.core.decide import DecideState
from controller.core.estimate import EstimatorState
from controller.core.fleet import FleetHold
from controller.core.guards import GuardState
from controller.core.model import Decision, Outcome
from controller.core.ports import Policy
from controller.core.why import Why
from controller.run import codec
from controller.run.ledger import LedgerError, Raw, ledger_files, raw_records
from controller.run.loop import ControlLoop
from controller.run.samepool import same_pool

log = structlog.get_logger("governor.resume")
Plain = Mapping[str, Any]


@dataclass(slots=True)
class _Found:
    """What the records of one file add up to, as plain data: the newest with states, the config, the newest of all;
    by target the decisions that are still open, and the last values known."""

    states: Raw | None = None
    config: Plain = field(default_factory=dict)
    last: Raw | None = None
    open: dict[str, Plain] = field(default_factory=dict)
    positions: dict[str, float] = field(default_factory=dict)

    def take(self, raw: Raw) -> None:
        """The next record."""
        targets = raw.body["snapshot"].get("targets", {})
        if raw.open is not None:
            self.open = {decision["target"]: decision for decision in raw.open}
        for name in list(self.open):
            if targets.get(name, {}).get("last_outcome", Outcome.UNKNOWN) != Outcome.UNKNOWN:
                del self.open[name]  # verified since
        for name, state in targets.items():
            if state["accepted"] is not None:
                self.positions[name] = state["accepted"]
        if raw.body["mode"] == "live":
            applied = {one["target"]: one["outcome"] for one in raw.applied or ()}
            for name, decision in raw.body["plan"]["decisions"].items():
                if decision.get("send"):
                    self._sent(name, decision, applied.get(name, Outcome.UNKNOWN))
        self.last = raw
        self.states = raw if raw.states is not None else self.states
        self.config = raw.config if raw.config is not None else self.config

    def _sent(self, name: str, decision: Plain, outcome: str) -> None:
        self.open.pop(name, None)
        if outcome == Outcome.UNKNOWN:
            self.open[name] = decision
        elif outcome == Outcome.DONE:
            self.positions[name] = decision["final"]


def resume(loop: ControlLoop, path: Path) -> None:
    """Take over from the newest file of the ledger at `path` that has a record. What cannot be read is left behind and
    said: a damaged ledger must not keep the fleet without its controller."""
    for file in reversed(ledger_files(path) if path.exists() else []):
        found = _scan(file)
        if found.last is not None:
            _take(loop, found)
            return


def _scan(file: Path) -> _Found:
    found = _Found()
    try:
        for raw in raw_records(file):
            found.take(raw)
    except (LedgerError, *codec.FOREIGN) as error:
        log.warning("ledger_not_resumed", file=str(file), error=f"{type(error).__name__}: {error}")
    return found


def _take(loop: ControlLoop, found: _Found) -> None:
    known = {str(target): target for pool in loop.parts.rules.pools for target in pool.targets}
    if found.states is not None:
        _take_memory(loop, found.states, found.config)
    loop.hands.positions = {known[name]: value for name, value in found.positions.items() if name in known}
    if found.last is not None and found.last.body["mode"] == loop.parts.mode == "live":
        loop.hands.must_verify([_decision(plain) for name, plain in found.open.items() if name in known])


def _decision(plain: Plain) -> Decision:
    """As it was recorded; where it has words that this version does not know, what verifying needs of it."""
    try:
        return codec.decode(Decision, plain)
    except codec.FOREIGN:
        target = codec.target_of(plain["target"])
        return Decision(target, plain["current"], plain["final"], Why.OUTCOME_UNKNOWN, send=True)


def restore(
    states: Mapping[str, Any], laws: Mapping[str, Policy[Any]]
) -> tuple[DecideState, dict[str, EstimatorState]]:
    """The states of a full record, for the laws at hand; a law without a recorded state starts anew. Raises one of
    ``codec.FOREIGN`` for states of another version."""
    policies = {
        key: codec.decode(type(laws[key].initial()), data) for key, data in states["policies"].items() if key in laws
    }
    guards = {codec.target_of(text): codec.decode(GuardState, data) for text, data in states["guards"].items()}
    learned = {pool: codec.decode(EstimatorState, data) for pool, data in states["learned"].items()}
    fleet = codec.decode(FleetHold, states["fleet"]) if states["fleet"] is not None else None
    return DecideState(policies, guards, fleet), learned


def _take_memory(loop: ControlLoop, raw: Raw, config: Plain) -> None:
    try:
        memory, learned = restore(raw.states or {}, loop.parts.policies)
    except codec.FOREIGN as error:
        log.warning("memory_of_another_version", version=raw.body["version"], error=str(error))
        return
    specs, now = loop.parts.estimators, loop.parts.config
    loop.learned = {pool: s for pool, s in learned.items() if pool in specs and same_pool(pool, config, now)}
    if raw.body["config_hash"] == loop.parts.config_hash:
        loop.state = memory
