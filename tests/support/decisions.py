"""Targets and decisions for tests of actuators."""

from controller.core.model import Decision, Lever, Target
from controller.core.why import Why


def replicas(pool: str) -> Target:
    return Target(pool, Lever.REPLICAS)


def decide(target: Target, current: float | None, final: float | None, *, send: bool = True) -> Decision:
    return Decision(target, current, final, Why.DEMAND, send=send)
