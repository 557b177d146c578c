"""Views as a peer gets them, made by hand."""

from collections.abc import Sequence
from typing import Any

from controller.core.model import Lever, Pending, PoolReadings, Proposal, Scope, Target, TargetState, Tick
from controller.core.ports import Balance, Brief, Estimate, Limits, View
from controller.core.reading import Reading, State, ok
from controller.core.signals import Signal
from controller.core.slo import Objective

TARGET = Target("chat", Lever.REPLICAS)
BRIEF = Brief(Balance(0.0, 0.0), 0.0)
PROMISES = (
    Objective("ttft", Signal.TTFT, 2.0, 0.95, 300.0),
    Objective("itl", Signal.ITL, 0.08, 0.95, 300.0),
)
LIMITS = Limits(1, 40)
Replica = tuple[float, float] | tuple[float, float, float]  # running, waiting, KV usage


def view(
    at: float,
    accepted: float | None,
    replicas: Sequence[Replica | None] = (),
    *,
    ready: float | None = None,
    pending: Sequence[Pending] = (),
    gateway: float | None = None,
    rates: tuple[float, float, float] | None = None,
    p99: Reading | None = None,
    itl: float | None = None,
    limits: Limits = LIMITS,
    unreachable: bool = False,
) -> View:
    """`replicas` that are None are not scraped. `gateway` requests wait there; None: there is none. `rates` are
    (offered requests/s, mean prompt, mean answer) of a pool that keeps up."""
    scopes = {f"pod-{i:02}": _scope(one) for i, one in enumerate(replicas)}
    known = [one for one in replicas if one is not None]
    depth = sum(one[1] for one in known) + (gateway or 0.0)
    told = bool(known) or gateway is not None
    signals = {
        Signal.QUEUE_DEPTH: ok(depth) if told else Reading(State.MISSING, note="no sample"),
        Signal.RUNNING: ok(sum(one[0] for one in known)) if known else Reading(State.MISSING, note="no sample"),
    }
    if rates is not None:
        offered, prompt, answer = rates
        signals |= {
            Signal.OFFERED_RATE: ok(offered), Signal.ADMITTED_RATE: ok(offered), Signal.FINISHED_RATE: ok(offered),
            Signal.PROMPT_TOKEN_RATE: ok(offered * prompt), Signal.GENERATION_TOKEN_RATE: ok(offered * answer),
        }  # fmt: skip
    latencies = {}
    if p99 is not None:
        latencies[Signal.TTFT] = {"p99": p99}
    if itl is not None:
        latencies[Signal.ITL] = {"mean": ok(itl)}
    pool = PoolReadings(signals={} if unreachable else signals, latencies=latencies, replicas=scopes)
    serving = float(len(known)) if ready is None else ready
    state = TargetState(accepted, serving, tuple(pending))
    return View(Tick(0, at, 15.0), pool, {TARGET: state}, {TARGET: limits}, Estimate())


def _scope(one: Replica | None) -> Scope:
    if one is None:
        down = Reading(State.STALE, note="its scrape failed")
        return Scope({Signal.RUNNING: down, Signal.QUEUE_DEPTH: down, Signal.KV_USAGE: down})
    return Scope(
        {
            Signal.RUNNING: ok(one[0]),
            Signal.QUEUE_DEPTH: ok(one[1]),
            Signal.KV_USAGE: ok(one[2] if len(one) > 2 else 0.0),
        }
    )


def asked(law: Any, seen: View, state: Any) -> tuple[Proposal, Any]:
    """The one proposal, and the next state."""
    (proposal,), after = law.propose(seen, PROMISES, BRIEF, state)
    return proposal, after


def wanted(law: Any, seen: View, state: Any) -> tuple[float, Any]:
    """The number that is asked for, and the next state; what stands, where nothing is."""
    proposals, after = law.propose(seen, PROMISES, BRIEF, state)
    current = seen.targets[TARGET].accepted
    return (proposals[0].value if proposals else current or 0.0), after
