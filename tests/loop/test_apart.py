"""One pool's numbers, however odd, end no other pool's control."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from controller.config import loads
from controller.core import estimate, flows
from controller.core.facts import Fact, Kind
from controller.core.judge import Judge
from controller.core.learned import EstimatorSpec, EstimatorState, OfReplica
from controller.core.model import Applied, Decision, Lever, Outcome, PoolReadings, Target, TargetState
from controller.core.observation import Facts, HistogramIncrement, Observation, PoolFacts, ReplicaFacts
from controller.core.ports import Estimate
from controller.core.reading import Reading, State
from controller.core.rules import RELAX_DOWN
from controller.core.signals import Signal
from controller.run import codec
from controller.run.assembly import RunMode, assemble
from controller.run.loop import ControlLoop, TickResult
from controller.run.replay import replay
from controller.run.states import encode_states

START, STEP, TICKS = 1_790_000_000.0, 15.0, 9
ODD_FROM, ODD_FOR = 3, 2  # ticks
POOL = """
    engine: vllm
    selector: {{model_name: {name}}}
    labels: {{tenant: tenant, class: priority}}
    window: 60s
    objectives:
      - {{signal: ttft, percentile: p95, target: 1s}}
      - {{signal: itl, percentile: p95, target: 40ms}}
    tenants: {{t: {{guarantee: 2000}}, u: {{weight: 2}}}}
    classes: {{c: {{rank: 0}}, d: {{rank: 1, sheddable: true}}}}
    levers:
      replicas: {{min: 1, max: 40, mode: auto, policy: {{kind: capacity}}}}
      weight: {{mode: auto, policy: {{kind: weights}}}}
      breaker: {{mode: auto, policy: {{kind: breaker}}}}
      tenant_cap: {{mode: auto, policy: {{kind: fair_share}}}}
      admission: {{mode: auto, policy: {{kind: gate}}}}
