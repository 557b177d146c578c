"""Shield: whom tenant caps protect, and what of a shortfall is left to the gate behind them.

A tenant is shielded while it asks for no more than it may count on: its guarantee (in proportion, where there are more
than there is), or its part by weight where nobody was promised anything. Nothing of it should be refused while others
get more than they may count on, whatever their class: a tenant that calls all it sends critical would else push out
what others were promised.

A gate that refuses sheddable classes first does for all others what caps cannot, which see no classes. So what no
guarantee covers asks for a part of the supply only as far as it may not be shed:

    d' = max( (1 - sheddable share of all demand) · d, min( d, what it may count on ) )

How the sheddable share is divided among tenants is not told; it counts as the same for all.

Demand is a mean over a window. Requests come by chance, so what the shielded have in flight swings by its root, and a
pool that others fill to the brim refuses them in their busier moments. So the others leave that free:

    aside = deviations · √( demand of the shielded · n* ) / n*      replica-equivalents;  n* = Estimate.unit_sequences

no more than they may still count on, and nothing of what others were promised.
"""

import math
from collections.abc import Mapping, Sequence

from controller.core.model import PoolReadings
from controller.core.ports import Brief, View
from controller.core.reading import State
from controller.core.signals import Signal
from controller.core.tenancy import TenantRules
from policies.maxmin import Flow, water_level

NOBODY = TenantRules()
BROKEN = 0.02  # share of a tenant's requests whose refusal is no chance


def weights_of(view: View) -> dict[str, float]:
    """The weight of each tenant that has a cap."""
    tenants = view.tenants
    return {name: weight_of(tenants.get(name, NOBODY)) for _, _, name in view.targets}


def weight_of(rules: TenantRules) -> float:
    """A weight above 0, whatever stands in the rules."""
    return rules.weight if 0 < rules.weight < math.inf else 1e-6


def parts_of(weights: Mapping[str, float], supply: float) -> dict[str, float]:
    """The part of each of the supply by weight, if all ask."""
    whole = math.fsum(weights.values())
    return {name: supply * weight / whole for name, weight in weights.items()}


def floors_of(weights: Mapping[str, float], least: float) -> dict[str, float]:
    """The part of each of what is kept lest anybody starves: by weight, or as one of so many where that is more. A
    weight of a thousandth divides what is left, and is no sentence to nothing."""
    even = least / max(len(weights), 1)
    parts = parts_of(weights, least).items()
    return {name: part if part > even else even for name, part in parts}  # noqa: FURB136 - in a fifth of the time of max


def counted_on(view: View, demands: Mapping[str, float], supply: float) -> dict[str, float]:
    """What each may count on, tokens/s: what it was promised, in proportion where that is more than there is; where
    nobody was promised anything, its part."""
    if any(one.guarantee > 0 for one in view.tenants.values()):
        tenants = view.tenants
        own = {name: tenants.get(name, NOBODY).guarantee for name in demands}
        if _within(demands, own) <= supply:
            return own
        cut = water_level([Flow(d, 0.0, own[n]) for n, d in demands.items() if own[n] > 0], supply)
        return {name: one * cut for name, one in own.items()}
    parts = parts_of(weights_of(view), supply)
    return {name: parts[name] for name in demands}


def sheddable(view: View, brief: Brief) -> float:
    """The share of the demand whose classes may be refused first; 0 where classes are not told apart."""
    parts = {name: d for name, d in brief.balance.by_class.items() if math.isfinite(d) and d >= 0}
    whole = math.fsum(parts.values())
    shed = math.fsum(d for name, d in parts.items() if name in view.classes and view.classes[name].sheddable)
    return shed / whole if whole > 0 else 0.0


def shielded(demands: Mapping[str, float], owed: Mapping[str, float]) -> tuple[str, ...]:
    """Those that ask for something, and for no more than they may count on."""
    return tuple([name for name, demand in demands.items() if 0.0 < demand <= owed[name]])


def aside(
    view: View, demands: Mapping[str, float], owed: Mapping[str, float], names: Sequence[str], spare: float,
    deviations: float,
) -> float:  # fmt: skip
    """What is kept free for the swings of those `names` that are shielded, tokens/s; `spare` is what is there beyond
    promises. Nothing while nobody knows how many requests a replica holds."""
    unit, holds = view.estimate.unit_tokens, view.estimate.unit_sequences
    if not names or not unit or holds is None or not 0.0 < holds < math.inf:
        return 0.0
    asked = math.fsum(demands[name] for name in names)
    rest = math.fsum(owed[name] - demands[name] for name in names)
    return max(0.0, min(deviations * unit * math.sqrt(asked / unit / holds), rest, spare))


def promised(view: View, demands: Mapping[str, float]) -> float:
    """What is asked for of what was promised, tokens/s."""
    return _within(demands, {name: view.tenants.get(name, NOBODY).guarantee for name in demands})


def _within(demands: Mapping[str, float], own: Mapping[str, float]) -> float:
    """What is asked for of what is each one's own."""
    pairs = zip(demands.values(), own.values(), strict=True)  # both are of the same names in the same order
    return math.fsum([d if d < mine else mine for d, mine in pairs])  # noqa: FURB136 - in a fifth of the time of min


def broken(pool: PoolReadings, names: Sequence[str]) -> bool | None:
    """Whether one of them is refused what it may count on; None when no refusal is seen but not all can be told."""
    found: bool | None = False
    for name in names:
        scope = pool.tenants.get(name)
        if scope is None:
            continue
        asked, lost = scope.get(Signal.OFFERED_RATE), scope.get(Signal.REJECTED_RATE)
        if asked.state is State.UNSUPPORTED or lost.state is State.UNSUPPORTED:
            continue
        refused = lost.usable
        if refused is not None and asked.usable and refused > BROKEN * asked.usable:
            return True
        if not (asked.trusted and lost.trusted):
            found = None
    return found
