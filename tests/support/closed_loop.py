"""A loop around a plant, in virtual time."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from controller.core.learned import EstimatorSpec
from controller.core.meter import Meter, PoolSpec
from controller.core.model import Lever, Mode, Target
from controller.core.ports import Limits, Policy
from controller.core.rules import FleetRules, LeverRules, PoolRules, Rate
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.step_model import Profile
from controller.run.ledger import MemoryLedger
from controller.run.loop import ControlLoop, KeyedLedger, Parts, TickResult
from policies.capacity import Capacity
from tests.support.plant import Plant

TTFT = Objective("ttft_p95", Signal.TTFT, 2.0, 0.95, 60.0)
ITL = Objective("itl_p95", Signal.ITL, 0.05, 0.95, 60.0)
RULES = LeverRules(
    Lever.REPLICAS, "capacity", "plant", Mode.AUTO, Limits(1, 40),
    cooldown_down=60.0, rate_up=Rate(1.0, 60.0, relative=True), rate_down=Rate(0.1, 60.0, relative=True),
    stabilise=300.0,
)  # fmt: skip


def build(
    plant: Plant,
    policy: Policy[Any] | None = None,
    *,
    rules: LeverRules = RULES,
    objectives: Sequence[Objective] = (TTFT, ITL),
    interval: float = 15.0,
    cold_start: float | None = None,
    profile: Profile | None = None,
    ledger: KeyedLedger | None = None,
) -> ControlLoop:
    """A loop on the plant. `cold_start` is the prior that the estimator starts from; default: the plant's own."""
    target = Target(plant.pool, Lever.REPLICAS)
    pool = PoolRules(plant.pool, tuple(objectives), (rules,), (target,), window=60.0)
    prior = plant.cold_start if cold_start is None else cold_start
    spec = EstimatorSpec(plant.pool, tuple(objectives), profile, cold_start=prior, lead=interval + 30.0)
    key = f"{plant.pool}/{Lever.REPLICAS}"
    return ControlLoop(
        Parts(
            source=plant,
            meter=Meter([PoolSpec(plant.pool, 60.0, tuple(objectives))]),
            estimators={plant.pool: spec},
            rules=FleetRules((pool,)),
            policies={key: policy if policy is not None else Capacity(Capacity.Config())},
            actuators={key: plant},
            ledger=ledger if ledger is not None else MemoryLedger(),
            deadline=1.0,
            config_hash="test",
            version="test",
            mode="simulate",
            timer=lambda: 0.0,
        )
    )


def observing() -> LeverRules:
    """The same rules, in observe mode."""
    return replace(RULES, mode=Mode.OBSERVE)


def drive(loop: ControlLoop, plant: Plant, seconds: float, interval: float = 15.0) -> list[TickResult]:
    """Tick for `seconds` of virtual time."""
    end = plant.now + seconds
    results, at = [], plant.now
    while at < end:
        at += interval
        results.append(loop.tick(at))
    return results


def attained(plant: Plant, target: float, begin: float = 0.0, end: float = float("inf")) -> float:
    """The truth: share of requests that arrived in [begin, end) seconds since the start and met the target."""
    chosen = [t for at, t in plant.all_ttft if begin <= at - plant.start < end]
    return sum(t <= target for t in chosen) / len(chosen)


def reversals(values: Sequence[float]) -> int:
    """How often the direction of change turned."""
    moves = [b - a for a, b in pairwise(values) if b != a]
    return sum((a > 0) != (b > 0) for a, b in pairwise(moves))