"""
NAMES = ("odd", "well")
CONFIG = loads(
    "version: 1\nsource: {kind: prometheus, url: http://nowhere.example}\npools:\n"
    + "".join(f"  {name}:{POOL.format(name=name)}" for name in NAMES)
)
NEUTRAL = {Lever.REPLICAS: 4.0, Lever.TENANT_CAP: 1e12, Lever.ADMISSION: 1e12}
REPLICAS = tuple(f"r{i}" for i in range(4))


@dataclass(frozen=True)
class Odd:
    """A number in an odd place: of the pool, of its first replica, tenant or class (`of`), of a fact or, without one,
    of the replica itself; of a histogram, in which of its parts."""

    of: str
    fact: Fact | None
    part: str
    value: float


def facts(load: float, *, counted: bool) -> Facts:
    """What `load` requests a tick leave behind."""
    latency = {Fact.TTFT: 0.2, Fact.ITL: 0.02, Fact.E2E: 4.0, Fact.QUEUE_TIME: 0.1}
    gauges = {Fact.RUNNING: load / 4, Fact.WAITING: max(0.0, load - 300.0), Fact.KV_USAGE: min(0.9, load / 500)}
    if not counted:
        return Facts(gauges=gauges)
    tokens = {Fact.PROMPT_TOKENS: 400.0, Fact.GENERATION_TOKENS: 160.0, Fact.PREFIX_QUERIES: 400.0}
    counters = {
        **dict.fromkeys((Fact.ARRIVED, Fact.ADMITTED, Fact.FINISHED, Fact.RESPONSES), load),
        **{fact: each * load for fact, each in tokens.items()},
        Fact.PREFIX_HITS: 0.0,
    }
    edges = (0.01, 0.05, 0.5, 5.0)
    histograms = {
        fact: HistogramIncrement(edges, tuple(load * (each <= edge) for edge in edges), load, load * each)
        for fact, each in latency.items()
    }
    return Facts(histograms, counters, gauges)


def with_odd(one: Any, odd: Odd) -> Any:
    """The same facts with an odd number in them."""
    fact, value = odd.fact, odd.value
    if fact is None:
        told: dict[str, Any] = {odd.part: value}
        return replace(one, **told)
    if fact.kind is Kind.GAUGE:
        return replace(one, gauges={**one.gauges, fact: value})
    if fact.kind is Kind.COUNTER:
        return replace(one, counters={**one.counters, fact: value})
    h: HistogramIncrement = one.histograms.get(fact, HistogramIncrement((0.1,), (1.0,), 1.0, 0.1))
    changed = {
        "sum": h._replace(sum=value),
        "count": h._replace(count=value, cumulative=tuple(min(n, value) for n in h.cumulative)),
        "edge": h._replace(edges=(*h.edges[:-1], value)),
    }[odd.part]
    return replace(one, histograms={**one.histograms, fact: changed})


@dataclass
class Eyes:
    """Both pools under a load that grows; the first has odd numbers for a while."""

    odd: Sequence[Odd]
    tick: int = 0

    def observe(self, at: float, deadline: float) -> Observation:
        since = at - STEP if self.tick else None
        load = 60.0 * (1 + self.tick)
        pools = {name: self._pool(at, load) for name in NAMES}
        if ODD_FROM <= self.tick < ODD_FROM + ODD_FOR:
            for one in self.odd:
                pools["odd"] = self._spoilt(pools["odd"], one)
        self.tick += 1
        return Observation(at, since, pools, stamped=True)

    def _pool(self, at: float, load: float) -> PoolFacts:
        whole, each, half = (facts(part * load, counted=self.tick > 0) for part in (1.0, 0.25, 0.5))
        replicas = {
            name: ReplicaFacts(each.histograms, each.counters, each.gauges, age=3.0, started_at=START - 9000.0)
            for name in REPLICAS
        }
        return PoolFacts(
            whole.histograms, whole.counters, whole.gauges, replicas=replicas, targets_up=len(replicas),
            tenants=dict.fromkeys("tu", half), classes=dict.fromkeys("cd", half),
        )  # fmt: skip

    @staticmethod
    def _spoilt(pool: PoolFacts, odd: Odd) -> PoolFacts:
        if odd.of == "pool":
            whole: PoolFacts = with_odd(pool, odd)
            return whole
        members: dict[str, Facts] = getattr(pool, odd.of)
        first = min(members)
        changed: dict[str, Any] = {odd.of: {**members, first: with_odd(members[first], odd)}}
        return replace(pool, **changed)

    def close(self) -> None:
        """Nothing is open."""


class Hands:
    """Does what it is told, at once."""

    def __init__(self) -> None:
        self.have: dict[Target, float] = {}

    def read(self, targets: Sequence[Target], now: float) -> Mapping[Target, TargetState]:
        have = {t: self.have.get(t, NEUTRAL.get(t.lever, 1.0)) for t in targets}
        return {t: TargetState(v, ready=v if t.lever is Lever.REPLICAS else None) for t, v in have.items()}

    def apply(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        self.have.update({d.target: d.final for d in decisions if d.final is not None})
        return [Applied(d.target, Outcome.DONE) for d in decisions]

    def verify(self, decisions: Sequence[Decision], now: float) -> Sequence[Applied]:
        return [Applied(d.target, Outcome.DONE) for d in decisions]

    def close(self) -> None:
        """Nothing is open."""


def looping(*odd: Odd) -> ControlLoop:
    return assemble(CONFIG, mode=RunMode.SIMULATE, source=Eyes(odd), actuator=Hands())


def decided(*odd: Odd) -> list[list[Decision]]:
    """What was decided on the pool that is well, tick by tick. A ledger takes no number that is not finite, and a tick
    that cannot be recorded ends as one that raised."""
    loop = looping(*odd)
    plans = []
    for tick in range(TICKS):
        result = loop.tick(START + STEP * tick)
        codec.encode(result.snapshot), codec.encode(result.plan), encode_states(loop.state, loop.learned)
        plans.append([d for d in result.plan.decisions if d.target.pool == "well"])
    return plans


WELL = decided()
parts = {Kind.COUNTER: st.just(""), Kind.GAUGE: st.just(""), Kind.HISTOGRAM: st.sampled_from(["sum", "count", "edge"])}
numbers = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(min_value=0.0, max_value=1e15),
    st.sampled_from([5e-324, 1e-308, 1e-200, 1e14, 1e15, 1.7976931348623157e308, -1.0]),
)
of_facts = st.sampled_from(list(Fact)).flatmap(
    lambda fact: st.builds(
        Odd, st.sampled_from(["pool", "replicas", "tenants", "classes"]), st.just(fact), parts[fact.kind], numbers
    )
)
of_replicas = st.builds(Odd, st.just("replicas"), st.none(), st.sampled_from(["age", "started_at"]), numbers)


def test_the_pool_that_is_well_is_moved_at_all() -> None:
    """Else the property below would hold of a loop that does nothing."""
    moved = {d.target.lever for plan in WELL for d in plan if d.changed}
    assert {Lever.REPLICAS, Lever.TENANT_CAP, Lever.ADMISSION} <= moved


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(of_facts, of_replicas), min_size=1, max_size=4))
@example([Odd("pool", Fact.WAITING, "", 1.7976931348623157e308)])
@example([Odd("pool", Fact.PROMPT_TOKENS, "", 1e200)])
def test_whatever_stands_in_one_pools_facts_the_others_are_decided_as_without_it(odd: list[Odd]) -> None:
    """One finite number of one pool ended every tick of all of them for as long as a window remembered it."""
    assert decided(*odd) == WELL


# --- what raises all the same ---


class Crooked(Eyes):
    """A plug-in that hands on what is no number at all, of the first pool, while `crooked`."""

    crooked = False

    def observe(self, at: float, deadline: float) -> Observation:
        seen = super().observe(at, deadline)
        if not self.crooked:
            return seen
        odd = seen.pools["odd"]
        broken: Any = {**odd.gauges, Fact.RUNNING: None}
        return replace(seen, pools={**seen.pools, "odd": replace(odd, gauges=broken)})


class Failing:
    """An estimator that can make nothing of the readings of the first pool, while it `fails`."""

    def __init__(self) -> None:
        self.fails, self.real = False, estimate.update

    def __call__(self, spec: EstimatorSpec, pool: PoolReadings, *rest: Any) -> tuple[Estimate, EstimatorState]:
        if self.fails and spec.pool == "odd" and pool.signals:
            raise ZeroDivisionError("float division by zero")
        return self.real(spec, pool, *rest)


def is_blind(result: TickResult) -> bool:
    return not result.snapshot.pools["odd"].signals


def relaxing(result: TickResult) -> list[Decision]:
    """What relaxes a lever of the first pool."""
    mine = [d for d in result.plan.decisions if d.target.pool == "odd" and d.changed]
    return [d for d in mine if ((d.final or 0.0) < (d.current or 0.0)) == RELAX_DOWN[d.target.lever]]


def well(result: TickResult) -> list[Decision]:
    return [d for d in result.plan.decisions if d.target.pool == "well"]


def test_a_plug_in_that_hands_on_no_numbers_for_one_pool_blinds_that_pool_alone_and_is_told_once() -> None:
    eyes = Crooked(())
    loop = assemble(CONFIG, mode=RunMode.SIMULATE, source=eyes, actuator=Hands())
    results = []
    with capture_logs() as lines:
        for tick in range(TICKS):
            eyes.crooked = 3 <= tick < 6
            results.append(loop.tick(START + STEP * tick))

    assert [well(one) for one in results] == WELL
    assert [tick for tick, one in enumerate(results) if is_blind(one)] == [3, 4, 5]
    assert not any(relaxing(one) for one in results[3:])
    assert len(results[4].plan.decisions) == len(results[2].plan.decisions), "a blind pool has its decisions, too"
    assert "TypeError" in results[4].snapshot.pools["odd"].partial
    assert [(line["event"], line["pool"]) for line in lines] == [
        ("pool_not_measured", "odd"), ("pool_measured_again", "odd"),
    ]  # fmt: skip


def test_what_a_pool_cannot_be_measured_by_does_not_blind_it_for_as_long_as_its_windows_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An hour, where a promise is over an hour."""
    real = flows.flows

    def raising(judge: Judge) -> dict[Signal, Reading]:
        if judge.sums.get(Fact.PREEMPTIONS):
            raise ZeroDivisionError("float division by zero")
        return real(judge)

    monkeypatch.setattr(flows, "flows", raising)
    loop = looping(Odd("pool", Fact.PREEMPTIONS, "", 7.0))
    results = [loop.tick(START + STEP * tick) for tick in range(TICKS)]

    assert [tick for tick, one in enumerate(results) if is_blind(one)] == [*range(ODD_FROM, ODD_FROM + ODD_FOR)]
    assert [well(one) for one in results] == WELL
    back = results[ODD_FROM + ODD_FOR].snapshot.pools["odd"]
    assert back.get(Signal.OFFERED_RATE).state is State.UNDERFILLED, "windows that were emptied justify no relaxing"


