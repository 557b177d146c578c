"""What every actuator checks of a batch before its first write, and the order in which it writes."""

import math
from collections.abc import Callable, Sequence

from controller.core.model import Applied, Decision, Outcome, Target


def invalid(
    decisions: Sequence[Decision],
    owns: Callable[[Target], bool],
    *,
    quantum: float,
    low: float = 0.0,
    high: float = math.inf,
) -> dict[Target, str]:
    """The decisions that must never reach a target, with the reason."""
    problems: dict[Target, str] = {}
    seen: set[Target] = set()
    for decision in decisions:
        problem = _problem(decision, owns, quantum, low, high)
        if decision.target in seen:
            problem = "decided twice in one batch"
        seen.add(decision.target)
        if problem:
            problems[decision.target] = problem
    return problems


def reject(decisions: Sequence[Decision], problems: dict[Target, str]) -> tuple[Applied, ...]:
    """Outcomes of a batch that is not sent. An impossible decision is a bug upstream, so its batch is not trusted."""
    culprit = next(iter(problems))
    return tuple(
        Applied(d.target, Outcome.REFUSED, problems[d.target])
        if d.target in problems
        else Applied(d.target, Outcome.FAILED, f"not sent: {culprit} in the same batch is invalid")
        for d in decisions
    )


def decreases_first(decisions: Sequence[Decision]) -> list[Decision]:
    """The order of writing: what gives back a shared budget comes before what takes from it."""
    return sorted(decisions, key=lambda d: (_rises(d), d.target))


def wanted(decision: Decision) -> float:
    """The value to write; the batch has been checked."""
    if decision.final is None:
        raise ValueError(f"{decision.target}: no value to write")
    return float(decision.final)


def _rises(decision: Decision) -> bool:
    return decision.current is None or decision.final is None or decision.final > decision.current


def _problem(decision: Decision, owns: Callable[[Target], bool], quantum: float, low: float, high: float) -> str:
    value = decision.final
    if not owns(decision.target):
        return "not a target of this actuator"
    if not decision.send:
        return "not marked for sending"
    if value is None or not math.isfinite(value):
        return f"not a finite value: {value}"
    if not low <= value <= high:
        return f"{value:g} is outside {low:g}..{high:g}"
    steps = value / quantum
    if not math.isclose(steps, round(steps), rel_tol=0.0, abs_tol=1e-6):
        return f"{value:g} is not a multiple of {quantum:g}"
    return ""
