"""Affinity to prefixes: the explicit map, the approximate tree, and the precise one from KV events."""

from collections import Counter

import pytest

from routing.model import Ability, Replica
from routing.strategies import Strategy, make
from tests.support.loads import shared_prefixes
from tests.support.queues import Plant, Served, ask, chain, counts, fleet, hit_rate, quantile


def extra(strategy: Strategy) -> dict[str, int]:
    return dict(strategy.counters.extra)


def p99(served: list[Served]) -> float:
    return quantile((one.ttft for one in served), 0.99)


def plant(name: str, parameters: dict[str, float | str | bool] | None = None, count: int = 8) -> Plant:
    return Plant(make(name, parameters), fleet(count), slots=1, cache_blocks=640, events=True)


AFFINE = ("prefix-affinity", "prefix-tree", "kv-events")


@pytest.mark.parametrize("name", AFFINE)
def test_affinity_doubles_the_hit_rate_and_so_carries_what_drowns_the_others(name: str) -> None:
    """Forty prefixes, room for twenty in each cache: blind routing makes each server see all forty."""
    load = shared_prefixes(3000, 36.0)
    blind, affine = plant("least-loaded").run(load), plant(name).run(load)

    assert hit_rate(blind) < 0.55
    assert hit_rate(affine) > 0.93
    assert p99(affine) < 2.0
    assert p99(blind) > 20.0


def test_the_hot_spot_of_prefix_affinity() -> None:
    """Half of the requests share one prefix, and its home serves them all, while seven servers have time."""
    load = shared_prefixes(3000, 36.0, hot=0.5)
    affine = plant("prefix-affinity").run(load)
    busiest = max(counts(affine, ()).values())

    assert hit_rate(affine) > 0.93
    assert busiest > 0.45 * len(load)
    assert p99(affine) > 60.0


def test_balance_thresholds_are_the_way_out_of_a_hot_spot() -> None:
    load = shared_prefixes(3000, 36.0, hot=0.5)
    loose = plant("prefix-tree", {"balance_abs": 1e9}).run(load)
    tight = plant("prefix-tree", {"balance_abs": 8.0}).run(load)

    assert p99(loose) > 60.0
    assert p99(tight) < 3.0
    assert hit_rate(tight) > 0.93  # a second copy of a hot prefix is one cold prefill


def test_thresholds_for_a_large_fleet_never_bite_in_a_small_one() -> None:
    """Its failure: 64 requests of difference are a queue of minutes where a server takes one at a time."""
    load = shared_prefixes(3000, 36.0, hot=0.5)

    assert p99(plant("prefix-tree").run(load)) > 1.9 * p99(plant("prefix-tree", {"balance_abs": 8.0}).run(load))


def test_a_weight_for_the_cache_above_that_of_the_queue_collapses() -> None:
    """The worst queue can never outweigh a full match."""
    load = shared_prefixes(3000, 36.0, hot=0.5)
    even, heavy = plant("kv-events").run(load), plant("kv-events", {"prefix_weight": 2.0}).run(load)

    assert p99(even) < 2.0
    assert p99(heavy) > 60.0


