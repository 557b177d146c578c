"""What breaks around the loop must not break the loop."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from controller.core.meter import Meter, PoolSpec
from controller.core.model import Applied, Decision, Lever, Mode, Outcome, Target, TargetState
from controller.core.observation import Observation
from controller.core.ports import Actuator, ActuatorError, LedgerFull, Limits
from controller.core.rules import Budget, FleetRules, LeverRules, PoolRules
from controller.core.why import Why
from controller.run.ends import DryRun, Watched
from controller.run.ledger import MemoryLedger
from controller.run.loop import ControlLoop, Parts
from tests.core.test_decide import Wants

START = 1_000_000.0


class Hands:
    """An actuator that misbehaves as told. Remembers every call."""

    def __init__(self, have: Mapping[str, float]) -> None:
        self.have = dict(have)
        self.calls: list[tuple[str, str, float | None]] = []
        self.unreadable: set[str] = set()
        self.raises: set[str] = set()
        self.answers: dict[str, Outcome] = {}
        self.verdicts: dict[str, Outcome] = {}
        self.silent = False

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        if any(t.pool in self.unreadable for t in targets):
            raise ActuatorError(f"{targets[0]}: 403 Forbidden; grant get on deployments/scale")
        return {t: TargetState(self.have[t.pool], self.have[t.pool]) for t in targets}

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        out = []
        for d in decisions:
            self.calls.append(("apply", d.target.pool, d.final))
            if d.target.pool in self.raises:
                raise RuntimeError("boom")
            outcome = self.answers.get(d.target.pool, Outcome.DONE)
            if outcome == Outcome.DONE:
                self.have[d.target.pool] = d.final or 0.0
            out.append(Applied(d.target, outcome))
        return [] if self.silent else out

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        self.calls += [("verify", d.target.pool, d.final) for d in decisions]
        return [Applied(d.target, self.verdicts.get(d.target.pool, Outcome.UNKNOWN)) for d in decisions]

    def close(self) -> None:
        self.calls.append(("close", "", None))


class Eyes:
    """A source that sees nothing, or raises."""

    def __init__(self, *, raises: bool = False) -> None:
        self.raises = raises

    def observe(self, at: float, deadline: float) -> Observation:
        if self.raises:
            raise RuntimeError("a plug-in that breaks its promise")
        return Observation(at, None)

    def close(self) -> None:
        pass


class FullDisk(MemoryLedger):
    """A ledger on a disk that can be full."""

    def __init__(self) -> None:
        super().__init__()
        self.full = False

    def plan(self, record: Mapping[str, object]) -> None:
        if self.full:
            raise LedgerFull("no space left on device")
        super().plan(record)


def loop(
    hands: Hands | Mapping[str, Actuator],
    want: Mapping[str, float],
    *,
    budget: float | None = None,
    **changes: object,
) -> ControlLoop:
    pools = sorted(want)
    lever = LeverRules(Lever.REPLICAS, "wants", "hands", Mode.AUTO, Limits(0, 50), stabilise=0.0)
    rules = FleetRules(
        tuple(PoolRules(p, (), (lever,), (Target(p, Lever.REPLICAS),)) for p in pools),
        (Budget("gpus", budget, frozenset(pools)),) if budget is not None else (),
    )
    by_key = hands if isinstance(hands, Mapping) else {f"{p}/replicas": hands for p in pools}
    parts = Parts(
        source=Eyes(),
        meter=Meter([PoolSpec(p, 60.0) for p in pools]),
        estimators={},
        rules=rules,
        policies={f"{p}/replicas": Wants(want) for p in pools},
        actuators=by_key,
        ledger=MemoryLedger(),
        deadline=1.0,
        config_hash="x",
        version="x",
        mode="live",
        timer=lambda: 0.0,
    )
    return ControlLoop(replace(parts, **changes))  # type: ignore[arg-type]


def test_a_source_that_raises_becomes_missing_data() -> None:
    made = loop(Hands({"a": 3.0}), {"a": 1.0}, source=Eyes(raises=True))
    result = made.tick(START)

    assert "RuntimeError" in result.snapshot.error
    assert result.plan.decisions[0].final == 3.0


def test_one_unreadable_target_does_not_hide_the_others() -> None:
    hands = Hands({"a": 3.0, "b": 3.0})
    hands.unreadable = {"a"}
    result = loop(hands, {"a": 5.0, "b": 5.0}).tick(START)

    assert result.plan.decisions[0].why == Why.UNREADABLE_TARGET
    assert "403" in result.snapshot.targets[Target("a", Lever.REPLICAS)].error
    assert hands.have == {"a": 3.0, "b": 5.0}


def test_an_actuator_that_raises_leaves_an_unknown_outcome_and_the_others_go_on() -> None:
    broken, fine = Hands({"a": 3.0}), Hands({"b": 3.0})
    broken.raises = {"a"}
    result = loop({"a/replicas": broken, "b/replicas": fine}, {"a": 5.0, "b": 5.0}).tick(START)

    assert [a.outcome for a in result.applied] == [Outcome.UNKNOWN, Outcome.DONE]


@pytest.mark.parametrize("how", ["says unknown", "says nothing", "raises"])
def test_an_unknown_write_is_verified_and_not_repeated(how: str) -> None:
    """A PUT that timed out may have been accepted: asking twice could scale twice."""
    hands = Hands({"a": 3.0})
    hands.answers = {"a": Outcome.UNKNOWN} if how == "says unknown" else {}
    hands.silent = how == "says nothing"
    hands.raises = {"a"} if how == "raises" else set()
    made = loop(hands, {"a": 5.0})
    made.tick(START)
    hands.have["a"] = 3.0
    made.tick(START + 15)
    made.tick(START + 30)

    assert [c[0] for c in hands.calls] == ["apply", "verify", "verify"]


def test_after_the_verdict_the_loop_goes_on() -> None:
    hands = Hands({"a": 3.0})
    hands.answers = {"a": Outcome.UNKNOWN}
    made = loop(hands, {"a": 5.0})
    made.tick(START)
    hands.answers, hands.verdicts = {}, {"a": Outcome.FAILED}
    made.tick(START + 15)

    assert [c[0] for c in hands.calls] == ["apply", "verify", "apply"]
    assert hands.have["a"] == 5.0


def test_a_failed_write_is_tried_again() -> None:
    hands = Hands({"a": 3.0})
    hands.answers = {"a": Outcome.FAILED}
    made = loop(hands, {"a": 5.0})
    made.tick(START)
    hands.answers = {}
    made.tick(START + 15)

    assert hands.have["a"] == 5.0


def test_what_a_predecessor_left_open_is_verified_before_anything_is_sent() -> None:
    hands = Hands({"a": 3.0})
    made = loop(hands, {"a": 5.0})
    made.hands.must_verify([Decision(Target("a", Lever.REPLICAS), 3.0, 4.0, Why.DEMAND)])
    made.tick(START)

    assert hands.calls == [("verify", "a", 4.0)]


def test_lowering_goes_out_before_raising() -> None:
    """dynamo#12428: a rebalance over the budget, because the raise went out first."""
    hands = Hands({"a": 6.0, "b": 3.0})
    made = loop(hands, {"a": 2.0, "b": 7.0}, budget=9.0)
    plan = made.tick(START).plan
    hands.calls.clear()
    moves = [
        plan.decisions[0]._replace(current=6.0, final=2.0, send=True),
        plan.decisions[1]._replace(current=3.0, final=7.0, send=True),
    ]
    made.hands.act(replace(plan, decisions=tuple(moves)), START)

    assert hands.calls == [("apply", "a", 2.0), ("apply", "b", 7.0)]


