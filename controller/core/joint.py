"""Pools that are sized together: prefill and decode by a ratio, variants of one model by cost.

**Ratio.** Prefill over decode stays within a band, give or take one replica of either, because replicas are whole. Who
lags grows with the other; a raise waits while the other pool is behind, for prompts that no decode replica takes fill
the transfer queues and help nobody; and never do both fall at once, so that one lowering shows before the next, unless
both go to zero.

**Variants.** What one pool wants more of is raised where the work is cheapest and there is room; what one wants less
of is first taken where it is dearest, if the guards of that pool let it go. Whole replicas, so work is never rounded
down: together the pools get at least the capacity that was asked for, at no more than its cost. What one pool has
beyond its own wish is the answer to the wish of another, so that nothing is paid twice.

**Given up.** A pool whose capacity does not come is raised for nobody: another wish is met where it was made, and the
half of a pair is not raised beyond what serves of the other.

A value that is raised here is held to the pool's own cooldown and rate, one that is lowered to all its guards. A pool
that does not move by our hand, or cannot be read, is where it is.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from controller.core.fleet import budgets
from controller.core.model import Decision, Lever, Step, Target
from controller.core.movable import moves, stands
from controller.core.rules import FleetRules, Pair, Variants
from controller.core.why import Why

NEAR = 1e-9
LEARNED = 0.1  # of a replica: what a replica serves is learned, and moves from tick to tick by less than this
_DOUBTS = frozenset(
    {
        Why.STALE, Why.MISSING, Why.PARTIAL, Why.UNDERFILLED, Why.UNSUPPORTED, Why.STUCK_ENGINE, Why.POLICY_ERROR,
        Why.BOOT, Why.LEDGER_FULL,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of pools: `serving` replicas, hard `most` and `least` replicas, `rate` what a replica serves
    (None = unknown), and whether capacity that was asked for is still believed in. `guarded` gives the value that
    the guards of a target make of a wish. `absolute` are pools whose wish is the whole need and not a step from where
    they are, `burning` those whose error budget burns, `late` those that wait for capacity longer than it usually
    takes."""

    serving: Mapping[str, float]
    least: Mapping[str, float]
    most: Mapping[str, float]
    rate: Mapping[str, float | None]
    awaited: Mapping[str, bool]
    guarded: Callable[[Target, float], float]
    absolute: frozenset[str] = frozenset()
    burning: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()

    def comes(self, pool: str, value: float) -> float:
        """Of so many replicas those that serve or are believed to come."""
        return value if self.awaited[pool] else min(value, self.serving[pool])

    def counted(self, pool: str, value: float) -> float:
        """The same where another pool could serve instead: there nobody waits for what is late."""
        return min(value, self.serving[pool]) if pool in self.late else self.comes(pool, value)


def size(decisions: dict[Target, Decision], rules: FleetRules, facts: Facts) -> dict[Target, Decision]:
    """Variants, then pairs."""
    if not rules.variants and not rules.pairs:
        return decisions
    out = dict(decisions)
    for group in sorted(rules.variants, key=lambda v: v.name):
        _cheapest(out, group, facts)
    for pair in sorted(rules.pairs, key=lambda p: p.name):
        _grow_together(out, pair, facts)
        _stage(out, pair, facts)
    return out


def restrain(decisions: dict[Target, Decision], rules: FleetRules, facts: Facts) -> dict[Target, Decision]:
    """After the budgets, which may have given one pool of a pair less: raises of the other are held to the band."""
    if not rules.pairs:
        return decisions
    out = dict(decisions)
    for pair in sorted(rules.pairs, key=lambda p: p.name):
        _stage(out, pair, facts)
    return out


