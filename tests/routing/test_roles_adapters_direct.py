"""Prefill/decode aware, LoRA aware, direct."""

from collections import Counter
from random import Random

import pytest

from routing.model import Ability, Replica
from routing.strategies import Strategy, make
from tests.support.queues import ask, chain


def extra(strategy: Strategy) -> dict[str, int]:
    return dict(strategy.counters.extra)


def split(decode: int = 2, prefill: int = 2, zones: int = 1) -> list[Replica]:
    return [
        Replica(f"{role[0]}{number}", Ability(role=role, zone=f"z{number % zones}"))
        for role, count in (("decode", decode), ("prefill", prefill))
        for number in range(count)
    ]


class TestPrefillDecode:
    """Where the prompt is computed."""

    def test_a_short_prompt_is_computed_where_it_is_answered(self) -> None:
        choice = make("prefill-decode").pick(ask(1, 200), split(), 0.0)

        assert (choice.replica[0], choice.prefill, choice.why) == ("d", "", "local: little to prefill")

    def test_a_long_prompt_goes_elsewhere_once_it_would_hold_up_many(self) -> None:
        """The point: idle, local saves the moving; with 60 answers running there, a prefill of 8000 tokens stops all
        of them for 160 ms each."""
        strategy, replicas = make("prefill-decode"), split()
        assert strategy.pick(ask(1, 8000), replicas, 0.0).prefill == ""
        for one in replicas[:2]:
            one.inflight = 60
        choice = strategy.pick(ask(2, 8000), replicas, 0.0)

        assert (choice.replica[0], choice.prefill[0], choice.why) == ("d", "p", "remote: same zone")

    def test_the_prefills_ahead_are_spread(self) -> None:
        strategy, replicas = make("prefill-decode"), split(prefill=4)
        for one in replicas[:2]:
            one.inflight = 60
        picked = []
        for number in range(8):
            request = ask(number, 8000)
            choice = strategy.pick(request, replicas, 0.0)
            strategy.sent(request, choice, 0.0)
            picked.append(choice.prefill)
        assert set(Counter(picked).values()) == {2}
        for number in range(8):
            strategy.first_token(number, 1.0)
        assert extra(strategy)["remote"] == 8

    def test_the_same_zone_comes_first_until_it_is_busier_than_moving_is_dear(self) -> None:
        strategy = make("prefill-decode")
        replicas = split(decode=1, prefill=2, zones=2)
        replicas[0].inflight = 200
        picked = []
        for number in range(6):
            request = ask(number, 8000)
            choice = strategy.pick(request, replicas, 0.0)
            strategy.sent(request, choice, 0.0)
            picked.append((choice.prefill, choice.why))
        # 8000 tokens are 1 GB: 47 ms within the zone, 424 ms beyond; each prefill ahead is 160 ms.
        assert picked[:3] == [("p0", "remote: same zone")] * 3
        assert ("p1", "remote: from another zone") in picked[3:]

    def test_the_request_s_zone_is_preferred_for_the_answer(self) -> None:
        strategy, replicas = make("prefill-decode", {"local_below": 0}), split(decode=4, prefill=0, zones=2)
        assert {strategy.pick(ask(n, 500, zone="z1"), replicas, 0.0).replica for n in range(6)} <= {"d1", "d3"}
        for one in replicas:
            one.inflight = 40 if one.ability.zone == "z1" else 0
        assert strategy.pick(ask(9, 500, zone="z1"), replicas, 0.0).replica in {"d0", "d2"}

    def test_what_is_cached_need_be_neither_computed_nor_moved(self) -> None:
        strategy, replicas = make("prefill-decode"), split()
        for one in replicas[:2]:
            one.inflight = 60
        prefix = chain(*range(120))
        first = ask(1, 64, prefix=prefix)
        choice = strategy.pick(first, replicas, 0.0)
        strategy.sent(first, choice, 0.0)
        second = strategy.pick(ask(2, 64, prefix=prefix), replicas, 1.0)

        assert choice.prefill
        assert (second.replica, second.prefill, second.hit_tokens) == (choice.replica, "", 120 * 64)

    def test_its_failure_is_a_network_slower_than_it_believes(self) -> None:
        """It goes by its prices: told the truth, it computes locally what would take 4 s to move."""
        for bandwidth, remote in ((25e9, True), (0.25e9, False)):
            replicas = split()
            for one in replicas[:2]:
                one.inflight = 60
            strategy = make("prefill-decode", {"bandwidth_zone": bandwidth})
            assert bool(strategy.pick(ask(1, 8000), replicas, 0.0).prefill) is remote

    def test_roles_that_are_missing_are_named(self) -> None:
        only_prefill = split(decode=0)
        only_decode = split(prefill=0)
        strict = {"decode_prefills": False}

        assert make("prefill-decode").pick(ask(1), only_prefill, 0.0).why == "no replica decodes"
        assert make("prefill-decode", strict).pick(ask(1), only_decode, 0.0).why == "no replica does prefill"
        assert make("prefill-decode").pick(ask(1, 9000), only_decode, 0.0).why == "local: no prefill replica"
        assert make("prefill-decode", strict).pick(ask(1, 10), split(), 0.0).prefill


