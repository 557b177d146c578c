"""A version that is worse than the rest: said by its name, and no reason for more replicas."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from controller.core import burn, worse
from controller.core.decide import DecideState, decide
from controller.core.model import Ask, Lever, PoolReadings, Proposal, Scope, Snapshot, Target, TargetState, Tick
from controller.core.ports import Brief, Limits, View
from controller.core.reading import ok
from controller.core.rules import FleetRules, LeverRules, PoolRules
from controller.core.signals import Signal
from controller.core.slo import Objective
from controller.core.summary import sentence
from controller.core.why import Why
from controller.core.worse import Worse, failing
from tests.core.test_versions import EVERY, NOW, OLD, Learner, fleet

BURNING = {"itl": {name: ok(100.0, count=1000.0) for name in burn.WINDOWS}}


class Asks:
    """A law that always asks the same."""

    def __init__(self, proposal: Proposal) -> None:
        self.proposal = proposal

    def initial(self) -> None:
        return None

    def propose(
        self, view: View, objectives: Sequence[Objective], brief: Brief, state: None
    ) -> tuple[Sequence[Proposal], None]:
        return (self.proposal,), None


def ending(pool: PoolReadings, **shares: tuple[float, float]) -> PoolReadings:
    """The same with the share of errors, and of how many requests, of some replicas; 40 whole ones of the others."""
    of = {name: shares.get(name, (0.0, 40.0)) for name in pool.replicas}
    replicas = {
        name: Scope({**scope.signals, Signal.ERROR_RATIO: ok(of[name][0], count=of[name][1])}, scope.latencies)
        for name, scope in pool.replicas.items()
    }
    return replace(pool, replicas=replicas)


def test_a_canary_that_fails_is_found_by_all_its_replicas_together() -> None:
    """Each of three has too few requests to be judged by; and each would excuse the others."""
    pool = fleet(**OLD, v2_3=1.0, v2_4=1.0, v2_5=1.0)
    (found,) = failing(ending(pool, v2_3=(0.3, 10.0), v2_4=(0.3, 10.0), v2_5=(0.3, 10.0), v1_0=(0.1, 40.0)))
    assert (found.version, found.ended) == ("v2", 30.0)
    assert found.errors == pytest.approx(0.3)
    assert found.rest == pytest.approx(4 / 120)


@pytest.mark.parametrize(
    ("canary", "old"),
    [
        ((0.3, 19.0), (0.0, 40.0)),  # too few to say
        ((0.19, 400.0), (0.0, 40.0)),  # below the limit
        ((0.3, 400.0), (0.1, 40.0)),  # the rest fails, too
        ((0.9, 400.0), (0.0, 6.0)),  # too few of the others to compare with
    ],
)
def test_what_may_be_chance_or_everybodys_fault_is_no_versions(
    canary: tuple[float, float], old: tuple[float, float]
) -> None:
    pool = fleet(**OLD, v2_3=1.0)
    assert failing(ending(pool, v2_3=canary, **dict.fromkeys(OLD, old))) == ()
    assert failing(ending(fleet(False, **OLD, v2_3=1.0), v2_3=(1.0, 400.0))) == ()


def test_two_versions_that_fail_do_not_make_each_other_well() -> None:
    """What answers errors looks idle, so that two of five had nearly all requests: five times the rest was 490 %."""
    both = {"v2_3": (1.0, 4000.0), "v3_4": (1.0, 50.0)}
    found = failing(ending(fleet(**OLD, v2_3=1.0, v3_4=1.0), **both))
    assert [(one.version, one.errors, one.rest) for one in found] == [("v3", 1.0, 0.0), ("v2", 1.0, 0.0)]
    whole = fleet(**OLD, v2_3=1.0)
    nearly = dict.fromkeys(OLD, (0.97, 400.0))  # all is lost everywhere, and no version is to blame
    assert failing(ending(whole, v2_3=(1.0, 400.0), **nearly)) == ()
    assert failing(ending(whole, v2_3=(1.0, 400.0), **dict.fromkeys(OLD, (1.0, 400.0)))) == ()


@pytest.mark.parametrize("rest", [0.0, 0.05, 0.2, 0.5, 0.9, 1.0])
def test_whatever_the_others_fail_who_fails_everything_is_never_well(rest: float) -> None:
    assert 0.2 <= worse.far_more(0.2, rest) <= 1.0
    assert worse.far_more(0.2, rest) >= rest


def test_an_engine_that_is_full_may_be_refusing_and_is_not_at_fault() -> None:
    pool = fleet(**OLD, v2_3=1.0)
    full = Scope({**pool.replicas["v2_3"].signals, Signal.QUEUE_DEPTH: ok(30.0)})
    pool = replace(pool, replicas={**pool.replicas, "v2_3": full})
    assert failing(ending(pool, v2_3=(0.5, 400.0))) == ()


def test_a_budget_that_a_bad_canary_burns_asks_for_no_replicas() -> None:
    """Its errors stay in the short window for five minutes after it has gone."""
    blind, aware = Learner(), Learner()
    for learner, named in ((blind, False), (aware, True)):
        learner.run(fleet(named, **OLD), 300.0)
        bad = ending(fleet(named, **OLD, v2_3=1.0), v2_3=(0.5, 40.0))
        learner.run(replace(bad, burn=BURNING), EVERY)
    assert blind.made.margin > 0
    assert aware.made.margin == 0
    assert aware.made.burning  # capacity is not lowered meanwhile
    assert aware.made.worse == Worse("v2", 0.5, 40.0, 0.0)
    after = replace(ending(fleet(**OLD)), burn=BURNING)
    assert aware.run(after, 270.0).margin == 0
    assert aware.run(after, 60.0).margin > 0


def test_a_version_that_is_much_slower_is_told_once_it_was_watched() -> None:
    one = Learner()
    one.run(fleet(**OLD), 300.0)
    assert one.run(fleet(**OLD, v2_3=1.9), 60.0).worse is None
    told = one.run(fleet(**OLD, v2_3=1.9), 600.0).worse
    assert told is not None
    assert told.version == "v2"
    assert told.slow == pytest.approx(1.9, abs=0.1)
    most = one.run(fleet(v1_0=1.0, v2_1=1.9, v2_2=1.9, v2_3=1.9), EVERY).worse
    assert most is not None
    assert most.version == "v2"
    assert most.slow == pytest.approx(1.9, abs=0.1)
    assert one.run(fleet(**OLD, v2_3=1.2), 1800.0).worse is None


def test_steps_of_one_version_alone_are_compared_with_nothing() -> None:
    assert worse.slow({"v1": 1.0}, "v1") is None
    assert worse.slow({"v2": 1.0}, "v1") is None


def test_the_plan_names_the_version() -> None:
    assert sentence((), (), [Worse("v2", 0.34, 120.0, 0.004).told("chat")], holding=False) == (
        "version v2 of chat is worse: 34 % of its 120 requests failed, of the others' 0.4 %"
    )
    assert "its steps take 1.9 times as long" in Worse("v2", slow=1.9).told("chat")
    one = Learner()
    one.run(ending(fleet(**OLD, v2_3=1.0), v2_3=(0.5, 40.0)), 60.0)
    lever = LeverRules(Lever.REPLICAS, "capacity", "")
    target = Target("llm", Lever.REPLICAS)
    rules = FleetRules((PoolRules("llm", (), (lever,), (target,)),))
    snapshot = Snapshot(Tick(1, NOW, EVERY), {"llm": fleet(**OLD, v2_3=1.0)}, {target: TargetState(4.0)})
    plan, _ = decide(snapshot, {"llm": one.made}, rules, {}, DecideState())
    assert "version v2 of llm is worse: 50 % of its 40 requests failed" in plan.summary


def test_the_plan_names_the_version_that_a_breaker_holds_out() -> None:
    """What is out serves nothing, so that nothing tells any more that it fails."""
    lever = LeverRules(Lever.BREAKER, "breaker", "", limits=Limits(0.0, 1.0, 0.05))
    rules = FleetRules((PoolRules("llm", (), (lever,), ()),))
    pool = fleet(**OLD, v2_3=1.0)
    targets = {Target("llm", Lever.BREAKER, name): TargetState(1.0) for name in pool.replicas}
    snapshot = Snapshot(Tick(1, NOW, EVERY), {"llm": pool}, targets)
    for evidence, said in (({"slowness": 3.4}, ": its steps take 3.4 times as long"), ({}, "")):
        out = Proposal(Target("llm", Lever.BREAKER, "v2_3"), Ask.SET, 0.0, "breaker", Why.WORSE_VERSION, evidence)
        plan, _ = decide(snapshot, {}, rules, {"llm/breaker": Asks(out)}, DecideState())
        assert plan.summary.endswith(f"version v2 of llm is worse{said}")
