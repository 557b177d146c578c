"""Relief: what levers take off a pool, in replica-equivalents, and what is still wanted of the next one.

Demand is all that is offered, at the cost that it has in its own pool, and never depends on the relief given. Relief is
absolute and 0 at rest: as capacity comes to serve, less is left, and the levers come back by themselves, the last in
the ladder first. Breakers and weights raise what is carried and give no relief; replicas on their way carry nothing
yet.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from controller.core.beyond import NOTHING, Beyond
from controller.core.model import Decision, Lever, Snapshot, Target
from controller.core.movable import UNREAD
from controller.core.ports import Balance, Estimate
from controller.core.rules import LeverRules, PoolRules
from controller.core.setpoints import EVERY_RANK, PRIORITY, refused

# Looked up by name of the module: a member of an enum takes ten times as long, and each rung asks for these.
_DOWNGRADE, _CAP = Lever.DOWNGRADE, Lever.TENANT_CAP
FEW, MANY = 0.8, 0.98  # share of what is carried that may be in use: of few sequences, and of very many
UNKNOWN = 0.95  # while nobody knows how many there are
OUT = 0.5  # factor of a breaker below which a replica carries nothing that counts


def balance(pool: PoolRules, snapshot: Snapshot, estimate: Estimate, known: "Known") -> Balance:
    """Supply and demand of a pool now, with what other pools send here from this tick on, not yet in any reading."""
    owner = snapshot.targets.get(Target(pool.pool, Lever.REPLICAS), UNREAD)
    serving = estimate.evidence.get("serving", owner.ready or owner.accepted or 0.0)
    out = known.held_out(pool.pool) if pool.has_breaker else 0
    accepted = owner.accepted or 0.0
    room, exchange = known.receivers(pool, estimate)
    return Balance(
        demand=(estimate.demand or 0.0) + known.charged(pool.pool),
        carried=max(0.0, serving - out),
        arriving=max(0.0, accepted - serving),
        ahead=estimate.forecast or estimate.demand or 0.0,
        by_flow=estimate.flows,
        by_class=estimate.classes,
        room=room,
        exchange=exchange,
        fitting=estimate.fitting,
    )


def held_out(snapshot: Snapshot) -> dict[str, int]:
    """How many of the replicas that are seen a breaker holds out of rotation, by pool; none where no pool is named."""
    out: dict[str, int] = {}
    for target, held in snapshot.targets.items():
        factor = held.accepted
        if factor is not None and factor < OUT and target.lever is Lever.BREAKER:
            readings = snapshot.pools.get(target.pool)
            if readings is not None and target.member in readings.replicas:
                out[target.pool] = out.get(target.pool, 0) + 1
    return out


def names_out(snapshot: Snapshot, pool: str) -> frozenset[str]:
    """Which of a pool's replicas a breaker holds out of rotation."""
    found = ((one, snapshot.targets.get(Target(pool, Lever.BREAKER, one))) for one in snapshot.pools[pool].replicas)
    return frozenset(
        one for one, held in found if held is not None and held.accepted is not None and held.accepted < OUT
    )


def sent_away(snapshot: Snapshot, pool: str) -> float:
    """The share of what consents that goes to other pools now."""
    shares = (held.accepted for t, held in snapshot.targets.items() if t.pool == pool and t.lever is _DOWNGRADE)
    return min(1.0, math.fsum(one for one in shares if one is not None))


def usable(carried: float, estimate: Estimate) -> float:
    """What may be in use of what is carried without a queue that grows: the square-root rule of staffing, 1 - 1/sqrt(k)
    with k sequences. A burst that drowns one replica is lost in the noise of fifty."""
    if not estimate.unit_sequences or carried <= 0:
        return UNKNOWN * carried
    return carried * min(max(1.0 - 1.0 / math.sqrt(carried * estimate.unit_sequences), FEW), MANY)


def wanted(balance: Balance, estimate: Estimate) -> float:
    """Demand that serving capacity does not carry, replica-equivalents."""
    return max(0.0, balance.demand - usable(balance.carried, estimate))


@dataclass(slots=True)
class Here:
    """What of each tenant's and class's demand is still in the pool while a ladder is walked: shares, 1 where nothing
    was taken. Who was capped is not downgraded as well; who was sent away is not capped."""

    flows: dict[str, float] = field(default_factory=dict)
    classes: dict[str, float] = field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether nothing was taken yet."""
        return not self.flows and not self.classes

    def flow(self, now: Balance, tenant: str) -> float:
        """A tenant's demand that is still here."""
        return now.by_flow.get(tenant, 0.0) * self.flows.get(tenant, 1.0)

    def klass(self, now: Balance, name: str) -> float:
        """A class's demand that is still here."""
        return now.by_class.get(name, 0.0) * self.classes.get(name, 1.0)

    def capped(self, tenant: str, share: float) -> None:
        """A share of what is here of a tenant is kept."""
        self.flows[tenant] = self.flows.get(tenant, 1.0) * share

    def thinned(self, now: Balance, share: float) -> None:
        """So much of all demand is kept; of which class the rest was is not known, so all of them in proportion."""
        self.classes = {name: self.classes.get(name, 1.0) * share for name in now.by_class}

    def of(self, now: Balance) -> Balance:
        """The balance with the parts of tenants and classes that are still here."""
        if self.whole:
            return now
        return replace(
            now,
            by_flow={name: self.flow(now, name) for name in now.by_flow},
            by_class={name: self.klass(now, name) for name in now.by_class},
        )

    def sent(self, pool: PoolRules, share: float) -> None:
        """A share of all that consents went elsewhere."""
        self.flows.update({n: self.flows.get(n, 1.0) * (1 - share) for n, one in pool.tenants.items() if one.consents})
        self.classes.update(
            {n: self.classes.get(n, 1.0) * (1 - share) for n, one in pool.classes.items() if one.consents}
        )


