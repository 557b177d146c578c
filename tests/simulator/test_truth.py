"""The truth adds up: rows, seconds and moves, whatever window is asked for."""

import math

import pytest

from controller.core.model import Lever, Target
from routing.model import Request
from simulator.job import Ending, Job
from simulator.truth import ENDINGS, Census, Jobs, Move, Seconds, Truth


def job(number: int, **more: object) -> Job:
    one = Job(Request(number, 100, 10, klass="critical", tenant="acme"), 5, 10.0)
    for name, value in more.items():
        setattr(one, name, value)
    return one


def test_a_row_holds_what_became_of_a_job() -> None:
    jobs = Jobs()
    served = job(7, ending=Ending.FINISHED, first_token_at=11.0, ended_at=13.0, replica="a", cached=64, degraded=True)
    jobs.add("chat", served, False)
    lost = job(8, ending=Ending.FAILED, ended_at=12.0, why="crash", origin=3, attempt=1)
    jobs.add("chat", lost, True)
    assert len(jobs) == 2
    assert jobs.column("ttft").tolist()[0] == 1.0
    assert jobs.column("tpot").tolist()[0] == 0.5
    assert jobs.column("e2e").tolist() == [3.0, 2.0]
    assert math.isnan(jobs.column("ttft")[1])
    assert math.isnan(jobs.column("tpot")[1])
    assert jobs.column("origin").tolist() == [7, 3]
    assert [ENDINGS[code] for code in jobs.column("ending")] == [Ending.FINISHED, Ending.FAILED]
    assert jobs.column("retried").tolist() == [0, 1]
    assert jobs.column("degraded").tolist() == [1, 0]
    assert [jobs.replicas.words[code] for code in jobs.column("replica")] == ["a", ""]
    assert [jobs.whys.words[code] for code in jobs.column("why")] == ["", "crash"]


def test_a_job_without_an_end_is_no_row() -> None:
    with pytest.raises(ValueError, match="job 7 has not ended"):
        Jobs().add("chat", job(7), False)


def test_two_histories_differ_in_their_bytes_when_any_word_or_number_does() -> None:
    def made(**more: object) -> bytes:
        jobs = Jobs()
        jobs.add("chat", job(7, **{"ending": Ending.FAILED, "ended_at": 13.0, **more}), False)
        return jobs.raw()

    assert made() == made()
    assert len({made(), made(why="x"), made(replica="a"), made(cached=1), made(ended_at=13.5)}) == 5


def census(at: float, queued: int, starting: int, ready: int, draining: int) -> Census:
    return Census(at, ready, queued, starting, ready, draining)


def test_replica_seconds_are_those_of_the_window() -> None:
    truth = Truth()
    for row in (census(0.0, 0, 0, 2, 0), census(10.0, 1, 1, 2, 0), census(20.0, 0, 0, 4, 1)):
        truth.count("chat", row)
    assert truth.replica_seconds("chat", 0.0, 30.0) == Seconds(10.0, 10.0, 80.0, 10.0)
    assert truth.replica_seconds("chat", 5.0, 15.0) == Seconds(5.0, 5.0, 20.0, 0.0)
    assert truth.replica_seconds("chat", 25.0, 26.0) == Seconds(0.0, 0.0, 4.0, 1.0)
    assert truth.replica_seconds("nobody", 0.0, 30.0) == Seconds()
    assert truth.replica_seconds("chat", 0.0, 30.0).paid == 100.0


def test_what_changes_twice_in_a_moment_is_one_row_and_what_does_not_change_is_none() -> None:
    truth = Truth()
    for row in (census(0.0, 0, 0, 2, 0), census(0.0, 0, 1, 2, 0), census(5.0, 0, 1, 2, 0), census(6.0, 0, 0, 3, 0)):
        truth.count("chat", row)
    assert [row.at for row in truth.census["chat"]] == [0.0, 6.0]


def test_travel_counts_moves_and_how_far_they_went() -> None:
    truth, target = Truth(), Target("chat", Lever.REPLICAS)
    truth.moves += [Move(1.0, target, 2.0, 5.0), Move(2.0, target, 5.0, 4.0)]
    assert truth.travel() == {target: (2, 4.0)}
