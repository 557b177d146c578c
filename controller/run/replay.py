"""Replay: decide every recorded tick again and compare. Same snapshots, state and config must give the same plans.

With the configs that the ledger was made with, any difference is a defect or a changed version. A reload begins a file
that carries its whole config, and replay follows it; where a file does not, or this version refuses the config, it ends
there and says so. With another config the comparison means something up to the first difference only: from there the
recorded world no longer is the one that the new plan would have made.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from controller.config import ConfigError, GovernorConfig
from controller.core.decide import DecideState
from controller.core.model import Plan
from controller.run.laws import Known, Laws, recorded
from controller.run.ledger import LedgerError, Record, read_ledger
from controller.run.states import restore


@dataclass(frozen=True, slots=True)
class Difference:
    """The first plan that came out differently."""

    at: float
    recorded: Plan
    replayed: Plan


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """How many plans were decided again, how many came out equal, and the first that did not. `hashes` are those of the
    recorded configs, in order; `stopped` is why replay ended before the ledger did, "" when it did not;
    `damage` what of it could not be read."""

    ticks: int
    equal: int
    first: Difference | None
    hashes: tuple[str, ...]
    versions: tuple[str, ...]
    stopped: str = ""
    damage: tuple[LedgerError, ...] = ()

    @property
    def reproduced(self) -> bool:
        return self.ticks > 0 and self.ticks == self.equal and not self.stopped


def replay(path: Path, config: GovernorConfig | None = None) -> ReplayReport:
    """Decide the ledger at `path` again, all of it under `config`, or each record under the config that it was made
    with. Raises LedgerError."""
    state: DecideState = DecideState()
    learned: Known = {}
    ticks = equal = 0
    first: Difference | None = None
    versions, hashes = dict[str, None](), list[str]()
    stopped = ""
    laws: Laws | None = None
    damage: list[LedgerError] = []
    for record in read_ledger(path, damage):
        if record.mode == "by_hand":
            continue  # a person decided that
        if laws is None or record.config_hash != hashes[-1]:
            try:
                laws = Laws.of(config if config is not None else _recorded(record, path))
            except LedgerError as error:
                if not ticks:
                    raise
                stopped = str(error)
                break
            hashes.append(record.config_hash)
        if record.states is not None:
            state, learned = restore(record.states, laws.policies)
        plan, state, learned = laws.again(record, state, learned)
        ticks, versions[record.version] = ticks + 1, None
        if plan == record.plan:
            equal += 1
        elif first is None:
            first = Difference(record.at, record.plan, plan)
    if not ticks and damage:
        raise damage[0]
    if not ticks:
        raise LedgerError(f"{path}: no complete record; nothing to replay")
    return ReplayReport(ticks, equal, first, tuple(hashes), tuple(versions), stopped, tuple(damage))


def _recorded(record: Record, path: Path) -> GovernorConfig:
    """The config that a record was made with. Raises LedgerError that says what the ledger holds of it."""
    since = datetime.fromtimestamp(record.at, UTC).isoformat(timespec="seconds")
    what = f"{path}: of the config {record.config_hash}, in force from {since} on,"
    if record.config is None:
        raise LedgerError(f"{what} the ledger holds the hash alone; give the config with --config")
    try:
        return recorded(record.config, path)
    except ConfigError as error:
        raise LedgerError(
            f"{what} the ledger holds the whole, and this version refuses it: {error}; give one with --config"
        ) from error