class TestLora:
    """Where the adapter is."""

    def serve(self, name: str, adapters: int, seed: int = 1) -> tuple[int, int]:
        """Loads of adapters over 2000 requests on 8 replicas of 4 slots each, and the busiest one's requests; a request
        stays for as long as it takes 40 others to come."""
        chance = Random(seed)
        strategy = make(name, {"slots": 4} if name == "lora" else {})
        replicas = {f"r{number}": Replica(f"r{number}") for number in range(8)}
        loaded: dict[str, list[str]] = {name: [] for name in replicas}
        open_: list[tuple[int, str]] = []
        loads, served = 0, Counter[str]()
        for number in range(2000):
            adapter = f"a{int(adapters * chance.random() ** 2)}"  # some are asked for more than others
            request = ask(number, adapter=adapter)
            choice = strategy.pick(request, list(replicas.values()), float(number))
            strategy.sent(request, choice, float(number))
            mine = loaded[choice.replica]
            if adapter in mine:
                mine.remove(adapter)
            else:
                loads += 1
            mine.append(adapter)
            del mine[:-4]
            replicas[choice.replica].inflight += 1
            served[choice.replica] += 1
            open_.append((number, choice.replica))
            if len(open_) > 40:
                ended, where = open_.pop(0)
                replicas[where].inflight -= 1
                strategy.finished(ended, 10, float(number))
        return loads, max(served.values())

    def test_adapters_stay_where_they_are(self) -> None:
        blind, _ = self.serve("least-loaded", 20)
        aware, busiest = self.serve("lora", 20)

        assert blind > 1000
        assert aware < 0.1 * blind
        assert busiest < 2.0 * 2000 / 8

    def test_its_failure_is_more_adapters_than_slots(self) -> None:
        """Eighty adapters for thirty-two slots: each load throws out what the next one needs."""
        few, _ = self.serve("lora", 20)
        many, _ = self.serve("lora", 80)

        assert many > 4 * few

    def test_a_hot_adapter_is_loaded_a_second_time(self) -> None:
        strategy = make("lora", {"overload": 1.5, "slack": 4})
        replicas = [Replica("a", adapters=frozenset({"hot"})), Replica("b"), Replica("c")]
        picked = []
        for number in range(30):
            request = ask(number, adapter="hot")
            choice = strategy.pick(request, replicas, float(number))
            strategy.sent(request, choice, float(number))
            next(one for one in replicas if one.name == choice.replica).inflight += 1
            picked.append(choice.replica)
        assert picked[:6] == ["a"] * 6
        assert set(picked) >= {"a", "b"} or set(picked) >= {"a", "c"}
        assert picked.count("a") < 20

    def test_a_free_slot_goes_before_a_short_queue(self) -> None:
        full = Replica("a", adapters=frozenset({"1", "2", "3", "4"}))
        roomy = Replica("b", adapters=frozenset({"1"}), inflight=3)

        assert make("lora").pick(ask(1, adapter="new"), [full, roomy], 0.0).replica == "b"

    def test_what_was_sent_counts_as_loaded_until_the_engine_says_otherwise(self) -> None:
        strategy, replicas = make("lora"), [Replica("a"), Replica("b")]
        request = ask(1, adapter="x")
        home = strategy.pick(request, replicas, 0.0).replica
        strategy.sent(request, strategy.pick(request, [next(r for r in replicas if r.name == home)], 0.0), 0.0)
        assert strategy.pick(ask(2, adapter="x"), replicas, 1.0).why == "adapter loaded"

        for one in replicas:
            one.reported_at = 5.0  # and it is not among the adapters
        assert strategy.pick(ask(3, adapter="x"), replicas, 6.0).why == "adapter loaded nowhere"


class TestDirect:
    """As told."""

    def test_the_named_one_or_the_parameter_s(self) -> None:
        replicas = [Replica("a"), Replica("b", inflight=90), Replica("c")]
        strategy = make("direct", {"replica": "c"})

        assert strategy.pick(ask(1, replica="b"), replicas, 0.0).replica == "b"
        assert strategy.pick(ask(2), replicas, 0.0).replica == "c"

    @pytest.mark.parametrize("shut", ["gone", "drains"])
    def test_its_failure_is_that_it_knows_no_other_way(self, shut: str) -> None:
        replicas = [Replica("a"), *([Replica("b", draining=True)] if shut == "drains" else [])]
        refused = make("direct").pick(ask(1, replica="b"), replicas, 0.0)
        assert (refused.replica, refused.why) == ("", "replica 'b' is not among those that can take it")

        helped = make("direct", {"otherwise": "least-loaded"}).pick(ask(1, replica="b"), replicas, 0.0)
        assert helped.replica == "a"
        assert make("direct").pick(ask(1), replicas, 0.0).why == "no replica is named"
