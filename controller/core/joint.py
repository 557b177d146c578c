"""Pools that are sized together: prefill and decode by a ratio, variants of one model by cost.

**Ratio.** Prefill over decode stays within a band, give or take one replica of either, because replicas are whole. Who
lags grows with the other; a raise waits while the other pool is behind, for prompts that no decode replica takes fill
the transfer queues and help nobody; and never do both fall at once, so that one lowering shows before the next, unless
both go to zero.

**Variants.** What one pool wants more of is raised where the work is cheapest and there is room; what one wants less
of is first taken where it is dearest, if the guards of that pool let it go. Whole replicas, so work is never rounded
down: together the pools get at least the capacity that was asked for, at no more than its cost.

A value that is raised here is held to the pool's own cooldown and rate, one that is lowered to all its guards. A pool
that does not move by our hand, or cannot be read, is where it is.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controller.core.fleet import budgets
from controller.core.model import Decision, Lever, Step, Target
from controller.core.movable import moves, stands
from controller.core.rules import FleetRules, Pair, Variants
from controller.core.why import Why

NEAR = 1e-9


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of pools: `serving` replicas, hard `most` and `least` replicas, `rate` what a replica serves
    (None = unknown), and whether capacity that was asked for is still believed in. `guarded` gives the value that
    the guards of a target make of a wish."""

    serving: Mapping[str, float]
    least: Mapping[str, float]
    most: Mapping[str, float]
    rate: Mapping[str, float | None]
    awaited: Mapping[str, bool]
    guarded: Callable[[Target, float], float]


def size(decisions: Mapping[Target, Decision], rules: FleetRules, facts: Facts) -> dict[Target, Decision]:
    """Variants, then pairs."""
    out = dict(decisions)
    for group in sorted(rules.variants, key=lambda v: v.name):
        _cheapest(out, group, facts)
    for pair in sorted(rules.pairs, key=lambda p: p.name):
        _grow_together(out, pair, facts)
        _stage(out, pair, facts)
    return out


def restrain(decisions: Mapping[Target, Decision], rules: FleetRules, facts: Facts) -> dict[Target, Decision]:
    """After the budgets, which may have given one pool of a pair less: raises of the other are held to the band."""
    out = dict(decisions)
    for pair in sorted(rules.pairs, key=lambda p: p.name):
        _stage(out, pair, facts)
    return out


def within(
    decisions: Mapping[Target, Decision], rules: FleetRules, facts: Facts, known: Mapping[Target, float]
) -> dict[Target, Decision]:
    """Pairs within their bands and all within the budgets: a fall that a pair takes back leaves less for others, and
    what a budget takes from one half holds the other. Raises only shrink and falls only end, so this does. `known` are
    positions that were read before."""
    shared = dict(decisions)
    while True:
        held = restrain(shared, rules, facts)
        paid = budgets(held, rules, known)
        if paid == held:
            return paid
        shared = paid


# --- prefill and decode ------------------------------------------------------------------------------------------


def most_prefill(pair: Pair, decode: float) -> float:
    """Prefill replicas that so many decode replicas keep busy, give or take one of either."""
    if decode <= 0:
        return 0.0
    return float(max(math.floor(pair.most * decode + NEAR) + 1, math.floor(pair.most * (decode + 1) + NEAR)))


def least_prefill(pair: Pair, decode: float) -> float:
    """Prefill replicas that so many decode replicas need, give or take one of either; one where there is any."""
    if decode <= 0:
        return 0.0
    return float(max(1, min(math.ceil(pair.least * decode - NEAR) - 1, math.ceil(pair.least * (decode - 1) - NEAR))))


def least_decode(pair: Pair, prefill: float) -> float:
    """The smallest number of decode replicas that takes what so many prefill replicas send."""
    if prefill <= 0:
        return 0.0
    return float(max(1, math.ceil(min((prefill - 1) / pair.most, prefill / pair.most - 1) - NEAR)))


def most_decode(pair: Pair, prefill: float) -> float:
    """The largest number of decode replicas that so many prefill replicas are enough for."""
    if prefill <= 0:
        return 0.0
    if pair.least <= 0:
        return math.inf
    return float(math.floor(max((prefill + 1) / pair.least, prefill / pair.least + 1) + NEAR))


