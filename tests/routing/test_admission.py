"""Class admission, thinning and the cap: low classes give way first, by shares that repeat to the request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routing.admission import LEAST, Delay, ramp, shed
from routing.concurrency import Cap
from routing.knobs import Concurrency, Klass
from routing.model import Ability, Replica
from routing.slowstart import SlowStart
from routing.thinning import Thinner

BATCH = Klass(rank=2, target=2.0, delay_lo=0.25, delay_hi=1.0, load_lo=0.85, load_hi=1.0)
CRITICAL = Klass(rank=0, target=2.0, delay_lo=1.6, delay_hi=2.4, load_lo=1.05, load_hi=1.25)


@pytest.mark.parametrize(
    ("delay", "batch", "critical"),
    [(0.5, 0.0, 0.0), (1.25, 0.5, 0.0), (2.0, 1.0, 0.0), (4.0, 1.0, 0.5), (9.0, 1.0, 1.0)],
)
def test_low_classes_give_way_while_high_ones_are_still_good(delay: float, batch: float, critical: float) -> None:
    assert shed(BATCH, delay, 0.0) == pytest.approx(batch)
    assert shed(CRITICAL, delay, 0.0) == pytest.approx(critical)


def test_the_larger_of_both_ramps_counts() -> None:
    assert shed(BATCH, 0.0, 0.925) == pytest.approx(0.5)
    assert shed(BATCH, 2.0, 0.925) == 1.0
    assert shed(CRITICAL, 0.0, 1.0) == 0.0


def test_a_class_without_ramps_is_never_shed() -> None:
    assert shed(Klass(target=1.0), 1e9, 1e9) == 0.0


def test_a_ramp_without_length_is_a_step() -> None:
    assert [ramp(x, 1.0, 1.0) for x in (0.9, 1.0, 1.1)] == [0.0, 0.0, 1.0]


def test_predicted_delay_by_hand() -> None:
    """30 in flight, 10 ahead, cap 32, 16 s each: the ninth place to be free, 16/32 s apart."""
    delay = Delay(1000.0)
    for _ in range(LEAST):
        delay.ended(16.0)

    assert delay.place(40, 32.0) == pytest.approx(9 * 0.5)
    assert delay.place(31, 32.0) == 0.0
    assert delay.prefill(6000.0, 500.0, 3) == pytest.approx(2.0 + 0.5)


def test_a_wait_inside_the_engines_is_measured_and_forgotten_when_nobody_waits() -> None:
    """A full KV memory: there are slots, and still no first token. Refusing all must not freeze what was measured."""
    delay = Delay(1000.0)
    for _ in range(LEAST):
        delay.first_token(5.5, 500.0)

    assert delay.prefill(500.0, 500.0, 4) == pytest.approx(5.0 + 0.5)
    assert delay.prefill(0.0, 500.0, 4) == pytest.approx(0.5)


def test_nothing_is_predicted_from_too_little() -> None:
    delay = Delay(None)
    delay.ended(1000.0)

    assert delay.place(100, 10.0) == 0.0
    assert delay.prefill(1e6, 1e6, 1) == 0.0


@given(st.lists(st.floats(0.0, 1.0), max_size=200), st.text(max_size=3))
def test_thinning_is_off_by_less_than_one_request(shares: list[float], tenant: str) -> None:
    thinner, taken = Thinner(), 0
    for share in shares:
        taken += thinner.take(("batch", tenant), share)
    assert abs(taken - sum(shares)) < 1.0 + 1e-6


def test_tenants_that_take_turns_are_hit_alike() -> None:
    """One debt for all would refuse every request of the same one of the two, and none of the other's."""
    thinner = Thinner()
    taken = {"a": 0, "b": 0}
    for i in range(1000):
        tenant = "ab"[i % 2]
        taken[tenant] += thinner.take(("batch", tenant), 0.5)

    assert taken["a"] == pytest.approx(250, abs=1)
    assert taken["b"] == pytest.approx(250, abs=1)


def test_of_many_tenants_with_one_request_each_the_share_is_taken_too() -> None:
    thinner = Thinner()
    assert sum(thinner.take(("batch", f"t{i}"), 0.3) for i in range(2000)) == pytest.approx(600, rel=0.1)


def test_the_same_stream_is_thinned_the_same_way() -> None:
    first, second = Thinner("x"), Thinner("x")
    stream = [("batch", f"t{i % 7}") for i in range(100)]
    assert [first.take(key, 0.37) for key in stream] == [second.take(key, 0.37) for key in stream]


def replicas(*slots: int | None, weight: float = 1.0, role: str = "both") -> list[Replica]:
    return [Replica(f"r{i}", Ability(role=role), weight=weight, slots=each) for i, each in enumerate(slots)]


def cap(knobs: Concurrency, replicas: list[Replica]) -> float:
    made = Cap()
    made.set(knobs, replicas)
    return made.value(0, 0.0)


def test_the_standing_cap_is_the_sum_of_the_slots() -> None:
    assert cap(Concurrency(), replicas(64, 32)) == float("inf")
    assert cap(Concurrency(per_slot=1.0), replicas(64, 32)) == 96
    assert cap(Concurrency(per_slot=0.5), replicas(64, 32)) == 48
    assert cap(Concurrency(per_slot=1.0, limit=50), replicas(64, 32)) == 50
    assert cap(Concurrency(limit=50), replicas()) == 50


