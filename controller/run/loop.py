"""The control loop: observe, decide, act, record. The only place where that order is written.

It knows no scheduler, no clock and no mode: `at` is given, and what differs between live, rehearsal and replay are the
source and the actuators it was assembled with. A failing source becomes missing readings, a failing actuator an
outcome; neither ends the tick.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import structlog

from controller.core import estimate
from controller.core.decide import DecideState, decide
from controller.core.meter import Meter
from controller.core.model import Applied, Decision, Lever, Outcome, Pin, Plan, Snapshot, Target, TargetState, Tick
from controller.core.observation import Observation
from controller.core.ports import Actuator, ActuatorError, Estimate, LedgerFull, Policy, Source
from controller.core.rules import FleetRules
from controller.run import codec
from controller.run.logs import Edges

log = structlog.get_logger("governor.loop")


class KeyedLedger(Protocol):
    """A ledger that says when it wants a full record."""

    def needs_key(self) -> bool: ...

    def needs_states(self) -> bool: ...

    def plan(self, record: Mapping[str, Any]) -> None: ...

    def outcomes(self, at: float, applied: Sequence[Applied]) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What assembly wires together. `actuators` by "pool/lever"; `timer` a monotonic clock in seconds, for durations
    only; `fence` says whether writing is still allowed (the lease), asked before every send."""

    source: Source
    meter: Meter
    estimators: Mapping[str, estimate.EstimatorSpec]
    rules: FleetRules
    policies: Mapping[str, Policy[Any]]
    actuators: Mapping[str, Actuator]
    ledger: KeyedLedger
    deadline: float
    config_hash: str
    version: str
    mode: str
    timer: Callable[[], float]
    config: Mapping[str, Any] = field(default_factory=dict)
    pins: Mapping[Target, Pin] = field(default_factory=dict)
    fence: Callable[[], bool] = lambda: True
    ends: Mapping[Hashable, Any] = field(default_factory=dict)  # what may be handed on over a reload, by its config


@dataclass(frozen=True, slots=True)
class TickResult:
    """All of one tick. `seconds` real time by phase: observe, measure, decide, act, record, total."""

    snapshot: Snapshot
    estimates: Mapping[str, Estimate]
    plan: Plan
    applied: tuple[Applied, ...]
    seconds: Mapping[str, float]
    ledger_ok: bool = True


