"""A limit of the batch that no metric tells: not seen, a fleet of sixteen sequences is planned like one of hundreds."""

from collections.abc import Sequence

from controller.core.model import Scope
from controller.core.reading import Reading, State
from controller.core.signals import Signal
from controller.core.slots import ENOUGH, LASTS, MEMORY, PAUSE, Slots

NOW = 1_000_000.0
Look = tuple[float, float]


def scope(running: float, waiting: float) -> Scope:
    """A replica's gauges."""
    return Scope(
        {
            Signal.RUNNING: Reading(State.OK, running),
            Signal.QUEUE_DEPTH: Reading(State.OK, waiting),
        }
    )


def seen(
    looks: Sequence[Sequence[Look]], gateway: float = 0.0, slots: Slots | None = None, every: float = 15.0
) -> Slots:  # fmt: skip
    """After these looks `every` so many seconds, each at (running, waiting) of every replica; `gateway` requests wait
    before them."""
    slots = slots or Slots()
    begin = slots.until + every if slots.until else NOW
    for i, look in enumerate(looks):
        waiting = sum(waiting for _, waiting in look) + gateway
        slots = slots.take([scope(*one) for one in look], waiting, begin + i * every)
    return slots


def test_a_batch_that_stays_the_same_while_requests_wait_is_a_limit() -> None:
    assert seen([[(16, 3), (16, 1)]] * (ENOUGH // 2)).limit == 16
    assert seen([[(16, 3), (16, 1)]] * (ENOUGH // 2 - 1)).limit is None


def test_a_gateway_that_holds_requests_back_shows_the_limit_of_all_replicas() -> None:
    """Behind a standing cap engines never have a queue of their own."""
    assert seen([[(16, 0), (16, 0), (15, 0)]] * 4, gateway=5).limit == 16
    assert seen([[(16, 0), (16, 0), (15, 0)]] * 4, gateway=0).limit is None


def test_a_full_batch_without_a_queue_is_no_limit() -> None:
    assert seen([[(16, 0)]] * 50).limit is None


def test_a_batch_that_prompts_or_the_cache_limit_varies_and_is_no_limit() -> None:
    """Taken for one, its largest would cap what a replica is thought to serve for good."""
    varied = [[(20 + 7 * i % 13, 4)] for i in range(100)]
    assert seen(varied).limit is None


def test_new_replicas_that_warm_up_do_not_make_a_limit_forgotten() -> None:
    """Forgotten in the trough, a fleet of 32 sequences was planned as one of 50, lowered too far, and every fourth
    request was late in the next rise."""
    slots = seen([[(32, 3), (32, 1)]] * 13)
    warming = [[(8 + i % 23, 0), (30 - i % 9, 0), (32 if i % 5 == 0 else 29, 0)] for i in range(30)]
    assert seen(warming, gateway=2, slots=slots).limit == 32


def test_the_usual_height_of_a_batch_is_no_limit() -> None:
    """Most looks near one number are no pile at the largest."""
    near = [(20.0 + min(i % 7, 6 - i % 7), 2.0) for i in range(60)]
    assert seen([[look] for look in near]).limit is None


def test_one_larger_batch_refutes_a_limit() -> None:
    slots = seen([[(16, 3)]] * ENOUGH)
    assert slots.limit == 16
    refuted = seen([[(24, 3)]], slots=slots)
    assert refuted[:4] == (24.0, 1, 0, 0)
    assert refuted.limit is None


def test_a_limit_that_was_lowered_by_a_rollout_is_learned_anew() -> None:
    slots = seen([[(64, 3)]] * 20)
    assert seen([[(16, 9)]] * 3 * MEMORY, slots=slots).limit == 16


def test_replicas_that_tell_nothing_change_nothing() -> None:
    slots = Slots(16.0, 3, 1)
    assert slots.take([Scope({}), Scope({Signal.RUNNING: Reading(State.OK, 16.0)})], 0.0, 0.0) == slots


def test_a_gateway_that_warms_its_fleet_up_is_no_limit() -> None:
    """A fleet and its gateway began together, scraped every second: all eight replicas ran two requests and others
    waited, so a replica of 32 was thought to run two. Governor let in no more than that, saw it confirmed, and asked
    for 32 replicas where 8 were plenty."""
    begin = [[(2, 0)] * 8] * int(LASTS)
    assert seen(begin, gateway=9, every=1.0).limit is None
    assert (
        seen(begin, gateway=9, every=1.0, slots=seen(begin, gateway=9, every=1.0)).limit == 2.0
    )  # it stays: it is one

    ramp = [[(2 + second // 2, 0)] * 8 for second in range(60)]
    assert all(seen(ramp[:till], gateway=9, every=1.0).limit is None for till in range(len(ramp)))


def test_one_sample_that_is_looked_at_every_second_has_not_stayed() -> None:
    """Scraped once a minute and looked at each second, what a gateway gave at its first moment was the limit after
    half a minute."""
    slots = Slots()
    for _ in range(60):
        slots = slots.take([scope(2, 0)] * 8, 9.0, NOW)
    assert slots.limit is None
    assert slots.same == 8

    for i in range(1, 4):
        slots = slots.take([scope(2, 0)] * 8, 9.0, NOW + i * 60.0)
    assert slots.limit == 2.0


def test_two_slow_starts_a_day_apart_are_no_limit() -> None:
    first = seen([[(2, 0)] * 8] * 3, gateway=9, every=1.0)
    again = first.take([scope(2, 0)] * 8, 9.0, first.until + 86_400.0)

    assert again.lasted < PAUSE
    assert again.limit is None


def test_an_older_sample_is_no_younger_one() -> None:
    """Two sources of different ages in turn: each step forward was counted as time that passed."""
    slots = Slots()
    for i in range(12):
        slots = slots.take([scope(2, 0)] * 8, 9.0, NOW + i - 9.0 * (i % 2))
    assert slots.lasted <= 12.0
    assert slots.limit is None
