"""Two sides of one pool: nothing is counted twice, and whoever is silent has not said zero."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.core.facts import Fact
from controller.core.join import FIRST, join, owned, silence, told
from controller.core.meter import GatewaySpec, Meter, PoolSpec
from controller.core.model import PoolReadings
from controller.core.observation import Observation, PoolFacts, ReplicaFacts
from controller.core.reading import State
from controller.core.signals import Signal

STALE = 60.0
ENGINES = PoolFacts(
    counters={Fact.FINISHED: 20.0, Fact.ERRORS: 4.0, Fact.REJECTED: 3.0, Fact.GENERATION_TOKENS: 900.0},
    gauges={Fact.RUNNING: 8.0, Fact.WAITING: 2.0, Fact.KV_USAGE: 0.5},
    replicas={"a": ReplicaFacts(gauges={Fact.RUNNING: 8.0, Fact.WAITING: 2.0})},
)
GATEWAY = PoolFacts(
    counters={Fact.ARRIVED: 50.0, Fact.ERRORS: 1.0, Fact.REJECTED: 9.0},
    gauges={Fact.WAITING: 12.0, Fact.HELD: 10.0, Fact.RUNNING: 20.0},
    replicas={"g": ReplicaFacts(age=3.0)},
    unsupported={Fact.TIMEOUTS: "not told apart", Fact.TTFT: "not exposed"},
)


def joined(engines: PoolFacts = ENGINES, gateway: PoolFacts | None = GATEWAY) -> PoolFacts:
    own = owned(gateway, told(gateway) if gateway is not None else frozenset())
    return join(engines, gateway, own, STALE, tenants=True, classes=False)


def test_a_refused_request_is_counted_at_the_gateway_alone() -> None:
    facts = joined()
    assert facts.counters[Fact.ERRORS] == 1.0
    assert facts.counters[Fact.REJECTED] == 9.0
    # Whatever an engine counts as timed out is an error or nothing at the gateway.
    timed = replace(ENGINES, counters={**ENGINES.counters, Fact.TIMEOUTS: 5.0})
    assert Fact.TIMEOUTS not in joined(timed).counters
    assert Fact.TIMEOUTS in joined(timed).unsupported


def test_the_batch_is_the_engines_and_a_queue_is_the_sum_of_both() -> None:
    facts = joined()
    assert facts.gauges[Fact.RUNNING] == 8.0
    assert facts.gauges[Fact.WAITING] == 12.0
    assert facts.counters[Fact.GENERATION_TOKENS] == 900.0


def test_a_gateway_without_a_queue_of_its_own_adds_none() -> None:
    bare = replace(GATEWAY, gauges={}, unsupported={**GATEWAY.unsupported, Fact.HELD: "no flow control"})
    assert joined(gateway=bare).gauges[Fact.WAITING] == 2.0
    everything = replace(bare, gauges={Fact.WAITING: 15.0})
    assert joined(gateway=everything).gauges[Fact.WAITING] == 15.0


def test_what_the_gateway_cannot_tell_is_left_to_the_engines() -> None:
    assert Fact.TTFT not in joined().fronted
    assert Fact.ARRIVED in joined().fronted


@pytest.mark.parametrize(
    ("gateway", "why"),
    [
        (None, "not read"),
        (PoolFacts(), "no series of it was seen"),
        (PoolFacts(failed={Fact.ARRIVED: "no series matches"}), "no series matches"),
        (replace(GATEWAY, replicas={"g": ReplicaFacts(up=False)}), "scrape failed"),
        (replace(GATEWAY, replicas={"g": ReplicaFacts(age=90.0)}), "90 s old"),
        (PoolFacts(targets_up=0, targets_down=1), "scrape failed"),
    ],
)
def test_a_silent_gateway_has_said_nothing_and_its_facts_have_failed(gateway: PoolFacts | None, why: str) -> None:
    assert why in silence(gateway, STALE)
    facts = joined(gateway=gateway)
    assert {Fact.ARRIVED, Fact.REJECTED, Fact.ERRORS, Fact.HELD} <= facts.failed.keys()
    assert Fact.ARRIVED not in facts.counters
    assert why in facts.doubted[Fact.WAITING]
    assert facts.gauges[Fact.WAITING] == 2.0  # at least these wait


def test_one_of_two_gateways_is_a_part() -> None:
    halves = replace(GATEWAY, replicas={"g": ReplicaFacts(), "h": ReplicaFacts(up=False)}, targets_down=1)
    facts = joined(gateway=halves)
    assert "1 of the gateway's targets" in facts.doubted[Fact.ARRIVED]
    assert facts.counters[Fact.ARRIVED] == 50.0


def test_a_gateway_that_was_started_anew_has_not_forgotten_how_to_count() -> None:
    young = replace(GATEWAY, counters={}, unsupported={**GATEWAY.unsupported, Fact.ARRIVED: "not exposed"})
    assert Fact.ARRIVED in owned(young, frozenset({Fact.ARRIVED}))
    assert Fact.ARRIVED not in owned(young, frozenset())


SPEC = PoolSpec("p", 60.0, gateway=GatewaySpec("p@gateway"))
NUMBERS = st.floats(0.0, 500.0).map(lambda n: float(round(n)))
GATEWAYS = st.one_of(
    st.none(),
    st.builds(
        lambda up, age, came, held: PoolFacts(
            counters={Fact.ARRIVED: came, Fact.ERRORS: 0.0, Fact.REJECTED: 0.0} if up else {},
            gauges={Fact.HELD: held} if up else {},
            replicas={"g": ReplicaFacts(up=up, age=age)},
            targets_down=int(not up),
        ),
        st.booleans(), st.sampled_from([1.0, 30.0, 100.0]), NUMBERS, NUMBERS,
    ),
)  # fmt: skip


@given(st.lists(GATEWAYS, min_size=1, max_size=12))
def test_no_order_of_outages_makes_a_demand_that_is_trusted_and_too_small(gateways: list[PoolFacts | None]) -> None:
    meter, since, seen = Meter([SPEC]), None, PoolReadings()
    came: list[float | None] = []
    for number, gateway in enumerate(gateways):
        pools = {"p": ENGINES} | ({"p@gateway": gateway} if gateway is not None else {})
        seen = meter.update(Observation(15.0 * number, since, pools))["p"]
        since = 15.0 * number
        heard = not silence(gateway, STALE)
        came.append(gateway.counters[Fact.ARRIVED] if gateway is not None and heard and number else None)
        offered, depth = seen.get(Signal.OFFERED_RATE), seen.get(Signal.QUEUE_DEPTH)
        if not heard:
            assert not offered.trusted
            assert not depth.trusted
            assert seen.partial
        elif offered.trusted:
            window = came[-4:]
            assert None not in window
            assert offered.value == pytest.approx(sum(n or 0.0 for n in window) / 60.0)
        assert seen.get(Signal.FINISHED_RATE).state in (State.OK, State.UNDERFILLED, State.MISSING)


@given(st.sets(st.sampled_from(sorted(FIRST))), st.booleans())
def test_every_fact_has_one_owner(untold: set[Fact], up: bool) -> None:
    gateway = replace(
        GATEWAY, counters={}, unsupported=dict.fromkeys(untold, "no"), replicas={"g": ReplicaFacts(up=up)}
    )
    facts = joined(gateway=gateway)
    for fact in ENGINES.counters:
        assert (fact in facts.counters) == (fact not in facts.fronted)
