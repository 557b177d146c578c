"""Replay: decide every recorded tick again and compare. Same snapshots, state and config must give the same plans.

With the config that the ledger was made with, any difference is a defect or a changed version. With another config the
comparison means something up to the first difference only: from there the recorded world no longer is the one that
the new plan would have made.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from controller.config import GovernorConfig
from controller.core.decide import DecideState, decide
from controller.core.learned import EstimatorState
from controller.core.model import Plan
from controller.run.assembly import estimator_specs, fleet_rules, policies
from controller.run.ledger import LedgerError, read_ledger
from controller.run.loop import learn
from controller.run.resume import restore


@dataclass(frozen=True, slots=True)
class Difference:
    """The first plan that came out differently."""

    at: float
    recorded: Plan
    replayed: Plan


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """How many plans were decided again, how many came out equal, and the first that did not."""

    ticks: int
    equal: int
    first: Difference | None
    config_hash: str
    versions: tuple[str, ...]

    @property
    def reproduced(self) -> bool:
        return self.ticks > 0 and self.ticks == self.equal


def recorded_config(path: Path) -> tuple[Mapping[str, Any], str]:
    """The config that the ledger carries, as plain data, and its hash. Raises LedgerError."""
    for record in read_ledger(path):
        if record.config is not None:
            return record.config, record.config_hash
    raise LedgerError(f"{path}: no record carries its config; give it with --config")


def replay(path: Path, config: GovernorConfig) -> ReplayReport:
    """Decide the ledger at `path` again under `config`. Raises LedgerError."""
    specs = {spec.pool: spec for spec in estimator_specs(config)}
    rules, laws = fleet_rules(config), policies(config)
    state, learned = DecideState(), dict[str, EstimatorState]()
    ticks = equal = 0
    first: Difference | None = None
    versions: list[str] = []
    hash_ = ""
    for record in read_ledger(path):
        if record.mode == "by_hand":
            continue  # a person decided that
        if record.states is not None:
            state, learned = restore(record.states, laws)
        estimates, learned = learn(specs, record.snapshot, learned)
        plan, state = decide(record.snapshot, estimates, rules, laws, state, ledger_ok=record.ledger_ok)
        ticks, hash_ = ticks + 1, record.config_hash
        if record.version not in versions:
            versions.append(record.version)
        if plan == record.plan:
            equal += 1
        elif first is None:
            first = Difference(record.at, record.plan, plan)
    if not ticks:
        raise LedgerError(f"{path}: no complete record; nothing to replay")
    return ReplayReport(ticks, equal, first, hash_, tuple(versions))
