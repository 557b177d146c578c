"""Conversations that overlap: no turn is lost, doubled or late, wherever the pieces are cut."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.traffic.overlap import Columns, in_order, slices

STARTS = st.lists(st.tuples(st.floats(0, 50), st.lists(st.floats(0, 40), max_size=5)), min_size=1, max_size=30)


@given(STARTS, st.integers(1, 7), st.floats(0, 20), st.floats(20, 100))
@settings(max_examples=200, deadline=None)
def test_a_turn_that_is_lost_doubled_or_out_of_order(
    drawn: list[tuple[float, list[float]]], size: int, begin: float, end: float
) -> None:
    drawn = sorted(drawn)
    pieces: list[tuple[float, Columns]] = []
    every: list[tuple[float, int]] = []
    for low in range(0, len(drawn), size):
        times: list[float] = []
        for start, pauses in drawn[low : low + size]:
            times.extend((start + np.cumsum([0.0, *pauses])).tolist())
        numbers = list(range(len(every), len(every) + len(times)))
        every.extend(zip(times, numbers, strict=True))
        passed = drawn[min(low + size, len(drawn)) - 1][0]
        pieces.append((passed, {"at": np.array(times), "number": np.array(numbers)}))
    found: list[tuple[float, int]] = []
    for piece in in_order(pieces, begin, end):
        for part in slices(piece, 3):
            assert 1 <= len(part["at"]) <= 3
            found.extend(zip(part["at"].tolist(), part["number"].tolist(), strict=True))
    assert [at for at, _ in found] == sorted(at for at, _ in found)
    assert sorted(found) == sorted((at, number) for at, number in every if begin <= at < end)
