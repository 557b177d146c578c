"""The emulated WVA counts tokens, pending replicas and its ladder of capacities as llm-d's does."""

import pytest

from benchmarks.peers.wva import Wva, WvaDerived
from controller.core.model import Pending, Phase
from controller.core.why import Why
from tests.support.peer_views import asked, view

CONFIG = Wva.Config(kv_tokens=100_000.0)  # k1 = 80,000
RATES = (2.0, 1000.0, 200.0)


@pytest.mark.parametrize(
    ("accepted", "serving", "kv", "desired"),
    [
        (2, 2, 0.5, 2),  # 100,000 / 0.85 < 160,000; spare 160,000 - 142,857 is less than one replica
        (2, 2, 0.9, 3),  # 180,000 / 0.85 = 211,765: 51,765 are lacking, one of 80,000
        (3, 2, 0.9, 3),  # the one on its way is supply: 240,000 are enough
        (4, 4, 0.2, 2),  # spare 320,000 - 114,286 = 205,714: two of 80,000
        (4, 3, 0.2, 3),  # the one on its way is no supply for fewer: 240,000 - 85,714 = 154,286: one
        (1, 1, 0.0, 1),  # the last one stays
    ],
)
def test_more_counts_what_is_on_its_way_and_fewer_does_not(
    accepted: int, serving: int, kv: float, desired: float
) -> None:
    law = Wva(CONFIG)
    pending = [Pending(accepted - serving, Phase.LOADING, 0.0)] if accepted > serving else []
    _, state = asked(law, view(0.0, accepted, [(1, 0, kv)] * serving, pending=pending), law.initial())
    assert state.desired == desired


def test_a_replica_with_a_queue_shows_its_capacity_and_is_remembered() -> None:
    law = Wva(CONFIG)
    # P1: 40,000 in use and 6 waiting x (1,000 + 200) = 47,200; / 0.85 - 40,000 = 15,529: one more.
    _, state = asked(law, view(0.0, 1, [(9, 6, 0.4)], rates=RATES), law.initial())
    assert (state.stored, state.desired) == (40_000, 2)
    # P2: no queue in the last minute; the mean of what was seen counts.
    _, state = asked(law, view(75.0, 2, [(9, 0, 0.3)] * 2, rates=RATES), state)
    assert state.stored == 40_000
    assert state.desired == 2  # 60,000 / 0.85 = 70,588 < 80,000; 80,000 - 60,000 / 0.70 < 0
    # Answers of another length have no past: P3.
    longer = (2.0, 1000.0, 5000.0)
    for at in (435.0, 495.0):
        _, state = asked(law, view(at, 2, [(9, 0, 0.3)] * 2, rates=longer), state)
    assert state.stored == 80_000  # 256 x (1,000 + 2,500) is more than k1


def test_a_replica_that_has_just_come_is_taken_for_small_unless_nobody_looks() -> None:
    # Ten wait at the new one, which holds 5 % so far. What it shows becomes what all can hold once its queue is gone.
    rows, calm = [(9.0, 0.0, 0.5), (9.0, 10.0, 0.05)], [(9.0, 0.0, 0.3)] * 2
    stored = {}
    for cls in (Wva, WvaDerived):
        law = cls(cls.Config(kv_tokens=100_000.0))
        _, state = asked(law, view(0.0, 2, rows, rates=RATES), law.initial())
        _, state = asked(law, view(75.0, 2, calm, rates=RATES), state)
        stored[cls] = state.stored
    assert stored == {Wva: 5_000, WvaDerived: 80_000}


def test_the_last_ten_observations_are_remembered() -> None:
    law = Wva(CONFIG)
    state = law.initial()
    for step in range(12):
        used = 0.1 if step < 2 else 0.5 if step < 7 else 0.7
        _, state = asked(law, view(75.0 * step, 1, [(9, 6, used)], rates=RATES), state)
    _, state = asked(law, view(900.0, 1, [(9, 0, 0.1)], rates=RATES), state)
    assert state.stored == pytest.approx(60_000)  # five of 50,000 and five of 70,000


