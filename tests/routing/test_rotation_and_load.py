"""Strategies that look at nothing, or at load: what each is good for, and what it does not see."""

from collections import Counter
from statistics import fmean

import pytest

from routing.model import Replica
from routing.strategies import make
from tests.support.loads import mixed_lengths, two_kinds
from tests.support.queues import Arrival, Plant, Served, ask, counts, fleet, quantile

SEEDS = (1, 2, 3)


def p99(served: list[Served]) -> float:
    return quantile((one.ttft for one in served), 0.99)


def waits(name: str, seed: int, **plant: float) -> float:
    """P99 of TTFT at 70 % of what 8 servers can do, with answers of which a tenth are 100 times as long."""
    return p99(Plant(make(name), fleet(8), **plant).run(mixed_lengths(4000, 20.0, seed)))  # type: ignore[arg-type]


def test_round_robin_is_fair_in_requests_to_the_last_one() -> None:
    strategy, replicas = make("round-robin"), fleet(5)
    picked = [strategy.pick(ask(number), replicas, 0.0).replica for number in range(50)]

    assert picked == [f"r{number % 5:02}" for number in range(50)]


def test_round_robin_spreads_weights_evenly_in_time() -> None:
    strategy = make("round-robin")
    replicas = [Replica("a", weight=1.0), Replica("b", weight=0.5), Replica("c", weight=0.25)]
    picked = [strategy.pick(ask(number), replicas, 0.0).replica for number in range(70)]

    assert Counter(picked) == {"a": 40, "b": 20, "c": 10}
    for start in range(0, 63, 7):
        assert Counter(picked[start : start + 7]) == {"a": 4, "b": 2, "c": 1}


@pytest.mark.parametrize("seed", SEEDS)
def test_round_robin_fails_when_lengths_differ_a_hundredfold(seed: int) -> None:
    """Every server gets the same number of requests, and some get three of the long ones at once."""
    turns, queue = waits("round-robin", seed), waits("least-queue", seed)

    assert turns > 5.0
    assert queue < turns / 8.0


@pytest.mark.parametrize("seed", SEEDS)
def test_two_draws_are_far_better_than_one_and_worse_than_looking_at_all(seed: int) -> None:
    one, two, all_ = waits("random", seed), waits("power-of-two", seed), waits("least-loaded", seed)

    assert two < 0.6 * one
    assert all_ < two


def test_random_is_as_likely_as_the_weight_and_the_same_again_with_its_seed() -> None:
    replicas = [Replica("a"), Replica("b", weight=0.5)]

    def picked(seed: int) -> list[str]:
        strategy = make("random", {"seed": seed})
        return [strategy.pick(ask(number), replicas, 0.0).replica for number in range(3000)]

    assert Counter(picked(1))["b"] == pytest.approx(1000, abs=80)
    assert picked(1) == picked(1)
    assert picked(1) != picked(2)


def test_least_loaded_does_not_see_that_one_request_is_as_much_as_twenty() -> None:
    """Two servers, one long request on the first, three short ones on the second: it sends to the long one."""
    replicas = [Replica("a", inflight=1, inflight_tokens=20_000.0), Replica("b", inflight=3, inflight_tokens=300.0)]

    assert make("least-loaded").pick(ask(1), replicas, 0.0).replica == "a"
    assert make("least-queue").pick(ask(1), replicas, 0.0).replica == "b"


def test_least_loaded_of_two_gateways_must_believe_the_engines() -> None:
    """The other gateway's requests are in no count of ours."""
    replicas = [Replica("a", inflight=0, running=30, waiting=5), Replica("b", inflight=2, running=4)]

    assert make("least-loaded").pick(ask(1), replicas, 0.0).replica == "a"
    assert make("least-loaded", {"reported": True}).pick(ask(1), replicas, 0.0).replica == "b"


@pytest.mark.parametrize("seed", SEEDS)
def test_least_queue_knows_no_more_than_what_is_expected_of_the_answers(seed: int) -> None:
    """When all ask for the same and few need it, tokens are only requests in disguise."""
    load = two_kinds(3000, 14.3, seed, prompt=1)
    truth = {arrival.request.id: float(arrival.output) for arrival in load}
    blind = Plant(make("least-queue"), fleet(16), slots=1).run(load)
    counting = Plant(make("least-loaded"), fleet(16), slots=1).run(load)
    seeing = Plant(make("least-queue"), fleet(16), slots=1, guess=lambda request: truth[request.id]).run(load)

    assert p99(blind) == pytest.approx(p99(counting), rel=0.2)
    assert p99(seeing) < 0.6 * p99(blind)


