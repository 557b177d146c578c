"""The queue: a low class never starves and never overtakes a critical one beyond its floor; no tenant hogs a class."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.fairqueue import Entry, FairQueue

CRITICAL, STANDARD, BATCH = 0, 1, 2


def entry(id_: int, rank: int = 0, tenant: str = "t", cost: float = 1.0, weight: float = 1.0) -> Entry[str]:
    return Entry(id_, f"item{id_}", rank, tenant, weight, cost)


def fair(floors: dict[int, float] | None = None) -> FairQueue[str]:
    return FairQueue(fair=True, floors=floors)


def serve(queue: FairQueue[str]) -> Entry[str]:
    head = queue.head()
    assert head is not None
    queue.take(head)
    return head


def test_a_plain_queue_is_first_come_first_served() -> None:
    queue: FairQueue[str] = FairQueue(floors={BATCH: 0.5})
    for i in range(6):
        queue.push(entry(i, rank=5 - i, tenant=f"t{i % 2}", cost=100.0 - i))

    assert [serve(queue).id for _ in range(6)] == list(range(6))
    assert queue.head() is None


def test_classes_go_in_strict_order_without_floors() -> None:
    queue = fair()
    for i in range(9):
        queue.push(entry(i, rank=2 - i % 3))

    assert [serve(queue).rank for _ in range(9)] == [0] * 3 + [1] * 3 + [2] * 3


def test_without_a_floor_low_priority_starves_and_with_one_it_gets_its_share() -> None:
    for floor, expected in ((0.0, 0), (0.1, 10), (0.25, 25)):
        queue = fair({BATCH: floor})
        for i in range(200):
            queue.push(entry(i, rank=BATCH))
        served: Counter[int] = Counter()
        for i in range(100):
            queue.push(entry(1000 + i, rank=CRITICAL))
            served[serve(queue).rank] += 1
        assert served[BATCH] == pytest.approx(expected, abs=1)


def test_age_alone_lifts_nobody() -> None:
    """In an overload everything is old: strict order must not decay into first come, first served."""
    queue = fair()
    queue.push(entry(0, rank=BATCH))
    for i in range(1, 500):
        queue.push(entry(i, rank=CRITICAL))
        assert serve(queue).rank == CRITICAL


def test_a_class_that_was_idle_has_saved_nothing() -> None:
    queue = fair({BATCH: 0.5})
    queue.push(entry(0, rank=BATCH))
    for i in range(1, 101):  # it waits alone with its own kind: served at once
        queue.push(entry(i, rank=CRITICAL))
    assert [serve(queue).rank for _ in range(4)] == [CRITICAL, CRITICAL, BATCH, CRITICAL]  # credit .5, 1.0: due
    for _ in range(50):
        serve(queue)  # batch is idle here
    for i in range(200, 210):
        queue.push(entry(i, rank=BATCH))
    assert [serve(queue).rank for _ in range(4)] == [CRITICAL, CRITICAL, BATCH, CRITICAL]


COSTS = st.floats(1.0, 50.0)
MOVES = st.lists(
    st.tuples(st.sampled_from(["push", "push", "serve", "remove"]), st.integers(0, 2), COSTS), max_size=300
)


@settings(max_examples=200, deadline=None)
@given(MOVES, st.floats(0.0, 0.5), st.floats(0.0, 0.5))
def test_overtaking_is_bounded_by_the_floor_over_every_window(
    moves: list[tuple[str, int, float]], standard: float, batch: float
) -> None:
    """While a higher class waits, a lower one with floor f gets at most f of the cost served, and one request more."""
    floors = {STANDARD: standard, BATCH: batch}
    queue = fair(floors)
    ids: list[int] = []
    waiting: Counter[int] = Counter()
    overtaken = dict.fromkeys(floors, 0.0)  # cost, while a higher class waits, since the lower began to wait
    total = dict.fromkeys(floors, 0.0)
    largest = 0.0
    for i, (what, rank, cost) in enumerate(moves):
        if what == "push":
            queue.push(entry(i, rank, f"t{i % 2}", cost))
            ids.append(i)
            waiting[rank] += 1
            largest = max(largest, cost)
        elif what == "remove" and ids:
            gone = queue.remove(ids[(rank * 7 + i) % len(ids)])
            if gone is not None:
                ids.remove(gone.id)
                waiting[gone.rank] -= 1
        elif queue.head() is not None:
            before = Counter(waiting)
            taken = serve(queue)
            ids.remove(taken.id)
            waiting[taken.rank] -= 1
            for low in floors:
                if before[low]:
                    total[low] += taken.cost
                if taken.rank == low and any(before[high] for high in range(low)):
                    overtaken[low] += taken.cost
        for low, floor in floors.items():
            if not waiting[low]:
                overtaken[low] = total[low] = 0.0
            assert overtaken[low] <= floor * total[low] + 1e-6
    assert len(queue) == len(ids) == sum(waiting.values())


@settings(max_examples=100, deadline=None)
@given(st.lists(COSTS, min_size=50, max_size=200), st.floats(0.05, 0.5), st.floats(0.05, 0.5))
def test_each_class_that_waits_gets_its_floor(costs: list[float], standard: float, batch: float) -> None:
    floors = {STANDARD: standard, BATCH: batch}
    queue = fair(floors)
    for i, cost in enumerate(costs * 3):
        queue.push(entry(i, i % 3, "t", cost))
    got: Counter[int] = Counter()
    total, largest = 0.0, max(costs)
    while all(any(one.rank == rank for one in queue) for rank in (CRITICAL, STANDARD, BATCH)):
        taken = serve(queue)
        got[taken.rank] += taken.cost  # type: ignore[assignment]
        total += taken.cost
        for rank, floor in floors.items():
            assert got[rank] >= floor * total - 2 * largest - 1e-6


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), COSTS), min_size=10, max_size=200),
    st.lists(st.floats(0.5, 4.0), min_size=3, max_size=3),
)
def test_tenants_that_wait_differ_by_two_requests_at_most(
    pushes: list[tuple[int, float]], weights: list[float]
) -> None:
    queue = fair()
    for i, (who, cost) in enumerate(pushes):
        queue.push(entry(i, 0, f"t{who}", cost, weights[who]))
    waiting = Counter(f"t{who}" for who, _ in pushes)
    got = dict.fromkeys(waiting, 0.0)
    bound = 2 * max(cost / weights[who] for who, cost in pushes)
    while sum(count > 0 for count in waiting.values()) == len(waiting) and len(queue):
        taken = serve(queue)
        waiting[taken.tenant] -= 1
        got[taken.tenant] += taken.cost / taken.weight
        assert max(got.values()) - min(got.values()) <= bound + 1e-6


def test_a_flooder_in_front_does_not_delay_a_small_tenant() -> None:
    queue = fair()
    for i in range(1000):
        queue.push(entry(i, tenant="flooder"))
    serve(queue)
    queue.push(entry(2000, tenant="small"))

    assert "small" in [serve(queue).tenant for _ in range(2)]


def test_idleness_saves_up_no_burst() -> None:
    """The virtual counter of one that returns is lifted; else it would be served alone for as long as it slept."""
    queue = fair()
    for i in range(300):
        queue.push(entry(i, tenant="busy"))
    for _ in range(100):
        serve(queue)
    for i in range(1000, 1100):
        queue.push(entry(i, tenant="sleeper"))

    tenants = [serve(queue).tenant for _ in range(40)]
    assert tenants.count("busy") == 20


def test_answers_longer_than_expected_are_charged_when_they_are_known() -> None:
    queue = fair()
    for i in range(100):
        queue.push(entry(i, tenant="talker"))
        queue.push(entry(1000 + i, tenant="terse"))
    for _ in range(100):
        taken = serve(queue)
        queue.settle(taken, 3.0 if taken.tenant == "talker" else 0.0)

    assert sum(one.tenant == "terse" for one in queue) == pytest.approx(20, abs=3)  # 80 of 100 served: 4 to 1


def test_what_nothing_can_serve_stands_in_nobodys_way_and_keeps_its_place() -> None:
    queue = fair()
    for i in range(4):
        queue.push(entry(i))
    head = queue.head()
    assert head is not None
    queue.set_aside(head)
    assert (len(queue), queue.waiting) == (4, 3)
    assert serve(queue).id == 1

    queue.bring_back()
    assert [serve(queue).id for _ in range(3)] == [0, 2, 3]


def test_one_set_aside_can_leave() -> None:
    queue = fair()
    queue.push(entry(0))
    head = queue.head()
    assert head is not None
    queue.set_aside(head)

    assert queue.remove(0) is head
    queue.bring_back()
    assert queue.head() is None
    assert len(queue) == 0


def victim(queue: FairQueue[str], rank: int, tenant: str, length: int = 6) -> int | None:
    found = queue.victim(rank, tenant, length)
    return None if found is None else found.id


def test_who_makes_room_is_the_newest_of_the_lowest_class_then_of_the_hog() -> None:
    queue = fair()
    for i in range(5):
        queue.push(entry(i, rank=BATCH, tenant="hog"))
    queue.push(entry(10, rank=BATCH, tenant="small"))

    assert victim(queue, CRITICAL, "anyone") == 4
    assert victim(queue, BATCH, "small") == 4
    assert victim(queue, BATCH, "hog") is None  # nobody is pushed out for who hogs
    high = fair()
    high.push(entry(0, rank=CRITICAL, tenant="x"))
    assert victim(high, BATCH, "y", 1) is None  # nor a higher class for a lower


def test_a_class_with_a_floor_keeps_its_part_of_a_full_queue() -> None:
    queue = fair({BATCH: 0.2})
    for i in range(8):
        queue.push(entry(i, rank=CRITICAL))
    for i in range(8, 10):
        queue.push(entry(i, rank=BATCH))

    assert victim(queue, CRITICAL, "t", 10) is None  # 2 of 10 are its own
    queue.remove(9)
    queue.push(entry(10, rank=CRITICAL))
    assert victim(queue, BATCH, "t", 10) == 10  # and it takes back what it lacks
    assert victim(queue, STANDARD, "t", 10) is None


def test_in_a_plain_queue_nobody_is_pushed_out() -> None:
    queue: FairQueue[str] = FairQueue()
    queue.push(entry(0, rank=BATCH))

    assert victim(queue, CRITICAL, "t", 1) is None


def test_rules_change_while_requests_wait() -> None:
    queue: FairQueue[str] = FairQueue()
    for i in range(6):
        queue.push(entry(i, rank=2 - i % 3))
    head = queue.head()
    assert head is not None
    queue.set_aside(head)
    queue.tune(fair=True, floors={})
    queue.bring_back()
    assert [serve(queue).rank for _ in range(3)] == [0, 0, 1]

    queue.tune(fair=False, floors={})
    assert [serve(queue).id for _ in range(3)] == [0, 3, 4]


def test_how_many_stand_before_a_newcomer() -> None:
    queue = fair()
    for rank in (CRITICAL, STANDARD, STANDARD, BATCH):
        queue.push(entry(rank * 10 + len(queue), rank=rank))

    assert [queue.ahead(rank) for rank in (CRITICAL, STANDARD, BATCH)] == [1, 3, 4]
