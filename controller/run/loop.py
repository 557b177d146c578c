"""The control loop: observe, decide, act, record. The only place where that order is written.

It knows no scheduler, no clock and no mode: `at` is given, and what differs between live, rehearsal and replay are the
source and the actuators it was assembled with. A failing source becomes missing readings, a failing actuator an
outcome; neither ends the tick.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from controller.core.decide import DecideState, decide
from controller.core.learned import EstimatorSpec, EstimatorState
from controller.core.members import seen
from controller.core.meter import Meter
from controller.core.model import Applied, Decision, Lever, Outcome, Pin, Plan, Snapshot, Target, TargetState, Tick
from controller.core.observation import Observation
from controller.core.ports import Actuator, Estimate, LedgerFull, Policy, Source
from controller.core.rules import PER_REPLICA, FleetRules
from controller.core.why import Why
from controller.run import apart, codec
from controller.run.carry import carried
from controller.run.ends import bare, raised
from controller.run.hands import Hands
from controller.run.logs import Edges
from controller.run.originals import Originals
from controller.run.pins import Pins
from controller.run.rewind import earlier
from controller.run.sameplace import place_of, same_place
from controller.run.samepool import same_pool
from controller.run.states import encode_states, restore

log = structlog.get_logger("governor.loop")


class KeyedLedger(Protocol):
    """Append-only memory of what was seen, decided and done, which says when it wants a full record. ``plan`` comes
    before apply, ``outcomes`` after."""

    def needs_key(self) -> bool: ...

    def needs_states(self) -> bool: ...

    def plan(self, record: Mapping[str, Any]) -> None: ...

    def outcomes(self, at: float, applied: Sequence[Applied]) -> None: ...

    def remember(self, at: float, states: Mapping[str, Any]) -> None: ...

    def turn(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What assembly wires together. `actuators` by "pool/lever"; `timer` a monotonic clock in seconds, for durations
    only; `fence` says whether writing is still allowed (the lease), asked before every send."""

    source: Source
    meter: Meter
    estimators: Mapping[str, EstimatorSpec]
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
    pins: Pins = field(default_factory=lambda: Pins({}))
    originals: Originals = field(default_factory=lambda: Originals(None))
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
    pin_problems: tuple[str, ...] = ()  # pins that cannot be honoured, and why


