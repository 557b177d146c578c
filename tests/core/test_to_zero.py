"""To zero and never back: a pool that nothing can wake keeps one replica, and says why."""

from dataclasses import replace

import pytest

from controller.core.decide import DecideState, decide
from controller.core.facts import Fact
from controller.core.meter import GatewaySpec, Meter, PoolSpec
from controller.core.model import Decision, Lever, Mode, Snapshot, Target, TargetState, Tick
from controller.core.observation import Observation, PoolFacts
from controller.core.ports import Limits
from controller.core.reading import ok
from controller.core.rules import FleetRules, LeverRules, PoolRules
from controller.core.why import Why
from tests.core.test_ladder import Asks
from tests.support.cases import NOW, estimate, healthy

TARGET = Target("big", Lever.REPLICAS)
RULES = LeverRules(Lever.REPLICAS, "asks", "none", limits=Limits(0.0, 8.0), stabilise=0.0)


def decided(
    have: float, *, unwoken: bool = False, unheard: bool = False, mode: Mode = Mode.AUTO, offered: float = 0.0
) -> Decision:
    """What becomes of a pool without load whose law wants none, by a lever that may go to zero."""
    lever = replace(RULES, unwoken=unwoken, mode=mode)
    rules = FleetRules((PoolRules("big", (), (lever,), (TARGET,)),))
    quiet = healthy(offered_rate=ok(offered), running=ok(0.0), kv_usage=ok(0.0))
    readings = replace(quiet, filled_since=NOW - 9e5, unheard=unheard)
    snapshot = Snapshot(Tick(9, NOW, 15.0), {"big": readings}, {TARGET: TargetState(have, have)})
    idle = estimate(0.0, offered=0.0, forecast=0.0, evidence={"serving": have})
    plan, _ = decide(snapshot, {"big": idle}, rules, {"big/replicas": Asks(0.0)}, DecideState())
    return plan.decisions[0]


def test_a_pool_that_a_gateway_wakes_may_go_to_zero_and_stay_there() -> None:
    assert decided(1.0).final == 0.0
    assert decided(0.0).final == 0.0


@pytest.mark.parametrize("unwoken", [True, False])
@pytest.mark.parametrize("have", [0.0, 1.0])
def test_a_pool_that_nothing_can_wake_is_kept_at_one_and_says_so(unwoken: bool, have: float) -> None:
    """72.7 % of a morning was rejected: the pool had gone to zero at night, and nobody told it of the requests."""
    made = decided(have, unwoken=unwoken, unheard=not unwoken)

    assert (made.final, made.why) == (1.0, Why.NOTHING_WAKES)
    assert made.send is (have == 0.0)


def test_a_pool_at_zero_is_brought_back_in_protect_too() -> None:
    made = decided(0.0, unwoken=True, mode=Mode.PROTECT)

    assert (made.final, made.send) == (1.0, True)


def test_who_asks_less_than_a_threshold_is_not_refused_for_good() -> None:
    """A law that wakes at two requests a second leaves a customer with one a minute without any."""
    made = decided(0.0, offered=0.02)

    assert (made.final, made.why, made.send) == (1.0, Why.DEMAND, True)
    assert decided(1.0, offered=0.02).final == 1.0


def test_a_gateway_that_does_not_answer_for_a_moment_wakes_nobody() -> None:
    """Else one blind scrape would start a replica of every model that sleeps."""
    meter = Meter([PoolSpec("big", 60.0, gateway=GatewaySpec("big@gateway"))])
    asleep = PoolFacts()
    meter.update(Observation(NOW, None, {"big": asleep, "big@gateway": PoolFacts(counters={Fact.ARRIVED: 0.0})}))

    silent = meter.update(Observation(NOW + 15, NOW, {"big": asleep}))["big"]

    assert not silent.unheard


def test_a_gateway_whose_version_counts_nobody_who_comes_is_no_ear() -> None:
    deaf = PoolFacts(
        counters={Fact.FINISHED: 0.0}, unsupported={Fact.ARRIVED: "counted at the end", Fact.HELD: "holds nobody"}
    )  # fmt: skip
    meter = Meter([PoolSpec("big", 60.0, gateway=GatewaySpec("big@gateway"))])

    assert meter.update(Observation(NOW, None, {"big": PoolFacts(), "big@gateway": deaf}))["big"].unheard
