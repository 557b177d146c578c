"""What the user allows a lever to do, in core terms, made from the config. Durations in seconds."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from controller.core.model import Lever, Mode, Target
from controller.core.ports import Limits
from controller.core.rest import AT_REST, NO_LIMIT
from controller.core.setpoints import PRIORITY
from controller.core.slo import Objective
from controller.core.tenancy import ClassRules, TenantRules
from controller.core.why import Why


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `amount` of change per `period` seconds; with `relative` the amount is a share of the current value."""

    amount: float
    period: float
    relative: bool = False

    def allowance(self, current: float, quantum: float) -> float:
        """Change allowed per period; a relative rate always allows one quantum, else small fleets could never move."""
        return max(quantum, self.amount * current) if self.relative else self.amount


# Whether lowering the value is the relaxing direction. Of capacity and of what is sent elsewhere it is; a weight, a cap
# and a gate relax by rising.
RELAX_DOWN: Mapping[Lever, bool] = {
    Lever.REPLICAS: True, Lever.WEIGHT: False, Lever.BREAKER: False, Lever.TENANT_CAP: False, Lever.ADMISSION: False,
    Lever.DOWNGRADE: True, Lever.ROUTING: False,
}  # fmt: skip
# Levers whose members are the replicas that are seen, so that they come and go.
PER_REPLICA = frozenset({Lever.WEIGHT, Lever.BREAKER})


@dataclass(frozen=True)
class LeverRules:
    """Rules of one lever. `members` are those of its targets that are known beforehand (tenants, set-points,
    receiving pools); `stabilise` is the window over whose most protective wish the value may relax (of replicas it
    fades); `give_up` the age at which pending capacity is no longer waited for; `every` the seconds between
    decisions of this lever; `expiry` the seconds after which the target itself should drop a value that is not
    neutral, 0 = never; `group` the largest share of the members that may be taken out at once (weight, breaker),
    `version_group` the same where all of those run one version, 0 where nobody tells versions; `unwoken` that
    nothing tells demand while no replica runs, so that one must stay; `drain` the longest wait in seconds for
    replicas that will go to finish their requests before the count is lowered, 0 = none; `workload` the Deployment
    whose pods go, "" where nobody tells; `floor` why the least is above the one of the config at this tick, if it
    is; `own` the bounds of members that are counted in another unit than the rest."""

    lever: Lever
    policy: str
    actuator: str
    mode: Mode = Mode.AUTO
    limits: Limits = Limits(0.0, 1.0)
    every: float = 0.0
    cooldown_up: float = 0.0
    cooldown_down: float = 0.0
    rate_up: Rate | None = None
    rate_down: Rate | None = None
    stabilise: float = 300.0
    settle: float = 0.0
    give_up: float = 900.0
    by: str = "replica"  # or "zone": what the members of a weight are
    members: tuple[str, ...] = ("",)
    expiry: float = 0.0
    group: float = 0.2
    version_group: float = 0.0
    unwoken: bool = False
    drain: float = 0.0
    workload: str = ""
    floor: Why | None = None
    own: Mapping[str, Limits] = field(default_factory=dict, hash=False)

    def of_member(self, member: str) -> "LeverRules":
        """The rules as they hold for one member, whose bounds may be its own. A rank is a place and no amount, so that
        no share of it is a pace; its law has one in ranks."""
        return self._of_member[member] if member in self.own else self

    @cached_property
    def _of_member(self) -> "dict[str, LeverRules]":
        made = {name: replace(self, limits=one, own={}) for name, one in self.own.items()}
        return {
            name: replace(one, rate_up=None, rate_down=None) if name == PRIORITY else one for name, one in made.items()
        }

    @cached_property
    def relax_down(self) -> bool:
        """Whether lowering the value is the relaxing direction."""
        return RELAX_DOWN[self.lever]

    def climb(self, current: float, goal: float) -> float:
        """Seconds from the first to the last raise on the way to `goal`, as the limits on the pace allow them."""
        rate, quantum = self.rate_up, self.limits.quantum or 1.0
        if rate is None or current >= goal:
            return 0.0
        value, raises = current, 0
        while value < goal:
            room = math.floor(rate.allowance(value, quantum) / quantum + 1e-9) * quantum
            if room <= 0:
                return math.inf
            raises += 1 if rate.relative else math.ceil((goal - value) / room - 1e-9)
            value = value + room if rate.relative else goal
        return (raises - 1) * max(self.cooldown_up, rate.period)

    @cached_property
    def memory(self) -> float:
        """Seconds for which the guards look at changes of the value."""
        periods = [r.period for r in (self.rate_up, self.rate_down) if r is not None]
        return max([self.cooldown_up, self.cooldown_down, *periods])

    @cached_property
    def rest(self) -> float | None:
        """The value at which it does nothing, of members without bounds of their own (``neutral``)."""
        return neutral(self)


def neutral(lever: LeverRules, member: str = "") -> float | None:
    """The value at which a member of a lever does nothing; None for replicas, which have none. No cap and no gate is
    the upper bound."""
    value = AT_REST.get(lever.lever)
    return lever.of_member(member).limits.max if value == NO_LIMIT else value