def test_when_the_lowering_fails_what_shares_its_budget_is_not_raised() -> None:
    hands = Hands({"a": 6.0, "b": 3.0})
    made = loop(hands, {"a": 6.0, "b": 3.0}, budget=9.0)
    plan = made.tick(START).plan
    hands.answers = {"a": Outcome.FAILED}
    moves = [
        plan.decisions[0]._replace(current=6.0, final=2.0, send=True),
        plan.decisions[1]._replace(current=3.0, final=7.0, send=True),
    ]
    applied = made.hands.act(replace(plan, decisions=tuple(moves)), START)

    assert hands.have == {"a": 6.0, "b": 3.0}
    assert [a.outcome for a in applied] == [Outcome.FAILED, Outcome.FAILED]


def test_a_lost_lease_stops_the_write_that_was_about_to_go() -> None:
    hands = Hands({"a": 3.0})
    result = loop(hands, {"a": 5.0}, fence=lambda: False).tick(START)

    assert hands.calls == []
    assert result.applied[0].outcome == Outcome.REFUSED


def test_dry_run_reads_and_never_writes() -> None:
    hands = Hands({"a": 3.0})
    made = loop({"a/replicas": DryRun(hands)}, {"a": 5.0})
    outcomes = [made.tick(START + 15 * i).applied[0].outcome for i in range(3)]

    assert hands.calls == []
    assert outcomes == [Outcome.DRY_RUN] * 3


def test_a_full_disk_holds_relaxing_moves_and_says_so_until_it_has_room() -> None:
    hands, ledger = Hands({"a": 3.0}), FullDisk()
    made = loop(hands, {"a": 5.0}, ledger=ledger)
    ledger.full = True
    first = made.tick(START)
    ledger.full = False
    second = made.tick(START + 15)

    assert not first.ledger_ok
    assert hands.have["a"] == 5.0, "protection does not wait for the disk"
    assert second.ledger_ok


def test_a_reload_keeps_memory_of_what_is_the_same_and_forgets_the_rest() -> None:
    hands = Hands({"a": 3.0, "b": 3.0})
    hands.answers = {"a": Outcome.UNKNOWN, "b": Outcome.UNKNOWN}
    old = loop(hands, {"a": 5.0, "b": 5.0})
    old.tick(START)
    new = loop(hands, {"a": 5.0})
    new.adopt(old)

    assert set(new.hands.unverified) == {Target("a", Lever.REPLICAS)}
    assert set(new.state.guards) == {Target("a", Lever.REPLICAS)}
    assert new.last_at == START


def test_a_pool_that_was_never_seen_has_no_replicas_to_speak_of() -> None:
    watched = Watched(Eyes())
    watched.observe(START, 1.0)
    state = watched.read([Target("a", Lever.REPLICAS)], START)[Target("a", Lever.REPLICAS)]

    assert state.accepted is None
    assert "nothing was seen" in state.error


def test_a_reload_that_changes_nothing_of_an_end_keeps_it_open_and_remembering() -> None:
    """A new source has no increments and a new actuator has forgotten which values are its own."""
    hands = Hands({"a": 3.0})
    old = loop(hands, {"a": 3.0}, ends={"a": hands})
    new = loop(hands, {"a": 3.0}, ends={"a": hands})
    new.adopt(old)
    old.close()
    assert hands.calls == []

    new.close()
    assert hands.calls == [("close", "", None)]
