"""Mean lengths of requests: their extremes over the windows that are kept."""

from hypothesis import given
from hypothesis import strategies as st

from controller.core import lengths


@given(st.lists(st.integers(1, 40), min_size=1, max_size=3 * lengths.KEEP))
def test_a_length_that_is_forgotten_still_bounds_the_tokens(means: list[int]) -> None:
    seen = lengths.Means()
    for number, mean in enumerate(means, 1):
        seen.add(float(mean))
        kept = means[max(0, number - lengths.KEEP) : number]
        assert (seen.newest, seen.lo, seen.hi) == (mean, min(kept), max(kept))
    assert seen


def test_before_the_first_window_there_is_no_length() -> None:
    assert not lengths.Means()