def within(
    decisions: dict[Target, Decision], rules: FleetRules, facts: Facts, known: Mapping[Target, float]
) -> dict[Target, Decision]:
    """Pairs within their bands and all within the budgets: a fall that a pair takes back leaves less for others, and
    what a budget takes from one half holds the other. Raises only shrink and falls only end, so this does. `known` are
    positions that were read before."""
    shared = decisions
    while True:
        held = restrain(shared, rules, facts)
        paid = budgets(held, rules, known)
        if paid is held or paid == held:
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
        p = facts.comes(pair.prefill, p)
        _raise(out, decode, min(least_decode(pair, p), facts.most[pair.decode]), facts, _told(pair))
        d = facts.comes(pair.decode, _final(out, decode) or 0.0)
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
    lost_p, lost_d = (told if facts.awaited[n] else f"{told}, {n} does not come" for n in (pair.prefill, pair.decode))
    for _ in range(2):  # a raise that is held may hold the other
        _cap(out, prefill, most_prefill(pair, facts.comes(pair.decode, _final(out, decode) or 0.0)), lost_d)
        _cap(out, decode, most_decode(pair, facts.comes(pair.prefill, _final(out, prefill) or 0.0)), lost_p)
    _floor(out, prefill, least_prefill(pair, _final(out, decode) or 0.0), told)
    _floor(out, decode, least_decode(pair, _final(out, prefill) or 0.0), told)


def _both(pair: Pair) -> tuple[Target, Target]:
    return Target(pair.prefill, Lever.REPLICAS), Target(pair.decode, Lever.REPLICAS)


def _told(pair: Pair) -> str:
    return f"{pair.name}: {pair.least:g} to {pair.most:g} prefill per decode"


# --- variants ----------------------------------------------------------------------------------------------------


def _cheapest(out: dict[Target, Decision], group: Variants, facts: Facts) -> None:
    """Answer raises with what is there or comes already, move the rest to cheaper pools, and falls to dearer ones."""
    known = {name: rate for name in group.cost if (rate := facts.rate.get(name)) is not None and rate > 0}
    price = {name: group.cost[name] / rate for name, rate in known.items()}
    pools = [t for name in sorted(price, key=lambda n: (price[n], n)) if _movable(out, t := Target(name, _R))]
    spare = {t: _spare(out, t, facts) for t in pools}
    for dear in reversed(pools):
        _answer(out, dear, pools, price, spare, group, facts)
    for dear in reversed(pools):
        for cheap in pools:
            if price[cheap.pool] < price[dear.pool]:
                _move_raise(out, dear, cheap, spare, group, facts)
    for cheap in pools:
        for dear in reversed(pools):
            if price[cheap.pool] < price[dear.pool]:
                _move_fall(out, cheap, dear, group, facts)


@dataclass(frozen=True, slots=True)
class _Spare:
    """Replicas of a pool beyond its own wish: those that `serve`, and those that `come`."""

    serve: float
    come: float

    def less(self, used: float) -> "_Spare":
        """What is left when so many are used, those that come first."""
        return _Spare(self.serve - max(0.0, used - self.come), max(0.0, self.come - used))


def _spare(out: Mapping[Target, Decision], target: Target, facts: Facts) -> _Spare:
    """What of a pool stays beyond its wish. In doubt, what serves is no surplus: a low wish is not believed then."""
    name, decision = target.pool, out[target]
    stays, current = min(decision.final or 0.0, facts.most[name]), decision.current or 0.0
    wish = min(max(_wish(decision), facts.least[name]), facts.most[name])
    more = max(0.0, facts.counted(name, min(stays, current)) - wish)
    come = max(0.0, min(more, current - facts.serving[name]))
    return _Spare(0.0 if decision.why in _DOUBTS else more - come, come)


def _wish(decision: Decision) -> float:
    """What was asked for before any guard."""
    return decision.steps[0].after if decision.steps else decision.current or 0.0


