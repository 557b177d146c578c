"""Handing targets back to people: which values to set, and setting them until the targets have taken them.

For the time when no Governor runs: the lock on the ledger makes sure of that.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from controller.config import GovernorConfig
from controller.config.spell import spell
from controller.config.terms import fleet_rules
from controller.core.model import Applied, Outcome, Target
from controller.core.rules import PER_REPLICA, neutral
from controller.core.why import Why
from controller.core.words import number
from controller.run.assembly import RunMode, assemble
from controller.run.ledger import Record
from controller.run.loop import ControlLoop
from controller.run.originals import Original
from controller.run.sameplace import moved, place_of

_PAUSE = 0.5  # seconds between tries: a proxy that reconnects needs about one


@dataclass(frozen=True, slots=True)
class Revert:
    """A change of the ledger that would be taken back: the value before it, and the one that Governor set last."""

    target: Target
    before: float
    after: float


def neutrals(config: GovernorConfig, known: Iterable[Target]) -> dict[Target, float]:
    """At rest: every lever but replicas at the value at which it does nothing. `known` are members that no config
    names."""
    rules = fleet_rules(config)
    levers = {(pool.pool, lever.lever): lever for pool in rules.pools for lever in pool.levers}
    fixed = [target for pool in rules.pools for target in pool.targets]
    values = {t: neutral(levers[t.pool, t.lever], t.member) for t in {*fixed, *known} if (t.pool, t.lever) in levers}
    return {target: value for target, value in values.items() if value is not None}


def restored(config: GovernorConfig, originals: Mapping[Target, Original]) -> dict[Target, float]:
    """As it was before Governor's first write, as far as a lever of the config still moves it."""
    levers = {(pool.pool, lever.lever) for pool in fleet_rules(config).pools for lever in pool.levers}
    return {target: one.value for target, one in originals.items() if (target.pool, target.lever) in levers}


def elsewhere(config: GovernorConfig, originals: Mapping[Target, Original]) -> dict[Target, str]:
    """Of these originals of levers that there are, those that were found at another place than values go to now, and
    what is to be said of each. Where nobody told a place, it is the same."""
    spelled, found = spell(config), dict[Target, str]()
    for target, one in originals.items():
        plugin = config.actuator(target.pool, target.lever)
        told = getattr(plugin.cls, "place", None) if plugin is not None else None
        now = place_of(target.pool, target.lever, spelled, told) if told is not None else None
        if one.place is not None and now is not None and (names := moved(one.place, now)):
            was, goes = (", ".join(f"{name} {where[name]}" for name in names) for where in (one.place, now))
            found[target] = (
                f"{number(one.value)} was found at {was}, and values go to {goes} now; put it back by hand, or with "
                f"the old {names[0]} in the config"
            )
    return found


def reverts(records: Iterable[Record], since: float) -> list[Revert]:
    """What was changed from `since` (unix seconds) on and still stands by what was read last, each target once, sorted.
    A write whose answer was lost counts by the value that was found later, and where none was, as one that landed: to
    put back what never moved does nothing. What somebody else, an expiry or a restart replaced is no more Governor's to
    take back."""
    found: dict[Target, Revert] = {}
    maybe: dict[Target, Revert] = {}
    for record in records:
        if record.at < since:
            continue
        told = {one.target: one.outcome for one in record.applied}
        for one in record.plan.decisions:
            target, current = one.target, one.current
            if current is None or one.why is Why.OUTCOME_UNKNOWN:
                continue
            if (lost := maybe.pop(target, None)) is not None and lost.after == current:
                found[target] = lost
            last = found.get(target)
            if last is not None and last.after != current:
                del found[target]
                last = None
            if not one.send or one.final is None:
                continue
            change = Revert(target, current if last is None else last.before, one.final)
            outcome = told.get(target) if record.complete else Outcome.UNKNOWN
            if outcome is Outcome.DONE:
                found[target] = change
            elif outcome is Outcome.UNKNOWN and record.mode != RunMode.DRY_RUN:
                maybe[target] = change
    return [one for _, one in sorted({**found, **maybe}.items()) if one.before != one.after]


def _rest(seconds: float) -> None:
    threading.Event().wait(seconds)


def put_back(
    config: GovernorConfig,
    wanted: Mapping[Target, float],
    patience: float,
    *,
    clock: Callable[[], float] = time.time,
    pause: Callable[[float], object] = _rest,
) -> list[Applied]:
    """Set the values, trying again for `patience` seconds what was not applied or is not known, one outcome for each
    target. A replica that is gone holds nothing any more. Raises LedgerError while a Governor runs, LedgerFull, and
    AssemblyError."""
    loop = assemble(config, mode=RunMode.BY_HAND)
    try:
        return _put(loop, dict(wanted), clock() + patience, clock, pause)
    finally:
        loop.close()


def _put(
    loop: ControlLoop,
    left: dict[Target, float],
    until: float,
    clock: Callable[[], float],
    pause: Callable[[float], object],
) -> list[Applied]:
    told: dict[Target, Applied] = {}
    while left:
        for one in loop.put(left, clock()):
            told[one.target] = one
            if one.outcome in (Outcome.DONE, Outcome.REFUSED):
                del left[one.target]
        for target in _gone(loop, left, told, clock()):
            told[target] = Applied(target, Outcome.DONE, "there is no such replica any more")
            del left[target]
        if clock() >= until:
            break
        if left:
            pause(_PAUSE)
    return [one for _, one in sorted(told.items())]


def _gone(
    loop: ControlLoop, left: Mapping[Target, float], told: Mapping[Target, Applied], at: float
) -> list[Target]:  # fmt: skip
    """Of those that are left, replicas that neither their actuator knows, which answers for other targets, nor the
    metrics show, which show others of the pool: pods go, and nobody could ever put anything back there."""
    of = loop.parts.actuators
    answered = {id(of.get(f"{t.pool}/{t.lever}")) for t, one in told.items() if one.outcome is Outcome.DONE}
    asked = [t for t in left if t.lever in PER_REPLICA and id(of.get(f"{t.pool}/{t.lever}")) in answered]
    if not asked:
        return []
    try:
        seen = loop.parts.source.observe(at, loop.parts.deadline)
    except Exception:  # noqa: BLE001 - a plug-in's mistake is no evidence that anything is gone
        return []
    there = {name: facts.replicas for name, facts in seen.pools.items() if not (facts.partial or facts.targets_down)}
    return [t for t in asked if there.get(t.pool) and t.member not in there[t.pool]]
