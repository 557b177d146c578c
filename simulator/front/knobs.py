"""Levers that are set-points of a gateway: from a target of the controller to the knob that it moves, and back.

| lever | member | knob |
| --- | --- | --- |
| weight, breaker | a replica | `weights.<replica>`, the lower of the two factors |
| tenant_cap | a tenant | `tenants.<tenant>.tokens_per_s` |
| admission | `concurrency` | `concurrency.per_replica` |
| admission | `longest_prompt` | `longest_prompt`, whole tokens |
| admission | `deadline` | `admission.deadline_factor`, where `admission.deadlines` is on |
| admission | `priority` | `admission.priority` |
| routing | `affinity` | `affinity`, where the strategy has one |
| downgrade | a receiving pool, "" = that of the first rule | `downgrade[].share` of the rules for that pool |

Where none is no limit, `NO_LIMIT` and all above it is none, and is what none reads as. A cap of a tenant leaves its
`token_burst` and `token_seconds` as they are: over t seconds it gets rate · t + burst, and a burst of many seconds of
its rate makes the cap late by as much. A cap whose rate changes hands out no new burst.
"""

import dataclasses
from collections.abc import Mapping

from controller.core.model import Lever, Target
from controller.core.rest import NO_LIMIT
from controller.core.setpoints import DEADLINE, EVERY_RANK, PRIORITY
from routing.knobs import Knobs, Tenant
from routing.strategies import STRATEGIES

LEVERS = (Lever.WEIGHT, Lever.BREAKER, Lever.TENANT_CAP, Lever.ADMISSION, Lever.DOWNGRADE, Lever.ROUTING)
CONCURRENCY, LONGEST_PROMPT = "concurrency", "longest_prompt"
AFFINITY = "affinity"


class Setting:
    """The set-points of one gateway as the controller sees them: what was put, over the knobs that the gateway began
    with. `strategy` is the one that routes where the knobs name none."""

    def __init__(self, base: Knobs, strategy: str = "") -> None:
        self._base = base
        self._strategy = base.strategy or strategy
        self._put: dict[tuple[Lever, str], float] = {}

    def get(self, target: Target) -> float:
        """What stands now. Raises ValueError when there is no such knob."""
        usual = _usual(self._base, target)
        if target.lever is Lever.ROUTING and not (self._strategy and STRATEGIES[self._strategy].leans):
            name = self._strategy or "no strategy"
            raise ValueError(
                f"{target}: {name} has no affinity to move; write a strategy that has one, or leave it out"
            )
        return self._put.get(_place(self._base, target), usual)

    def put(self, target: Target, value: float) -> Knobs:
        """Set one; the knobs as they are then. Raises ValueError, and changes nothing, when the value cannot be."""
        self.get(target)
        put = {**self._put, _place(self._base, target): value}
        knobs = _knobs(self._base, put)
        self._put = put
        return knobs

    def drop(self, target: Target) -> Knobs:
        """Back to what the gateway began with; the knobs as they are then."""
        self._put.pop(_place(self._base, target), None)
        return _knobs(self._base, self._put)


def _usual(base: Knobs, target: Target) -> float:
    """What the gateway began with. Raises ValueError when there is no such knob."""
    lever, member = target.lever, target.member
    if lever is Lever.WEIGHT:
        return base.weights.get(member, 1.0)
    if lever is Lever.BREAKER:
        return 1.0
    if lever is Lever.TENANT_CAP:
        return _read(base.tenants.get(member, base.other_tenants).tokens_per_s)
    if lever is Lever.ADMISSION:
        if member == CONCURRENCY:
            return _read(base.concurrency.per_replica)
        if member == LONGEST_PROMPT:
            return _read(base.longest_prompt)
        if member == DEADLINE:
            if not base.admission.deadlines:
                raise ValueError(f"{target}: the gateway goes by no deadlines; write knobs.admission.deadlines: true")
            return base.admission.deadline_factor
        if member == PRIORITY:
            return EVERY_RANK if base.admission.priority is None else base.admission.priority
        known = f"{CONCURRENCY}, {LONGEST_PROMPT}, {DEADLINE} or {PRIORITY}"
        raise ValueError(f"{target}: the gate has no such set-point; write {known}")
    if lever is Lever.ROUTING:
        if member == AFFINITY:
            return base.affinity
        raise ValueError(f"{target}: routing has no such set-point; write {AFFINITY}")
    if lever is Lever.DOWNGRADE:
        if not base.downgrade:
            raise ValueError(f"{target}: the gateway has no pool to downgrade to; write one under knobs.downgrade")
        shares = [route.share for route in base.downgrade if route.pool == (member or base.downgrade[0].pool)]
        if not shares:
            raise ValueError(f"{target}: no rule of the gateway sends to {member}; write one under knobs.downgrade")
        return shares[0]
    raise ValueError(f"{target}: is no set-point of a gateway")


def _knobs(base: Knobs, put: Mapping[tuple[Lever, str], float]) -> Knobs:
    base = dataclasses.replace(base, affinity=put.get((Lever.ROUTING, AFFINITY), base.affinity))
    weights, tenants = dict(base.weights), dict(base.tenants)
    concurrency, longest, routes = base.concurrency, base.longest_prompt, base.downgrade
    admission = base.admission
    for (lever, member), value in put.items():
        if lever is Lever.ROUTING:
            continue
        if lever in (Lever.WEIGHT, Lever.BREAKER):
            weight = put.get((Lever.WEIGHT, member), base.weights.get(member, 1.0))
            weights[member] = min(weight, put.get((Lever.BREAKER, member), 1.0))
        elif lever is Lever.TENANT_CAP:
            usual: Tenant = base.tenants.get(member, base.other_tenants)
            tenants[member] = dataclasses.replace(usual, tokens_per_s=_written(value))
        elif lever is Lever.ADMISSION and member == CONCURRENCY:
            concurrency = dataclasses.replace(concurrency, per_replica=_written(value))
        elif lever is Lever.ADMISSION and member == DEADLINE:
            admission = dataclasses.replace(admission, deadline_factor=value)
        elif lever is Lever.ADMISSION and member == PRIORITY:
            admission = dataclasses.replace(admission, priority=None if value >= EVERY_RANK else value)
        elif lever is Lever.ADMISSION:
            longest = None if value >= NO_LIMIT else _whole(value)
        else:
            routes = tuple(dataclasses.replace(r, share=value) if r.pool == member else r for r in routes)
    return dataclasses.replace(
        base, weights=weights, tenants=tenants, concurrency=concurrency, longest_prompt=longest, downgrade=routes,
        admission=admission,
    )  # fmt: skip


def _place(base: Knobs, target: Target) -> tuple[Lever, str]:
    """Lever and member, one for the two names of the first receiving pool."""
    first = target.lever is Lever.DOWNGRADE and not target.member
    return target.lever, base.downgrade[0].pool if first else target.member


def _read(value: float | None) -> float:
    return NO_LIMIT if value is None else float(value)


def _written(value: float) -> float | None:
    return None if value >= NO_LIMIT else value


def _whole(value: float) -> int:
    """Raises ValueError for what is no number of tokens; it is not rounded, so that it reads back as it was put."""
    if value != int(value):
        raise ValueError(f"longest_prompt: is {value:g}; write whole tokens")
    return int(value)
