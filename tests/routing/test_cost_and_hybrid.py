"""Cost-aware and hybrid: what knowing the work is worth, and how they fail safe when they do not know it."""

from collections.abc import Callable
from random import Random

import pytest

from routing.model import Replica
from routing.strategies import Strategy, make
from tests.support.loads import changed_kind, shared_prefixes, two_kinds
from tests.support.queues import DECODE, PREFILL, Arrival, Plant, Served, ask, chain, counts, fleet, hit_rate, quantile

PRICES: dict[str, float | str | bool] = {"prefill_cost": PREFILL, "decode_cost": DECODE}
SEEDS = (1, 2, 3)


def extra(strategy: Strategy) -> dict[str, int]:
    return dict(strategy.counters.extra)


def late(served: list[Served], share: float = 0.99) -> float:
    return quantile((one.ttft for one in served), share)


@pytest.mark.parametrize("seed", SEEDS)
def test_history_of_the_kinds_is_worth_a_third_of_the_waiting(seed: int) -> None:
    """All ask for 1000 tokens; a fifth need 400 and the rest 8, and their class tells. Counting cannot know."""
    load = two_kinds(3000, 14.3, seed)
    counting = Plant(make("least-loaded"), fleet(16), slots=1).run(load)
    pricing = Plant(make("cost", PRICES), fleet(16), slots=1).run(load)

    assert late(pricing, 0.9) < 0.67 * late(counting, 0.9)
    assert late(pricing) < 0.9 * late(counting)


@pytest.mark.parametrize("seed", SEEDS)
def test_wrong_estimates_are_worse_than_none_and_are_noticed(seed: int) -> None:
    """Chats become as long as reports. Believing that they are nearly free heaps them up; the fallback sees that the
    estimates are off and counts requests until history has caught up."""
    load = changed_kind(1700, 0.8 * 32 / 4.3, seed, after=1000)

    def after_the_change(name: str, parameters: dict[str, float | str | bool]) -> tuple[float, Strategy]:
        plant = Plant(make(name, parameters), fleet(8), slots=4)
        served = [one for one in plant.run(load) if 1000 <= one.arrival.request.id < 1500]
        return sum(one.ttft for one in served) / len(served), plant.strategy

    memory: dict[str, float | str | bool] = {"half_life": 2000.0}
    counting, _ = after_the_change("least-loaded", {})
    credulous, _ = after_the_change("cost", PRICES | memory | {"distrust": 1e9})
    cautious, strategy = after_the_change("cost", PRICES | memory)

    assert credulous > 3.0 * counting
    assert cautious < 0.5 * credulous
    assert extra(strategy)["estimates_distrusted"] == 2  # at the start, knowing nothing, and after the change


def test_trust_comes_back_when_history_has_caught_up() -> None:
    strategy, replicas = make("cost", PRICES), fleet(4)

    def serve(start: int, count: int, output: int) -> str:
        why = ""
        for number in range(start, start + count):
            request = ask(number, 100, 2000, klass="chat")
            choice = strategy.pick(request, replicas, float(number))
            strategy.sent(request, choice, float(number))
            strategy.finished(number, output, float(number))
            why = choice.why
        return why

    assert serve(0, 200, 20) == "lowest cost"
    assert serve(200, 40, 1500) == "shortest queue: estimates are not believed"
    assert serve(240, 500, 1500) == "lowest cost"


class TestMemory:
    """KV memory is a hard limit."""

    def load(self, seed: int = 1) -> list[Arrival]:
        """A third of the answers use up what they ask for; together more than the memory at times."""
        chance, at, arrivals = Random(seed), 0.0, []
        for number in range(1500):
            at += chance.expovariate(9.0)
            long = chance.random() < 0.3
            request = ask(number, 1200 if long else 100, 400 if long else 50, klass="long" if long else "short")
            arrivals.append(Arrival(at, request, request.max_tokens))
        return arrivals

    def test_what_does_not_fit_waits_at_the_gateway_instead_of_preempting(self) -> None:
        preempted = {}
        for name in ("least-loaded", "cost"):
            plant = Plant(make(name, PRICES if name == "cost" else {}), fleet(4, kv_tokens=6000), slots=16)
            served = plant.run(self.load())
            assert len(served) == 1500
            preempted[name] = plant.preempted
        assert preempted["least-loaded"] > 100
        assert preempted["cost"] == 0

    def test_the_limit_is_in_the_words_of_the_refusal(self) -> None:
        strategy = make("cost")
        replica = Replica("a", kv_tokens=1000)
        first = ask(1, 700, 200)
        strategy.sent(first, strategy.pick(first, [replica], 0.0), 0.0)
        refused = strategy.pick(ask(2, 300, 100), [replica], 0.0)

        assert (refused.replica, refused.why) == ("", "no replica has KV memory for 400 tokens now")
        assert extra(strategy)["memory_refused"] == 1
        strategy.finished(1, 150, 1.0)
        assert strategy.pick(ask(3, 300, 100), [replica], 1.0).replica == "a"

    def test_what_fits_nowhere_is_not_held_for_ever(self) -> None:
        strategy = make("cost")

        assert strategy.pick(ask(1, 5000, 100), [Replica("a", kv_tokens=1000)], 0.0).replica == "a"

    def test_a_prefix_in_common_is_in_memory_once(self) -> None:
        """Else a long system prompt fills the memory in the books and starves a fleet that has room."""
        strategy = make("cost", {"memory": 1.0})
        replica = Replica("a", kv_tokens=5000)
        for number in range(5):
            request = ask(number, 36, 100, chain(*range(32)))
            strategy.sent(request, strategy.pick(request, [replica], 0.0), 0.0)
        # 2048 shared, and five times 136.
        assert strategy.pick(ask(9, 2000, 200), [replica], 0.0).replica == "a"
        assert strategy.pick(ask(9, 2100, 200), [replica], 0.0).replica == ""
        for number in range(5):
            strategy.finished(number, 10, 1.0)
        assert strategy.pick(ask(10, 4700, 200), [replica], 2.0).replica == "a"

    def test_the_engine_s_own_word_counts_where_it_is_worse(self) -> None:
        """Another gateway sends there too."""
        strategy = make("cost")
        busy, free = Replica("a", kv_tokens=10_000, kv_usage=0.93), Replica("b", kv_tokens=10_000, inflight=9)
        for replica in (busy, free):
            request = ask(1 if replica is busy else 2, 10, 10)
            strategy.sent(request, strategy.pick(request, [replica], 0.0), 0.0)

        assert {strategy.pick(ask(n, 500, 100), [busy, free], 0.0).replica for n in range(3, 7)} == {"b"}


