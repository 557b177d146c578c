"""The part of the work that may go by the size of its prompts: neither more than there is, nor less for being sent."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.core.fitting import agreeing, learn
from controller.core.model import PoolReadings, Scope
from controller.core.reading import ok
from controller.core.signals import Signal
from controller.core.sizes import Band, Sizes

EDGES = (100.0, 1000.0, 10_000.0)
MIXED = Sizes(EDGES, (0.0, 60.0, 100.0), 100.0)  # 60 of 100 to 1,000 tokens, 40 of up to 10,000
SHORT, LONG = Band(most=1000.0), Band(least=1001.0)


def tokens(prompt: float) -> float:
    return prompt


def alike(_: float) -> float:
    return 1.0


def test_work_is_counted_and_not_requests() -> None:
    """Six in ten requests are short, and they are an eighth of the work: a share of them relieves little."""
    assert MIXED.part(SHORT, alike) == pytest.approx(0.6)
    assert MIXED.part(SHORT, tokens) == pytest.approx(0.6 / (0.6 + 4.0), rel=0.01)
    assert MIXED.part(LONG, tokens) == pytest.approx(4.0 / (0.6 + 4.0), rel=0.01)
    assert MIXED.part(Band(), tokens) == pytest.approx(1.0)


def test_a_limit_within_a_bucket_takes_a_part_of_it() -> None:
    at = 10**3.5  # the middle of the last bucket, in logarithms
    assert MIXED.part(Band(most=at), alike) == pytest.approx(0.6 + 0.2)
    assert MIXED.part(Band(least=at), alike) == pytest.approx(0.2)


def test_what_lies_above_the_last_edge_is_long() -> None:
    beyond = Sizes(EDGES, (0.0, 50.0, 50.0), 100.0)
    assert beyond.part(SHORT, alike) == pytest.approx(0.5)
    assert beyond.part(Band(least=10_000.0), alike) == pytest.approx(0.5)


def test_few_requests_say_nothing_and_what_was_known_stays() -> None:
    few = Sizes(EDGES, (0.0, 5.0, 5.0), 5.0)
    assert learn(few, SHORT, 0.0, alike, 15.0, None) is None
    assert learn(few, SHORT, 0.0, alike, 15.0, 0.3) == 0.3
    assert learn(None, SHORT, 0.0, alike, 15.0, 0.3) == 0.3


@pytest.mark.parametrize("sent", [0.0, 0.25, 0.5, 0.75])
def test_a_share_that_is_sent_does_not_look_like_prompts_that_nobody_sends(sent: float) -> None:
    """Six in ten are short; of those that stay here fewer are, and the more so the more is sent. Taken as it is seen,
    the share would rise for what it did itself until all is gone."""
    here = 60.0 * (1 - sent)
    served = Sizes(EDGES, (0.0, here, here + 40.0), here + 40.0)
    assert learn(served, SHORT, sent, alike, 15.0, None) == pytest.approx(0.6)


def test_when_nearly_all_is_away_what_was_learned_is_kept() -> None:
    nothing = Sizes(EDGES, (0.0, 0.0, 40.0), 40.0)
    assert learn(nothing, SHORT, 0.9, alike, 3600.0, 0.6) == 0.6
    assert learn(nothing, SHORT, 0.0, alike, 120.0, 0.6) == pytest.approx(0.6 * math.exp(-120 / 300))


def test_who_does_not_consent_stays_and_is_seen() -> None:
    scopes = {name: Scope({Signal.OFFERED_RATE: ok(rate)}) for name, rate in (("a", 3.0), ("b", 1.0))}
    pool = PoolReadings(tenants=scopes)
    assert agreeing(pool, Band(tenants=frozenset({"a"}))) == pytest.approx(0.75)
    assert agreeing(pool, Band(tenants=frozenset())) == 0.0
    assert agreeing(pool, Band()) == agreeing(PoolReadings(), Band(tenants=frozenset({"a"}))) == 1.0


@example(counts=[0, 0, 20, 0], least=0.0, width=10_000.0, sent=0.25, known=None, gone=0.0)
@given(
    counts=st.lists(st.integers(0, 1000), min_size=4, max_size=4), least=st.floats(0, 2e4), width=st.floats(0, 2e4),
    sent=st.floats(0, 1), known=st.none() | st.floats(0, 1), gone=st.floats(-60, 1e6),
)  # fmt: skip
def test_it_is_a_share_whatever_is_told(
    counts: list[int], least: float, width: float, sent: float, known: float | None, gone: float
) -> None:
    cumulative = tuple(float(sum(counts[: i + 1])) for i in range(3))
    made = learn(Sizes(EDGES, cumulative, float(sum(counts))), Band(least, least + width), sent, tokens, gone, known)
    assert made is None or 0.0 <= made <= 1.0