def test_without_a_past_the_engines_limits_tell_its_capacity() -> None:
    law = Wva(Wva.Config(kv_tokens=100_000.0, max_seqs=20.0))
    _, state = asked(law, view(0.0, 2, [(9, 0, 0.1)] * 2, rates=RATES), law.initial())
    assert state.stored == 22_000  # min(8,192 x 200 / 1,200, 20) x (1,000 + 100)
    slow = Wva(Wva.Config(kv_tokens=100_000.0, max_batched=60.0))
    _, state = asked(slow, view(0.0, 2, [(9, 0, 0.1)] * 2, rates=RATES), slow.initial())
    assert state.stored == 11_000  # min(60 x 200 / 1,200, 256) = 10


def test_the_capacity_of_the_pool_is_the_median() -> None:
    law = Wva(CONFIG)
    rows = [(9.0, 6.0, 0.3), (9.0, 6.0, 0.5), (9.0, 6.0, 0.6)]
    _, state = asked(law, view(0.0, 3, rows, rates=RATES), law.initial())
    assert state.stored == 50_000


def test_the_queue_of_the_gateway_is_demand() -> None:
    law = Wva(CONFIG)
    _, state = asked(law, view(0.0, 2, [(1, 0, 0.5)] * 2, gateway=70.0, rates=RATES), law.initial())
    assert state.desired == 3  # (100,000 + 70 x 1,200) / 0.85 - 160,000 = 56,471
    _, state = asked(law, view(0.0, 2, [(1, 0, 0.5)] * 2, gateway=100.0, rates=RATES), law.initial())
    assert state.desired == 4  # 98,824


def test_a_peak_counts_for_a_minute_and_the_dead_do_not() -> None:
    law = Wva(CONFIG)
    _, state = asked(law, view(0.0, 2, [(1, 0, 0.9)] * 2), law.initial())
    _, state = asked(law, view(45.0, 2, [(1, 0, 0.1)] * 2), state)
    _, kept = asked(law, view(59.9, 2, [(1, 0, 0.1)] * 2), state)
    assert max(kv for _, _, kv, _ in kept.peaks) == 0.9
    _, gone = asked(law, view(60.0, 2, [(1, 0, 0.1)] * 2), state)
    assert max(kv for _, _, kv, _ in gone.peaks) == 0.1
    _, one = asked(law, view(59.999, 1, [(1, 0, 0.1)]), state)
    assert one.desired == 2  # pod-01 is no more, and its 0.9 no demand: with it three would be wanted


def test_one_of_twelve_is_within_the_tolerance_of_the_hpa_in_front() -> None:
    law = Wva(CONFIG)
    proposal, state = asked(law, view(0.0, 12, [(1, 0, 0.7)] * 12), law.initial())
    assert (state.desired, proposal.value) == (13, 12)
    proposal, state = asked(law, view(0.0, 4, [(1, 0, 0.9)] * 4), law.initial())
    assert (state.desired, proposal.value) == (6, 6)


def test_without_metrics_the_last_number_stands() -> None:
    law = Wva(CONFIG)
    proposal, state = asked(law, view(0.0, 2, [None] * 2), law.initial())
    assert (proposal.value, proposal.why) == (2, Why.MISSING)
    _, state = asked(law, view(60.0, 2, [(1, 0, 0.9)] * 2), state)
    for at in range(75, 600, 15):
        proposal, state = asked(law, view(float(at), 3, [None] * 3), state)
        assert (state.desired, proposal.value) == (3, 3)


def test_a_boundary_of_falling_above_that_of_rising_is_refused() -> None:
    with pytest.raises(ValueError, match="down: is not below"):
        Wva(Wva.Config(kv_tokens=1.0, up=0.5, down=0.7))