class ControlLoop:
    """One fleet, tick by tick."""

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.number = 0
        self.last_at: float | None = None
        self._latest = -math.inf  # the newest tick that anything is remembered of, also one of another process
        self._ticking = False
        self.state = DecideState()
        self.learned: dict[str, EstimatorState] = {}
        self.ledger_ok = True
        self._horizons: dict[str, float] = {}
        self._fixed = tuple(target for pool in parts.rules.pools for target in pool.targets)
        self._members: tuple[Target, ...] = ()
        self._handed_on: set[int] = set()
        self._edges = Edges(log)
        self.hands = Hands(
            parts.rules, parts.actuators, inline=[parts.source], budget=parts.deadline, fence=parts.fence,
            pins={}, edges=self._edges,
        )  # fmt: skip

    def tick(self, at: float) -> TickResult:
        """Observe the slot `at` (unix seconds), decide, act and record."""
        self._ticking = True
        if at < self._latest:
            self._set_back(self._latest - at)
        self._latest = at
        timer, parts = self.parts.timer, self.parts
        t0 = timer()
        observation = self._observe(at)
        self.hands.verify(at)
        t1 = timer()
        pools, failed = apart.measure(parts.meter, observation)
        self._tell(failed, "measured", at)
        t2 = timer()
        self._members = seen(parts.rules, pools, self._members)
        self.hands.pins = self._pins(at)
        targets = self.hands.read([*self._fixed, *self._members], at, self._cold_starts())
        since = at - self.last_at if self.last_at is not None else None
        snapshot = Snapshot(Tick(self.number, at, since), pools, targets, observation.error)
        t3 = timer()
        before, learned = self.state, dict(self.learned)
        snapshot, estimates, plan = self._decide(snapshot)
        t4 = timer()
        plan = self._record_plan(snapshot, estimates, plan, before, learned)
        t5 = timer()
        self._keep_originals(plan, at)
        applied = self.hands.act(plan, at)
        t6 = timer()
        self._record_outcomes(at, applied)
        t7 = timer()
        self.number, self.last_at, self._ticking = self.number + 1, at, False
        seconds = {
            "observe": (t1 - t0) + (t3 - t2), "measure": t2 - t1, "decide": t4 - t3, "act": t6 - t5,
            "record": (t5 - t4) + (t7 - t6), "total": t7 - t0,
        }  # fmt: skip
        return TickResult(snapshot, estimates, plan, applied, seconds, self.ledger_ok, self._pin_problems(targets))

    def put(self, wanted: Mapping[Target, float], at: float) -> tuple[Applied, ...]:
        """Set these values because a person wants them, whatever the policies would say, and record it. A target that
        cannot be read is not written. Raises LedgerFull before anything is sent."""
        self.hands.verify(at)
        states = self.hands.read(sorted(wanted), at, {})
        decisions = tuple(
            Decision(target, now, value, Why.BY_HAND, send=now not in (None, value))
            for target, value in sorted(wanted.items())
            for now in [states[target].accepted if target in states else None]
        )
        plan = Plan(at, decisions, "values are put back by hand")
        self._write(Snapshot(Tick(self.number, at), {}, states), plan, self.state, self.learned)
        applied = {one.target: one for one in self.hands.act(plan, at)}
        self._record_outcomes(at, tuple(applied.values()))
        self.number, self.last_at = self.number + 1, at
        return tuple(applied.get(d.target) or _unsent(d, states.get(d.target)) for d in decisions)

    def _set_back(self, by: float) -> None:
        """The clock shows so many seconds less than at the newest tick, of this process or of the one before. As after
        a restart windows begin anew, and what laws and guards remember goes on, as long ago as it was."""
        parts = self.parts
        log.warning("clock_set_back", by=round(by, 3), mend="windows begin anew, and ticks go on by the new clock")
        parts.ledger.turn()
        parts.meter.pools = Meter([pool.spec for pool in parts.meter.pools.values()]).pools
        self.hands.forgive()
        states = earlier(encode_states(self.state, self.learned), by, self._latest)
        try:
            self.state, self.learned = restore(states, parts.policies)
        except Exception as error:  # noqa: BLE001 - a plug-in's memory must not end the loop
            log.warning("memory_lost", error=f"{type(error).__name__}: {error}")
            self.state, self.learned = DecideState(), {}
        self.last_at = None

    def _remember(self) -> None:
        """Leave the memory of the laws to the next process; not in the middle of a tick that was given up, whose
        record the next one reads."""
        if self.last_at is None or self._ticking or not self.ledger_ok:
            return
        try:
            self.parts.ledger.remember(self.last_at, self._states(self.state, self.learned))
        except LedgerFull as error:
            log.error("ledger_full", error=str(error))

    def stop(self) -> None:
        """Nothing is sent any more, also by a tick that runs; from any thread."""
        self.hands.stop()

    def close(self) -> None:
        """Release connections and files, but not those that a successor took over; the fleet stays as it is. All are
        closed, also when one of them raises."""
        # What is handed on are the ends themselves: a dry run's wrapper must not close one under its successor.
        hands = map(bare, self.parts.actuators.values())
        ends: list[Actuator | Source] = [self.parts.source, *hands]
        with ExitStack() as stack:
            for end in {id(e): e for e in ends}.values():
                if id(end) not in self._handed_on:
                    stack.callback(end.close)
            stack.callback(self.parts.ledger.close)
            stack.callback(self._remember)

    def adopt(self, previous: "ControlLoop") -> None:
        """Carry over a reload what still has a place here: windows, what was learned, policy and guard memory, open
        writes. A pool that is another fleet now learns anew."""
        parts, old = self.parts, previous.parts
        kept = {id(end) for end in parts.ends.values()}
        previous._handed_on = {id(end) for end in old.ends.values() if id(end) in kept}  # noqa: SLF001 - one class
        pools = {pool for pool in parts.meter.pools if same_pool(pool, old.config, parts.config)}
        for pool in pools & old.meter.pools.keys():
            parts.meter.pools[pool].adopt(old.meter.pools[pool])
        self.number, self.last_at, self._latest = previous.number, previous.last_at, previous._latest  # noqa: SLF001
        self.learned = {p: s for p, s in previous.learned.items() if p in parts.estimators and p in pools}
        self._horizons = {p: h for p, h in previous._horizons.items() if p in pools}  # noqa: SLF001
        self.knows(previous._members)  # noqa: SLF001
        self.state = carried(previous.state, old.policies, parts.policies, parts.rules, pools)
        # Without configs nothing says where anything is sent, and only the same actuator is the same.
        levers = {(pool.pool, lever.lever) for pool in parts.rules.pools for lever in pool.levers}
        placed = {key for key in levers if old.config and parts.config and self.sends_to_the_same(*key, old.config)}
        self.hands.adopt(previous.hands, placed)

    def sends_to_the_same(self, pool: str, lever: Lever, before: Mapping[str, Any]) -> bool:
        """Whether what is sent to this lever goes to where it went under the config `before`."""
        return same_place(pool, lever, before, self.parts.config, self._told_by(pool, lever))

    def _place(self, target: Target) -> Mapping[str, Any] | None:
        """Where what is sent to this target goes, as far as its actuator tells."""
        told = self._told_by(target.pool, target.lever)
        return None if told is None else place_of(target.pool, target.lever, self.parts.config, told)

    def _told_by(self, pool: str, lever: Lever) -> Sequence[str] | None:
        """The settings that say where the values of this lever go, None where its actuator does not tell."""
        actuator = self.parts.actuators.get(f"{pool}/{lever}")
        return getattr(bare(actuator), "place", None) if actuator is not None else None

    def remembers(self, at: float) -> None:
        """What was taken over is of a tick at `at` (unix seconds)."""
        self._latest = at

    def knows(self, members: Iterable[Target]) -> None:
        """Replicas that were seen before this loop began. While nothing is read they are still there, and what was
        decided on them is renewed."""
        levers = {(pool.pool, lever.lever) for pool in self.parts.rules.pools for lever in pool.levers}
        self._members = tuple(sorted(t for t in members if t.lever in PER_REPLICA and (t.pool, t.lever) in levers))

    def _pin_problems(self, targets: Mapping[Target, TargetState]) -> tuple[str, ...]:
        wrong = [self.parts.pins.problem] if self.parts.pins.problem else []
        return (
            *wrong,
            *(f"{pin}: is pinned, and there is no such target" for pin in self.hands.pins if pin not in targets),
        )

    # --- phases ------------------------------------------------------------------------------------------------

    def _observe(self, at: float) -> Observation:
        try:
            seen = self.parts.source.observe(at, self.parts.deadline)
        except Exception as error:  # noqa: BLE001 - a plug-in that breaks its promise must not end the loop
            self._edges.crashed("source", "source_raised", at=at, error=error)
            return Observation(at, None, error=raised(error))
        self._edges.fine("source", "source_answers_again", at=at)
        return seen

    def _pins(self, at: float) -> Mapping[Target, Pin]:
        """Those in force. That the file went with pins in it may be meant, or the folder went by mistake."""
        pins = self.parts.pins
        found, path = pins.at(at), str(pins.path)
        if pins.gone:
            lost = ", ".join(map(str, pins.gone))
            self._edges.failing(
                "pins", "pins_removed", at=at, path=path, ended=lost, mend="pin anew what is to be held"
            )
        else:
            self._edges.fine("pins", "pins_there_again", at=at, path=path)
        return found

    def _keep_originals(self, plan: Plan, at: float) -> None:
        originals = self.parts.originals
        originals.before(plan.decisions, at, self._place)
        if originals.problem:
            self._edges.failing("originals", "originals_not_kept", at=at, problem=originals.problem)
        else:
            self._edges.fine("originals", "originals_kept_again", at=at)

    def _cold_starts(self) -> dict[str, float]:
        """Seconds from asking for a replica to a warm one, by pool: as learned by the last tick, else the prior."""
        out = {}
        for pool, spec in self.parts.estimators.items():
            learned = self._horizons.get(pool)
            out[pool] = spec.cold_start if learned is None else max(0.0, learned - spec.lead)
        return out

    def _tell(self, failed: Mapping[str, Exception], what: str, at: float) -> None:
        """Of each pool, that it cannot be measured or learned of, and that it can be again: once each."""
        for pool in self.parts.meter.pools:
            if pool in failed:
                self._edges.crashed((pool, what), f"pool_not_{what}", at=at, error=failed[pool], pool=pool)
            else:
                self._edges.fine((pool, what), f"pool_{what}_again", at=at, pool=pool)

    def _decide(self, snapshot: Snapshot) -> tuple[Snapshot, dict[str, Estimate], Plan]:
        """What is decided, and the snapshot that it was decided on."""
        parts = self.parts
        estimates, self.learned, failed = apart.learn(parts.estimators, snapshot, self.learned)
        self._tell(failed, "estimated", snapshot.tick.at)
        snapshot = apart.without(snapshot, failed)
        self._horizons = {pool: one.horizon for pool, one in estimates.items()}
        plan, self.state = decide(
            snapshot, estimates, parts.rules, parts.policies, self.state, ledger_ok=self.ledger_ok
        )
        return snapshot, estimates, plan

    def _record_plan(
        self, snapshot: Snapshot, estimates: Mapping[str, Estimate], plan: Plan, before: DecideState,
        learned: Mapping[str, EstimatorState],
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
        self, snapshot: Snapshot, plan: Plan, before: DecideState, learned: Mapping[str, EstimatorState]
    ) -> None:
        parts = self.parts
        record: dict[str, Any] = {
            "at": snapshot.tick.at, "snapshot": snapshot, "plan": plan, "config_hash": parts.config_hash,
            "version": parts.version, "mode": parts.mode, "ledger_ok": self.ledger_ok,
        }  # fmt: skip
        full = parts.ledger.needs_states()
        record["memo"] = self.hands.memo(plan, full=full)
        if full:
            record["states"] = self._states(before, learned)
        if parts.ledger.needs_key():
            record["config"] = dict(parts.config)
        parts.ledger.plan(record)

    def _states(self, decided: DecideState, learned: Mapping[str, EstimatorState]) -> dict[str, Any]:
        pins = {str(target): codec.encode(pin) for target, pin in self.parts.pins.of_file.items()}
        return {**encode_states(decided, learned), "pins": pins}

    def _record_outcomes(self, at: float, applied: Sequence[Applied]) -> None:
        if not self.ledger_ok:
            return
        try:
            self.parts.ledger.outcomes(at, applied)
        except LedgerFull as error:
            log.error("ledger_full", error=str(error))
            self.ledger_ok = False


def _unsent(decision: Decision, state: TargetState | None) -> Applied:
    """What became of a value that was not sent: it is there already, or nobody knows what is there."""
    if decision.current is not None:
        return Applied(decision.target, Outcome.DONE, "it is there already")
    why = state.error if state is not None else "no actuator moves it"
    return Applied(decision.target, Outcome.FAILED, why)
