"""The set-points that a controller moves, in the gateway that has them: what each does to those who wait.

As in ``test_laws_in_a_fleet``: 64 slots, about 31 requests/s of 2 s each; each disaster is shown without the law first.
"""

from dataclasses import replace

import pytest

from routing.actions import Drop, Reason, Reject, Send
from routing.gateway import Gateway
from routing.knobs import Admission, Concurrency, Klass, Knobs, Queue
from routing.model import Replica, Request
from routing.strategies import make
from tests.support.gateway_plant import Client, GatewayPlant, attained, poisson

TARGET = 2.0  # s to the first token
CLASSES = {"critical": Klass(rank=0), "standard": Klass(rank=1), "batch": Klass(rank=2)}
CAP = Knobs(concurrency=Concurrency(per_slot=1.0), classes=CLASSES)
DEADLINES = replace(CAP, admission=Admission(deadlines=True, prefill_rate=20_000.0))


def with_admission(knobs: Knobs, *, deadline_factor: float = 1.0, priority: float | None = None) -> Knobs:
    moved = replace(knobs.admission, deadline_factor=deadline_factor, priority=priority)
    return replace(knobs, admission=moved)


def classes(knobs: Knobs) -> dict[str, list[Client]]:
    """45 requests/s come, 15 of each class."""
    groups = {name: poisson(lambda t: 15.0, 90.0, klass=name) for name in CLASSES}
    GatewayPlant(knobs).run([client for group in groups.values() for client in group])
    return groups


def test_deadlines_far_beyond_the_promise_serve_as_many_and_all_of_them_late_until_they_are_cut() -> None:
    def run(factor: float) -> tuple[float, float]:
        clients = poisson(lambda t: 45.0, 90.0, deadline=20.0)
        GatewayPlant(with_admission(DEADLINES, deadline_factor=factor)).run(clients)
        done = sum(client.finished for client in clients) / len(clients)
        return attained(clients, TARGET), done

    late, as_many = run(1.0)
    in_time, served = run(0.09)
    assert late < 0.2
    assert in_time > 0.95 * 31 / 45
    assert served == pytest.approx(as_many, abs=0.12)  # what was turned away is what nobody could have served


def test_a_priority_spares_the_first_rank_where_nothing_else_knows_ranks() -> None:
    drowned = classes(CAP)
    assert attained(drowned["critical"], TARGET) < 0.2

    saved = classes(with_admission(CAP, priority=0.95))
    assert attained(saved["critical"], TARGET) > 0.95
    assert attained(saved["standard"], TARGET) > 0.85
    assert sum(client.finished for client in saved["batch"]) < 0.2 * len(saved["batch"])


def one(knobs: Knobs) -> Gateway:
    """A gateway before one replica of one slot."""
    made = Gateway(knobs, make("least-loaded"))
    made.joined(Replica("r", slots=1), 0.0)
    return made


def test_a_free_place_is_anybodys() -> None:
    """A priority that stands when the crowd has gone must cost nothing."""
    made = one(with_admission(CAP, priority=0.0))
    assert isinstance(made.arrive(Request(1, 10, 10, klass="batch"), 0.0)[0], Send)
    (refused,) = made.arrive(Request(2, 10, 10, klass="batch"), 0.1)
    assert isinstance(refused, Reject)
    assert refused.reason is Reason.SHED
    assert made.arrive(Request(3, 10, 10, klass="critical"), 0.2) == []  # waits
    made.finished(1, 10, 1.0)
    made.finished(3, 10, 2.0)
    assert isinstance(made.arrive(Request(4, 10, 10, klass="batch"), 3.0)[0], Send)


def test_a_part_of_a_rank_is_taken_without_chance() -> None:
    made = one(with_admission(CAP, priority=1.4))
    made.arrive(Request(0, 10, 10, klass="critical"), 0.0)
    out = [bool(made.arrive(Request(i, 10, 10, klass="batch"), 0.1)) for i in range(1, 101)]
    assert sum(out) == 60
    assert not any(made.arrive(Request(i, 10, 10, klass="standard"), 0.2) for i in range(101, 111))


def test_a_rank_with_a_floor_may_always_have_one_that_waits() -> None:
    """Else its floor would be the floor of nothing."""
    knobs = replace(CAP, queue=Queue(fair=True), classes={**CLASSES, "batch": Klass(rank=2, floor=0.1)})
    made = one(with_admission(knobs, priority=0.0))
    made.arrive(Request(0, 10, 10, klass="critical"), 0.0)
    assert made.arrive(Request(1, 10, 10, klass="batch"), 0.1) == []
    assert isinstance(made.arrive(Request(2, 10, 10, klass="batch"), 0.2)[0], Reject)


def test_what_was_promised_is_never_called_late() -> None:
    """The floor of a cut: however short, a wait within the class's own target goes on."""
    knobs = with_admission(DEADLINES, deadline_factor=0.1)
    short, kept = one(knobs), one(replace(knobs, classes={"critical": Klass(rank=0, target=TARGET)}))
    for made in (short, kept):
        made.arrive(Request(0, 10, 1000, klass="critical"), 0.0)
        made.arrive(Request(1, 10, 10, klass="critical", deadline=10.0), 0.0)
    (gone,) = short.poll(1.5)
    assert isinstance(gone, Drop)
    assert gone.reason is Reason.LATE
    assert kept.poll(1.5) == []
    assert isinstance(kept.poll(2.0)[0], Drop)


def test_a_cut_holds_for_those_that_wait_already_and_not_for_those_that_are_served() -> None:
    """Work that is paid for is worth its whole deadline."""
    made = one(DEADLINES)
    made.arrive(Request(0, 10, 1000, klass="critical", deadline=10.0), 0.0)
    made.arrive(Request(1, 10, 10, klass="critical", deadline=10.0), 0.0)
    made.tune(with_admission(DEADLINES, deadline_factor=0.2), 3.0)
    assert made.poll(5.0) == []
    assert made.inflight == 1
    (gone,) = made.finished(0, 10, 6.0)
    assert isinstance(gone, Drop)
