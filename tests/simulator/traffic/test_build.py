"""From streams to jobs: the same seed gives the same jobs, in order, and no more of them than are asked for."""

import dataclasses
import itertools
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.model import Request
from simulator.job import Job
from simulator.traffic.arrivals import Gamma, Weibull
from simulator.traffic.build import build
from simulator.traffic.lengths import Fixed
from simulator.traffic.shapes import Diurnal, Flash
from simulator.traffic.spec import Class, Conversations, Generated, Prefix, Stream, Tenant

START = 1_767_571_200.0

CHAT = Generated(
    name="chat",
    rate=20,
    arrivals=Gamma(cv=2.0),
    shapes=(Flash(at=60.0, rise=5.0, hold=20.0, fall=5.0, factor=3.0),),
    tenants=(Tenant(name="x", share=2), Tenant(name="y", count=3)),
    classes=(Class(name="critical", deadline=2.0), Class(name="batch", priority=3, patience=30.0, patience_cv=1.0)),
    sheddable=0.2,
)
TALK = Generated(name="talk", rate=10, conversations=Conversations(), prefix=Prefix(tokens=Fixed(tokens=300)))
BATCH = Generated(name="batch", rate=5, arrivals=Weibull(cv=1.5), start=30.0, end=90.0, model="small", zone="z")


def jobs(*streams: Stream, seed: int = 1, duration: float = 120.0) -> list[Job]:
    return list(build(streams, seed=seed, start=START, duration=duration))


def plain(job: Job) -> dict[str, object]:
    return dataclasses.asdict(job)


def without_ids(job: Job) -> dict[str, object]:
    return plain(
        Job(
            dataclasses.replace(job.request, id=0), job.output, job.arrived, 0, job.attempt, job.patience, job.stream
        )
    )  # fmt: skip


def test_the_same_seed_that_gives_other_jobs_makes_every_comparison_unfair() -> None:
    first, second = jobs(CHAT, TALK, BATCH, duration=80.0), jobs(CHAT, TALK, BATCH, duration=80.0)
    assert [plain(job) for job in first] == [plain(job) for job in second]
    assert [plain(job) for job in first] != [plain(job) for job in jobs(CHAT, TALK, BATCH, seed=2, duration=80.0)]


def test_a_stream_more_that_moves_the_others_spoils_paired_seeds() -> None:
    alone = [without_ids(job) for job in jobs(TALK)]
    among = [without_ids(job) for job in jobs(CHAT, BATCH, TALK) if job.stream == "talk"]
    assert alone == among


def test_a_knob_of_one_purpose_that_moves_another_purposes_numbers() -> None:
    other = dataclasses.replace(CHAT, prompt=Fixed(tokens=10), tenants=(), sheddable=0.0)
    mine, theirs = jobs(CHAT), jobs(other)
    assert [job.arrived for job in mine] == [job.arrived for job in theirs]
    assert [job.output for job in mine] == [job.output for job in theirs]
    assert [job.patience for job in mine if job.request.klass != "sheddable"] == [
        theirs[i].patience for i, job in enumerate(mine) if job.request.klass != "sheddable"
    ]


def test_a_longer_run_begins_like_the_shorter_one() -> None:
    short = jobs(CHAT, TALK, BATCH, duration=120.0)
    long = jobs(CHAT, TALK, BATCH, duration=240.0)
    assert [plain(job) for job in long[: len(short)]] == [plain(job) for job in short]


@given(st.permutations([CHAT, TALK, BATCH]), st.integers(0, 2**32), st.floats(1.0, 100.0))
@settings(max_examples=15, deadline=None)
def test_jobs_out_of_order_or_with_a_gap_in_their_ids(streams: list[Generated], seed: int, duration: float) -> None:
    done = jobs(*streams, seed=seed, duration=duration)
    assert [job.request.id for job in done] == list(range(len(done)))
    assert all(job.origin == job.request.id and job.attempt == 0 for job in done)
    assert all(a.arrived <= b.arrived for a, b in itertools.pairwise(done))
    assert all(START <= job.arrived <= START + duration for job in done)
    assert all(job.request.prompt_tokens >= 1 and 1 <= job.output <= job.request.max_tokens for job in done)


def test_a_field_that_lands_in_its_neighbour() -> None:
    stream = Generated(
        name="s", rate=1, tenants=(Tenant(name="t"),), classes=(Class(name="c", priority=7, deadline=1.0),),
        prompt=Fixed(tokens=11), answer=Fixed(tokens=5), block=32, model="m", version="v", adapter="a", precision="p",
        hardware="h", region="r", zone="z",
    )  # fmt: skip
    job = jobs(stream)[3]
    assert job.request == Request(
        id=3, prompt_tokens=11, max_tokens=5, block=32, tenant="t", klass="c", priority=7, deadline=job.arrived + 1.0,
        model="m", version="v", adapter="a", precision="p", hardware="h", region="r", zone="z",
    )  # fmt: skip
    assert (job.output, job.stream) == (5, "s")


def test_ids_of_two_sources_side_by_side_never_meet() -> None:
    ids = [
        [job.request.id for job in build([stream], seed=1, start=START, duration=50.0, first=first, step=2)]
        for first, stream in enumerate((CHAT, TALK))
    ]
    assert ids[0][:3] == [0, 2, 4]
    assert ids[1][:3] == [1, 3, 5]


def test_a_stream_outside_its_hours() -> None:
    times = [job.arrived - START for job in jobs(BATCH, duration=600.0)]
    assert min(times) >= 30.0
    assert max(times) < 90.0
    assert jobs(BATCH, duration=20.0) == []
    with pytest.raises(ValueError, match="end: is not later than start"):
        Generated(name="a", rate=1, start=10.0, end=10.0)


def test_two_streams_of_one_name_would_be_the_same_stream_twice() -> None:
    with pytest.raises(ValueError, match="'chat' is there twice"):
        jobs(CHAT, CHAT)


def test_a_day_of_traffic_that_is_held_in_memory_at_once() -> None:
    """Twenty-four hours at 100 req/s are 8.6 million requests; what is looked at is two minutes of the middle."""
    day = Generated(name="day", rate=100, shapes=(Diurnal(),))
    talk = dataclasses.replace(TALK, rate=50.0)
    tracemalloc.start()
    try:
        source = build((day, talk), seed=1, start=START, duration=86400.0)
        count = sum(1 for _ in itertools.islice(source, 10_000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert count == 10_000
    assert peak < 50e6