class ControlLoop:
    """One fleet, tick by tick."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.number = 0
        self.last_at: float | None = None
        self.state = DecideState()
        self.learned: dict[str, estimate.EstimatorState] = {}
        self.outcomes: dict[Target, Outcome] = {}
        self.unverified: dict[Target, Decision] = {}
        self.ledger_ok = True
        self._handed_on: set[int] = set()
        self._edges = Edges(log)

    def tick(self, at: float) -> TickResult:
        """Observe the slot `at` (unix seconds), decide, act and record."""
        timer, parts = self.parts.timer, self.parts
        t0 = timer()
        observation = self._observe(at)
        self._verify(at)
        targets = self._read(at)
        t1 = timer()
        pools = parts.meter.update(observation)
        since = at - self.last_at if self.last_at is not None else None
        snapshot = Snapshot(Tick(self.number, at, since), pools, targets, observation.error)
        t2 = timer()
        before, learned = self.state, dict(self.learned)
        estimates, plan = self._decide(snapshot)
        t3 = timer()
        plan = self._record_plan(snapshot, estimates, plan, before, learned)
        t4 = timer()
        applied = self._act(plan, at)
        t5 = timer()
        self._record_outcomes(at, applied)
        t6 = timer()
        self.number, self.last_at = self.number + 1, at
        seconds = {
            "observe": t1 - t0, "measure": t2 - t1, "decide": t3 - t2, "act": t5 - t4,
            "record": (t4 - t3) + (t6 - t5), "total": t6 - t0,
        }  # fmt: skip
        return TickResult(snapshot, estimates, plan, applied, seconds, self.ledger_ok)

    def close(self) -> None:
        """Release connections and files, but not those that a successor took over; the fleet stays as it is."""
        ends: list[Actuator | Source] = [*self.parts.actuators.values(), self.parts.source]
        for end in {id(e): e for e in ends}.values():
            if id(end) not in self._handed_on:
                end.close()
        self.parts.ledger.close()

    def adopt(self, previous: "ControlLoop") -> None:
        """Carry over a reload what still has a place here: windows, what was learned, policy and guard memory, open
        writes. A policy whose kind or parameters changed starts anew: its state would mean something else."""
        parts, old = self.parts, previous.parts
        kept = {id(end) for end in parts.ends.values()}
        previous._handed_on = {id(end) for end in old.ends.values() if id(end) in kept}  # noqa: SLF001 - one class
        parts.meter.adopt(old.meter)
        self.number, self.last_at = previous.number, previous.last_at
        self.learned = {pool: s for pool, s in previous.learned.items() if pool in parts.estimators}
        same = {
            key for key, policy in parts.policies.items()
            if key in old.policies and type(old.policies[key]) is type(policy)
            and getattr(old.policies[key], "config", None) == getattr(policy, "config", None)
        }  # fmt: skip
        known = {target for pool in parts.rules.pools for target in pool.targets}
        self.state = replace(
            previous.state,
            policies={k: s for k, s in previous.state.policies.items() if k in same},
            guards={t: s for t, s in previous.state.guards.items() if t in known},
        )
        self.outcomes = {t: o for t, o in previous.outcomes.items() if t in known}
        self.unverified = {t: d for t, d in previous.unverified.items() if t in known}

    def must_verify(self, decisions: Sequence[Decision]) -> None:
        """Writes of a predecessor whose outcomes were not recorded: they are asked for before anything is decided."""
        for decision in decisions:
            self.unverified[decision.target] = decision
            self.outcomes[decision.target] = Outcome.UNKNOWN

    # --- phases ------------------------------------------------------------------------------------------------

    def _observe(self, at: float) -> Observation:
        try:
            seen = self.parts.source.observe(at, self.parts.deadline)
        except Exception as error:  # noqa: BLE001 - a plug-in that breaks its promise must not end the loop
            self._edges.crashed("source", "source_raised", at=at)
            return Observation(at, None, error=f"the source raised {type(error).__name__}: {error}")
        self._edges.fine("source", "source_answers_again", at=at)
        return seen

    def _actuators(self) -> list[tuple[Actuator, list[Target]]]:
        """Each actuator once, with all targets it owns."""
        owned: dict[int, tuple[Actuator, list[Target]]] = {}
        for pool in self.parts.rules.pools:
            for target in pool.targets:
                actuator = self.parts.actuators.get(f"{target.pool}/{target.lever}")
                if actuator is not None:
                    owned.setdefault(id(actuator), (actuator, []))[1].append(target)
        return list(owned.values())

    def _verify(self, at: float) -> None:
        for actuator, targets in self._actuators():
            open_ = [self.unverified[t] for t in targets if t in self.unverified]
            if not open_:
                continue
            try:
                answers = actuator.verify(open_, at)
            except Exception:  # noqa: BLE001 - a failing target stays unknown, and so blocked
                self._edges.crashed(("verify", *targets), "verify_raised", at=at)
                continue
            self._edges.fine(("verify", *targets), "verify_answers_again", at=at)
            for answer in answers:
                self.outcomes[answer.target] = answer.outcome
                if answer.outcome != Outcome.UNKNOWN:
                    self.unverified.pop(answer.target, None)

    def _read(self, at: float) -> dict[Target, TargetState]:
        states: dict[Target, TargetState] = {}
        for actuator, targets in self._actuators():
            for target in targets:
                states.update(self._read_one(actuator, target, at))
        return states

    def _read_one(self, actuator: Actuator, target: Target, at: float) -> Mapping[Target, TargetState]:
        """One at a time, so that one broken target does not hide the others."""
        try:
            found = actuator.read([target], at)
        except ActuatorError as error:
            found = {target: TargetState(None, error=str(error))}
        except Exception as error:  # noqa: BLE001 - a plug-in that breaks its promise must not end the loop
            self._edges.crashed(("read", target), "read_raised", at=at)
            found = {target: TargetState(None, error=f"{type(error).__name__}: {error}")}
        else:
            self._edges.fine(("read", target), "read_answers_again", at=at)
        outcome, pin = self.outcomes.get(target), self.parts.pins.get(target)
        return {
            t: replace(s, last_outcome=outcome if outcome is not None else s.last_outcome, pin=pin or s.pin)
            for t, s in found.items()
        }

    def _decide(self, snapshot: Snapshot) -> tuple[dict[str, Estimate], Plan]:
        parts = self.parts
        estimates, self.learned = learn(parts.estimators, snapshot, self.learned)
        plan, self.state = decide(
            snapshot, estimates, parts.rules, parts.policies, self.state, ledger_ok=self.ledger_ok
        )
        return estimates, plan

    def _record_plan(
        self, snapshot: Snapshot, estimates: Mapping[str, Estimate], plan: Plan, before: DecideState,
        learned: Mapping[str, estimate.EstimatorState],
    ) -> Plan:  # fmt: skip
        try:
            self._write(snapshot, plan, before, learned)
        except LedgerFull as error:
            if self.ledger_ok:
                log.error("ledger_full", error=str(error))
            self.ledger_ok = False
            plan, self.state = decide(
                snapshot, estimates, self.parts.rules, self.parts.policies, before, ledger_ok=False
            )
            return plan
        if not self.ledger_ok:
            log.info("ledger_writable_again")
        self.ledger_ok = True
        return plan

    def _write(
        self, snapshot: Snapshot, plan: Plan, before: DecideState, learned: Mapping[str, estimate.EstimatorState]
    ) -> None:
        parts = self.parts
        record: dict[str, Any] = {
            "at": snapshot.tick.at, "snapshot": snapshot, "plan": plan, "config_hash": parts.config_hash,
            "version": parts.version, "mode": parts.mode, "ledger_ok": self.ledger_ok,
        }  # fmt: skip
        if parts.ledger.needs_states():
            record["states"] = encode_states(before, learned)
        if parts.ledger.needs_key():
            record["config"] = dict(parts.config)
        parts.ledger.plan(record)

    def _act(self, plan: Plan, at: float) -> tuple[Applied, ...]:
        """Lowering first, so that shared budgets hold after every step and not only at the end; where a lowering did
        not go through, what shares its budget is not raised."""
        sends = [d for d in plan.decisions if d.send]
        down = [d for d in sends if (d.final or 0.0) < (d.current or 0.0)]
        up = [d for d in sends if d not in down]
        applied = self._send(down, at)
        stuck = {a.target.pool for a in applied if a.outcome not in (Outcome.DONE, Outcome.DRY_RUN)}
        blocked = {
            pool for budget in self.parts.rules.budgets if budget.pools & stuck for pool in budget.pools
        }  # fmt: skip
        refused = [d for d in up if d.target.pool in blocked and d.target.lever == Lever.REPLICAS]
        note = "a lowering in the same budget did not go through"
        applied += [Applied(d.target, Outcome.FAILED, note) for d in refused]
        applied += self._send([d for d in up if d not in refused], at)
        return tuple(sorted(applied, key=lambda a: a.target))

    def _send(self, decisions: Sequence[Decision], at: float) -> list[Applied]:
        out: list[Applied] = []
        for actuator, targets in self._actuators():
            mine = [d for d in decisions if d.target in targets]
            if mine:
                out += self._apply(actuator, mine, at)
        for applied in out:
            self.outcomes[applied.target] = applied.outcome
            if applied.outcome == Outcome.UNKNOWN:
                self.unverified[applied.target] = next(d for d in decisions if d.target == applied.target)
        return out

    def _apply(self, actuator: Actuator, decisions: Sequence[Decision], at: float) -> list[Applied]:
        if not self.parts.fence():
            return [Applied(d.target, Outcome.REFUSED, "the lease was lost before sending") for d in decisions]
        targets = [d.target for d in decisions]
        try:
            answers = list(actuator.apply(decisions, at))
        except Exception as error:  # noqa: BLE001 - it may have written something before it broke
            self._edges.crashed(("apply", *targets), "apply_raised", at=at)
            return [Applied(d.target, Outcome.UNKNOWN, f"{type(error).__name__}: {error}") for d in decisions]
        self._edges.fine(("apply", *targets), "apply_answers_again", at=at)
        told = {a.target for a in answers}
        silent = [Applied(d.target, Outcome.UNKNOWN, "no outcome was given") for d in decisions if d.target not in told]
        return answers + silent

    def _record_outcomes(self, at: float, applied: Sequence[Applied]) -> None:
        if not self.ledger_ok:
            return
        try:
            self.parts.ledger.outcomes(at, applied)
        except LedgerFull as error:
            log.error("ledger_full", error=str(error))
            self.ledger_ok = False


def learn(
    specs: Mapping[str, estimate.EstimatorSpec], snapshot: Snapshot, learned: Mapping[str, estimate.EstimatorState]
) -> tuple[dict[str, Estimate], dict[str, estimate.EstimatorState]]:
    """Estimates of all pools and the next states; shared by the loop and by replay."""
    estimates: dict[str, Estimate] = {}
    after: dict[str, estimate.EstimatorState] = {}
    for name, spec in sorted(specs.items()):
        state = learned.get(name, estimate.EstimatorState())
        readings = snapshot.pools.get(name)
        if readings is None:
            after[name] = state
            continue
        target = snapshot.targets.get(Target(name, Lever.REPLICAS))
        estimates[name], after[name] = estimate.update(spec, readings, target, snapshot.tick.at, state)
    return estimates, after


def encode_states(decided: DecideState, learned: Mapping[str, estimate.EstimatorState]) -> dict[str, Any]:
    """All memory of the pure laws as plain data."""
    return {
        "policies": {key: codec.encode(state) for key, state in decided.policies.items() if state is not None},
        "guards": {str(target): codec.encode(state) for target, state in decided.guards.items()},
        "fleet": codec.encode(decided.fleet) if decided.fleet is not None else None,
        "learned": {pool: codec.encode(state) for pool, state in learned.items()},
    }
