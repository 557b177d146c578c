"""The block map against plain sets: matches, eviction from the leaves, replicas that come and go."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from routing.strategies.blocks import BlockMap
from tests.support.queues import chain


def depth(held: set[int], prompt: tuple[int, ...], limit: int) -> int:
    return next((place for place, block in enumerate(prompt[:limit]) if block not in held), min(len(prompt), limit))


def prompt(chance: Random) -> tuple[int, ...]:
    """One of a small family, so that much is shared."""
    return chain(
        *(chance.choice((0, 0, 0, 1)) if place else chance.randrange(3) for place in range(chance.randrange(14)))
    )


class Model:
    """The same by sets and lists: blocks of each replica, oldest first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.held: dict[str, list[int]] = {}

    def add(self, name: str, blocks: tuple[int, ...]) -> None:
        mine = [block for block in self.held.get(name, []) if block not in blocks]
        self.held[name] = (mine + list(reversed(blocks)))[-self.capacity :]

    def depths(self, blocks: tuple[int, ...], limit: int) -> dict[str, int]:
        found = {name: depth(set(held), blocks, limit) for name, held in self.held.items()}
        return {name: deep for name, deep in found.items() if deep}


@given(st.integers(0, 2**32), st.integers(1, 12))
def test_it_is_the_sets_of_all_replicas_at_once(seed: int, capacity: int) -> None:
    chance, names = Random(seed), [f"n{number}" for number in range(5)]
    fast, plain = BlockMap(capacity), Model(capacity)
    for _ in range(60):
        name, blocks, limit = chance.choice(names), prompt(chance), chance.randrange(1, 16)
        if chance.random() < 0.05:
            fast.forget(name)
            plain.held.pop(name, None)
        else:
            fast.add(name, blocks)
            plain.add(name, blocks)
        probe = prompt(chance)
        assert fast.depths(probe, limit) == plain.depths(probe, limit)
        assert [fast.size(one) for one in names] == [len(plain.held.get(one, [])) for one in names]
        assert len(fast) == len({block for held in plain.held.values() for block in held})


@given(st.integers(0, 2**32))
def test_an_eviction_from_the_middle_is_mended_by_the_next_prompt(seed: int) -> None:
    chance, names = Random(seed), ["a", "b", "c"]
    fast, plain = BlockMap(1000), Model(1000)
    for _ in range(60):
        name, blocks = chance.choice(names), prompt(chance)
        if chance.random() < 0.5 and plain.held.get(name):
            gone = chance.sample(plain.held[name], min(3, len(plain.held[name])))
            fast.remove(name, gone)
            plain.held[name] = [block for block in plain.held[name] if block not in gone]
        else:
            fast.add(name, blocks)
            plain.add(name, blocks)
        probe = prompt(chance)
        true = plain.depths(probe, 20)
        for name in names:
            assert set(fast.missing(name, probe)) == set(probe) - set(plain.held.get(name, []))
        assert set(fast.depths(probe, 20)) == set(true)  # what lacks the first block is never among them
        fast.add(name, probe)
        plain.add(name, probe)
        assert fast.depths(probe, 20).get(name, 0) == len(probe)


def test_leaves_go_before_what_they_hang_on() -> None:
    blocks = BlockMap(4)
    blocks.add("a", chain(1, 2, 3, 4))
    blocks.add("a", chain(9))

    assert blocks.depths(chain(1, 2, 3, 4), 10) == {"a": 3}
    assert blocks.depths(chain(9), 10) == {"a": 1}


def test_a_hundred_replicas_and_the_places_of_those_that_left() -> None:
    blocks = BlockMap(100)
    for number in range(100):
        blocks.add(f"n{number}", chain(*range(1 + number % 3)))
    for number in range(0, 100, 2):
        blocks.forget(f"n{number}")
    blocks.add("new", chain(0, 1, 2))
    found = blocks.depths(chain(0, 1, 2), 10)

    assert len(found) == 51
    assert found["new"] == 3
    assert all(found[f"n{number}"] == 1 + number % 3 for number in range(1, 100, 2))
    for number in range(100):
        blocks.forget(f"n{number}")
    blocks.forget("new")
    assert len(blocks) == 0
