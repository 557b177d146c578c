"""Gate: the limits that stand in the data plane before the overload. Governor moves their set-points.

    concurrency     n = n* · headroom · e^trim        requests in flight per replica;  n* = Estimate.unit_sequences
                    trim -= Δt / 60 s · ln(ITL / target)    while ITL is over its target at that batch, down to -trim
                    trim -> 0 over `relax`                  otherwise
    longest_prompt  share · KV tokens of one replica · cut;   cut halved after an OOM, back by an e-fold per `release`
    deadline        see ``policies.deadlines``
    priority        see ``policies.ranks``

What is above n waits in the gateway, where it is ordered by class, or refused there; inside an engine it would only
slow what runs. The gate is always armed, far from any overload too: a flash is over the fleet before the next tick.
It does not look at what relief is left: n* is what a replica holds and keeps its promises, and that is the same in a
calm and in a storm. Which class waits and which is refused first is said by static knobs of the gateway, in shares of
this cap: ``load_lo`` and ``load_hi`` of a class are multiples of it, and the predicted delay that ``delay_lo``,
``delay_hi`` and deadlines are judged by counts the places that it leaves.

n* comes from the step model and kappa, which follows measured ITL by itself within minutes. So the trim is small: it
acts while kappa has not arrived. The set-point moves by a rate, quickly down and slowly up, never below `least`. From
no limit it comes down at once: an unlimited gate is no point to start a slope from.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from controller.core.doubt import of_demand
from controller.core.elapsed import elapsed
from controller.core.estimate import READS
from controller.core.model import Ask, Lever, Proposal, Target
from controller.core.operating import CONCURRENCY
from controller.core.params import Unit, param
from controller.core.ports import Brief, View
from controller.core.reading import Reading, State
from controller.core.setpoints import DEADLINE, PRIORITY
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.why import Why
from policies.deadlines import Deadlines, Memory, deadline
from policies.error import log_error
from policies.ranks import Ranks, priority

LONGEST_PROMPT = "longest_prompt"
FOLLOW = 60.0  # seconds in which the trim follows one e-fold of ITL over its target
AT_BATCH = 0.7  # share of the cap that must be in flight for ITL to say something of the cap
WORTH = 0.1  # relative change of the longest prompt that is worth a write


class Gate:
    """Set-points of the admission gate of one pool."""

    levers = (Lever.ADMISSION,)
    reads = READS | {Signal.TPOT, Signal.OOM_RESTARTS}

    @dataclass(frozen=True, slots=True)
    class Config:
        """Parameters of the gate policy."""

        headroom: float = param("requests in flight per replica, in operating points", 1.15, gt=0, le=5)
        least: float = param("requests in flight per replica, at least", 4.0, ge=1)
        trim: float = param("largest trim by measured ITL, in ln", 0.2, ge=0, le=1)
        relax: float = param("time in which the trim is forgotten by an e-fold", 600.0, unit=Unit.DURATION, gt=0)
        down: float = param("largest lowering per minute, share of the set-point", 0.5, unit=Unit.RATIO, gt=0, le=1)
        up: float = param("largest raise per minute, share of the set-point", 0.1, unit=Unit.RATIO, gt=0, le=10)
        share: float = param("longest prompt, share of one replica's KV tokens", 0.8, unit=Unit.RATIO, gt=0, le=1)
        context: float = param(
            "longest prompt that is cut from after an OOM while the KV tokens are unknown, tokens", 131_072.0, gt=0
        )
        shortest: float = param("the longest prompt is never cut below this, tokens", 4096.0, ge=1)
        again: float = param(
            "least time between two cuts: the window in which one OOM is counted", 300.0, unit=Unit.DURATION, gt=0
        )
        release: float = param("time in which a cut is taken back by an e-fold", 3600.0, unit=Unit.DURATION, gt=0)
        deadline_least: float = param("deadline is never cut below this factor", 0.1, ge=0.1, le=1)
        deadline_cut: float = param("largest cut of it at once, as a factor", 0.25, gt=0, lt=1)
        deadline_again: float = param(
            "least time between two: until one shows in the latencies", 60.0, unit=Unit.DURATION, gt=0
        )
        deadline_up: float = param("what is given back of it per minute", 0.1, gt=0, le=1)
        deadline_margin: float = param(
            "share of the promise below which it is given back", 0.8, unit=Unit.RATIO, gt=0, lt=1
        )
        priority_up: float = param("ranks that are let in again per minute", 0.5, gt=0)

    class State(NamedTuple):
        """`concurrency` the set-point before rounding, None while there is none; `trim` in ln; `cut` factor on the
        longest prompt, `cut_at` when it was last halved; `told` whether restarts were ever read; `deadline` what that
        law remembers, `priority` how far its ramp is, in ranks; unix seconds."""

        at: float | None = None
        concurrency: float | None = None
        trim: float = 0.0
        cut: float = 1.0
        cut_at: float | None = None
        told: bool = False
        deadline: Memory = Memory()
        priority: float | None = None

    def __init__(self, config: "Gate.Config") -> None:
        if config.shortest > config.context:
            most = f"{config.context:g}"
            raise ValueError(f"shortest: is above context ({config.shortest:g} > {most}); write at most {most}")
        self.config = config
        self._ranks = Ranks(config.priority_up)
        self._deadlines = Deadlines(
            config.deadline_least, config.deadline_cut, config.deadline_again, config.deadline_up,
            config.deadline_margin,
        )  # fmt: skip

    def initial(self) -> "Gate.State":
        return self.State()

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: "Gate.State"
    ) -> tuple[Sequence[Proposal], "Gate.State"]:
        """SET where the set-point is known; AT_MOST the current one where it is not or where data forbids relaxing."""
        now = view.tick.at
        gone = elapsed(state.at, now)
        proposals: list[Proposal] = []
        for target, owner in sorted(view.targets.items()):
            current = owner.accepted
            if current is None or not math.isfinite(current):
                continue
            if target.member == CONCURRENCY:
                made, state = self._concurrency(view, objectives, target, current, gone, state)
                proposals.append(made)
            elif target.member == LONGEST_PROMPT:
                made, state = self._longest(view, target, current, gone, state)
                proposals.append(made)
            elif target.member == DEADLINE:
                made, kept = deadline(
                    self._deadlines, view, objectives, target, current, gone, state.deadline, _unsure(view)
                )
                proposals, state = [*proposals, made], state._replace(deadline=kept)
            elif target.member == PRIORITY:
                made, point = priority(self._ranks, view, brief, target, current, gone, state.priority, _unsure(view))
                proposals, state = [*proposals, made], state._replace(priority=point)
        return tuple(proposals), state._replace(at=now)

    # --- concurrency -------------------------------------------------------------------------------------------------

    def _concurrency(
        self, view: View, objectives: Sequence[Objective], target: Target, current: float, gone: float,
        state: "Gate.State",
    ) -> tuple[Proposal, "Gate.State"]:  # fmt: skip
        config, limits = self.config, view.limits[target]
        holds = view.estimate.unit_sequences
        if holds is None or not math.isfinite(holds) or holds <= 0:
            return Proposal(target, Ask.AT_MOST, current, "gate", Why.MISSING), state._replace(concurrency=None)
        over = _over(view, objectives, current)
        if over is not None and view.estimate.evidence.get("stragglers"):
            over = min(over, 0.0)  # a percentile of all is theirs, and fewer requests everywhere make nobody quicker
        trim = state.trim
        if over is not None and over > 0:
            trim = max(-config.trim, trim - gone / FOLLOW * over)
        elif over is not None:
            trim *= math.exp(-gone / config.relax)
        aim = max(config.least, _aim(view, holds, config.headroom, trim))
        point = aim
        if current < limits.max:
            # What was rounded away is kept, within a quantum of what stands: dropped where guards hold the value back,
            # it would never reach the next whole number, and a gate that came down once would stay there.
            kept, quantum = state.concurrency, max(limits.quantum, 1e-9)
            start = current if kept is None else min(max(kept, current - quantum), current + quantum)
            minutes = gone / 60.0
            point = min(max(aim, start * (1.0 - min(config.down * minutes, 1.0))), start * (1.0 + config.up * minutes))
        point = max(point, config.least)
        state = state._replace(concurrency=point, trim=trim)
        wish = min(max(_schmitt(point, current, limits.quantum), limits.min), limits.max)
        evidence = {"unit_sequences": holds, "aim": aim, "trim": trim}
        if wish > current and not view.estimate.trusted:
            return Proposal(target, Ask.AT_MOST, current, "gate", of_demand(view.pool), evidence), state._replace(
                concurrency=None
            )
        why = Why.STEADY
        if wish != current:
            if point != aim:  # it is on its way there, and no faster
                evidence["per_minute"] = -config.down if point > aim else config.up
            why = Why.LATENCY_HIGH if wish < current and trim < -0.01 else Why.OPERATING_POINT
        return Proposal(target, Ask.SET, wish, "gate", why, evidence), state

    # --- longest prompt ----------------------------------------------------------------------------------------------

    def _longest(
        self, view: View, target: Target, current: float, gone: float, state: "Gate.State"
    ) -> tuple[Proposal, "Gate.State"]:
        config, limits, now = self.config, view.limits[target], view.tick.at
        killed = view.pool.get(Signal.OOM_RESTARTS)
        tokens = view.estimate.evidence.get("kv_tokens")
        known = tokens is not None and math.isfinite(tokens) and tokens > 0
        base = config.share * (tokens or 0.0) if known else config.context
        cut, cut_at, told = state.cut, state.cut_at, state.told or killed.usable is not None
        if killed.usable is not None and killed.usable > 0:
            if cut_at is None or now - cut_at >= config.again - 1e-6:
                cut, cut_at = max(cut / 2, min(1.0, config.shortest / base)), now
        elif _quiet(killed):
            cut = min(1.0, cut * math.exp(gone / config.release))
        state = state._replace(cut=cut, cut_at=cut_at, told=told)
        evidence = {"cut": cut, "oom_restarts": killed.usable or 0.0}
        if known:
            evidence["kv_tokens"] = tokens or 0.0
        wish = limits.max if cut >= 1.0 and not known else _whole(base * cut, limits.quantum)
        wish = min(max(wish, limits.min), limits.max)
        if abs(wish - current) <= WORTH * current:
            return Proposal(target, Ask.SET, current, "gate", Why.STEADY, evidence), state
        if wish > current:
            doubt = of_demand(view.pool) if not view.estimate.trusted else None
            if told and not _quiet(killed):
                doubt = Why.OUT_OF_MEMORY if killed.usable else Why.MISSING
            if doubt is not None:
                return Proposal(target, Ask.AT_MOST, current, "gate", doubt, evidence), state
        why = Why.OUT_OF_MEMORY if cut < 1.0 and wish < current else Why.PROMPT_FITS
        return Proposal(target, Ask.SET, wish, "gate", why, evidence), state


def _aim(view: View, holds: float, headroom: float, trim: float) -> float:
    """Requests in flight per replica. One more than the slots of an engine, where they are known: whoever is beyond
    them only waits inside, and that one shows if there are more slots by now. Lateness says nothing of the slots, so
    the trim is that of the batch which would be in time."""
    evidence = view.estimate.evidence
    slots, in_time = evidence.get("slots", math.inf), evidence.get("in_time", holds)
    return min(holds * headroom, max(in_time, holds) * headroom * math.exp(trim), slots + 1.0)


def _over(view: View, objectives: Sequence[Objective], cap: float) -> float | None:
    """ln(ITL / target) of the worst objective, at a batch that the cap has to do with; None when there is none to
    judge by, and no more than 0 where the batch is small: what slows it down is something else."""
    worst: float | None = None
    for one in objectives:
        if one.signal not in (Signal.ITL, Signal.TPOT) or one.klass:
            continue
        reading = view.pool.latency(one.signal, one.stat)
        if reading.usable is None or reading.usable <= 0 or reading.state is State.CENSORED:
            continue
        error = log_error(reading.usable, one.target)
        if error > 0 or reading.trusted:
            worst = error if worst is None else max(worst, error)
    running, serving = view.pool.get(Signal.RUNNING).usable, view.estimate.evidence.get("serving")
    if worst is not None and worst > 0 and running is not None and serving:
        holds = view.estimate.unit_sequences or cap
        return worst if running / serving >= AT_BATCH * min(cap, holds) else 0.0
    return worst


def _schmitt(point: float, current: float, quantum: float) -> float:
    """To the quantum, with a band of 0.6: a value near the middle of two does not flip between them."""
    if quantum <= 0 or abs(point - current) < 0.6 * quantum:
        return point if quantum <= 0 else current
    return round(point / quantum) * quantum


def _whole(value: float, quantum: float) -> float:
    return math.floor(value / quantum + 1e-9) * quantum if quantum > 0 else value


def _quiet(killed: Reading) -> bool:
    """Whether it is known that nothing was killed."""
    return killed.trusted and not killed.value


def _unsure(view: View) -> Why | None:
    return None if view.estimate.trusted else of_demand(view.pool)
