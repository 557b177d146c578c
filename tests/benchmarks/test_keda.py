"""KEDA's emulation reads null as 0, as KEDA does, and nothing else that KEDA does not."""

import pytest

from benchmarks.peers.behaviour import per_pod
from benchmarks.peers.keda import HIGHER, Keda, KedaRate
from controller.core.model import Proposal
from controller.core.ports import Limits, View
from controller.core.why import Why
from tests.support.peer_views import LIMITS, asked, view

CONFIG = Keda.Config(target=10.0, down_window=0.0)


@pytest.mark.parametrize(
    ("usage", "current", "replicas"),
    [
        (43.0, 4, 4),  # 43 / 40 = 1.075: within the tolerance
        (45.0, 4, 5),  # ceil(45 / 10)
        (36.5, 4, 4),  # 0.9125
        (35.0, 4, 4),  # ceil(3.5)
        (30.0, 4, 3),
        (0.0, 4, 0),
        (130.0, 12, 12),  # 13 would be wanted: one more of twelve is within the tolerance
    ],
)
def test_an_external_metric_is_shared_by_all_pods_that_exist(usage: float, current: float, replicas: float) -> None:
    assert per_pod(CONFIG, usage, 10.0, current) == replicas


def test_the_queue_of_the_gateway_is_in_the_sum() -> None:
    law = Keda(CONFIG)
    # 2 x (8 + 1) at the engines and 22 at the gateway: ceil(40 / 10).
    proposal, _ = asked(law, view(0.0, 2, [(8, 1)] * 2, gateway=22.0), law.initial())
    assert proposal.value == 4
    alone = Keda(Keda.Config(target=10.0, metric="queue"))
    proposal, _ = asked(alone, view(0.0, 2, [(8, 1)] * 2, gateway=28.0), alone.initial())
    assert proposal.value == 3  # 2 + 28 wait


def test_a_query_for_the_rate_counts_what_the_gateway_refuses() -> None:
    law = KedaRate(KedaRate.Config(target=0.8))
    proposal, _ = asked(law, view(0.0, 2, [(8, 0)] * 2, rates=(2.8, 1000.0, 100.0)), law.initial())
    assert proposal.value == 4  # ceil(2.8 / 0.8)


def test_replicas_on_their_way_are_not_asked_for_twice() -> None:
    law = Keda(CONFIG)
    proposal, state = asked(law, view(0.0, 2, [(20, 0)] * 2), law.initial())
    assert proposal.value == 4
    for at in (15.0, 30.0, 45.0):
        proposal, state = asked(law, view(at, 4, [(20, 0)] * 2), state)
        assert proposal.value == 4


def test_a_fleet_whose_targets_are_all_down_reads_as_idle_and_is_lowered() -> None:
    law = Keda(CONFIG)
    proposal, _ = asked(law, view(0.0, 8, [None] * 8), law.initial())
    assert proposal.value == 1
    careful = Keda(Keda.Config(target=10.0, down_window=0.0, ignore_null=False))
    proposal, _ = asked(careful, view(0.0, 8, [None] * 8), careful.initial())
    assert (proposal.value, proposal.why) == (8, Why.MISSING)


def test_a_prometheus_that_does_not_answer_is_an_error_and_after_some_the_fallback() -> None:
    def steps(law: Keda, current: float) -> list[float]:
        state, values = law.initial(), []
        for at in range(0, 90, 15):
            proposal, state = asked(law, silent(float(at), current), state)
            values.append(proposal.value)
        return values

    assert steps(Keda(CONFIG), 4) == [4] * 6
    fallback = Keda.Config(target=10.0, fallback=6)
    assert steps(Keda(fallback), 4) == [4, 4, 4, 6, 6, 6]  # more than three in a row
    higher = Keda.Config(target=10.0, fallback=6, fallback_behaviour=HIGHER)
    assert steps(Keda(higher), 9) == [9] * 6  # what stands is higher


def silent(at: float, accepted: float) -> View:
    return view(at, accepted, unreachable=True)


def test_the_last_replica_goes_after_the_cooldown_and_comes_back_with_the_next_poll() -> None:
    law, limits = Keda(CONFIG), Limits(0, 40)
    seen: dict[float, float] = {}
    current, state = 2.0, law.initial()
    for at in range(0, 450, 15):
        load = 5.0 if at < 30 or at >= 405 else 0.0
        replicas = [(load, 0.0)] * int(current)
        proposal, state = asked(law, view(float(at), current, replicas, gateway=load, limits=limits), state)
        current = seen[at] = proposal.value
    assert seen[30] == 1  # the HPA's floor
    assert seen[300] == 1
    assert seen[330] == 0  # the last activity was at the poll of 0 s; 330 is the first poll after more than 300 s
    assert seen[405] == 0
    assert seen[420] == 1  # the next poll


def test_the_hpa_looks_by_its_own_clock_and_at_the_cached_value_where_that_is_asked_for() -> None:
    law = Keda(CONFIG)
    proposal, state = asked(law, view(0.0, 2, [(10, 0)] * 2), law.initial())
    proposal, state = asked(law, view(5.0, 2, [(90, 0)] * 2), state)
    assert (proposal.value, proposal.why) == (2, Why.NOT_DUE)
    cached = Keda(Keda.Config(target=10.0, cached=True))
    value: Proposal
    value, state = asked(cached, view(0.0, 2, [(10, 0)] * 2), cached.initial())
    value, state = asked(cached, view(15.0, 2, [(20, 0)] * 2), state)
    assert value.value == 2
    value, state = asked(cached, view(30.0, 2, [(20, 0)] * 2), state)
    assert value.value == 4


def test_what_is_no_parameter_of_keda_is_refused() -> None:
    with pytest.raises(ValueError, match="metric: unknown"):
        Keda(Keda.Config(target=1.0, metric="p99"))
    with pytest.raises(ValueError, match="fallback_behaviour: unknown"):
        Keda(Keda.Config(target=1.0, fallback_behaviour="hope"))


def test_the_bounds_hold() -> None:
    law = Keda(Keda.Config(target=1.0, up_pods=100.0))
    proposal, _ = asked(law, view(0.0, 4, [(50, 0)] * 4), law.initial())
    assert proposal.value == LIMITS.max
