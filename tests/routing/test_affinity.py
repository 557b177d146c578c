"""Affinity against load: one set-point, 1 as configured, 0 load alone, for each strategy that keeps things together."""

import pytest

from routing.gateway import Gateway
from routing.knobs import Knobs
from routing.model import Replica, Request
from routing.strategies import NAMES, STRATEGIES, make
from routing.strategies.hybrid import Hybrid
from routing.strategies.strategy import CROWDED
from tests.support.loads import shared_prefixes
from tests.support.queues import DECODE, PREFILL, Plant, Served, ask, chain, fleet, hit_rate, quantile

LEANING = [name for name in NAMES if STRATEGIES[name].leans]
BY_COUNT = [name for name in LEANING if name not in ("cost", "hybrid")]  # the two count work
HOME = ["consistent-hash", "session", "prefix-affinity"]  # whatever its load, as they come
PRICES = {"prefill_cost": PREFILL, "decode_cost": DECODE}
PARAMETERS: dict[str, dict[str, float | str | bool]] = {
    "consistent-hash": {"by": "prefix"}, "cost": {**PRICES}, "hybrid": {**PRICES},
}  # fmt: skip


def run(name: str, affinity: float, hot: float = 0.0, count: int = 700) -> list[Served]:
    strategy = make(name, PARAMETERS.get(name))
    strategy.lean(affinity)
    plant = Plant(strategy, fleet(8), slots=1, cache_blocks=640, events=True, report=1.0)
    return plant.run(shared_prefixes(count, 36.0, 1, hot=hot))


def late(served: list[Served]) -> float:
    return quantile((one.ttft for one in served), 0.99)


def test_which_strategies_have_one() -> None:
    assert LEANING == [
        "consistent-hash", "bounded-load", "session", "prefix-affinity", "prefix-tree", "kv-events", "cost", "hybrid",
    ]  # fmt: skip


@pytest.mark.parametrize("name", LEANING)
def test_a_set_point_that_came_back_leaves_a_trace(name: str) -> None:
    """1 is the strategy as it is configured, choice for choice, also after it was lower for a while."""
    plain, back = make(name, PARAMETERS.get(name)), make(name, PARAMETERS.get(name))
    back.lean(0.3)
    back.lean(1.0)
    picks = []
    for strategy in (plain, back):
        plant = Plant(strategy, fleet(8), slots=1, cache_blocks=640, events=True, report=1.0)
        picks.append([one.choice for one in plant.run(shared_prefixes(300, 36.0, 2, hot=0.5))])
    assert picks[0] == picks[1]


@pytest.mark.parametrize("name", BY_COUNT)
def test_at_zero_somebody_idles_while_a_home_has_a_queue(name: str) -> None:
    strategy, replicas = make(name, PARAMETERS.get(name)), fleet(4)
    for one in replicas:
        strategy.joined(one, 0.0)
    strategy.lean(0.0)
    for number in range(41):
        request = ask(number, prefix=chain(1, 2, 3, 4), session="s", tenant="t")
        choice = strategy.pick(request, replicas, float(number))
        strategy.sent(request, choice, float(number))
        next(one for one in replicas if one.name == choice.replica).inflight += 1
        counts = [one.inflight for one in replicas]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("name", HOME)
@pytest.mark.parametrize(("affinity", "times"), [(0.5, 2), (0.75, 4), (0.9, 10)])
def test_a_home_that_takes_more_than_its_affinity_says(name: str, affinity: float, times: int) -> None:
    """1 / (1 - affinity) times what the least loaded would have, and no request more."""
    strategy, replicas = make(name, PARAMETERS.get(name)), fleet(4)
    for one in replicas:
        strategy.joined(one, 0.0)
        one.inflight = 2
    request = ask(1, prefix=chain(1, 2, 3, 4), session="s")
    first = strategy.pick(request, replicas, 0.0)
    strategy.sent(request, first, 0.0)
    home = next(one for one in replicas if one.name == first.replica)
    strategy.lean(affinity)

    home.inflight = 3 * times - 1
    assert strategy.pick(request, replicas, 1.0).replica == home.name
    home.inflight = 3 * times
    moved = strategy.pick(request, replicas, 1.0)
    assert moved.replica != home.name
    assert CROWDED in moved.why


@pytest.mark.parametrize("name", HOME)
def test_half_of_all_requests_have_one_prefix_and_wait_for_its_home(name: str) -> None:
    """A hot prefix queues at one replica of eight. A little less affinity serves it, for a few points of hits."""
    full, less = run(name, 1.0, hot=0.5), run(name, 0.75, hot=0.5)

    assert late(full) > 10.0
    assert late(less) < 0.2 * late(full)
    assert hit_rate(less) > hit_rate(full) - 0.06


@pytest.mark.parametrize("name", LEANING)
def test_affinity_given_up_where_load_is_even_costs_the_cache(name: str) -> None:
    full, none = run(name, 1.0), run(name, 0.0)

    assert hit_rate(full) > hit_rate(none) + 0.15
    assert late(full) < late(none)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in LEANING])
def test_a_strategy_without_affinity_takes_the_set_point_and_does_nothing(name: str) -> None:
    """It would read back as set, and the law behind it would wait for an effect that never comes."""
    strategy = make(name)
    strategy.lean(1.0)
    with pytest.raises(ValueError, match=r"affinity: .* write 1"):
        strategy.lean(0.5)
    with pytest.raises(ValueError, match=f"affinity: {name} has none that could be lowered; write 1"):
        Gateway(Knobs(strategy=name, affinity=0.5), make("session"))


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_an_affinity_that_cannot_be(value: float) -> None:
    with pytest.raises(ValueError, match="affinity: is"):
        make("session").lean(value)
    with pytest.raises(ValueError, match="affinity: is"):
        Knobs(affinity=value)


def test_a_gateway_is_told_while_requests_flow_and_loses_none() -> None:
    gateway = Gateway(Knobs(), make("session"))
    for name in ("a", "b"):
        gateway.joined(Replica(name), 0.0)
    for number in range(6):
        gateway.arrive(Request(number, 10, 10, session="s"), 0.0)
    assert sorted(one.inflight for one in gateway.replicas.values()) == [0, 6]

    gateway.tune(Knobs(affinity=0.5), 1.0)
    for number in range(6, 12):
        gateway.arrive(Request(number, 10, 10, session="s"), 1.0)
    counts = sorted(one.inflight for one in gateway.replicas.values())
    assert sum(counts) == 12
    assert counts[0] >= 4

    with pytest.raises(ValueError, match="affinity: round-robin has none"):
        gateway.tune(Knobs(affinity=0.5, strategy="round-robin"), 2.0)
    assert gateway.knobs.affinity == 0.5  # what could not be has changed nothing
    gateway.tune(Knobs(affinity=1.0, strategy="round-robin"), 2.0)
    gateway.tune(Knobs(affinity=0.5, strategy="hybrid"), 3.0)
    assert isinstance(gateway.strategy, Hybrid)
    assert gateway.strategy.affinity == 0.5  # a strategy that comes later has it too
