"""Hands: all actuators of a loop as one. Reads targets, verifies and sends, and keeps what must outlive a tick of it.

Each phase has one budget of time for all actuators (see ``crew``). An actuator that is silent leaves its targets
unreadable, or its writes unknown; the others go on.
"""

import threading
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from controller.core.model import Applied, Decision, Lever, Outcome, Pin, Plan, Target, TargetState
from controller.core.ports import Actuator, ActuatorError
from controller.core.rules import PER_REPLICA, FleetRules
from controller.core.why import Why
from controller.run import codec
from controller.run.crew import Answer, Crew
from controller.run.logs import Edges
from controller.run.readback import believable, expected, known

HOLD_BACK = 300.0  # seconds for which a target that refused a value is not asked for it again; the longest back-off
_LANDED = frozenset({Outcome.DONE, Outcome.DRY_RUN})

Reader = Callable[[], Mapping[Target, TargetState]]
Writer = Callable[[], Sequence[Applied]]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A value that the target refused, its words, and until when it is not asked again (unix seconds)."""

    value: float | None
    words: str
    until: float


@dataclass(frozen=True, slots=True)
class Failing:
    """A target that answered with a failure: how often in a row, its last words, in which round of writing and when
    (unix seconds)."""

    times: int
    words: str
    round: int
    at: float

    def left(self, round_: int, at: float) -> int:
        """Rounds until it is tried again, 0 when it is time to. The first retry waits for nothing, each further one
        twice as long as the one before, and none longer than ``HOLD_BACK``: a target that is overwhelmed must get air,
        and a protection must not be kept from one that has recovered."""
        due = self.round + (1 << min(self.times - 1, 30))
        return 0 if at - self.at >= HOLD_BACK else max(0, due - round_)


class _Closed(Exception):
    """Nothing may be sent any more; the message says why."""


class Hands:
    """`actuators` by "pool/lever"; `inline` those that are called without a thread; `fence` says whether writing is
    still allowed (the lease), asked before every send."""

    def __init__(
        self, rules: FleetRules, actuators: Mapping[str, Actuator], *, inline: Sequence[object], budget: float,
        fence: Callable[[], bool], pins: Mapping[Target, Pin], edges: Edges,
    ) -> None:  # fmt: skip
        self._rules, self._fence, self._edges = rules, fence, edges
        self.pins = pins  # those in force at this tick
        self._actuators = {
            (pool.pool, lever.lever): actuator
            for pool in rules.pools
            for lever in pool.levers
            if (actuator := actuators.get(f"{pool.pool}/{lever.lever}")) is not None
        }
        distinct = {id(actuator): actuator for actuator in self._actuators.values()}
        self._crew = Crew(budget, [*inline, *(distinct.values() if len(distinct) == 1 else ())])
        self._stopped = threading.Event()
        self.outcomes: dict[Target, Outcome] = {}
        self.unverified: dict[Target, Decision] = {}
        self.positions: dict[Target, float] = {}  # the last value that was read or set
        self._refused: dict[Target, Refusal] = {}
        self._failing: dict[Target, Failing] = {}
        self._round = 0

    def _of(self, target: Target) -> Actuator | None:
        return self._actuators.get((target.pool, target.lever))

    def stop(self) -> None:
        """From now on nothing is sent; from any thread."""
        self._stopped.set()

    def adopt(self, previous: "Hands", placed: Set[tuple[str, Lever]] = frozenset()) -> None:
        """Carry over what is still known of the targets that there still are. A new actuator may accept what the old
        one refused. Where a target stood is known under it as well if it sends to the same place (`placed`, pools and
        levers)."""
        self._crew.adopt(previous._crew)  # noqa: SLF001 - one class
        self.outcomes = {t: o for t, o in previous.outcomes.items() if self._of(t)}
        self.unverified = {t: d for t, d in previous.unverified.items() if self._of(t)}
        refused, failing, of = previous._refused, previous._failing, previous._of  # noqa: SLF001

        def same(target: Target) -> bool:
            return self._of(target) is not None and self._of(target) is of(target)

        self.positions = {
            t: p for t, p in previous.positions.items() if same(t) or (self._of(t) and (t.pool, t.lever) in placed)
        }
        self._refused = {t: r for t, r in refused.items() if same(t)}
        self._failing = {t: f for t, f in failing.items() if same(t)}
        self._round = previous._round  # noqa: SLF001

    def must_verify(self, decisions: Sequence[Decision]) -> None:
        """Writes whose outcomes nobody knows: they are asked for before anything is decided."""
        for decision in decisions:
            if self._of(decision.target):
                self.unverified[decision.target] = decision
                self.outcomes[decision.target] = Outcome.UNKNOWN

    def memo(self, plan: Plan, *, full: bool) -> dict[str, Any]:
        """What the next process must know if this one dies now, as plain data, empty when there is nothing: decisions
        about to be sent and decisions still open, and when `full` also the last values."""
        parts = {
            "sends": [codec.encode(d) for d in plan.decisions if d.send],
            "open": [codec.encode(d) for d in self.unverified.values()],
            "values": {str(target): value for target, value in self.positions.items()} if full else {},
        }
        return {name: part for name, part in parts.items() if part}

    # --- reading ---------------------------------------------------------------------------------------------------

    def forgive(self) -> None:
        """Nobody is held back any more for what it refused or failed at."""
        self._refused.clear()
        self._failing.clear()

    def verify(self, at: float) -> None:
        """Ask what became of open writes. What stays silent stays unknown, and so blocked."""
        groups = self._by_actuator(list(self.unverified))
        calls = [
            (actuator, partial(_verify, actuator, [self.unverified[t] for t in targets], at))
            for actuator, targets in groups
        ]
        for (_, targets), answer in zip(groups, self._crew.call(calls), strict=True):
            self._crashes("verify", targets, answer, at)
            for told in answer.value or ():
                self.outcomes[told.target] = told.outcome
                self._fared(told, at)
                if told.outcome is not Outcome.UNKNOWN:
                    del self.unverified[told.target]

    def read(self, wanted: Sequence[Target], at: float, cold_starts: Mapping[str, float]) -> dict[Target, TargetState]:
        """Each target as its owner tells it; `cold_starts` seconds by pool. Those without an actuator are left out."""
        self._forget(set(wanted))
        groups = self._by_actuator([target for target in wanted if self._of(target)])
        calls: list[tuple[Actuator, Reader]] = [(a, partial(_read, a, targets, at)) for a, targets in groups]
        states: dict[Target, TargetState] = {}
        for (_, targets), answer in zip(groups, self._crew.call(calls), strict=True):
            self._crashes("read", targets, answer, at)
            if answer.value is None:
                why = answer.silence or f"{type(answer.error).__name__}: {answer.error}"
                states.update(dict.fromkeys(targets, TargetState(None, error=why)))
            else:
                states.update(answer.value)
        return {t: self._state(t, state, cold_starts) for t, state in states.items()}

    def _forget(self, wanted: set[Target]) -> None:
        """What was known of members that are gone: names of pods never come back. What is open is still verified."""
        gone = {t for t in self.positions.keys() | self.outcomes.keys() if t.lever in PER_REPLICA} - wanted
        for target in gone - self.unverified.keys():
            for memory in (self.positions, self.outcomes, self._refused, self._failing):
                memory.pop(target, None)

    def _state(self, target: Target, state: TargetState, cold_starts: Mapping[str, float]) -> TargetState:
        state = known(state, self.positions.get(target))
        if state.accepted is not None:
            self.positions[target] = state.accepted
        else:
            self._failing.pop(target, None)  # nothing is sent to it until it is back, and then at once
        outcome, pin = self.outcomes.get(target, state.last_outcome), self.pins.get(target) or state.pin
        pending = expected(state.pending, cold_starts.get(target.pool, 0.0)) if state.pending else ()
        if (outcome, pin, pending) == (state.last_outcome, state.pin, state.pending):
            return state  # as its owner tells it, which is nearly always
        return replace(state, last_outcome=outcome, pin=pin, pending=pending)

    # --- writing ---------------------------------------------------------------------------------------------------

    def act(self, plan: Plan, at: float) -> tuple[Applied, ...]:
        """Lowering first, so that shared budgets hold after every step and not only at the end; where a lowering did
        not go through, what would then break the budget is not raised."""
        self._round += 1
        sends = [d for d in plan.decisions if d.send]
        down = [d for d in sends if (d.final or 0.0) < (d.current or 0.0)]
        lowered = {d.target for d in down}
        applied = self._send(down, at)
        stuck = {a.target for a in applied if a.outcome not in _LANDED}
        blocked = self._over_budget(plan, stuck) if stuck else set()
        note = "a lowering in the same budget did not go through"
        up = []
        for decision in sends:
            if decision.target in lowered:
                continue
            if decision.target.pool in blocked and decision.target.lever is Lever.REPLICAS:
                applied.append(Applied(decision.target, Outcome.FAILED, note))
            else:
                up.append(decision)
        applied += self._send(up, at)
        return tuple(sorted(applied, key=lambda a: a.target))

    def _over_budget(self, plan: Plan, stuck: set[Target]) -> set[str]:
        """Pools of budgets that would not hold if all but the stuck targets moved as planned."""
        weights = {pool.pool: pool.weight for pool in self._rules.pools}
        replicas = [d for d in plan.decisions if d.target.lever is Lever.REPLICAS]
        pools: set[str] = set()
        for budget in self._rules.budgets:
            mine = [d for d in replicas if d.target.pool in budget.pools]
            if not stuck & {d.target for d in mine}:
                continue
            after = [d.final if d.send and d.target not in stuck else d.current for d in mine]
            total = sum(weights[d.target.pool] * (value or 0.0) for d, value in zip(mine, after, strict=True))
            if None in after or total > budget.max + 1e-6:
                pools |= budget.pools
        return pools

    def _send(self, decisions: Sequence[Decision], at: float) -> list[Applied]:
        held = [one for d in decisions if (one := self._held_back(d, at)) is not None]
        skip = {one.target for one in held}
        by_target = {d.target: d for d in decisions if d.target not in skip}
        groups = self._by_actuator(list(by_target))
        calls: list[tuple[Actuator, Writer]] = [
            (actuator, partial(self._apply, actuator, [by_target[t] for t in targets], at))
            for actuator, targets in groups
        ]
        out = list(held)
        for (_, targets), answer in zip(groups, self._crew.call(calls), strict=True):
            if not isinstance(answer.error, _Closed):
                self._crashes("apply", targets, answer, at)
            out += self._told([by_target[t] for t in targets], answer, at)
        return out

    def _apply(self, actuator: Actuator, decisions: Sequence[Decision], at: float) -> Sequence[Applied]:
        if self._stopped.is_set():
            raise _Closed("not sent: Governor is stopping")
        if not self._fence():
            raise _Closed("the lease was lost before sending")
        owned = {d.target for d in decisions}
        return [answer for answer in actuator.apply(decisions, at) if answer.target in owned]

    def _told(self, decisions: Sequence[Decision], answer: Answer[Sequence[Applied]], at: float) -> list[Applied]:
        """Outcomes of one batch, one for each decision, and what is kept of them."""
        given = {one.target: one for one in answer.value or ()}
        if isinstance(answer.error, _Closed):
            told = [Applied(d.target, Outcome.REFUSED, str(answer.error)) for d in decisions]
        else:
            told = [given.get(d.target) or _without_answer(d, answer) for d in decisions]
        for decision, one in zip(decisions, told, strict=True):
            if not one.waits:  # of the newest write nothing else became
                self.outcomes[one.target] = one.outcome
            self._refused.pop(one.target, None)
            if one.target in given:  # what was not even asked does not need air
                self._fared(one, at)
            if one.outcome is Outcome.UNKNOWN:
                self.unverified[one.target] = decision
            elif one.outcome is Outcome.DONE and decision.final is not None:
                self.positions[one.target] = decision.final
            elif one.outcome is Outcome.REFUSED and not isinstance(answer.error, _Closed):
                self._refused[one.target] = Refusal(decision.final, one.detail, at + HOLD_BACK)
        return told

    def _fared(self, one: Applied, at: float) -> None:
        """Count failures in a row. What is unknown may yet prove to be one; what waits was not tried."""
        if one.waits:
            return
        if one.outcome is Outcome.FAILED:
            before = self._failing.get(one.target)
            times = before.times + 1 if before is not None else 1
            self._failing[one.target] = Failing(times, one.detail, self._round, at)
        elif one.outcome is not Outcome.UNKNOWN:
            self._failing.pop(one.target, None)

    def _held_back(self, decision: Decision, at: float) -> Applied | None:
        """A target that refused this very value a moment ago is not asked again at every tick, nor one that fails and
        fails. A person who puts a value back is not made to wait."""
        failing = self._failing.get(decision.target)
        if failing is not None and decision.why is not Why.BY_HAND and (left := failing.left(self._round, at)):
            again = f"not sent after {failing.times} failures in a row, tried again in {left} tick{'s' * (left > 1)}"
            return Applied(decision.target, Outcome.FAILED, f"{failing.words}; {again} or {HOLD_BACK / 60:g} minutes")
        refusal = self._refused.get(decision.target)
        if refusal is None or refusal.value != decision.final or at >= refusal.until:
            return None
        when = datetime.fromtimestamp(refusal.until, UTC).strftime("%H:%M:%S UTC")
        self.outcomes[decision.target] = Outcome.REFUSED
        return Applied(decision.target, Outcome.REFUSED, f"{refusal.words}; not sent, tried again at {when}")

    # --- shared ----------------------------------------------------------------------------------------------------

    def _by_actuator(self, targets: Sequence[Target]) -> list[tuple[Actuator, list[Target]]]:
        groups: dict[int, tuple[Actuator, list[Target]]] = {}
        for target in targets:
            actuator = self._actuators[target.pool, target.lever]
            groups.setdefault(id(actuator), (actuator, []))[1].append(target)
        return list(groups.values())

    def _crashes(self, what: str, targets: Sequence[Target], answer: Answer[object], at: float) -> None:
        if answer.error is not None:
            self._edges.crashed((what, *targets), f"{what}_raised", at=at, error=answer.error)
        elif not answer.silence:
            self._edges.fine((what, *targets), f"{what}_answers_again", at=at)


def _read(actuator: Actuator, targets: Sequence[Target], at: float) -> Mapping[Target, TargetState]:
    """All at once; when that fails one by one, so that one broken target does not hide the others."""
    found: dict[Target, TargetState] = {}
    try:
        found.update(actuator.read(targets, at))
    except ActuatorError as error:
        if len(targets) == 1:
            return {targets[0]: TargetState(None, error=str(error))}
        for target in targets:
            found.update(_read(actuator, [target], at))
    return {target: believable(target, found[target]) for target in targets if target in found}


def _verify(actuator: Actuator, decisions: Sequence[Decision], at: float) -> Sequence[Applied]:
    asked = {d.target for d in decisions}
    return list({one.target: one for one in actuator.verify(decisions, at) if one.target in asked}.values())


def _without_answer(decision: Decision, answer: Answer[Sequence[Applied]]) -> Applied:
    """What was begun may have written something before it broke or fell silent."""
    outcome = Outcome.UNKNOWN if answer.begun else Outcome.FAILED
    why = answer.silence or "no outcome was given"
    if answer.error is not None:
        why = f"{type(answer.error).__name__}: {answer.error}"
    return Applied(decision.target, outcome, why)