def _grow_together(out: dict[Target, Decision], pair: Pair, facts: Facts) -> None:
    """Raise who would lag behind the other's final value, as far as bounds and pace of that pool allow; then keep up
    what still may not fall because of the other."""
    prefill, decode = _both(pair)
    for _ in range(2):  # growth of the one may ask for one more of the other
        p, d = _final(out, prefill), _final(out, decode)
        if p is None or d is None:
            return
        _raise(out, decode, min(least_decode(pair, p), facts.most[pair.decode]), facts, _told(pair))
        d = _final(out, decode) or 0.0
        _raise(out, prefill, min(least_prefill(pair, d), facts.most[pair.prefill]), facts, _told(pair))


def _stage(out: dict[Target, Decision], pair: Pair, facts: Facts) -> None:
    """Hold what must wait: raises while the other pool is behind or beyond the band, and all falls but one."""
    prefill, decode = _both(pair)
    p, d = _final(out, prefill), _final(out, decode)
    now_p, now_d = _current(out, prefill), _current(out, decode)
    if p is None or d is None or now_p is None or now_d is None or p == d == 0:
        return  # to nothing they go together: neither serves alone
    told = _told(pair)
    if p < now_p and d < now_d and _movable(out, prefill) and _movable(out, decode):
        # Who is further above what it wants falls, if the band lets it; the other's turn comes when this has shown.
        stuck_p, stuck_d = least_prefill(pair, now_d) >= now_p, least_decode(pair, now_p) >= now_d
        waits = prefill if stuck_p or (not stuck_d and now_p * d < p * now_d) else decode
        _floor(out, waits, now_p if waits is prefill else now_d, f"{told}, one pool falls at a time")
    serving_p, serving_d = facts.serving[pair.prefill], facts.serving[pair.decode]
    if facts.awaited[pair.decode] and serving_p > most_prefill(pair, serving_d):
        _cap(out, prefill, now_p, f"{told}, decode is behind")
    if facts.awaited[pair.prefill] and serving_p < least_prefill(pair, serving_d):
        _cap(out, decode, now_d, f"{told}, prefill is behind")
    for _ in range(2):  # a raise that is held may hold the other
        _cap(out, prefill, most_prefill(pair, _final(out, decode) or 0.0), told)
        _cap(out, decode, most_decode(pair, _final(out, prefill) or 0.0), told)
    _floor(out, prefill, least_prefill(pair, _final(out, decode) or 0.0), told)
    _floor(out, decode, least_decode(pair, _final(out, prefill) or 0.0), told)


def _both(pair: Pair) -> tuple[Target, Target]:
    return Target(pair.prefill, Lever.REPLICAS), Target(pair.decode, Lever.REPLICAS)


def _told(pair: Pair) -> str:
    return f"{pair.name}: {pair.least:g} to {pair.most:g} prefill per decode"


# --- variants ----------------------------------------------------------------------------------------------------


def _cheapest(out: dict[Target, Decision], group: Variants, facts: Facts) -> None:
    """Move raises to cheaper pools and falls to dearer ones."""
    known = {name: rate for name in group.cost if (rate := facts.rate.get(name)) is not None and rate > 0}
    price = {name: group.cost[name] / rate for name, rate in known.items()}
    pools = [t for name in sorted(price, key=lambda n: (price[n], n)) if _movable(out, t := Target(name, _R))]
    for dear in reversed(pools):
        for cheap in pools:
            if price[cheap.pool] < price[dear.pool]:
                _move_raise(out, dear, cheap, group, facts)
    for cheap in pools:
        for dear in reversed(pools):
            if price[cheap.pool] < price[dear.pool]:
                _move_fall(out, cheap, dear, group, facts)


