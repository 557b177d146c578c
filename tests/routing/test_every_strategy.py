"""What holds for every strategy of routing, whatever it is good at."""

import subprocess
import sys
from collections import Counter
from functools import cache
from random import Random

import pytest

from routing.model import Ability, Replica, Request
from routing.strategies import NAMES, make
from tests.support.queues import Arrival, Plant, Served, ask, chain, counts, fleet
from tests.support.repository import ROOT

PARAMETERS: dict[str, dict[str, float | str | bool]] = {"direct": {"otherwise": "least-loaded"}}


@cache
def load(count: int, rate: float, seed: int = 1, groups: int = 200) -> tuple[Arrival, ...]:
    """Some hundred conversations with prompts and sessions of their own, some adapters, answers of 10 to 200 tokens."""
    chance, arrivals, at = Random(seed), [], 0.0
    for number in range(count):
        at += chance.expovariate(rate)
        group = chance.randrange(groups)
        prefix = chain(0, group, *(number * 100 + place for place in range(chance.randrange(4))), 7)
        output = chance.randrange(10, 200)
        request = ask(
            number, chance.randrange(20, 400), output, prefix, session=f"s{group}", tenant=f"t{group % 9}",
            adapter=f"a{group % 24}", klass="chat",
        )  # fmt: skip
        arrivals.append(Arrival(at, request, output))
    return tuple(arrivals)


def made(name: str) -> Plant:
    return Plant(make(name, PARAMETERS.get(name)), fleet(8, kv_tokens=100_000), slots=8, events=True, report=1.0)


def work(served: list[Served]) -> Counter[str]:
    """Tokens of answers per server."""
    done = Counter[str]()
    for one in served:
        done[one.choice.replica] += one.arrival.output
    return done


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("count", [1, 2, 7, 64, 100])
def test_a_fleet_of_any_size_is_served(name: str, count: int) -> None:
    replicas = fleet(count, kv_tokens=100_000)
    strategy = make(name, PARAMETERS.get(name))
    names = {replica.name for replica in replicas}
    for arrival in load(50, 1.0):
        choice = strategy.pick(arrival.request, replicas, arrival.at)
        assert choice.replica in names
        assert choice.why
        assert 0 <= choice.hit_tokens <= arrival.request.prompt_tokens
        strategy.sent(arrival.request, choice, arrival.at)
    told = strategy.counters
    assert (told.decisions, told.refused) == (50, 0)
    assert told.prompt_tokens == sum(arrival.request.prompt_tokens for arrival in load(50, 1.0))
    assert 0.0 <= told.hit_rate <= 1.0


@pytest.mark.parametrize("name", NAMES)
def test_a_closed_replica_gets_nothing_new_however_good_its_cache(name: str) -> None:
    plant = made(name)
    arrivals = load(600, 30.0)
    closed = arrivals[300].at

    def close() -> None:
        plant.server("r03").replica.draining = True
        plant.server("r05").replica.weight = 0.0

    plant.at(closed, close)
    served = plant.run(arrivals)

    before = counts((one for one in served if one.arrival.at < closed), ["r03", "r05"])
    after = counts((one for one in served if one.arrival.at > closed), ["r03", "r05"])
    assert min(before["r03"], before["r05"]) > 5
    assert (after["r03"], after["r05"]) == (0, 0)
    assert len(served) == 600


@pytest.mark.parametrize("name", NAMES)
def test_nobody_to_send_to_is_said_not_raised(name: str) -> None:
    strategy = make(name, PARAMETERS.get(name))
    shut = [Replica("a", draining=True), Replica("b", weight=0.0)]

    assert strategy.pick(ask(1), [], 0.0).why == "no replica"
    choice = strategy.pick(ask(2), shut, 0.0)
    assert (choice.replica, choice.why) == ("", "every replica drains or has weight 0")
    assert strategy.counters.refused == 2