def test_readings_that_nothing_can_be_learned_of_blind_their_pool_alone_and_a_replay_agrees(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    failing = Failing()
    monkeypatch.setattr(estimate, "update", failing)
    loop = assemble(CONFIG, mode=RunMode.SIMULATE, source=Eyes(()), actuator=Hands(), ledger_path=tmp_path)
    results = []
    with capture_logs() as lines:
        for tick in range(TICKS):
            failing.fails = 3 <= tick < 6
            results.append(loop.tick(START + STEP * tick))
    loop.close()
    failing.fails = False

    assert [well(one) for one in results] == WELL
    assert [tick for tick, one in enumerate(results) if is_blind(one)] == [3, 4, 5]
    assert not any(relaxing(one) for one in results[3:6])
    assert [(line["event"], line["pool"]) for line in lines] == [
        ("pool_not_estimated", "odd"), ("pool_estimated_again", "odd"),
    ]  # fmt: skip
    report = replay(tmp_path)
    assert (report.ticks, report.equal) == (TICKS, TICKS)


def test_a_memory_of_which_nothing_can_be_made_is_forgotten_and_the_pool_is_not_blind_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = estimate.update

    def update(spec: EstimatorSpec, pool: PoolReadings, target: TargetState | None, now: float, state: EstimatorState,
               *rest: Any) -> tuple[Estimate, EstimatorState]:  # fmt: skip
        if state.replica.kappa == 0.0:
            raise ZeroDivisionError("float division by zero")
        return real(spec, pool, target, now, state, *rest)

    monkeypatch.setattr(estimate, "update", update)
    loop = looping()
    loop.tick(START)
    loop.learned["odd"] = loop.learned["odd"]._replace(replica=OfReplica(kappa=0.0))
    second, third = loop.tick(START + STEP), loop.tick(START + 2 * STEP)

    assert (is_blind(second), is_blind(third)) == (True, False)
    assert well(third) == WELL[2]
