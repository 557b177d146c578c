"""Below: what rungs further down a ladder can still take, so that a rung above need not refuse it.

Caps that stand before a downgrade could cut all that is left, and nothing would be left to downgrade. So who is asked
first is told what can be sent elsewhere instead: what a downgrade sends now, and what fits its receivers beyond that.
"""

import math
from collections.abc import Mapping

from controller.core.guards import blocking
from controller.core.model import Lever, Snapshot, Target
from controller.core.movable import UNREAD
from controller.core.ports import Balance, Estimate
from controller.core.relief import Here, capped, consenting
from controller.core.rules import LeverRules, PoolRules


def after(pool: PoolRules, lever: Lever, of: Lever) -> LeverRules | None:
    """The rung of the lever `of`, where it comes after another in this ladder."""
    ladder = [one.lever for one in pool.levers]
    if of not in ladder or ladder.index(of) < ladder.index(lever):
        return None
    return pool.levers[ladder.index(of)]


def rest(left: float, net: float, rules: LeverRules, estimate: Estimate) -> float:
    """What is left for the next rung after a relief of `net`. Caps are rounded up to their quantum; what that leaves is
    no shortage, and a downgrade would round it up to a whole percent of everybody."""
    still = max(0.0, left - net)
    if net > 0 and rules.lever is Lever.TENANT_CAP and estimate.unit_tokens:
        rounded = len(rules.members) * rules.limits.quantum / estimate.unit_tokens
        return still if still > rounded else 0.0
    return still


def sendable(
    downgrade: LeverRules, pool: PoolRules, snapshot: Snapshot, estimate: Estimate, now: Balance, here: Here, *,
    follows: bool,
) -> float:  # fmt: skip
    """What a downgrade can take off the pool, replica-equivalents: what it sends now, a share of what caps let through
    as they stand, and, where its law `follows` what is left, what fits its receivers beyond that. No more than
    consents, and nothing where it does not act."""
    agreed = consenting(pool, now, here)
    if agreed <= 0 or downgrade.lever not in pool.acting:
        return 0.0
    through = Here(dict(here.flows), dict(here.classes))
    capped(_caps(pool, snapshot), estimate, now, through)
    flowing = consenting(pool, now, through)
    found = []
    for name in downgrade.members:
        owner = snapshot.targets.get(Target(pool.pool, downgrade.lever, name), UNREAD)
        if owner.accepted is None:
            continue
        sent = owner.accepted * flowing
        if owner.pin is not None and owner.pin.until > snapshot.tick.at:
            sent = owner.pin.value * flowing
        elif follows and blocking(owner) is None and (exchange := now.exchange.get(name, 0.0)) > 0:
            sent = max(sent, min(sent + now.room.get(name, 0.0) / exchange, downgrade.limits.max * agreed))
        found.append(sent)
    return min(agreed, math.fsum(found))


def _caps(pool: PoolRules, snapshot: Snapshot) -> Mapping[str, float]:
    """Caps of tenants as they stand."""
    held = {t.member: snapshot.targets.get(t, UNREAD).accepted for t in pool.of_lever(Lever.TENANT_CAP)}
    return {name: value for name, value in held.items() if value is not None}