def _answer(
    out: dict[Target, Decision], target: Target, pools: Sequence[Target], price: Mapping[str, float],
    spare: dict[Target, _Spare], group: Variants, facts: Facts,
) -> None:  # fmt: skip
    """Take off a raise what other pools have beyond their wishes: on its way in any pool, serving in a cheaper one. A
    burning error budget is the proof that what serves elsewhere does not help."""
    more = (_final(out, target) or 0.0) - (out[target].current or 0.0)
    rate = facts.rate[target.pool] or 1.0
    for other in pools:
        if other == target or more < 1:
            continue
        had, worth = spare[other], rate / (facts.rate[other.pool] or 1.0)
        serves = price[other.pool] < price[target.pool] and target.pool not in facts.burning
        count = min(math.floor(more + NEAR), math.floor((had.come + (had.serve if serves else 0.0)) / worth + LEARNED))
        if count >= 1:
            more -= count
            spare[other] = had.less(count * worth)
            detail = f"{group.name}: {other.pool} has {count * worth:.3g} more than it asked for"
            _set(out, target, (_final(out, target) or 0.0) - count, detail, Why.CHEAPEST)


def _takes(out: Mapping[Target, Decision], cheap: Target, dear: Target, facts: Facts) -> Why | None:
    """Why a pool is not raised instead of another; None when it may be."""
    decision, name = out[cheap], cheap.pool
    if not facts.awaited[name] or name in facts.late:
        return Why.CAPACITY_UNAVAILABLE
    current = decision.current or 0.0
    surplus = current > min(max(_wish(decision), facts.least[name]), facts.most[name])
    if decision.why in _DOUBTS or (surplus and dear.pool in facts.burning):
        return decision.why
    # A step from where it is does not tell what of it is on its way for others, and would be asked for at each tick.
    stepped = name not in facts.absolute and not surplus and current > facts.serving[name]
    return Why.PENDING_CAPACITY if stepped else None


def _move_raise(
    out: dict[Target, Decision], dear: Target, cheap: Target, spare: dict[Target, _Spare], group: Variants,
    facts: Facts,
) -> None:  # fmt: skip
    more, have = (_final(out, dear) or 0.0) - (out[dear].current or 0.0), _final(out, cheap) or 0.0
    if more < 1:
        return
    refused = _takes(out, cheap, dear, facts)
    if refused is Why.CAPACITY_UNAVAILABLE:
        _say(out, dear, f"{group.name}: {cheap.pool} does not come", Why.NEXT_BEST)
    if refused is not None:
        return
    worth = (facts.rate[dear.pool] or 0.0) / (facts.rate[cheap.pool] or 1.0)
    most = facts.most[cheap.pool]
    had = spare[cheap]
    room = max(min(out[cheap].current or 0.0, most), facts.guarded(cheap, most)) - have  # what falls may stay
    for count in range(math.floor(more), 0, -1):
        instead = max(
            0, math.ceil(count * worth - had.come - NEAR)
        )  # what was rounded up for one is there for the next
        if instead <= room + NEAR and instead * group.cost[cheap.pool] < count * group.cost[dear.pool]:
            spare[cheap] = _Spare(had.serve, max(0.0, had.come + instead - count * worth))
            detail = f"{group.name}: {instead:g} of {cheap.pool} for {count:g} of {dear.pool}"
            _set(out, cheap, have + instead, detail, Why.CHEAPEST)
            _set(out, dear, (_final(out, dear) or 0.0) - count, detail, Why.CHEAPEST)
            return
    least = max(0, math.ceil(worth - had.come - NEAR))
    if room + NEAR < least <= most - have + NEAR and least * group.cost[cheap.pool] < group.cost[dear.pool]:
        _say(out, dear, f"{group.name}: {cheap.pool} may not rise faster", Why.NEXT_BEST)


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
    """Not of what gave up: its law says when it is tried again."""
    final = _final(out, target)
    if final is None or value <= final or not _movable(out, target):
        return
    current = out[target].current or 0.0
    if value > current and not facts.awaited[target.pool]:
        return
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


def _say(out: dict[Target, Decision], target: Target, detail: str, why: Why) -> None:
    """Of a value that stands, why it does though another one was to be expected."""
    decision = out[target]
    if decision.final is None or any(step.why is why for step in decision.steps):
        return
    step = Step("joint", decision.final, decision.final, why, detail)
    out[target] = decision._replace(why=why, steps=(*decision.steps, step))
