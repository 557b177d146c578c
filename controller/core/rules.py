"""What the user allows a lever to do, in core terms. Assembly makes these from the config; durations in seconds."""

from dataclasses import dataclass, field

from controller.core.model import Lever, Mode, Target
from controller.core.ports import Limits
from controller.core.slo import Objective


@dataclass(frozen=True, slots=True)
class Rate:
    """At most `amount` of change per `period` seconds; with `relative` the amount is a share of the current value."""

    amount: float
    period: float
    relative: bool = False

    def allowance(self, current: float, quantum: float) -> float:
        """Change allowed per period; a relative rate always allows one quantum, else small fleets could never move."""
        return max(quantum, self.amount * current) if self.relative else self.amount


@dataclass(frozen=True, slots=True)
class LeverRules:
    """Rules of one lever. `stabilise` is the window over whose highest need the value may fall; `give_up` the age at
    which pending capacity is no longer waited for; `every` the seconds between decisions of this lever."""

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
    relax_down: bool = True  # whether lowering the value is the relaxing direction (capacity); False for sheds


@dataclass(frozen=True, slots=True)
class PoolRules:
    """One pool: its objectives, its levers in the order of the ladder, and what a replica weighs in budgets."""

    pool: str
    objectives: tuple[Objective, ...]
    levers: tuple[LeverRules, ...]
    targets: tuple[Target, ...]
    weight: float = 1.0  # GPUs of one replica
    window: float = 60.0

    def of(self, target: Target) -> LeverRules:
        return next(rules for rules in self.levers if rules.lever == target.lever)


@dataclass(frozen=True, slots=True)
class Budget:
    """A shared ceiling, in GPUs, over the replicas of some pools."""

    name: str
    max: float
    pools: frozenset[str]


@dataclass(frozen=True, slots=True)
class FleetGuard:
    """Hold when one tick would lower more than `share` of the pools or of the GPUs; `hold` seconds later the lowering
    may go on in steps of that share."""

    share: float = 0.2
    hold: float = 300.0
    min_pools: int = 3


@dataclass(frozen=True, slots=True)
class FleetRules:
    """All pools, their budgets, and the fleet-wide guard."""

    pools: tuple[PoolRules, ...]
    budgets: tuple[Budget, ...] = ()
    guard: FleetGuard = field(default_factory=FleetGuard)
