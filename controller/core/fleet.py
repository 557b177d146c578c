"""What pools share: budgets, and the guard against lowering the whole fleet on one wrong reading.

Where nothing is to be changed the decisions come back as they are, and nobody writes into those that were given: a copy
of all decisions of a fleet is slow. Only what will really be sent counts as a move. A pool that merely observes stays
where it is, whatever it would like; one whose target cannot be read is somewhere, and the shared limit must hold
wherever that is.
"""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from controller.core.model import Decision, Lever, Step, Target
from controller.core.movable import moves
from controller.core.rules import Budget, FleetGuard, FleetRules
from controller.core.why import Why

T = TypeVar("T")
RELIEVING = frozenset({Lever.TENANT_CAP, Lever.ADMISSION, Lever.DOWNGRADE})


@dataclass(frozen=True, slots=True)
class FleetHold:
    """The fleet guard's memory: since when many pools want to relax at once, when it last let some of them, and until
    when a tick on which nobody does does not end it. Unix seconds."""

    since: float
    let_at: float
    until: float


def share(
    decisions: dict[Target, Decision],
    rules: FleetRules,
    known: Mapping[Target, float],
    now: float,
    held: FleetHold | None,
) -> tuple[dict[Target, Decision], FleetHold | None]:
    """Apply the group guards. `known` are positions that were read before, for targets that cannot be read now. Returns
    the decisions and the hold of the fleet guard (None = it does not hold)."""
    out, held = _fleet_guard(decisions, rules, now, held)
    return budgets(out, rules, known), held


def budgets(
    decisions: dict[Target, Decision], rules: FleetRules, known: Mapping[Target, float]
) -> dict[Target, Decision]:
    """The raises that all budgets have room for. Whatever takes back a fall or adds to a raise must come before this,
    for a fall that does not happen makes no room."""
    if not rules.budgets:
        return decisions
    weights = {p.pool: p.weight for p in rules.pools}
    limits = {t: p.of(t).limits for p in rules.pools for t in p.targets}
    known = {**{t: one.max for t, one in limits.items()}, **known}
    least = {t: one.min for t, one in limits.items()}
    for budget in sorted(rules.budgets, key=lambda b: b.name):
        decisions = _budget(decisions, budget, weights, known, least)
    return decisions


def _budget(
    decisions: dict[Target, Decision], budget: Budget, weights: Mapping[str, float], known: Mapping[Target, float],
    least: Mapping[Target, float],
) -> dict[Target, Decision]:  # fmt: skip
    """Increases share what is left of the budget, one replica at a time: first to who is below its minimum, then to
    whoever is furthest from what it asked for, lower ranks before higher ones; nobody is pushed below what it has. Ties
    go by name, so that the order of pools does not matter."""
    mine = [d for t, d in sorted(decisions.items()) if t.lever == Lever.REPLICAS and t.pool in budget.pools]
    fixed = math.fsum(_stands(d, known) * weights[d.target.pool] for d in mine if not _changes(d))
    movers = {d.target: d for d in mine if _changes(d)}
    asked = {t: d.final or 0.0 for t, d in movers.items()}
    if fixed + math.fsum(asked[t] * weights[t.pool] for t in asked) <= budget.max + 1e-9:
        return decisions
    given = {t: min(d.current or 0.0, asked[t]) for t, d in movers.items()}
    room = budget.max - fixed - math.fsum(given[t] * weights[t.pool] for t in given)
    rank = budget.ranks

    def place(target: Target) -> tuple[bool, int, float, str, Target]:
        served = given[target] >= least.get(target, 0.0)
        return served, rank.get(target.pool, 0), given[target] / asked[target], str(target), target

    open_ = [place(t) for t in given if given[t] < asked[t]]
    heapq.heapify(open_)
    while open_:
        target = heapq.heappop(open_)[-1]
        if weights[target.pool] > room + 1e-9 or given[target] + 1 > asked[target]:
            continue
        given[target] += 1
        room -= weights[target.pool]
        heapq.heappush(open_, place(target))
    detail = f"{budget.name}: {budget.max:g}"
    return {t: _cut(d, given[t], Why.GROUP_BUDGET, detail) if t in given else d for t, d in decisions.items()}


