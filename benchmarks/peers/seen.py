"""What peers read of a view: requests at engines and at the gateway, and how much of it is known.

Peers that ask a Prometheus get the sum of the series that are there, however many are missing. A Prometheus that does
not answer is told from one that answers with nothing, because some peers act on the latter.
"""

import math
from collections.abc import Sequence

from controller.core.model import Ask, Lever, Proposal, Scope, Target, TargetState
from controller.core.ports import View
from controller.core.signals import Signal
from controller.core.why import Why

IN_FLIGHT, QUEUE, RATE = "in_flight", "queue", "rate"
OF_PODS = (IN_FLIGHT, QUEUE)
_PARTS = {IN_FLIGHT: (Signal.RUNNING, Signal.QUEUE_DEPTH), QUEUE: (Signal.QUEUE_DEPTH,)}


def check(metric: str, known: Sequence[str] = OF_PODS) -> None:
    """Refuse what is no metric."""
    if metric not in known:
        raise ValueError(f"metric: unknown {metric!r}; write one of {', '.join(known)}")


def pool_target(view: View) -> tuple[Target, TargetState, float] | None:
    """The replicas of the pool: target, state and accepted number; None while that number cannot be read."""
    for target, owner in sorted(view.targets.items()):
        if target.lever is Lever.REPLICAS and owner.accepted is not None:
            return target, owner, owner.accepted
    return None


def answers(view: View) -> bool:
    """Whether the Prometheus answered at all."""
    return bool(view.pool.signals)


def per_replica(view: View, metric: str = IN_FLIGHT) -> dict[str, float]:
    """The metric of every replica whose scrape tells all that it is made of."""
    found = {}
    for name, scope in sorted(view.pool.replicas.items()):
        parts = [scope.get(signal).value for signal in _PARTS[metric]]
        known = [part for part in parts if part is not None]
        if len(known) == len(parts):
            found[name] = math.fsum(known)
    return found


def at_gateway(view: View) -> float:
    """Requests that wait in front of the replicas: what the pool has waiting beyond what its replicas tell. 0 where
    there is no gateway with a queue."""
    depth = view.pool.get(Signal.QUEUE_DEPTH).value
    if depth is None:
        return 0.0
    return max(0.0, depth - math.fsum(per_replica(view, QUEUE).values()))


def summed(view: View, metric: str = IN_FLIGHT) -> float | None:
    """The metric of all replicas that are seen and the queue at the gateway, or requests offered per second; None when
    no series is there."""
    if metric == RATE:
        return view.pool.get(Signal.OFFERED_RATE).value
    mine = per_replica(view, metric)
    if not mine and view.pool.get(Signal.QUEUE_DEPTH).value is None:
        return None
    return math.fsum(mine.values()) + at_gateway(view)


def lengths(pool: Scope) -> tuple[float, float, float] | None:
    """Requests per second that began, and the mean tokens of their prompts and of answers; None where nothing moves.
    Prompt tokens are counted when a request begins and answers while it runs, so that prompts are divided by what
    began, and answers by what finished: with a backlog the two differ for minutes."""
    finished = pool.get(Signal.FINISHED_RATE).value
    began = pool.get(Signal.ADMITTED_RATE).value or finished
    prompt, output = pool.get(Signal.PROMPT_TOKEN_RATE).value, pool.get(Signal.GENERATION_TOKEN_RATE).value
    if not began or not finished or not prompt or not output:
        return None
    return began, prompt / began, output / finished


def ready(owner: TargetState) -> float:
    """Replicas that serve; all of them where the owner does not tell."""
    return owner.ready if owner.ready is not None else owner.accepted or 0.0


def ask(target: Target, value: float, current: float, by: str, /, **evidence: float) -> Proposal:
    """SET with the reason that follows from the direction."""
    why = Why.STEADY if value == current else Why.ABOVE_THRESHOLD if value > current else Why.BELOW_THRESHOLD
    return Proposal(target, Ask.SET, value, by, why, evidence)


def stay(target: Target, current: float, by: str, why: Why) -> Proposal:
    """SET what stands, and why nothing was decided."""
    return Proposal(target, Ask.SET, current, by, why)