def test_a_replica_counts_with_its_weight_and_one_that_prefills_not_at_all() -> None:
    assert cap(Concurrency(per_slot=1.0), replicas(64, weight=0.25)) == 16
    assert cap(Concurrency(per_slot=1.0), replicas(64, weight=3.0)) == 64
    assert cap(Concurrency(per_slot=1.0), replicas(64, role="prefill") + replicas(32, role="decode")) == 32


def test_something_in_service_always_gets_something_and_nothing_gets_nothing() -> None:
    assert cap(Concurrency(per_slot=1.0), replicas(4, weight=0.05)) == 1
    assert cap(Concurrency(per_slot=1.0), replicas()) == 0


def test_slots_that_nobody_tells_are_no_cap_of_zero() -> None:
    assert cap(Concurrency(per_slot=1.0), replicas(64, None)) == float("inf")
    assert cap(Concurrency(per_slot=1.0, limit=7), replicas(64, None)) == 7


def test_a_cap_in_requests_per_replica_holds_beside_the_slots_and_without_them() -> None:
    """The controller learns how many requests a replica holds; it must not have to know how many slots there are."""
    assert cap(Concurrency(per_replica=20.5), replicas(64, 32)) == 41
    assert cap(Concurrency(per_replica=40.0, per_slot=1.0), replicas(64, 32)) == 72
    assert cap(Concurrency(per_replica=20.0), replicas(64, None)) == 40
    assert cap(Concurrency(per_replica=20.0, limit=7), replicas(64, None)) == 7
    assert cap(Concurrency(per_replica=20.0), replicas(64, weight=0.25)) == 5
    assert cap(Concurrency(per_replica=0.5), replicas(64)) == 1
    assert cap(Concurrency(per_replica=20.0), replicas()) == 0


def test_a_replica_that_drains_does_not_fill_a_cap_per_replica_either() -> None:
    drains, serves = replicas(8, None)
    drains.draining, drains.inflight, serves.inflight = True, 8, 3
    made = Cap()
    made.set(Concurrency(per_replica=4.0), [drains, serves])

    assert not made.full(11, 0.0)
    serves.inflight = 4
    assert made.full(12, 0.0)


def test_what_a_replica_still_has_while_it_drains_does_not_stop_the_others() -> None:
    drains, serves = replicas(8, 8)
    drains.draining, drains.inflight, serves.inflight = True, 8, 7
    made = Cap()
    made.set(Concurrency(per_slot=1.0), [drains, serves])

    assert made.value(15, 0.0) == 8
    assert not made.full(15, 0.0)
    serves.inflight = 8
    assert made.full(16, 0.0)
    made.set(Concurrency(per_slot=1.0, limit=12), [drains, serves])
    assert made.full(15, 0.0)  # an absolute limit is just that


def test_memory_is_a_limit_beside_slots() -> None:
    """Two replicas of 10 000 tokens, 0.9 of them: twelve requests of 1 500 each."""
    fleet = replicas(64, 64)
    for one in fleet:
        one.kv_tokens = 10_000
    made = Cap()
    made.set(Concurrency(per_slot=1.0, kv=0.9), fleet)

    assert not made.full(11, 11 * 1500.0)
    assert made.full(12, 12 * 1500.0)
    assert made.value(12, 12 * 1500.0) == 12
    assert not made.full(0, 0.0)
    fleet[1].draining, fleet[1].inflight, fleet[0].inflight = True, 6, 5
    made.set(Concurrency(per_slot=1.0, kv=0.9), fleet)
    assert not made.full(11, 11 * 1500.0)  # what drains does not count
    fleet[0].inflight = 6
    assert made.full(12, 12 * 1500.0)


def test_a_request_larger_than_the_limit_goes_when_it_is_alone() -> None:
    fleet = replicas(64)
    fleet[0].kv_tokens = 1000
    made = Cap()
    made.set(Concurrency(kv=0.9), fleet)

    assert not made.full(0, 0.0)
    fleet[0].inflight = 1
    assert made.full(1, 5000.0)


def test_one_that_is_ramped_up_counts_up_to_its_share() -> None:
    ramped, serves = replicas(8, 8)
    ramped.weight, ramped.inflight, serves.inflight = 0.25, 6, 5
    made = Cap()
    made.set(Concurrency(per_slot=1.0), [ramped, serves])

    assert made.value(11, 0.0) == 10
    assert not made.full(11, 0.0)  # 4 above its share of 2
    serves.inflight = 8
    assert made.full(14, 0.0)


def test_a_new_replica_comes_to_its_weight_in_steps() -> None:
    start = SlowStart(100.0)
    start.joined("r", 1000.0)
    factors = []
    for _ in range(19):
        now = start.next_at
        assert start.poll(now)
        factors.append(start.factor("r", now))

    assert factors == pytest.approx([i / 20 for i in range(1, 20)])
    assert start.factor("r", start.next_at) == 1.0
    start.poll(start.next_at)
    assert start.next_at == float("inf")


def test_without_slow_start_a_replica_is_there_at_once() -> None:
    start = SlowStart(0.0)
    start.joined("r", 1000.0)

    assert start.factor("r", 1000.0) == 1.0
    assert start.next_at == float("inf")
