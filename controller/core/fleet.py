"""What pools share: budgets, and the guard against lowering the whole fleet on one wrong reading.

Only what will really be sent counts as a move. A pool that merely observes stays where it is, whatever it would like;
one whose target cannot be read is somewhere, and the shared limit must hold wherever that is.
"""

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from controller.core.model import Decision, Lever, Mode, Step, Target
from controller.core.rules import Budget, FleetRules
from controller.core.why import Why


@dataclass(frozen=True, slots=True)
class FleetHold:
    """The fleet guard's memory: since when many pools want to fall at once, when it last let some of them, and until
    when a tick on which nobody falls does not end it. Unix seconds."""

    since: float
    let_at: float
    until: float


def share(
    decisions: Mapping[Target, Decision],
    rules: FleetRules,
    known: Mapping[Target, float],
    now: float,
    held: FleetHold | None,
) -> tuple[dict[Target, Decision], FleetHold | None]:
    """Apply the group guards. `known` are positions that were read before, for targets that cannot be read now. Returns
    the decisions and the hold of the fleet guard (None = it does not hold)."""
    out, held = _fleet_guard(dict(decisions), rules, now, held)
    weights = {p.pool: p.weight for p in rules.pools}
    limits = {t: p.of(t).limits.max for p in rules.pools for t in p.targets}
    for budget in sorted(rules.budgets, key=lambda b: b.name):
        out = _budget(out, budget, weights, {**limits, **known})
    return out, held


def _budget(
    decisions: dict[Target, Decision], budget: Budget, weights: Mapping[str, float], known: Mapping[Target, float]
) -> dict[Target, Decision]:
    """Increases share what is left of the budget, one replica at a time to whoever is furthest from what it asked for,
    lower ranks before higher ones; nobody is pushed below what it has. Ties go by name, so that the order of pools does
    not matter."""
    mine = [d for t, d in sorted(decisions.items()) if t.lever == Lever.REPLICAS and t.pool in budget.pools]
    fixed = math.fsum(_stands(d, known) * weights[d.target.pool] for d in mine if not _moves(d))
    movers = {d.target: d for d in mine if _moves(d)}
    asked = {t: d.final or 0.0 for t, d in movers.items()}
    if fixed + math.fsum(asked[t] * weights[t.pool] for t in asked) <= budget.max + 1e-9:
        return decisions
    given = {t: min(d.current or 0.0, asked[t]) for t, d in movers.items()}
    room = budget.max - fixed - math.fsum(given[t] * weights[t.pool] for t in given)
    rank = budget.ranks
    open_ = [(rank.get(t.pool, 0), given[t] / asked[t], str(t), t) for t in given if given[t] < asked[t]]
    heapq.heapify(open_)
    while open_:
        first, _, name, target = heapq.heappop(open_)
        if weights[target.pool] > room + 1e-9 or given[target] + 1 > asked[target]:
            continue
        given[target] += 1
        room -= weights[target.pool]
        heapq.heappush(open_, (first, given[target] / asked[target], name, target))
    detail = f"{budget.name}: {budget.max:g}"
    return {t: _cut(d, given[t], Why.GROUP_BUDGET, detail) if t in given else d for t, d in decisions.items()}


def _moves(decision: Decision) -> bool:
    """Whether the decision will be sent as it stands."""
    return decision.changed and not decision.blocked and decision.mode in (Mode.PROTECT, Mode.AUTO)


def _stands(decision: Decision, known: Mapping[Target, float]) -> float:
    """Where a target that does not move is: read, else where it was last seen, else at its maximum."""
    return decision.current if decision.current is not None else known[decision.target]


def _fleet_guard(
    decisions: dict[Target, Decision], rules: FleetRules, now: float, held: FleetHold | None
) -> tuple[dict[Target, Decision], FleetHold | None]:
    """One tick that would lower many pools at once is more likely a wrong reading than a quiet fleet: hold it. What
    still wants to fall after the hold may do so, a share per hold. A fleet smaller than `min_pools` lowered pools is
    left to the guards of each pool: there, one pool is already more than any share."""
    guard = rules.guard
    weights = {p.pool: p.weight for p in rules.pools}
    replicas = [d for d in decisions.values() if d.target.lever == Lever.REPLICAS and d.current is not None]
    falls = sorted((d for d in replicas if _moves(d) and (d.final or 0.0) < (d.current or 0.0)), key=_by_drop)
    drops = {d.target: ((d.current or 0.0) - (d.final or 0.0)) * weights[d.target.pool] for d in falls}
    gpus = math.fsum((d.current or 0.0) * weights[d.target.pool] for d in replicas)
    many = len(falls) > guard.share * len(replicas) or math.fsum(drops.values()) > guard.share * gpus
    if len(falls) < guard.min_pools or not many:
        # Slow levers fall on some ticks only: a quiet tick between two mass falls does not end the hold.
        return decisions, held if held is not None and now < held.until else None
    begun = held if held is not None else FleetHold(now, now, now)
    free: set[Target] = set()
    if now - begun.let_at >= guard.hold:
        room_pools, room_gpus = max(1, math.floor(guard.share * len(replicas))), guard.share * gpus
        for decision in falls:
            if len(free) < room_pools and (not free or drops[decision.target] <= room_gpus):
                free.add(decision.target)
                room_gpus -= drops[decision.target]
    detail = f"{len(falls)} of {len(replicas)} pools at once"
    out = {
        t: _cut(d, d.current or 0.0, Why.FLEET_GUARD, detail) if t in drops and t not in free else d
        for t, d in decisions.items()
    }
    return out, FleetHold(begun.since, now if free else begun.let_at, now + 2 * guard.hold)


def _by_drop(decision: Decision) -> tuple[float, str]:
    """The smallest falls first: what is let go should be what would hurt least if the readings were wrong."""
    return ((decision.current or 0.0) - (decision.final or 0.0), str(decision.target))


def _cut(decision: Decision, value: float, why: Why, detail: str) -> Decision:
    if decision.final == value:
        return decision
    step = Step("fleet", decision.final or 0.0, value, why, detail)
    return replace(decision, final=value, why=why, steps=(*decision.steps, step))