class TestMap:
    """The explicit map follows the fleet."""

    def warm(self, strategy: Strategy, replicas: list[Replica], keys: int = 80) -> dict[int, str]:
        homes = {}
        for key in range(keys):
            request = ask(key, prefix=chain(key))
            choice = strategy.pick(request, replicas, 0.0)
            strategy.sent(request, choice, 0.0)
            homes[key] = choice.replica
        return homes

    def homes(self, strategy: Strategy, replicas: list[Replica], keys: int = 80) -> dict[int, str]:
        return {key: strategy.pick(ask(key, prefix=chain(key)), replicas, 1.0).replica for key in range(keys)}

    def test_scale_down_migrates_the_keys_evenly_and_at_once_and_hits_dip_once(self) -> None:
        stand = plant("prefix-affinity")
        load = shared_prefixes(4000, 30.0)
        leaving = load[2000].at
        keys_of_the_leaver = 0

        def leave() -> None:
            nonlocal keys_of_the_leaver
            before = extra(stand.strategy)["keys_migrated"]
            stand.leave("r02")
            keys_of_the_leaver = extra(stand.strategy)["keys_migrated"] - before

        stand.at(leaving, leave)
        served = stand.run(load)

        def hits(start: int, end: int) -> float:
            return hit_rate(one for one in served if start <= one.arrival.request.id < end)

        assert keys_of_the_leaver in {4, 5, 6}  # of 39 keys on 8 servers
        assert extra(stand.strategy)["keys_migrated"] == keys_of_the_leaver  # nothing else moved
        assert hits(1500, 2000) > 0.96
        assert hits(2000, 2050) < hits(1500, 2000) - 0.04  # each moved key is computed once more
        assert hits(2200, 4000) > 0.96
        heirs = {one.choice.replica for one in served if one.arrival.at > leaving and one.cached == 0}
        assert len(heirs) >= 3  # not all to one
        believed = [one for one in served if one.arrival.at > leaving and one.choice.hit_tokens]
        assert all(one.cached for one in believed)  # a moved key is not claimed to be warm

    def test_what_one_leaves_behind_is_spread_over_all_that_remain(self) -> None:
        strategy, replicas = make("prefix-affinity"), fleet(8)
        before = self.warm(strategy, replicas)
        strategy.left("r02", 1.0)
        after = self.homes(strategy, [one for one in replicas if one.name != "r02"])

        assert all(after[key] == home for key, home in before.items() if home != "r02")
        assert max(Counter(after.values()).values()) - min(Counter(after.values()).values()) <= 1

    def test_a_newcomer_is_given_its_share_and_no_more(self) -> None:
        strategy, replicas = make("prefix-affinity"), fleet(8)
        for one in replicas[:7]:
            strategy.joined(one, 0.0)
        before = self.warm(strategy, replicas[:7], 84)
        strategy.joined(replicas[7], 1.0)
        after = self.homes(strategy, replicas, 84)

        gained = [key for key, home in after.items() if home == "r07"]
        assert 7 <= len(gained) <= 14  # 84 / 8 = 10.5, rounded for each giver
        assert all(after[key] == before[key] for key in after if key not in gained)
        assert len({before[key] for key in gained}) == 7

    def test_a_newcomer_that_is_to_get_nothing_gets_nothing(self) -> None:
        strategy, replicas = make("prefix-affinity", {"migrate": 0.0}), fleet(8)
        before = self.warm(strategy, replicas[:7])
        strategy.joined(replicas[7], 1.0)

        assert self.homes(strategy, replicas) == before

    def test_a_restart_voids_what_was_believed_to_be_cached(self) -> None:
        strategy, replicas = make("prefix-affinity", {"migrate": 0.0}), fleet(2)
        homes = self.warm(strategy, replicas, 10)
        strategy.joined(replicas[0], 1.0)
        told = strategy.pick(ask(1, prefix=chain(next(k for k in homes if homes[k] == "r00"))), replicas, 2.0)

        assert told.why == "new prefix"
        assert told.hit_tokens == 0
        assert extra(strategy)["keys_voided"] == 5

    def test_an_evicted_block_voids_its_key(self) -> None:
        strategy, replicas = make("prefix-affinity"), fleet(2)
        home = self.warm(strategy, replicas, 1)[0]
        strategy.evicted(home, chain(0), 1.0)

        assert strategy.pick(ask(1, prefix=chain(0)), replicas, 2.0).why == "new prefix"

    def test_keys_go_to_replicas_of_their_own_model(self) -> None:
        strategy = make("prefix-affinity")
        mine = [Replica(f"a{number}", Ability(model="a")) for number in range(3)]
        other = Replica("b", Ability(model="b"))
        for one in (*mine, other):
            strategy.joined(one, 0.0)
        self.warm(strategy, mine, 30)
        strategy.left("a1", 1.0)

        assert Counter(self.homes(strategy, [mine[0], mine[2]], 30).values()) == {"a0": 15, "a2": 15}

    def test_memory_is_bounded_and_the_last_replica_may_leave(self) -> None:
        strategy, replicas = make("prefix-affinity", {"keys": 50}), fleet(3)
        self.warm(strategy, replicas, 200)
        assert extra(strategy)["keys"] == 50
        for one in replicas:
            strategy.left(one.name, 1.0)
        assert extra(strategy)["keys"] == 0


