"""A replica is judged against the others. With itself among them, one that is slow would be half of its own judge."""

from statistics import median

from hypothesis import given
from hypothesis import strategies as st

from controller.core.ranked import middle, middle_of_others
from controller.core.worse import usual, usual_of_others

NUMBERS = st.lists(st.sampled_from([0.0, 0.1, 0.25, 1.0, 3.0]) | st.floats(0.0, 1e3), min_size=2, max_size=12)
ENDS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.05, 0.4, 1.0]), st.sampled_from([0.0, 5.0, 20.0, 90.0])), min_size=1, max_size=9
)


@given(NUMBERS)
def test_nobody_is_its_own_judge(numbers: list[float]) -> None:
    ranked = sorted(numbers)

    assert middle(ranked) == median(numbers)
    for i, one in enumerate(numbers):
        assert middle_of_others(ranked, one) == median(numbers[:i] + numbers[i + 1 :])


@given(ENDS)
def test_what_one_replica_fails_is_not_usual_of_the_others(ends: list[tuple[float, float]]) -> None:
    named = {f"r{i}": one for i, one in enumerate(ends)}
    found = usual_of_others(named)

    assert found == {name: usual([one for other, one in named.items() if other != name]) for name in named}
