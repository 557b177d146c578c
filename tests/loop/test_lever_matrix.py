"""Every lever by every law that may drive it, in every mode and both directions, through a config and a decision: a
cell that was never tried is where a cap opens in the overload."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from controller.config import ConfigError
from controller.config.terms import fleet_rules
from controller.core.decide import DecideState, decide
from controller.core.facts import Fact
from controller.core.model import Decision, Lever, Mode, PoolReadings, Scope, Snapshot, Target, TargetState, Tick
from controller.core.observation import Observation, PoolFacts, ReplicaFacts
from controller.core.ports import Estimate
from controller.core.reading import Reading, State, ok
from controller.core.rules import PER_REPLICA, RELAX_DOWN
from controller.core.signals import Signal
from controller.core.why import Why
from controller.run.assembly import RunMode, assemble
from controller.run.laws import policies
from tests.support.cases import NOW, healthy
from tests.support.levers import config

PODS = tuple(f"pod-{i}" for i in range(8))
MEMBERS: dict[Lever, tuple[str, ...]] = {
    Lever.REPLICAS: ("",), Lever.WEIGHT: PODS, Lever.BREAKER: PODS, Lever.TENANT_CAP: ("acme", "beta"),
    Lever.ADMISSION: ("longest_prompt",), Lever.DOWNGRADE: ("small",), Lever.ROUTING: ("affinity",),
}  # fmt: skip
MORE: dict[Lever, str] = {  # what a lever needs besides its law, with bounds for laws that move from where it stands
    Lever.REPLICAS: "min: 1, max: 20", Lever.WEIGHT: "", Lever.BREAKER: "group: 50%", Lever.TENANT_CAP: "max: 10000",
    Lever.ADMISSION: "setpoints: [longest_prompt], max: 200000", Lever.DOWNGRADE: "receivers: [small]",
    Lever.ROUTING: "",
}  # fmt: skip
NEUTRAL = {
    Lever.REPLICAS: 8.0, Lever.WEIGHT: 1.0, Lever.BREAKER: 1.0, Lever.TENANT_CAP: 10_000.0, Lever.ADMISSION: 200_000.0,
    Lever.DOWNGRADE: 0.0, Lever.ROUTING: 1.0,
}  # fmt: skip
MIDDLE = {
    Lever.REPLICAS: 8.0, Lever.WEIGHT: 0.5, Lever.BREAKER: 0.5, Lever.TENANT_CAP: 5000.0, Lever.ADMISSION: 50_000.0,
    Lever.DOWNGRADE: 0.5, Lever.ROUTING: 0.75,
}  # fmt: skip
OWN = {
    Lever.REPLICAS: "capacity", Lever.WEIGHT: "weights", Lever.BREAKER: "breaker", Lever.TENANT_CAP: "fair_share",
    Lever.ADMISSION: "gate", Lever.DOWNGRADE: "downgrade", Lever.ROUTING: "affinity",
}  # fmt: skip
STEP = {
    Lever.REPLICAS: 1, Lever.WEIGHT: 0.1, Lever.BREAKER: 0.5, Lever.TENANT_CAP: 500, Lever.ADMISSION: 5000,
    Lever.DOWNGRADE: 0.1, Lever.ROUTING: 0.1,
}  # fmt: skip


def law(kind: str, lever: Lever) -> str:
    if kind == "threshold":
        step = f"step_up: {STEP[lever]}, step_down: {STEP[lever]}, dwell_down: 0s"
        return f"{{kind: threshold, signal: ttft, upper: 2.5, lower: 1, {step}}}"
    return "{kind: pid, filter_time: 0s}" if kind == "pid" else f"{{kind: {kind}}}"


class World:
    """A pool of eight replicas; `follow` puts what is sent into place, as an actuator would."""

    def __init__(self, lever: Lever, kind: str, mode: str = "auto", start: float | None = None) -> None:
        more = f"{MORE[lever]}, " if MORE[lever] else ""
        made = config(f"{lever}: {{mode: {mode}, {more}policy: {law(kind, lever)}}}")
        self.rules, self.laws, self.state = fleet_rules(made), policies(made), DecideState()
        begin = NEUTRAL[lever] if start is None else start
        self.values = {Target("chat", lever, member): begin for member in MEMBERS[lever]}
        # In an overload weights and affinity have nothing to give.
        self.load = 4.0 if lever in (Lever.WEIGHT, Lever.ROUTING) else 16.0
        self.skew = 3.0 if lever is Lever.ROUTING else 1.0
        self.at, self.number = NOW, 10

    def tick(self, trouble: bool, blind: bool = False) -> dict[str, Decision]:
        """Decide once, 15 s later."""
        self.at, self.number = self.at + 15.0, self.number + 1
        pools = {"chat": PoolReadings() if blind else readings(trouble, self.at, self.skew)}
        targets = {target: TargetState(value) for target, value in self.values.items()}
        targets.setdefault(Target("chat", Lever.REPLICAS), TargetState(8.0, 8.0))
        snapshot = Snapshot(Tick(self.number, self.at, 15.0), pools, targets)
        plan, self.state = decide(snapshot, estimates(self.load if trouble else 2.0), self.rules, self.laws, self.state)
        mine = {d.target.member: d for d in plan.decisions if d.target in self.values}
        for decision in mine.values():
            if decision.send and decision.final is not None:
                self.values[decision.target] = decision.final
        return mine


def readings(trouble: bool, at: float, skew: float = 1.0) -> PoolReadings:
    """In trouble everything is slow, and the first replica stuck with eight times the latency and a batch that is
    larger by the square of `skew`."""
    wait, gap = (9.0, 0.2) if trouble else (0.3, 0.03)
    pods = {}
    for i, name in enumerate(PODS):
        bad = trouble and i == 0
        batch = 40.0 * (skew if bad else 1.0 / skew if trouble else 1.0)
        signals = {
            Signal.RUNNING: ok(batch, age=5.0, window=15.0), Signal.STUCK: ok(float(bad)),
            Signal.QUEUE_DEPTH: ok(float(bad)), Signal.OFFERED_RATE: ok(1.0),
        }  # fmt: skip
        latencies = {
            Signal.TTFT: {"mean": ok(wait, count=100, age=5.0, window=15.0)},
            Signal.ITL: {
                "mean": ok(gap * (8 if bad else 1), count=250 if bad else 2000, age=5.0, window=15.0),
            },
        }
        pods[name] = Scope(signals, latencies)
    tenants = {name: Scope({Signal.OFFERED_RATE: ok(2.0)}) for name in ("acme", "beta")}
    pool = healthy(running=ok(320.0), queue_delay=ok(wait), queue_depth=ok(0.0))
    latencies = {Signal.TTFT: {"p95": ok(wait), "mean": ok(wait)}, Signal.ITL: {"p95": ok(gap), "mean": ok(gap)}}
    return replace(pool, latencies=latencies, replicas=pods, tenants=tenants, filled_since=at - 3600.0)


def estimates(demand: float) -> dict[str, Estimate]:
    chat = Estimate(
        offered=5.0, demand=demand, forecast=demand, unit_rate=1.0, unit_tokens=500.0, unit_sequences=40.0,
        flows={"acme": demand * 0.75, "beta": demand * 0.25}, classes={"batch": demand / 2, "critical": demand / 2},
        trusted=True, horizon=60.0, evidence={"serving": 8.0, "proven_rate": 1.0, "kv_tokens": 200_000.0},
    )  # fmt: skip
    small = Estimate(demand=1.0, unit_rate=4.0, trusted=True, evidence={"serving": 6.0})
    return {"chat": chat, "small": small}


def cells() -> Iterator[tuple[Lever, str]]:
    for lever in Lever:
        yield from (
            (lever, kind) for kind in (OWN[lever], "pid", "threshold") if (lever, kind) != (Lever.BREAKER, "pid")
        )


def protects(lever: Lever, before: float, after: float) -> bool:
    return after > before if RELAX_DOWN[lever] else after < before


@pytest.mark.parametrize(("lever", "kind"), [*cells()])
def test_each_law_protects_in_trouble_lets_go_in_calm_and_holds_still_when_blind(lever: Lever, kind: str) -> None:
    world = World(lever, kind)
    world.tick(trouble=False)
    for _ in range(12):
        decisions = world.tick(trouble=True)
        assert set(decisions) == set(MEMBERS[lever])
        assert not [d for d in decisions.values() if any(s.why is Why.POLICY_ERROR for s in d.steps)]
    tight = dict(world.values)
    assert any(protects(lever, NEUTRAL[lever], value) for value in tight.values())
    assert not any(protects(lever, value, NEUTRAL[lever]) for value in tight.values() if lever is not Lever.REPLICAS)

    for _ in range(8):
        world.tick(trouble=False, blind=True)
    assert not any(protects(lever, world.values[t], tight[t]) for t in tight), "relaxed without data"
    blind = dict(world.values)

    for _ in range(120):
        world.tick(trouble=False)
    if kind != "gate":  # which is armed in calm as in a storm
        assert any(protects(lever, world.values[t], blind[t]) for t in blind)


@pytest.mark.parametrize("lever", list(Lever))
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("trouble", [True, False], ids=["protecting", "relaxing"])
def test_a_mode_means_the_same_for_every_lever(lever: Lever, mode: Mode, trouble: bool) -> None:
    world = World(lever, "threshold", mode.value, MIDDLE[lever])
    member = MEMBERS[lever][0]
    # Relaxing is looked at where all that holds it back for a while has passed.
    decision = [world.tick(trouble)[member] for _ in range(8)][-1]
    moved, before = decision.final, MIDDLE[lever]
    now = world.values[decision.target]

    if mode is Mode.OFF:
        assert (moved, decision.send, decision.why, now) == (before, False, Why.MODE_OFF, before)
    elif mode is Mode.OBSERVE:
        assert moved is not None
        assert moved != before
        assert protects(lever, before, moved) == trouble
        assert not decision.send
        assert now == before
    elif mode is Mode.PROTECT and not trouble:
        assert now == before
        assert any(step.why is Why.MODE_PROTECT for step in decision.steps)
    else:
        assert now != before
        assert protects(lever, before, now) == trouble


@pytest.mark.parametrize("lever", [lever for lever in Lever if lever is not Lever.REPLICAS])
def test_a_value_that_is_not_neutral_is_renewed_and_expires(lever: Lever) -> None:
    """If Governor dies, its target must come to rest by itself; while it lives, every tick renews."""
    world = World(lever, "threshold", start=MIDDLE[lever])
    member = MEMBERS[lever][-1]
    decision = world.tick(trouble=False, blind=True)[member]

    assert decision.final == decision.current == MIDDLE[lever]
    assert decision.send
    assert decision.until == world.at + world.rules.pools[0].levers[0].expiry
    at_rest = World(lever, "threshold").tick(trouble=False, blind=True)[member]
    assert not at_rest.send


@pytest.mark.parametrize(
    ("lever", "kind"),
    [(lever, kind) for lever in Lever for kind in (*OWN.values(), "pid") if kind != OWN[lever] and kind != "pid"]
    + [(Lever.BREAKER, "pid")],
)
def test_a_law_for_another_lever_is_refused(lever: Lever, kind: str) -> None:
    with pytest.raises(ConfigError, match=f"{kind} cannot drive {lever}; it drives") as caught:
        World(lever, kind)
    assert all(problem.mend for problem in caught.value.problems)


def test_a_member_whose_own_data_is_missing_is_left_as_it_is() -> None:
    world = World(Lever.WEIGHT, "threshold", start=0.5)
    seen = readings(trouble=False, at=world.at + 15)
    silent = Scope(latencies={Signal.TTFT: {"mean": Reading(State.STALE, 0.1)}})
    seen = replace(seen, replicas={**seen.replicas, "pod-3": silent})
    targets = {target: TargetState(value) for target, value in world.values.items()}
    snapshot = Snapshot(Tick(11, world.at + 15, 15.0), {"chat": seen}, targets)
    plan, _ = decide(snapshot, estimates(2.0), world.rules, world.laws, world.state)
    finals = {d.target.member: d.final for d in plan.decisions}

    assert finals["pod-3"] == 0.5
    assert all(value == 0.6 for name, value in finals.items() if name != "pod-3")
    assert all(lever in PER_REPLICA for lever in (Lever.WEIGHT, Lever.BREAKER))


class Eyes:
    """A source that sees three replicas."""

    def observe(self, at: float, deadline: float) -> Observation:
        pods = {f"pod-{i}": ReplicaFacts(gauges={Fact.RUNNING: 1.0}) for i in range(3)}
        return Observation(at, at, {"chat": PoolFacts(replicas=pods)})

    def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    ("lever", "rest"),
    [
        ("weight: {mode: auto, policy: {kind: weights}}", 1.0),
        ("breaker: {mode: auto, policy: {kind: breaker}}", 1.0),
        ("tenant_cap: {mode: auto, policy: {kind: fair_share}}", 1e12),
        ("admission: {mode: auto, setpoints: [concurrency], max: 64, policy: {kind: gate}}", 64.0),
        ("admission: {mode: auto, setpoints: [deadline], policy: {kind: gate}}", 1.0),
        ("admission: {mode: auto, setpoints: [priority], policy: {kind: gate}}", 100.0),
        ("downgrade: {mode: auto, receivers: [small], policy: {kind: downgrade}}", 0.0),
        ("routing: {mode: auto, policy: {kind: affinity}}", 1.0),
    ],
)
def test_a_rehearsal_takes_a_lever_that_no_metric_tells_to_be_at_rest(lever: str, rest: float) -> None:
    """Three replicas were read as a weight of three."""
    loop = assemble(config(lever), mode=RunMode.REPLAY, source=Eyes())
    result = loop.tick(NOW)
    loop.close()

    assert result.snapshot.targets
    assert {state.accepted for state in result.snapshot.targets.values()} == {rest}
    assert all(state.assumed for state in result.snapshot.targets.values())
    assert {d.current for d in result.plan.decisions} == {rest}
