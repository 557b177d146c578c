"""What both ways to HAProxy do alike: refuse a batch that cannot be, and say what is found of a decision."""

from collections.abc import Sequence

from actuators.batch import invalid, wanted
from actuators.haproxy.look import View
from actuators.haproxy.names import HIGHEST, QUANTA
from actuators.haproxy.told import Reader
from controller.core.model import Decision, Lever, Outcome, Target

Told = tuple[Outcome, str]


def problems(decisions: Sequence[Decision], reader: Reader) -> dict[Target, str]:
    """The decisions that must never reach HAProxy, with the reason."""
    found: dict[Target, str] = {}
    for lever in QUANTA:
        mine = [d for d in decisions if d.target.lever is lever]
        low = 1.0 if lever is Lever.ADMISSION else 0.0  # 0 connections would be no limit
        found |= invalid(mine, reader.binding.owns, quantum=QUANTA[lever], low=low, high=HIGHEST[lever])
    for decision in decisions:
        reason = (
            "HAProxy has no such lever" if decision.target.lever not in QUANTA else reader.names.unfit(decision.target)
        )
        if reason and reader.binding.owns(decision.target):
            found[decision.target] = reason
    return found


def found(decision: Decision, reader: Reader, view: View, now: float, otherwise: Outcome) -> Told:
    """Whether a decision is in force; `otherwise` is the outcome where it is not."""
    value = wanted(decision)
    try:
        got = reader.value(decision.target, view, now, value)
    except LookupError as error:
        return otherwise, str(error)
    if got == value:
        return Outcome.DONE, f"{decision.target} is {got:g} in HAProxy"
    return otherwise, f"{decision.target} is {got:g} in HAProxy, not {value:g}"