@pytest.mark.parametrize("name", NAMES)
def test_a_quarter_of_the_weight_is_a_quarter_of_the_normal_traffic(name: str) -> None:
    """A breaker that lets 25 % through must get 25 % through, by whatever the strategy goes. What is counted is work:
    those that know lengths may send more requests, if they are short."""
    arrivals = load(2000, 40.0, groups=1000)  # some strategies share out keys, so there must be many
    normal = work(made(name).run(arrivals))
    plant = made(name)
    plant.server("r03").replica.weight = 0.25
    less = work(plant.run(arrivals))

    assert 0.12 < less["r03"] / normal["r03"] < 0.4
    assert less.total() == normal.total()


@pytest.mark.parametrize("name", NAMES)
def test_a_breaker_that_probes_by_a_small_weight_learns_even_from_a_calm_fleet(name: str) -> None:
    """Load over weight alone gives nothing to a replica at 5 % while the others are nearly idle."""
    plant = made(name)
    plant.server("r03").replica.weight = 0.05
    probes = counts(plant.run(load(2000, 3.0, groups=1000)), ())["r03"]

    assert 2 <= probes <= 36  # its share is 14


@pytest.mark.parametrize("name", NAMES)
def test_all_at_a_quarter_is_as_all_at_one(name: str) -> None:
    plant = made(name)
    for number in range(8):
        plant.server(f"r{number:02}").replica.weight = 0.25
    reduced = [one.choice.replica for one in plant.run(load(500, 40.0))]

    assert reduced == [one.choice.replica for one in made(name).run(load(500, 40.0))]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "prefill-decode"])
def test_a_replica_that_cannot_answer_is_not_asked_to(name: str) -> None:
    replicas = [Replica(f"p{number}", Ability(role="prefill")) for number in range(3)]
    strategy = make(name, PARAMETERS.get(name))

    assert strategy.pick(ask(1), replicas, 0.0).why == "every replica that is open does prefill only"
    assert strategy.pick(ask(2), [*replicas, Replica("d", Ability(role="decode"))], 0.0).replica == "d"


@pytest.mark.parametrize("name", NAMES)
def test_hooks_out_of_order_break_nothing(name: str) -> None:
    """A replica dies, and its requests are told to end afterwards, twice; ends come of requests never seen."""
    replicas = fleet(3, kv_tokens=100_000)
    strategy = make(name, PARAMETERS.get(name))
    requests: list[tuple[Request, str]] = []
    for arrival in load(60, 1.0):
        choice = strategy.pick(arrival.request, replicas, arrival.at)
        strategy.sent(arrival.request, choice, arrival.at)
        requests.append((arrival.request, choice.replica))
    strategy.left("r01", 60.0)
    strategy.left("r01", 60.0)
    strategy.left("stranger", 60.0)
    for request, _ in requests * 2:
        strategy.first_token(request.id, 61.0)
        strategy.finished(request.id, 10, 61.0)
    strategy.finished(99999, None, 61.0)
    strategy.evicted("stranger", [1, 2], 61.0)
    strategy.joined(Replica("r01", kv_tokens=100_000), 62.0)
    strategy.stored("r01", chain(1, 2, 3), 62.0)
    strategy.evicted("r01", chain(1, 2, 3)[2:], 62.0)

    for arrival in load(60, 1.0, seed=2):
        assert strategy.pick(arrival.request, replicas, 70.0 + arrival.at).replica


@pytest.mark.parametrize("name", NAMES)
def test_tuning_forgets_nothing(name: str) -> None:
    one, other = made(name), made(name)
    arrivals = load(400, 40.0)
    other.at(arrivals[200].at, lambda: other.strategy.tune(PARAMETERS.get(name, {})))

    assert [row.choice for row in one.run(arrivals)] == [row.choice for row in other.run(arrivals)]


PICKS = """
from routing.strategies import NAMES
from tests.routing.test_every_strategy import load, made
print([[row.choice.replica for row in made(name).run(load(150, 40.0))] for name in NAMES])
"""


def test_the_same_picks_in_another_process_with_another_hash_seed() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", PICKS], cwd=ROOT, env={"PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
    assert len(said.pop()) > 1000
