"""PID and threshold were written for replicas, where high latency raises and silence keeps at least what is there. On a
weight, a cap or a gate the same law would have opened the flood-gate in the overload and on every outage."""

import math

import pytest

from controller.core.model import Ask, Lever, PoolReadings, Proposal, Scope, Target, TargetState, Tick
from controller.core.ports import Balance, Brief, Estimate, Limits, Policy, View
from controller.core.reading import Reading, State, ok
from controller.core.rules import RELAX_DOWN
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.run import codec
from policies.pid import Pid
from policies.threshold import Threshold
from tests.support.cases import NOW

BRIEF = Brief(Balance(0.0, 0.0), 0.0)
TTFT = Objective("ttft", Signal.TTFT, 2.0, 0.95, 60.0)
ITL = Objective("itl", Signal.ITL, 2.0, 0.95, 60.0)  # as slow as no engine is, so that one reading does for both
# member, value, limits
PLACES: dict[Lever, tuple[str, float, Limits]] = {
    Lever.REPLICAS: ("", 10.0, Limits(1, 100)),
    Lever.WEIGHT: ("pod-0", 0.5, Limits(0.05, 1, 0.01)),
    Lever.BREAKER: ("pod-0", 0.5, Limits(0, 1, 0.05)),
    Lever.TENANT_CAP: ("acme", 5000.0, Limits(0, 10_000)),
    Lever.ADMISSION: ("concurrency", 50.0, Limits(1, 200)),
    Lever.DOWNGRADE: ("small", 0.5, Limits(0, 1, 0.01)),
    Lever.ROUTING: ("affinity", 0.75, Limits(0.5, 1, 0.05)),
}
STEP = {
    Lever.REPLICAS: 1.0, Lever.WEIGHT: 0.1, Lever.BREAKER: 0.5, Lever.TENANT_CAP: 500.0, Lever.ADMISSION: 5.0,
    Lever.DOWNGRADE: 0.1, Lever.ROUTING: 0.1,
}  # fmt: skip


def law(kind: str, lever: Lever, **more: object) -> Policy[object]:
    if kind == "pid":
        return Pid(Pid.Config(filter_time=0.0, dead_band=0.0, **more))  # type: ignore[arg-type,return-value]
    step = STEP[lever]
    config = Threshold.Config(signal="ttft", upper=2.2, lower=1.8, dwell_down=0.0, step_up=step, step_down=step, **more)  # type: ignore[arg-type]
    return Threshold(config)  # type: ignore[return-value]


def ask(kind: str, lever: Lever, *readings: Reading, **more: object) -> tuple[Proposal, float]:
    """The last proposal after some ticks at one value, and that value. The pool's and the member's reading are one."""
    member, value, limits = PLACES[lever]
    target, policy = Target("llm", lever, member), law(kind, lever, **more)
    state, told = policy.initial(), []
    for i, reading in enumerate(readings):
        own = Scope(latencies={Signal.TTFT: {"p95": reading}, Signal.ITL: {"p95": reading}})
        pool = PoolReadings(latencies=own.latencies, replicas={"pod-0": own}, tenants={"acme": own})
        view = View(Tick(i, NOW + 15.0 * i), pool, {target: TargetState(value)}, {target: limits}, Estimate())
        (proposal,), state = policy.propose(view, (TTFT, ITL), BRIEF, state)
        told.append(proposal)
    return told[-1], value


CELLS = [
    (kind, lever) for kind in ("pid", "threshold") for lever in Lever if (kind, lever) != ("pid", Lever.BREAKER)
]  # fmt: skip


@pytest.mark.parametrize(("kind", "lever"), CELLS)
def test_high_latency_moves_every_lever_to_protect(kind: str, lever: Lever) -> None:
    proposal, value = ask(kind, lever, ok(2.0), ok(8.0))

    assert proposal.ask == Ask.SET
    assert (proposal.value > value) == RELAX_DOWN[lever]
    assert proposal.value != value