class TestHybrid:
    """Affinity narrows, cost picks, overload widens."""

    def run(self, hot: float, **parameters: float) -> tuple[Plant, list[Served]]:
        plant = Plant(make("hybrid", PRICES | parameters), fleet(8), slots=1, cache_blocks=640)
        return plant, plant.run(shared_prefixes(3000, 36.0, hot=hot))

    def test_it_hits_like_affinity_when_nothing_is_hot(self) -> None:
        _, served = self.run(0.0)

        assert hit_rate(served) > 0.93
        assert late(served) < 2.0

    def test_it_escapes_when_the_affine_set_is_overloaded(self) -> None:
        """Half of the load on one prefix: without the way out one server drowns, with it the prefix is computed a few
        times more and all carry it."""
        _, locked = self.run(0.5, overload=1e9)
        plant, served = self.run(0.5)

        assert late(locked) > 60.0
        assert late(served) < 2.0
        assert hit_rate(served) > 0.93
        assert max(counts(served, ()).values()) < 0.3 * len(served)
        assert 1 <= extra(plant.strategy)["widened"] < 50

    def test_its_failure_is_slack_in_the_wrong_currency(self) -> None:
        """Prices ten times too low make every queue look short: it hardly widens, and the tail is back."""
        plant = Plant(make("hybrid", {"prefill_cost": PREFILL / 10, "decode_cost": DECODE / 100}), fleet(8), slots=1)
        served = plant.run(shared_prefixes(3000, 36.0, hot=0.5))
        _, priced = self.run(0.5)

        assert late(served) > 5.0 * late(priced)

    def test_within_the_set_the_cheaper_one_is_picked(self) -> None:
        strategy, replicas = make("hybrid", PRICES), fleet(4)
        for number, replica in enumerate(replicas[:2]):
            request = ask(number, 64, 10, chain(*range(20)))
            strategy.sent(request, strategy.pick(request, [replica], 0.0), 0.0)
        strategy.finished(1, 10, 1.0)
        choice = strategy.pick(ask(5, 64, 10, chain(*range(20))), replicas, 2.0)

        assert (choice.replica, choice.why) == ("r01", "affine set, lowest cost")
        assert choice.hit_tokens == 1280

    def test_a_set_without_memory_is_left(self) -> None:
        strategy = make("hybrid", {"slack": 100.0})
        replicas = [Replica("a", kv_tokens=2000), Replica("b", kv_tokens=2000)]
        first = ask(1, 64, 400, chain(*range(20)))
        strategy.sent(first, strategy.pick(first, [replicas[0]], 0.0), 0.0)
        choice = strategy.pick(ask(2, 500, 400, chain(*range(20))), replicas, 0.0)

        assert (choice.replica, choice.why) == ("b", "affine set has no memory: lowest cost")


@pytest.mark.parametrize("name", ["cost", "hybrid"])
def test_tuning_prices_reprices_what_is_open(name: str) -> None:
    """A live change must not judge old work by old prices for as long as it is open."""
    strategy, replicas = make(name, {"prefill_cost": 1.0, "decode_cost": 0.0}), fleet(2)
    for where, prompt, answer in ((0, 1000, 1), (1, 10, 2000)):
        request = ask(where, prompt, answer)
        strategy.sent(request, strategy.pick(request, [replicas[where]], 0.0), 0.0)

    picked: Callable[[int], str] = lambda number: strategy.pick(ask(number), replicas, 0.0).replica  # noqa: E731
    assert picked(3) == "r01"
    strategy.tune({"prefill_cost": 0.0, "decode_cost": 1.0})
    assert picked(4) == "r00"
    with pytest.raises(ValueError, match=r"^prefill_cost: -1.0 is out of bounds; write a number of seconds >= 0$"):
        strategy.tune({"prefill_cost": -1.0})
    assert picked(5) == "r00"