def given(
    rules: LeverRules, finals: Mapping[str, float], pool: PoolRules, estimate: Estimate, now: Balance,
    here: Here | None = None,
) -> float:  # fmt: skip
    """What a lever takes off the pool with these values, by member: of what is still `here`, which is less after it;
    without, of all demand."""
    if rules.lever is _CAP:
        return capped(finals, estimate, now, here)
    if rules.lever is _DOWNGRADE:
        share = min(1.0, math.fsum(finals.values()))
        if not share:
            return 0.0  # nearly always
        here = here or Here()
        taken = share * consenting(pool, now, here)
        here.sent(pool, share * (now.fitting or 0.0))
        return taken
    if rules.lever is Lever.ADMISSION:
        armed = finals.get("concurrency", rules.limits.max) < rules.limits.max
        return shed(pool, now, here or Here(), armed, finals.get(PRIORITY, EVERY_RANK))
    return 0.0


def capped(finals: Mapping[str, float], estimate: Estimate, now: Balance, here: Here | None = None) -> float:
    """Demand of tenants above their caps, as far as it is still here: a cap stands before all else in the gateway, so
    it holds back the same part of what is sent elsewhere. Nothing while the cost of a token is unknown."""
    unit, flows = estimate.unit_tokens, now.by_flow
    if not unit:
        return 0.0
    over = {t: cap for t, cap in finals.items() if t in flows and cap < flows[t] * unit}
    if not over:
        return 0.0  # most caps of most ticks
    here = here or Here()
    whole = math.fsum([here.flow(now, tenant) for tenant in flows])  # exact, so in whatever order
    taken = []
    for tenant, cap in over.items():
        share = cap / unit / flows[tenant]
        taken.append(here.flow(now, tenant) * (1.0 - share))
        here.capped(tenant, share)
    away = math.fsum(taken)
    if away > 0:
        here.thinned(now, 1.0 - away / whole)
    return away


def consenting(pool: PoolRules, now: Balance, here: Here | None = None) -> float:
    """Demand whose tenant and class both agreed to a smaller model: no more than either part, and of that what has
    prompts of a size that may go. A part that is not told apart agrees to nothing unless nobody was asked."""
    here = Here() if here is None else here
    parts = []
    if pool.tenants:
        parts.append(math.fsum([here.flow(now, n) for n in now.by_flow if n in pool.consenting_tenants]))
    if pool.classes:
        parts.append(math.fsum([here.klass(now, n) for n in now.by_class if n in pool.consenting_classes]))
    return min(parts, default=0.0) * (now.fitting or 0.0)


def shed(pool: PoolRules, now: Balance, here: Here, armed: bool, priority: float) -> float:
    """Demand of the classes that may be refused before the promises of others break, while the gate is armed, and what
    its priority keeps out of any class."""
    if not armed and priority >= EVERY_RANK:
        return 0.0  # nearly always
    return math.fsum(
        here.klass(now, name) * (1.0 if armed and one.sheddable else refused(one.rank, priority))
        for name, one in pool.classes.items()
    )


class Known:
    """What is known of all pools while one tick is decided, pool by pool: their estimates and what they have left, so
    that who sends work elsewhere sees how much fits there, and who receives it has it in its demand."""

    def __init__(
        self, snapshot: Snapshot, estimates: Mapping[str, Estimate],
        beyond: Mapping[tuple[str, str], Beyond] = NOTHING,
    ) -> None:  # fmt: skip
        self._estimates, self._out, self._beyond = estimates, held_out(snapshot), beyond
        self._charged: dict[str, float] = {}

    def held_out(self, pool: str) -> int:
        """How many of its replicas a breaker holds out of rotation."""
        return self._out.get(pool, 0)

    def charged(self, pool: str) -> float:
        """Work that was sent here in this tick, replica-equivalents of the receiving pool."""
        return self._charged.get(pool, 0.0)

    def receivers(self, pool: PoolRules, estimate: Estimate) -> tuple[dict[str, float], dict[str, float]]:
        """(room, exchange) of the pools that this one may send work to; none of one that is not known well enough. One
        that has had nothing to do cannot tell its rate, and would never be sent anything: until it can, its replicas
        count as no stronger and no weaker than those here."""
        room, exchange = {}, {}
        for name in pool.receivers:
            there = self._estimates.get(name)
            if there is None or not there.trusted or not estimate.unit_rate:
                continue
            if not there.unit_rate and (there.offered is None or there.offered > 0):
                continue
            serving = max(0.0, there.evidence.get("serving", 0.0) - self.held_out(name))
            if there.unproven and there.unit_rate:  # a fresh version gets no more than its replicas have shown
                serving *= min(1.0, there.evidence.get("proven_rate", 0.0) / there.unit_rate)
            carried = usable(serving, there)
            if (more := self._beyond.get((pool.pool, name))) is not None:
                carried += more.of(carried, there)
            room[name] = max(0.0, carried - (there.demand or 0.0) - self.charged(name))
            exchange[name] = estimate.unit_rate / there.unit_rate if there.unit_rate else 1.0
        return room, exchange

    def charge(self, pool: PoolRules, decisions: Mapping[str, Decision], now: Balance) -> None:
        """Note what raised shares send to receiving pools; what flows there already is in their readings."""
        raised = {
            name: more for name, decision in decisions.items()
            if name in now.exchange and (more := (decision.final or 0.0) - (decision.current or 0.0)) > 0
        }  # fmt: skip
        agreed = consenting(pool, now) if raised else 0.0
        for name, more in raised.items():
            self._charged[name] = self.charged(name) + more * agreed * now.exchange[name]
