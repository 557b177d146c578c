"""What pools share: budgets, and the guard against lowering the whole fleet on one wrong reading."""

import math
from collections.abc import Mapping
from dataclasses import replace

from controller.core.model import Decision, Lever, Snapshot, Step, Target
from controller.core.rules import Budget, FleetRules
from controller.core.why import Why


def share(
    decisions: Mapping[Target, Decision], rules: FleetRules, snapshot: Snapshot, held_since: float | None
) -> tuple[dict[Target, Decision], float | None]:
    """Apply the group guards. Returns the decisions and since when the fleet guard holds (None = it does not)."""
    out = dict(decisions)
    out, held = _fleet_guard(out, rules, snapshot.tick.at, held_since)
    weights = {p.pool: p.weight for p in rules.pools}
    for budget in sorted(rules.budgets, key=lambda b: b.name):
        out = _budget(out, budget, weights)
    return out, held


def _budget(decisions: dict[Target, Decision], budget: Budget, weights: Mapping[str, float]) -> dict[Target, Decision]:
    """Increases share what is left of the budget, one replica at a time to whoever is furthest from what it asked for;
    nobody is pushed below what it has. Ties go by name, so that the order of pools does not matter."""
    mine = [
        d for t, d in sorted(decisions.items())
        if t.lever == Lever.REPLICAS and t.pool in budget.pools and d.current is not None and d.final is not None
    ]  # fmt: skip
    asked = {d.target: d.final or 0.0 for d in mine}
    have = {d.target: min(d.current or 0.0, asked[d.target]) for d in mine}
    total = math.fsum(asked[t] * weights[t.pool] for t in asked)
    if total <= budget.max + 1e-9:
        return decisions
    given = dict(have)
    room = budget.max - math.fsum(given[t] * weights[t.pool] for t in given)
    while True:
        open_ = [t for t in given if given[t] + 1 <= asked[t] and weights[t.pool] <= room + 1e-9]
        if not open_:
            break
        neediest = max(open_, key=lambda t: (1 - given[t] / asked[t], str(t)))
        given[neediest] += 1
        room -= weights[neediest.pool]
    detail = f"{budget.name}: {budget.max:g}"
    return {t: _cut(d, given[t], Why.GROUP_BUDGET, detail) if t in given else d for t, d in decisions.items()}


def _fleet_guard(
    decisions: dict[Target, Decision], rules: FleetRules, now: float, held_since: float | None
) -> tuple[dict[Target, Decision], float | None]:
    """One tick that would lower many pools at once is more likely a wrong reading than a quiet fleet: hold it. What
    still wants to fall after the hold may do so in steps of the allowed share. A fleet smaller than `min_pools`
    lowered pools is left to the guards of each pool: there, one pool is already more than any share."""
    guard = rules.guard
    weights = {p.pool: p.weight for p in rules.pools}
    replicas = [d for d in decisions.values() if d.target.lever == Lever.REPLICAS and d.current is not None]
    lowered = sorted((d for d in replicas if d.changed and (d.final or 0.0) < (d.current or 0.0)), key=_by_drop)
    gpus = math.fsum((d.current or 0.0) * weights[d.target.pool] for d in replicas)
    falling = math.fsum(((d.current or 0.0) - (d.final or 0.0)) * weights[d.target.pool] for d in lowered)
    too_many = len(lowered) > guard.share * len(replicas) or falling > guard.share * gpus
    if len(lowered) < guard.min_pools or not too_many:
        return decisions, None
    since = now if held_since is None else held_since
    allowed = max(1, math.floor(guard.share * len(replicas))) if now - since >= guard.hold else 0
    held = {d.target for d in lowered[allowed:]}
    detail = f"{len(lowered)} of {len(replicas)} pools at once"
    return {
        t: _cut(d, d.current or 0.0, Why.FLEET_GUARD, detail) if t in held else d for t, d in decisions.items()
    }, since


def _by_drop(decision: Decision) -> tuple[float, str]:
    return ((decision.final or 0.0) - (decision.current or 0.0), str(decision.target))


def _cut(decision: Decision, value: float, why: Why, detail: str) -> Decision:
    if decision.final == value:
        return decision
    step = Step("fleet", decision.final or 0.0, value, why, detail)
    return replace(decision, final=value, why=why, steps=(*decision.steps, step))
