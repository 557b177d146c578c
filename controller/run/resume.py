"""Resume: what a new process takes over from the ledger of its predecessor.

What was learned of the fleet (kappa, cold-start times, forecasts) and what laws and guards remember, so that a restart
neither forgets a rate limit nor learns everything anew; the writes whose outcomes nobody knows; and where each target
was, for those that cannot tell it themselves. All others are read back. Windows start empty, and the guards hold
relaxing moves until they are full.

The memory stands in the ledger at its end, and at every twentieth tick or so for who is killed. The ticks after it are
decided again, by the laws that decided them, which gives the memory of the last one to the bit, also where the new
process has another config.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import structlog

from controller.config import ConfigError
from controller.core.decide import DecideState
from controller.core.learned import EstimatorState
from controller.core.model import Decision, Outcome, Pin, Target
from controller.core.why import Why
from controller.run import codec
from controller.run.carry import carried
from controller.run.laws import Known, Laws, recorded
from controller.run.ledger import LedgerError, kinds, ledger_files, records_after
from controller.run.loop import ControlLoop
from controller.run.samepool import same_pool
from controller.run.states import restore

_REAL = frozenset({"live", "by_hand"})  # modes whose writes reach targets

log = structlog.get_logger("governor.resume")
Plain = Mapping[str, Any]


@dataclass(slots=True)
class _Found:
    """What the small lines of one file add up to: its head, the text of the newest states and the number of its line,
    by target the decisions that are open and the last values known."""

    file: Path
    head: Plain | None = None
    states: str = ""
    states_line: int = 0
    open: dict[str, Plain] = field(default_factory=dict)
    values: dict[str, float] = field(default_factory=dict)
    ticks: int = 0
    newest: float = 0.0  # when the last of them was, unix seconds
    ticks_since: int = 0  # those after the newest states
    _lines: int = 0
    _told: bool = False  # whether the tick has a memo

    def take(self, kind: str, text: str) -> None:
        """The next line."""
        self._lines += 1
        if kind == "format":
            self.head = json.loads(text)
        elif kind == "states":
            self.states, self.states_line, self.ticks_since = text, self._lines, 0
        elif kind == "memo":
            memo = json.loads(text)["memo"]
            self.open = {one["target"]: one for one in (*memo.get("open", ()), *memo.get("sends", ()))}
            self.values.update(memo.get("values", {}))
            self._told = True
        elif kind == "applied":
            for one in json.loads(text)["applied"]:
                self._settle(one["target"], one["outcome"])
        else:  # a tick without a memo had nothing to send, and nothing open any more
            self.open = self.open if self._told else {}
            self.newest = float(text[text.rindex('"at":') + 5 :].rstrip("}\n"))
            self.ticks, self.ticks_since, self._told = self.ticks + 1, self.ticks_since + 1, False

    def _settle(self, target: str, outcome: str) -> None:
        if outcome != Outcome.UNKNOWN and (sent := self.open.pop(target, None)) and outcome == Outcome.DONE:
            self.values[target] = sent["final"]


def resume(loop: ControlLoop, path: Path) -> None:
    """Take over from the newest file of the ledger at `path` that has a record. What cannot be read is left behind and
    said: a damaged ledger must not keep the fleet without its controller."""
    for file in reversed(ledger_files(path) if path.exists() else []):
        found = _scan(file)
        if found.head is not None and found.ticks:
            _take(loop, found, found.head)
            return


def _scan(file: Path) -> _Found:
    found = _Found(file)
    try:
        for kind, text in kinds(file):
            found.take(kind, text)
    except (LedgerError, *codec.FOREIGN) as error:
        log.warning("ledger_not_resumed", file=str(file), error=f"{type(error).__name__}: {error}")
    return found


def _take(loop: ControlLoop, found: _Found, head: Plain) -> None:
    levers = {(pool.pool, lever.lever) for pool in loop.parts.rules.pools for lever in pool.levers}
    targets = {name: target for name in (*found.values, *found.open) if (target := _target(name)) is not None}
    known = {name: target for name, target in targets.items() if (target.pool, target.lever) in levers}
    loop.remembers(found.newest)
    if found.states:
        _take_memory(loop, found, head)
    loop.knows(known[name] for name in found.values if name in known)
    before = head.get("config") or {}
    placed = {key for key in levers if loop.sends_to_the_same(*key, before)}
    loop.hands.positions = {
        target: value
        for name, value in found.values.items()
        if (target := known.get(name)) is not None and (target.pool, target.lever) in placed
    }
    if {head.get("mode"), loop.parts.mode} <= _REAL:
        loop.hands.must_verify([_decision(plain) for name, plain in found.open.items() if name in known])


def _target(name: str) -> Target | None:
    """None for a lever that this version does not have."""
    try:
        return codec.target_of(name)
    except codec.FOREIGN:
        return None


def _decision(plain: Plain) -> Decision:
    """As it was recorded; where it has words that this version does not know, what verifying needs of it."""
    try:
        return codec.decode(Decision, plain)
    except codec.FOREIGN:
        target = codec.target_of(plain["target"])
        return Decision(target, plain["current"], plain["final"], Why.OUTCOME_UNKNOWN, send=True)


def _take_memory(loop: ControlLoop, found: _Found, head: Plain) -> None:
    parts, before = loop.parts, head.get("config") or {}
    same = head.get("config_hash") == parts.config_hash
    laws = Laws(parts.estimators, parts.rules, parts.policies) if same else _laws(before, found.file)
    policies = laws.policies if laws is not None else {}
    learned: Known
    lost = set[str]()

    def salvaged(data: Plain) -> EstimatorState:
        one, gone = codec.salvage(EstimatorState, data)
        lost.update(gone)
        return one

    try:
        states = json.loads(found.states)["states"]
        # What a person said stands, whatever else cannot be read.
        parts.pins.inherit({codec.target_of(at): codec.decode(Pin, one) for at, one in states.get("pins", {}).items()})
        state, learned = restore(states, policies, salvaged)
    except codec.FOREIGN as error:
        log.warning("memory_of_another_version", version=head.get("version"), error=f"{type(error).__name__}: {error}")
        return
    if lost:
        log.warning("learned_anew", version=head.get("version"), what=sorted(lost))
    if laws is not None and found.ticks_since:
        state, learned = _rolled(found, laws, state, learned)
    pools = {pool for pool in parts.estimators if same_pool(pool, before, parts.config)}
    loop.learned = {pool: one for pool, one in learned.items() if pool in pools}
    loop.state = state if same else carried(state, policies, parts.policies, parts.rules, pools)


def _laws(config: Plain, file: Path) -> Laws | None:
    """What decided under a recorded config; None, and said, where this version cannot make it."""
    try:
        return Laws.of(recorded(config, file))
    except ConfigError as error:
        log.warning("laws_not_resumed", file=str(file), error=str(error))
        return None


def _rolled(
    found: _Found, laws: Laws, state: DecideState, learned: Known
) -> tuple[DecideState, Known]:  # fmt: skip
    """What is remembered and learned after the last tick that can be read."""
    try:
        with suppress(LedgerError):  # said when it was read for the first time; what stands before is good
            for record in records_after(found.file, found.states_line):
                if record.mode != "by_hand":  # a person decided that
                    _, state, learned = laws.again(record, state, learned)
    except Exception as error:  # noqa: BLE001 - what decided once may fail in this version, which has to start
        log.warning("ticks_not_resumed", file=str(found.file), error=f"{type(error).__name__}: {error}")
    return state, learned