def _move_raise(out: dict[Target, Decision], dear: Target, cheap: Target, group: Variants, facts: Facts) -> None:
    more = (_final(out, dear) or 0.0) - (out[dear].current or 0.0)
    have = _final(out, cheap) or 0.0
    if more < 1 or have < (out[cheap].current or 0.0):
        return
    worth = (facts.rate[dear.pool] or 0.0) / (facts.rate[cheap.pool] or 1.0)
    room = facts.guarded(cheap, facts.most[cheap.pool]) - have
    for count in range(math.floor(more), 0, -1):
        instead = math.ceil(count * worth - NEAR)
        if instead <= room + NEAR and instead * group.cost[cheap.pool] < count * group.cost[dear.pool]:
            detail = f"{group.name}: {instead:g} of {cheap.pool} for {count:g} of {dear.pool}"
            _set(out, cheap, have + instead, detail, Why.CHEAPEST)
            _set(out, dear, (_final(out, dear) or 0.0) - count, detail, Why.CHEAPEST)
            return


def _move_fall(out: dict[Target, Decision], cheap: Target, dear: Target, group: Variants, facts: Facts) -> None:
    fewer = (out[cheap].current or 0.0) - (_final(out, cheap) or 0.0)
    have = _final(out, dear) or 0.0
    if fewer < 1 or have > (out[dear].current or 0.0):
        return
    worth = (facts.rate[dear.pool] or 0.0) / (facts.rate[cheap.pool] or 1.0)
    fewer = min(fewer, facts.most[cheap.pool] - (_final(out, cheap) or 0.0))
    most = math.floor(fewer / worth + NEAR)
    lowest = facts.guarded(dear, max(facts.least[dear.pool], have - most))
    for count in range(math.floor(min(most, have - lowest) + NEAR), 0, -1):
        kept = math.ceil(count * worth - NEAR)
        if kept <= fewer + NEAR and kept * group.cost[cheap.pool] < count * group.cost[dear.pool]:
            detail = f"{group.name}: {count:g} of {dear.pool} for {kept:g} of {cheap.pool}"
            _set(out, dear, have - count, detail, Why.CHEAPEST)
            _set(out, cheap, (_final(out, cheap) or 0.0) + kept, detail, Why.CHEAPEST)
            return


# --- decisions ---------------------------------------------------------------------------------------------------

_R = Lever.REPLICAS


def _movable(out: Mapping[Target, Decision], target: Target) -> bool:
    found = out.get(target)
    return found is not None and _free(found)


def _free(decision: Decision) -> bool:
    pinned = any(step.why is Why.PIN for step in decision.steps) or decision.why is Why.PIN
    readable = decision.current is not None and decision.final is not None
    return readable and not pinned and moves(decision)


def _final(out: Mapping[Target, Decision], target: Target) -> float | None:
    """The value that will be there after this tick."""
    found = out.get(target)
    if found is None:
        return None
    return stands(found)


def _current(out: Mapping[Target, Decision], target: Target) -> float | None:
    found = out.get(target)
    return found.current if found is not None else None


def _raise(out: dict[Target, Decision], target: Target, value: float, facts: Facts, detail: str) -> None:
    final = _final(out, target)
    if final is None or value <= final or not _movable(out, target):
        return
    current = out[target].current or 0.0
    allowed = value if value <= current else facts.guarded(target, value)
    _set(out, target, max(final, min(value, allowed)), detail)


def _cap(out: dict[Target, Decision], target: Target, value: float, detail: str) -> None:
    """Of a raise only; what is there stays."""
    final, current = _final(out, target), _current(out, target)
    if final is not None and current is not None and final > current and _movable(out, target):
        _set(out, target, max(current, min(final, value)), detail)


def _floor(out: dict[Target, Decision], target: Target, value: float, detail: str) -> None:
    """Of a fall only: no further than that."""
    final, current = _final(out, target), _current(out, target)
    if final is not None and current is not None and final < current and _movable(out, target):
        _set(out, target, min(current, max(final, value)), detail)


def _set(out: dict[Target, Decision], target: Target, value: float, detail: str, why: Why = Why.RATIO) -> None:
    decision = out[target]
    if decision.final == value or decision.final is None:
        return
    step = Step("joint", decision.final, value, why, detail)
    out[target] = decision._replace(final=value, why=why, steps=(*decision.steps, step))