@pytest.mark.parametrize(("kind", "lever"), CELLS)
def test_low_latency_moves_every_lever_to_relax(kind: str, lever: Lever) -> None:
    # Below its target a PID only integrates, so that a whole replica takes it some ticks.
    proposal, value = ask(kind, lever, ok(2.0), *[ok(0.3)] * 8)

    assert proposal.ask == Ask.SET
    assert (proposal.value < value) == RELAX_DOWN[lever]
    assert proposal.value != value


@pytest.mark.parametrize(("kind", "lever"), CELLS)
@pytest.mark.parametrize("state", [State.MISSING, State.STALE, State.UNSUPPORTED])
def test_silence_forbids_to_relax_and_nothing_else(kind: str, lever: Lever, state: State) -> None:
    proposal, value = ask(kind, lever, ok(2.0), Reading(state))

    assert proposal.ask == (Ask.AT_LEAST if RELAX_DOWN[lever] else Ask.AT_MOST)
    assert proposal.value == value


@pytest.mark.parametrize(("kind", "lever"), CELLS)
def test_what_is_only_known_in_part_may_protect_but_not_relax(kind: str, lever: Lever) -> None:
    high, value = ask(kind, lever, ok(2.0), Reading(State.SATURATED_TOP, lo=10.0))
    low, _ = ask(kind, lever, ok(2.0), Reading(State.UNDERFILLED, 0.3))

    assert high.ask == Ask.SET
    assert (high.value > value) == RELAX_DOWN[lever]
    assert low.ask == (Ask.AT_LEAST if RELAX_DOWN[lever] else Ask.AT_MOST)
    assert low.value == value


@pytest.mark.parametrize("lever", list(Lever))
def test_a_signal_that_is_good_when_high_relaxes_on_full_knowledge_alone(lever: Lever) -> None:
    """`raise_when_high` turned round: above now relaxes, and half a window of it is no reason."""
    turned = not RELAX_DOWN[lever]
    sure, value = ask("threshold", lever, ok(8.0), raise_when_high=turned)
    unsure, _ = ask("threshold", lever, Reading(State.UNDERFILLED, 8.0), raise_when_high=turned)

    assert (sure.value < value) == RELAX_DOWN[lever]
    assert unsure.value == value
    assert unsure.ask != Ask.SET


def replicas(latencies: dict[str, float], scope: str) -> dict[str, float]:
    """What the threshold makes of the breakers of a pool after a minute; the pool's own latency is high."""
    config = Threshold.Config(signal="ttft", upper=2.2, lower=1.8, dwell_up=30.0, scope=scope)  # type: ignore[arg-type]
    policy = Threshold(config)
    targets = {Target("llm", Lever.BREAKER, name): TargetState(1.0) for name in latencies}
    state, told = policy.initial(), {}
    for i in range(5):
        own = {name: Scope(latencies={Signal.TTFT: {"p95": ok(value)}}) for name, value in latencies.items()}
        pool = PoolReadings(latencies={Signal.TTFT: {"p95": ok(9.0)}}, replicas=own)
        limits = dict.fromkeys(targets, Limits(0, 1, 0.05))
        view = View(Tick(i, NOW + 15.0 * i), pool, targets, limits, Estimate())
        proposals, state = policy.propose(view, (), BRIEF, state)
        told = {p.target.member: p.value for p in proposals}
    return told


def test_a_breaker_follows_its_own_replica_and_not_the_pool() -> None:
    """One slow replica makes the pool's p95 bad; a breaker on that would have thrown out all of them."""
    assert replicas({"a": 1.0, "b": 9.0, "c": 2.0}, "by_lever") == {"a": 1.0, "b": 0.0, "c": 1.0}
    assert set(replicas({"a": 1.0, "b": 9.0}, "pool").values()) == {0.0}


