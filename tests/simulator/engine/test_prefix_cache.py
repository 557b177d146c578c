"""Hits that no engine would have had, and blocks that are counted twice or never given back."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.engine.engine import Engine
from simulator.engine.kv import Entry, Pool
from tests.support.engines import EASY, drive, job, settle, spec


class Mirror:
    """What a router believes that the cache holds."""

    def __init__(self) -> None:
        self.held: set[int] = set()

    def stored(self, hashes: Sequence[int]) -> None:
        self.held.update(hashes)

    def evicted(self, hashes: Sequence[int]) -> None:
        self.held.difference_update(hashes)

    def cleared(self) -> None:
        self.held.clear()


def test_a_prompt_that_was_asked_before_costs_its_last_token_only() -> None:
    engine = Engine(spec(), 0.0)
    first, second = drive(engine, [job(1, 64, 2, prefix=(1, 2, 3, 4)), job(2, 64, 2, prefix=(1, 2, 3, 4), at=1.0)])
    assert (first.cached, second.cached) == (0, 48)
    assert first.ttft == pytest.approx(0.074)
    # vLLM finds whole blocks only, and computes at least one token: 48 of 64 are found.
    assert second.ttft == pytest.approx(0.026)
    assert (engine.counts.prefix_queries, engine.counts.prefix_hits) == (128, 48)
    assert engine.counts.prompt_tokens == 128


def test_a_prefix_ends_where_the_first_block_differs() -> None:
    engine = Engine(spec(), 0.0)
    _, other = drive(engine, [job(1, 64, 2, prefix=(1, 2, 3, 4)), job(2, 64, 2, prefix=(1, 9, 3, 4), at=1.0)])
    assert other.cached == 16


def test_hashes_of_more_tokens_than_a_block() -> None:
    engine = Engine(spec(), 0.0)
    jobs = [job(1, 100, 2, prefix=(1,), block=64), job(2, 100, 2, prefix=(1,), block=64, at=1.0)]
    jobs.append(job(3, 100, 2, prefix=(1, 2), block=64, at=2.0))  # a hash that the prompt does not fill
    assert [one.cached for one in drive(engine, jobs)] == [0, 64, 64]


def test_without_a_cache_nothing_is_found_and_nothing_asked() -> None:
    engine = Engine(spec(prefix_cache=False), 0.0)
    jobs = [job(number, 64, 2, prefix=(1, 2, 3), at=float(number)) for number in range(3)]
    assert [one.cached for one in drive(engine, jobs)] == [0, 0, 0]
    assert (engine.counts.prefix_queries, engine.counts.prefix_hits) == (0, 0)


def test_shared_blocks_are_held_once() -> None:
    engine = Engine(spec(), 0.0)
    for number in range(3):
        engine.submit(job(number, 66, 30, prefix=(1, 2, 3, 4)), 0.0)
    engine.advance(0.15)
    assert engine.kv_usage == pytest.approx((64 + 3 * 16) / 1600)
    settle(engine)
    assert engine.kv_usage == 0


def test_what_is_in_use_is_not_evicted_and_the_oldest_goes_first() -> None:
    mirror = Mirror()
    engine = Engine(spec(), 0.0)
    engine.listener = mirror
    drive(engine, [job(1, 32, 2, prefix=(1, 2)), job(2, 32, 2, prefix=(3, 4), at=1.0)])
    assert mirror.held == {1, 2, 3, 4}
    # Two blocks and two more of its own, and 96: that is all there are.
    drive(engine, [job(3, 32, 20, prefix=(1, 2), at=2.0), job(4, 1530, 2, at=2.1)])
    assert engine.counts.preemptions == 0
    assert mirror.held == {1, 2}
    [again] = drive(engine, [job(5, 48, 2, prefix=(1, 2, 5), at=10.0)])
    assert again.cached == 32


def test_the_end_of_a_chain_is_evicted_before_its_beginning() -> None:
    pool = Pool(10)
    held: list[Entry] = []
    pool.hold(held, (1, 2, 3), 2)
    pool.give(held, 0)
    pool.take(6)
    assert [entry.key for entry in pool.match((1, 2, 3))[0]] == [1, 2]


def test_an_answer_is_found_by_the_next_turn() -> None:
    engine = Engine(spec(), 0.0)
    turn = job(1, 32, 34, prefix=(1, 2), after=(3, 4, 5))
    follow = job(2, 112, 2, prefix=(1, 2, 3, 4, 5, 6, 7), at=2.0)
    drive(engine, [turn, follow])
    # The last token of an answer is never computed: 65 tokens are in the cache, four whole blocks.
    assert follow.cached == 64


def test_what_is_computed_again_is_no_hit() -> None:
    engine = Engine(spec(replace(EASY, kv_tokens=160)), 0.0)
    jobs = [job(1, 64, 60, prefix=(1, 2, 3, 4)), job(2, 64, 60, prefix=(5, 6, 7, 8), at=0.001)]
    done = drive(engine, jobs)
    assert [(one.preempted, one.cached) for one in done] == [(0, 0), (1, 0)]
    assert (engine.counts.prefix_queries, engine.counts.prefix_hits) == (128, 0)


def test_a_cache_that_outlives_its_process() -> None:
    mirror = Mirror()
    engine = Engine(spec(), 0.0)
    engine.listener = mirror
    drive(engine, [job(1, 64, 2, prefix=(1, 2, 3, 4))])
    assert mirror.held
    assert engine.fail(1.0) == []
    assert mirror.held == set()
    [again] = drive(engine, [job(2, 64, 2, prefix=(1, 2, 3, 4), at=2.0)])
    assert again.cached == 0


Request = tuple[list[Entry], int]


ACTIONS = st.tuples(st.sampled_from("hhg"), st.integers(0, 3), st.integers(0, 5), st.integers(0, 4))


@given(st.lists(ACTIONS, max_size=60))
def test_blocks_that_leak(actions: list[tuple[str, int, int, int]]) -> None:
    """Free and used blocks are always all of them, and a listener knows what the cache knows."""
    pool, mirror = Pool(24), Mirror()
    pool.listener = mirror
    requests: list[Request] = []
    for action, family, length, alone in actions:
        if action == "g" and requests:
            pool.give(*requests.pop(length % len(requests)))
        else:
            prefix = tuple(family * 10 + index for index in range(length))
            found, revived = pool.match(prefix)
            if (length - len(found)) * 2 + revived + alone <= pool.free:
                pool.hold(found, prefix, 2)
                pool.take(alone)
                requests.append((found, alone))
        used = {id(entry): entry.size for held, _ in requests for entry in held}
        assert pool.free + sum(used.values()) + sum(alone for _, alone in requests) == 24
        references = Counter(id(entry) for held, _ in requests for entry in held)
        assert all(entry.refs == references[id(entry)] for held, _ in requests for entry in held)
        for family_ in range(4):
            known = {entry.key for entry in pool.match(tuple(family_ * 10 + index for index in range(6)))[0]}
            assert known <= mirror.held
        assert {entry.key for held, _ in requests for entry in held} <= mirror.held
    for held, alone in requests:
        pool.give(held, alone)
    assert pool.free == 24
    pool.take(24)
    assert mirror.held == set()


def test_kv_usage_of_an_engine_without_a_limit() -> None:
    engine = Engine(spec(EASY.__class__(a=0.01, kv_tokens=None)), 0.0)
    engine.submit(job(1, 1000, 100), 0.0)
    engine.advance(0.5)
    assert 0.0 <= engine.kv_usage < 1e-6