def _changes(decision: Decision) -> bool:
    """Whether the decision will be sent as it stands."""
    return decision.changed and moves(decision)


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
    found = (decisions.get(Target(pool, Lever.REPLICAS)) for pool in weights)
    replicas = [d for d in found if d is not None and d.current is not None]
    falls = sorted((d for d in replicas if _changes(d) and (d.final or 0.0) < (d.current or 0.0)), key=_by_drop)
    drops = {d.target: ((d.current or 0.0) - (d.final or 0.0)) * weights[d.target.pool] for d in falls}
    gpus = math.fsum((d.current or 0.0) * weights[d.target.pool] for d in replicas)
    many = len(falls) > guard.share * len(replicas) or math.fsum(drops.values()) > guard.share * gpus
    if len(falls) < guard.min_pools or not many:
        # Slow levers fall on some ticks only: a quiet tick between two mass falls does not end the hold.
        return decisions, held if held is not None and now < held.until else None
    free, held = _let(guard, [(d.target, drops[d.target]) for d in falls], len(replicas), gpus, now, held)
    detail = f"{len(falls)} of {len(replicas)} pools at once"
    out = {
        t: _cut(d, d.current or 0.0, Why.FLEET_GUARD, detail) if t in drops and t not in free else d
        for t, d in decisions.items()
    }
    return out, held


def hold_releases(
    decisions: dict[Target, Decision], released: Mapping[str, tuple[float, float]], rules: FleetRules, now: float,
    held: FleetHold | None,
) -> tuple[dict[Target, Decision], FleetHold | None]:  # fmt: skip
    """The same for what caps, gates and downgrades give back: by pool, the replica-equivalents of work that one tick
    lets in again, and those that are carried. Laws release by small steps, so only a release of more than the share of
    what its pool carries counts; tightening is never held."""
    guard = rules.guard
    sizes = {pool: back for pool, (back, carried) in released.items() if back > guard.share * carried and back > 0}
    if len(sizes) < guard.min_pools or len(sizes) <= guard.share * len(released):
        return decisions, held if held is not None and now < held.until else None
    ranked = sorted(sizes.items(), key=lambda one: (one[1], one[0]))
    carried = math.fsum(have for _, have in released.values())
    free, held = _let(guard, ranked, len(released), carried, now, held)
    detail = f"{len(sizes)} of {len(released)} pools let work in at once"
    levers = {(p.pool, lever.lever): lever for p in rules.pools if p.pool in sizes for lever in p.levers}
    out = dict(decisions)
    for target, decision in decisions.items():
        lever = levers.get((target.pool, target.lever)) if target.lever in RELIEVING else None
        if lever is None or target.pool in free or not _changes(decision) or decision.current is None:
            continue
        if decision.why is Why.PIN:
            continue  # a person is no wrong reading
        if ((decision.final or 0.0) < decision.current) == lever.relax_down:
            out[target] = _cut(decision, decision.current, Why.FLEET_GUARD, detail)
    return out, held


def _let(
    guard: FleetGuard, ranked: Sequence[tuple[T, float]], members: int, total: float, now: float,
    held: FleetHold | None,
) -> tuple[set[T], FleetHold]:  # fmt: skip
    """Who of those that are held may go on: none before the hold is over, then a share per hold, smallest first."""
    begun = held if held is not None else FleetHold(now, now, now)
    free: set[T] = set()
    if now - begun.let_at >= guard.hold:
        places, room = max(1, math.floor(guard.share * members)), guard.share * total
        for one, size in ranked:
            if len(free) < places and (not free or size <= room):
                free.add(one)
                room -= size
    return free, FleetHold(begun.since, now if free else begun.let_at, now + 2 * guard.hold)


def _by_drop(decision: Decision) -> tuple[float, str]:
    """The smallest falls first: what is let go should be what would hurt least if the readings were wrong."""
    return ((decision.current or 0.0) - (decision.final or 0.0), str(decision.target))


def _cut(decision: Decision, value: float, why: Why, detail: str) -> Decision:
    if decision.final == value:
        return decision
    step = Step("fleet", decision.final or 0.0, value, why, detail)
    return decision._replace(final=value, why=why, steps=(*decision.steps, step))