@dataclass(frozen=True)
class PoolRules:
    """One pool: its objectives, its levers in the order of the ladder, what a replica weighs in budgets, its tenants
    and request classes. `targets` are those that are known beforehand; replicas come and go."""

    pool: str
    objectives: tuple[Objective, ...]
    levers: tuple[LeverRules, ...]
    targets: tuple[Target, ...]
    weight: float = 1.0  # GPUs of one replica
    window: float = 60.0
    tenants: Mapping[str, TenantRules] = field(default_factory=dict)
    classes: Mapping[str, ClassRules] = field(default_factory=dict)

    @cached_property
    def acting(self) -> frozenset[Lever]:
        """Its levers that do more than observe."""
        return frozenset(one.lever for one in self.levers if one.mode in (Mode.PROTECT, Mode.AUTO))

    @cached_property
    def watched(self) -> Mapping[Lever, LeverRules]:
        """Of its levers that do more than observe those that are not moved replica by replica: what comes of them
        shows in the pool as a whole."""
        return {one.lever: one for one in self.levers if one.lever in self.acting and one.lever not in PER_REPLICA}

    @cached_property
    def has_breaker(self) -> bool:
        """Whether it has a lever that takes replicas out of rotation."""
        return any(one.lever is Lever.BREAKER for one in self.levers)

    @cached_property
    def goes_by_version(self) -> bool:
        """Whether its breaker takes out the replicas of one version as one cause."""
        return any(one.lever is Lever.BREAKER and one.version_group > 0 for one in self.levers)

    @cached_property
    def receivers(self) -> tuple[str, ...]:
        """The pools that it may send work to."""
        return tuple(name for one in self.levers if one.lever is Lever.DOWNGRADE for name in one.members)

    @cached_property
    def consenting_tenants(self) -> frozenset[str]:
        """Tenants whose requests may go to a smaller model."""
        return frozenset(name for name, one in self.tenants.items() if one.consents)

    @cached_property
    def consenting_classes(self) -> frozenset[str]:
        """The same of request classes."""
        return frozenset(name for name, one in self.classes.items() if one.consents)

    @cached_property
    def sheddable_classes(self) -> tuple[str, ...]:
        """Request classes that may be refused first, sorted."""
        return tuple(sorted(name for name, one in self.classes.items() if one.sheddable))

    def of_lever(self, lever: Lever) -> tuple[Target, ...]:
        """Targets of a lever that are known beforehand, sorted."""
        return self._by_lever.get(lever, ())

    @cached_property
    def _by_lever(self) -> dict[Lever, tuple[Target, ...]]:
        found: dict[Lever, list[Target]] = {}
        for target in sorted(self.targets):
            found.setdefault(target.lever, []).append(target)
        return {lever: tuple(targets) for lever, targets in found.items()}

    def of(self, target: Target) -> LeverRules:
        return next(rules for rules in self.levers if rules.lever == target.lever)


@dataclass(frozen=True, slots=True)
class Budget:
    """A shared ceiling, in GPUs, over the replicas of some pools. Where it is short, pools of a lower rank are served
    before those of a higher one; a pool without a rank has 0."""

    name: str
    max: float
    pools: frozenset[str]
    ranks: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pair:
    """A prefill and a decode pool that serve one model together: least and most prefill replicas per decode
    replica."""

    name: str
    prefill: str
    decode: str
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Variants:
    """Pools that serve one model behind one router on different hardware: what a replica of each costs per time, in
    any one unit."""

    name: str
    cost: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class FleetGuard:
    """Hold when one tick would lower more than `share` of the pools or of the GPUs; `hold` seconds later the lowering
    may go on in steps of that share."""

    share: float = 0.2
    hold: float = 300.0
    min_pools: int = 3


@dataclass(frozen=True)
class FleetRules:
    """All pools, their budgets, the fleet-wide guard, and what is sized together."""

    pools: tuple[PoolRules, ...]
    budgets: tuple[Budget, ...] = ()
    guard: FleetGuard = field(default_factory=FleetGuard)
    pairs: tuple[Pair, ...] = ()
    variants: tuple[Variants, ...] = ()

    @cached_property
    def senders_first(self) -> tuple[PoolRules, ...]:
        """Pools by name, but who sends work elsewhere comes before who receives it. The config refuses circles; in one,
        the order is by name."""
        receivers = {pool.pool: pool.receivers for pool in self.pools}
        depth: dict[str, int] = {}

        def steps(name: str, seen: tuple[str, ...]) -> int:
            if name not in depth:
                beyond = [steps(one, (*seen, name)) for one in receivers.get(name, ()) if one and one not in seen]
                depth[name] = 1 + max(beyond, default=-1)
            return depth[name]

        return tuple(sorted(self.pools, key=lambda p: (-steps(p.pool, ()), p.pool)))

    @cached_property
    def draining(self) -> "Mapping[str, tuple[LeverRules, LeverRules]]":
        """The rules of replicas and weights of pools whose replicas finish their requests before they go, by pool."""
        found = {}
        for pool in self.pools:
            levers = {one.lever: one for one in pool.levers}
            replicas, weight = levers.get(Lever.REPLICAS), levers.get(Lever.WEIGHT)
            if replicas is None or weight is None or replicas.drain <= 0:
                continue
            if weight.mode is Mode.AUTO and weight.by == "replica":
                found[pool.pool] = (replicas, weight)
        return found

    @cached_property
    def replica_by_replica(self) -> bool:
        """Whether any lever is moved so."""
        return any(lever.lever in PER_REPLICA for pool in self.pools for lever in pool.levers)