def test_each_member_has_its_own_memory() -> None:
    """With one carry for all, the rounding of the last replica was given to the first."""
    policy = Pid(Pid.Config(filter_time=0.0, dead_band=0.0, integral_time=60.0))
    values = {"a": 0.8, "b": 0.8}
    state = policy.initial()
    for i in range(12):
        own = {name: Scope(latencies={Signal.TTFT: {"p95": ok(latency)}}) for name, latency in (("a", 2.2), ("b", 1.8))}
        targets = {Target("llm", Lever.WEIGHT, name): TargetState(value) for name, value in values.items()}
        limits = dict.fromkeys(targets, Limits(0.05, 1, 0.01))
        view = View(Tick(i, NOW + 15.0 * i), PoolReadings(replicas=own), targets, limits, Estimate())
        proposals, state = policy.propose(view, (TTFT,), BRIEF, state)
        values = {p.target.member: p.value for p in proposals}
    again = codec.decode(Pid.State, codec.encode(state))

    # K dt/Ti e a tick, eleven times: what the law would do without rounding, within a quantum.
    exact = 0.4 * 15.0 / 60.0 * 11
    assert values["a"] == pytest.approx(0.8 * math.exp(-exact * math.log(1.1)), abs=0.011)
    assert values["b"] == pytest.approx(0.8 * math.exp(exact * math.log(1 / 0.9)), abs=0.011)
    assert again == state


def test_a_share_leaves_zero() -> None:
    """No factor leads away from zero; a downgrade that is needed must begin."""
    policy = Pid(Pid.Config(filter_time=0.0, dead_band=0.0))
    target = Target("llm", Lever.DOWNGRADE, "small")
    value, state = 0.0, policy.initial()
    for i in range(4):
        pool = PoolReadings(latencies={Signal.TTFT: {"p95": ok(2.0 if i == 0 else 6.0)}})
        limits = {target: Limits(0, 1, 0.01)}
        view = View(Tick(i, NOW + 15.0 * i), pool, {target: TargetState(value)}, limits, Estimate())
        (proposal,), state = policy.propose(view, (TTFT,), BRIEF, state)
        value = proposal.value

    assert value == pytest.approx(0.4 * math.log(3.0) * (1 + 3 * 15.0 / 600.0), abs=0.011)


def test_a_member_that_is_not_seen_keeps_what_it_has() -> None:
    target = Target("llm", Lever.WEIGHT, "gone")
    view = View(Tick(0, NOW), PoolReadings(), {target: TargetState(0.4)}, {target: Limits(0.05, 1, 0.01)}, Estimate())
    for policy in (law("pid", Lever.WEIGHT), law("threshold", Lever.WEIGHT)):
        (proposal,), _ = policy.propose(view, (TTFT,), BRIEF, policy.initial())
        assert (proposal.ask, proposal.value) == (Ask.AT_MOST, 0.4)


def test_a_step_that_a_guard_holds_for_minutes_is_wanted_all_that_time() -> None:
    """Rounding and a stabilising guard: the law forgot its step at every second tick, so replicas never came down."""
    policy = Pid(Pid.Config(filter_time=0.0, dead_band=0.0))
    target, wishes, state = Target("llm", Lever.REPLICAS), [], policy.initial()
    for i in range(60):
        pool = PoolReadings(latencies={Signal.TTFT: {"p95": ok(1.0)}})
        view = View(Tick(i, NOW + 15.0 * i), pool, {target: TargetState(10.0)}, {target: Limits(1, 20)}, Estimate())
        (proposal,), state = policy.propose(view, (TTFT,), BRIEF, state)
        wishes.append(proposal.value)
    first = wishes.index(9.0)
    pool = PoolReadings(latencies={Signal.TTFT: {"p95": ok(2.5)}})
    view = View(Tick(60, NOW + 900.0), pool, {target: TargetState(10.0)}, {target: Limits(1, 20)}, Estimate())
    (turned,), _ = policy.propose(view, (TTFT,), BRIEF, state)

    assert first < 30
    assert set(wishes[first:]) == {9.0}
    assert turned.value >= 10.0