class TestTree:
    """Belief from what was sent."""

    def test_a_short_match_is_no_reason_and_room_decides(self) -> None:
        strategy, replicas = make("prefix-tree", {"match": 0.5}), fleet(2)
        strategy.sent(ask(1, prefix=chain(*range(10))), strategy.pick(ask(1), [replicas[0]], 0.0), 0.0)

        short = strategy.pick(ask(2, 640, prefix=chain(0, 1, 2)), replicas, 1.0)
        assert (short.replica, short.why) == ("r01", "smallest tree")
        long = strategy.pick(ask(3, 64, prefix=chain(*range(10))), replicas, 1.0)
        assert (long.replica, long.why, long.hit_tokens) == ("r00", "longest match", 640)

    def test_it_believes_in_what_the_engine_has_long_evicted(self) -> None:
        """Its failure, and what events are for: the cache is smaller than the tree thinks."""
        load = shared_prefixes(2000, 20.0, groups=200)

        def overclaim(name: str, parameters: dict[str, float | str | bool]) -> float:
            stand = Plant(make(name, parameters), fleet(4), slots=4, cache_blocks=320, events=name == "kv-events")
            served = stand.run(load)
            return stand.strategy.counters.hit_rate - hit_rate(served)

        assert overclaim("prefix-tree", {}) > 0.2
        assert overclaim("prefix-tree", {"cache_tokens": 320 * 64}) < 0.12
        assert overclaim("kv-events", {"hope": 0.0}) < 0.05

    def test_the_capacity_that_a_replica_tells_bounds_the_belief(self) -> None:
        strategy = make("prefix-tree")
        replica = Replica("a", kv_tokens=640)
        strategy.joined(replica, 0.0)
        for number in range(100):
            request = ask(number, prefix=chain(number, 1, 2))
            strategy.sent(request, strategy.pick(request, [replica], 0.0), 0.0)

        assert extra(strategy)["blocks"] == 10


class TestEvents:
    """Truth from the engines."""

    def test_an_eviction_is_seen(self) -> None:
        strategy, replicas = make("kv-events", {"hope": 0.0}), fleet(3)
        strategy.stored("r01", chain(1, 2, 3, 4), 0.0)
        assert strategy.pick(ask(1, prefix=chain(1, 2, 3, 4)), replicas, 1.0).hit_tokens == 256

        strategy.evicted("r01", chain(1, 2, 3, 4)[2:], 2.0)
        assert strategy.pick(ask(2, prefix=chain(1, 2, 3, 4)), replicas, 3.0).hit_tokens == 128
        strategy.evicted("r01", chain(1, 2, 3, 4)[:1], 4.0)  # a hole at the front: the rest is of no use
        assert strategy.pick(ask(3, prefix=chain(1, 2, 3, 4)), replicas, 5.0).hit_tokens == 0

    def test_a_hole_in_the_middle_is_believed_at_most_once(self) -> None:
        """Engines drop leaves first. Should one not, a prompt may go to the wrong place, and is whole there then."""
        strategy, replicas = make("kv-events", {"hope": 60.0}), fleet(2)
        prompt = chain(*range(30))
        strategy.stored("r00", prompt, 0.0)
        strategy.evicted("r00", prompt[3:4], 1.0)
        request = ask(1, prefix=prompt)
        strategy.sent(request, strategy.pick(request, replicas[:1], 2.0), 2.0)

        assert strategy.pick(ask(2, prefix=prompt), replicas, 3.0).hit_tokens == 30 * 64

    def test_a_burst_of_one_prefix_before_the_first_event_goes_to_one_place(self) -> None:
        """Events come when blocks are computed; until then a prompt that was sent is hoped for, and not for ever."""
        replicas = fleet(4)
        for hope, places in ((2.0, 1), (0.0, 4)):
            strategy, picked = make("kv-events", {"hope": hope}), set()
            for number in range(8):
                request = ask(number, prefix=chain(*range(20)))
                choice = strategy.pick(request, replicas, 0.1 * number)
                strategy.sent(request, choice, 0.1 * number)
                picked.add(choice.replica)
            assert len(picked) == places
            # They may queue for long; only after the first token is it strange that no event comes.
            assert bool(strategy.pick(ask(8, prefix=chain(*range(20))), replicas, 60.0).hit_tokens) == bool(hope)
            for number in range(8):
                strategy.first_token(number, 60.0)
            assert strategy.pick(ask(9, prefix=chain(*range(20))), replicas, 62.5).hit_tokens == 0

    def test_free_memory_can_count_too(self) -> None:
        replicas = fleet(2)
        replicas[0].kv_usage, replicas[1].kv_usage = 0.9, 0.2
        strategy = make("kv-events", {"kv_weight": 1.0})

        assert {strategy.pick(ask(number), replicas, 0.0).replica for number in range(4)} == {"r01"}
