"""Hindsight: what the last actions of a pool's levers did, from what is read now. Before anything is decided.

Two memories are kept for each pool: whether actions helped (``effect``) and whether levers swing by themselves
(``oscillation``). Values count as they are read back, so a rehearsal, whose world does not answer, concludes nothing.
"""

import math
from collections.abc import Mapping
from typing import NamedTuple

from controller.core import effect, oscillation, relief
from controller.core.effect import PoolEffect, Sample, Seen
from controller.core.model import Lever, Snapshot, Target
from controller.core.movable import UNREAD
from controller.core.oscillation import OscillationState
from controller.core.ports import Balance, Estimate
from controller.core.rules import LeverRules, PoolRules
from controller.core.signals import Signal

# Looked up by name of the module: a member of an enum takes ten times as long, and each lever asks for it.
_REPLICAS = Lever.REPLICAS
FASTEST = 30.0  # seconds that a change takes to show at least
IDLE = 1e-3  # replica-equivalents of demand below which there is nothing to follow
MOST_OFF = 0.95  # share of the demand beyond which more relief is no further swing


class Hindsight(NamedTuple):
    """Memory of one pool."""

    effect: PoolEffect = PoolEffect()
    swings: Mapping[Lever, OscillationState] = {}

    def gain(self, lever: Lever) -> float:
        """Factor on feedback and release."""
        held = self.swings.get(lever)
        return held.gain if held is not None else 1.0


def look(
    pool: PoolRules, snapshot: Snapshot, estimate: Estimate, balance: Balance, state: Hindsight
) -> Hindsight:  # fmt: skip
    """Take in one tick."""
    rules = pool.watched
    if not rules:
        return state
    values: dict[Lever, dict[str, float]] = {lever: {} for lever in rules}
    foreign: set[Lever] = set()
    owners = snapshot.targets
    for lever, own in values.items():
        for target in pool.of_lever(lever):
            held = owners.get(target, UNREAD)
            value = held.accepted
            if value is not None:
                own[target.member] = value
            if held.foreign_writer:
                foreign.add(lever)
    stands: dict[Lever, float] = {}

    def relieved(lever: Lever, of: Mapping[str, float]) -> float:
        if of is not values.get(lever):
            return relief.given(rules[lever], of, pool, estimate, balance)
        if lever not in stands:  # what is there now is asked for by all who compare with it
            stands[lever] = relief.given(rules[lever], of, pool, estimate, balance)
        return stands[lever]

    seen = Seen(
        snapshot.tick.at,
        _sample(pool, snapshot, estimate, balance),
        values,
        rules,
        pool.window,
        relieved,
        arrived=_arrived(pool.pool, rules.get(Lever.REPLICAS), snapshot, balance),
        foreign=frozenset(foreign),
    )
    watched, _ = effect.watch(seen, state.effect)
    swings = dict(state.swings)
    for lever, one in rules.items():
        noted = _note(one, pool, estimate, balance, seen, swings.get(lever))
        if noted is not None:
            swings[lever] = noted
    return Hindsight(watched, swings)


def _sample(pool: PoolRules, snapshot: Snapshot, estimate: Estimate, balance: Balance) -> Sample | None:
    """None while what is offered, waits and is served cannot be told."""
    readings = snapshot.pools.get(pool.pool)
    if readings is None or readings.partial or not estimate.trusted:
        return None
    if estimate.offered is None or not estimate.unit_rate:
        return None
    depth, admitted = readings.get(Signal.QUEUE_DEPTH), readings.get(Signal.ADMITTED_RATE)
    if not depth.trusted or depth.value is None:
        return None
    unit = estimate.unit_rate
    taken = admitted.value / unit if admitted.trusted and admitted.value is not None else None
    return Sample(snapshot.tick.at, estimate.offered / unit, balance.carried, depth.value / unit, taken)


def _arrived(pool: str, rules: LeverRules | None, snapshot: Snapshot, balance: Balance) -> bool:
    """Whether all replicas that were asked for serve."""
    if rules is None:
        return True
    owner = snapshot.targets.get(Target(pool, Lever.REPLICAS))
    if owner is None:
        return False
    young = any(snapshot.tick.at - p.since < rules.give_up for p in owner.pending)
    return not young and balance.arriving <= 0


def _note(
    rules: LeverRules, pool: PoolRules, estimate: Estimate, balance: Balance, seen: Seen, state: OscillationState | None
) -> OscillationState | None:  # fmt: skip
    """The swings of one lever; None, which leaves them as they are, while nothing is known to hold against them."""
    values = seen.values.get(rules.lever)
    if not values or balance.demand < IDLE:
        return None
    state = state if state is not None else OscillationState()
    if rules.lever is _REPLICAS:
        value = max(next(iter(values.values())), 1.0)
        drive = math.log(max(balance.demand, balance.ahead))
        dead_time = max(estimate.horizon, rules.settle + pool.window, FASTEST)
        grain = math.log1p(rules.limits.quantum / value)
        return oscillation.note(seen.at, math.log(value), drive, dead_time, rules.stabilise, grain, state)
    share = min(MOST_OFF, seen.relief(rules.lever, values) / balance.demand)
    drive = math.log(balance.demand / max(balance.carried, 0.1))
    dead_time = max(rules.settle + pool.window, FASTEST)
    return oscillation.note(seen.at, math.log1p(-share), drive, dead_time, rules.stabilise, 0.0, state)