def test_a_token_of_prompt_is_not_a_token_of_answer() -> None:
    """Least-queue's other failure: it adds them up, and an answer's token takes fifty times as long here."""
    replicas = [Replica("a", inflight_tokens=2000.0), Replica("b", inflight_tokens=3000.0)]
    prices = {"prefill_cost": 2e-4, "decode_cost": 1e-2}
    queue, cost = make("least-queue"), make("cost", prices)
    for number, where, prompt, answer in ((1, 0, 100, 1900), (2, 1, 2990, 10)):
        request = ask(number, prompt, answer)
        cost.sent(request, cost.pick(request, [replicas[where]], 0.0), 0.0)

    assert queue.pick(ask(3), replicas, 0.0).replica == "a"  # 0.02 s of prefill and 19 s of decode
    assert cost.pick(ask(3), replicas, 0.0).replica == "b"


def test_ties_of_an_idle_fleet_do_not_all_go_to_the_first() -> None:
    for name in ("least-loaded", "least-queue", "kv-usage", "cost", "hybrid", "prefix-tree", "kv-events", "lora"):
        strategy, replicas = make(name), fleet(8)
        picked = Counter(strategy.pick(ask(number), replicas, 0.0).replica for number in range(80))
        assert len(picked) == 8, name
        assert max(picked.values()) <= 12, name


class TestKvUsage:
    """Memory as the load."""

    def test_the_emptiest_memory_gets_the_long_prompts(self) -> None:
        """Where memory is what runs out first, counting requests preempts."""
        preempted = {}
        for name in ("round-robin", "kv-usage"):
            plant = Plant(make(name), fleet(4, kv_tokens=4000), slots=8, report=0.5)
            plant.run(
                [Arrival(number * 0.13, ask(number, 3000 if number % 4 == 0 else 50, 50), 50) for number in range(800)]
            )
            preempted[name] = plant.preempted
        assert preempted["round-robin"] > 100
        assert preempted["kv-usage"] < 0.2 * preempted["round-robin"]

    def test_what_was_sent_since_the_report_counts(self) -> None:
        """Else all of a burst between two scrapes goes to the one that looked emptiest."""
        replicas = [
            Replica("a", kv_tokens=100_000, kv_usage=0.10, reported_at=0.0),
            Replica("b", kv_tokens=100_000, kv_usage=0.12, reported_at=0.0),
        ]
        strategy, picked = make("kv-usage"), []
        for number in range(40):
            request = ask(number, 1000)
            choice = strategy.pick(request, replicas, 1.0)
            strategy.sent(request, choice, 1.0)
            picked.append(choice.replica)
        assert Counter(picked) == {"a": 21, "b": 19}

    def test_it_is_blind_to_compute(self) -> None:
        """Short prompts, long answers, plenty of memory: usage says nothing, and it is worse than counting."""
        usage, count = waits("kv-usage", 1, report=5.0), waits("least-loaded", 1)

        assert usage > 3.0 * count

    def test_a_silent_replica_is_asked_last_and_a_silent_fleet_by_its_requests(self) -> None:
        silent = Replica("a", kv_tokens=1000, kv_usage=0.0, reported_at=0.0, inflight=3)
        telling = Replica("b", kv_tokens=100_000, kv_usage=0.8, reported_at=99.0, inflight=9)
        strategy = make("kv-usage")

        assert strategy.pick(ask(1), [silent, telling], 100.0).replica == "b"
        both = strategy.pick(ask(2), [silent, telling], 500.0)
        assert (both.replica, both.why) == ("a", "no fresh report: least loaded")

    def test_one_that_queues_is_full_whatever_its_usage_says(self) -> None:
        queueing = Replica("a", kv_tokens=100_000, kv_usage=0.2, waiting=4, reported_at=0.0)
        busy = Replica("b", kv_tokens=100_000, kv_usage=0.6, reported_at=0.0)

        assert make("kv-usage").pick(ask(1), [queueing, busy], 1.0).replica == "b"


def test_the_mean_over_seeds_ranks_them_as_theory_does() -> None:
    ranked = {name: fmean(waits(name, seed) for seed in SEEDS) for name in ("random", "round-robin", "power-of-two")}
    ranked["least-queue"] = fmean(waits("least-queue", seed) for seed in SEEDS)

    assert ranked["least-queue"] < ranked["power-of-two"] < min(ranked["random"], ranked["round-robin"])


def test_traffic_of_a_replica_that_joins_is_not_a_flood() -> None:
    """A newcomer with nothing in flight is the least loaded: it gets one after the other until it is level, which the
    host dampens by a small weight at first."""
    replicas = [Replica(f"r{number}", inflight=20) for number in range(3)]
    newcomer = Replica("new")
    flooded = [make("least-loaded").pick(ask(number), [*replicas, newcomer], 0.0).replica for number in range(5)]
    assert set(flooded) == {"new"}

    newcomer.weight = 0.1
    plant = Plant(make("least-loaded"), [*fleet(3), newcomer])
    served = plant.run(mixed_lengths(1000, 8.0, 1))
    assert counts(served, ())["new"] < 1000 / 4 * 0.3
