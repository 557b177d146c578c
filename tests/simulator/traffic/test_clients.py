"""Clients that come again: how often, how soon, and which of them."""

import dataclasses
import itertools

import pytest

from routing.model import Request
from simulator.job import Ending, Job
from simulator.traffic.clients import AGAIN, Clients
from simulator.traffic.retry import Retry
from simulator.traffic.spec import Generated

NOW = 1_767_571_200.0


def clients(law: Retry | None, seed: int = 1) -> Clients:
    return Clients([Generated(name="s", rate=1, retry=law), Generated(name="t", rate=1)], seed)


def job(number: int = 0, ending: Ending = Ending.REJECTED, stream: str = "s", *, at: float = NOW) -> Job:
    made = Job(Request(number, 100, 50, tenant="a", deadline=at + 2.0), 20, at, number, 0, 30.0, stream)
    made.ending = ending
    return made


def attempts(law: Retry, number: int = 0, *, retry_after: float | None = None, seed: int = 1) -> list[Job]:
    """All that come of one job that is refused each time a second after it came."""
    asked, those = job(number), clients(law, seed)
    found = [asked]
    while (after := those.again(asked, asked.arrived + 1.0, retry_after)) is not None:
        after.ending = Ending.REJECTED
        found.append(after)
        asked = after
    return found


def test_a_client_that_never_gives_up_is_a_storm_of_its_own() -> None:
    found = attempts(Retry(attempts=4, backoff=2.0, jitter=0.0, longest=5.0))
    assert [one.attempt for one in found] == [0, 1, 2, 3]
    assert [one.request.attempt for one in found] == [0, 1, 2, 3]
    assert [b.arrived - a.arrived - 1.0 for a, b in itertools.pairwise(found)] == [2.0, 4.0, 5.0]
    assert {one.origin for one in found} == {0}
    assert [one.request.id for one in found] == [0, AGAIN, 2 * AGAIN, 3 * AGAIN]
    for one in found:
        assert one.request.deadline == pytest.approx(one.arrived + 2.0)
        assert (one.output, one.patience, one.stream, one.request.tenant) == (20, 30.0, "s", "a")
    assert found[1].sent_at is None
    assert len(attempts(Retry(attempts=1))) == 1


@pytest.mark.parametrize(
    ("ending", "comes"),
    [
        (Ending.REJECTED, True), (Ending.TIMED_OUT, True), (Ending.FAILED, True),
        (Ending.ABORTED, False), (Ending.FINISHED, False),
    ],
)  # fmt: skip
def test_a_client_that_was_served_or_has_left_does_not_come_again(ending: Ending, comes: bool) -> None:
    assert (clients(Retry()).again(job(ending=ending), NOW, None) is not None) is comes
    stubborn = clients(Retry(impatient=True)).again(job(ending=Ending.ABORTED), NOW, None)
    assert stubborn is not None


def test_clients_of_a_stream_without_retries_go_away() -> None:
    assert clients(Retry()).again(job(stream="t"), NOW, None) is None
    assert clients(None).again(job(), NOW, None) is None


def test_a_retry_after_is_honoured_by_those_that_honour_it() -> None:
    law = Retry(attempts=2, backoff=1.0, jitter=0.5, honours=0.6)
    waits = [attempts(law, n, retry_after=20.0)[1].arrived - NOW - 1.0 for n in range(4000)]
    patient = [wait for wait in waits if wait >= 20.0]
    assert len(patient) / 4000 == pytest.approx(0.6, abs=0.03)
    assert max(patient) <= 30.0  # jitter comes on top, so that they do not come as one
    assert len({round(wait, 3) for wait in patient}) > 1000
    assert all(0.5 <= wait <= 1.0 for wait in waits if wait < 20.0)


def test_the_share_that_retries_and_the_jitter() -> None:
    law = Retry(attempts=2, share=0.3, backoff=4.0, jitter=1.0)
    chains = [attempts(law, n) for n in range(4000)]
    waits = [chain[1].arrived - NOW - 1.0 for chain in chains if len(chain) == 2]
    assert len(waits) / 4000 == pytest.approx(0.3, abs=0.03)
    assert sum(waits) / len(waits) == pytest.approx(2.0, rel=0.06)
    assert min(waits) >= 0.0
    assert max(waits) <= 4.0


def test_an_order_of_endings_that_changes_who_retries() -> None:
    """Each decision depends on seed, stream, origin and attempt alone."""
    law = Retry(share=0.5)
    there, back = clients(law), clients(law)
    forwards = {n: there.again(job(n), NOW + 1, None) for n in range(200)}
    backwards = {n: back.again(job(n), NOW + 1, None) for n in reversed(range(200))}
    for n in range(200):
        a, b = forwards[n], backwards[n]
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            assert dataclasses.asdict(a) == dataclasses.asdict(b)
    other = clients(law, seed=2)
    assert [n for n in range(200) if other.again(job(n), NOW + 1, None)] != [n for n, a in forwards.items() if a]
