"""Who asks for how much: lengths, tenants, classes and prefixes of generated streams."""

import dataclasses
import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.job import Job
from simulator.traffic import chance
from simulator.traffic.build import build
from simulator.traffic.lengths import Bimodal, Fixed, Lognormal
from simulator.traffic.spec import Class, Conversations, Generated, Prefix, Stream, Tenant

START = 1_767_571_200.0


def jobs(*streams: Stream, seed: int = 1, duration: float = 200.0) -> list[Job]:
    return list(build(streams, seed=seed, start=START, duration=duration))


def shared_blocks(first: Job, second: Job) -> int:
    pairs = zip(first.request.prefix, second.request.prefix, strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


@given(st.floats(20, 4000), st.floats(1.2, 12), st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_a_tail_that_is_not_there_flatters_every_p99(mean: float, ratio: float, seed: int) -> None:
    law = Lognormal(mean=mean, p99=mean * ratio)
    drawn = law.draw(chance.stream(seed, "lengths"), 100_000)
    assert np.mean(drawn) == pytest.approx(mean, rel=0.06)
    assert np.quantile(drawn, 0.99) == pytest.approx(mean * ratio, rel=0.08)
    assert drawn.min() >= 1
    assert drawn.max() <= law.most


def test_a_lognormal_by_its_cv() -> None:
    drawn = Lognormal(mean=500, cv=1.2).draw(chance.stream(1, "lengths"), 200_000)
    assert np.std(drawn) / np.mean(drawn) == pytest.approx(1.2, rel=0.05)


def test_a_law_that_cannot_be_is_said_to_be_impossible() -> None:
    with pytest.raises(ValueError, match="p99: no lognormal law has a mean of 100 and a p99 of 2000; write more"):
        Lognormal(mean=100, p99=2000)
    with pytest.raises(ValueError, match="exactly one of p99 and cv"):
        Lognormal(mean=100)
    with pytest.raises(ValueError, match="shortest: it is above the longest, 50"):
        Lognormal(mean=100, cv=1, shortest=60, longest=50)


def test_long_prompts_in_their_share() -> None:
    law = Bimodal(short=Fixed(tokens=100), long=Fixed(tokens=9000), share=0.1)
    counts = Counter(law.draw(chance.stream(1, "lengths"), 20_000).tolist())
    assert set(counts) == {100, 9000}
    assert counts[9000] == pytest.approx(2000, abs=170)
    assert law.most == 9000


def test_an_answer_longer_than_was_asked_for_breaks_every_context_limit() -> None:
    cut = jobs(Generated(name="a", rate=50, answer=Lognormal(mean=300, cv=1), max_tokens=256))
    assert max(job.output for job in cut) == 256
    assert {job.request.max_tokens for job in cut} == {256}
    free = jobs(Generated(name="a", rate=50, answer=Lognormal(mean=300, cv=1, longest=2000)))
    assert max(job.output for job in free) <= 2000
    assert {job.request.max_tokens for job in free} == {2000}


def test_a_tenant_that_gets_another_share_than_was_written() -> None:
    stream = Generated(
        name="a",
        rate=200,
        tenants=(Tenant(name="big", share=3), Tenant(name="small", share=1, count=10, zipf=1.0, region="eu")),
        region="us",
    )
    done = jobs(stream)
    tenants = Counter(job.request.tenant for job in done)
    assert tenants["big"] == pytest.approx(0.75 * len(done), rel=0.03)
    harmonic = sum(1 / i for i in range(1, 11))
    assert tenants["small-0"] == pytest.approx(0.25 * len(done) / harmonic, rel=0.06)
    assert tenants["small-9"] == pytest.approx(0.025 * len(done) / harmonic, rel=0.2)
    assert {job.request.region for job in done if job.request.tenant == "big"} == {"us"}
    assert {job.request.region for job in done if job.request.tenant != "big"} == {"eu"}


def test_classes_come_with_their_urgency_and_their_patience() -> None:
    stream = Generated(
        name="a",
        rate=200,
        classes=(
            Class(name="critical", share=1, priority=0, deadline=2.0),
            Class(name="batch", share=3, priority=10, patience=60.0, patience_cv=0.5),
        ),
        tenants=(Tenant(name="vip", classes={"critical": 1.0}), Tenant(name="other")),
    )
    done = jobs(stream)
    critical = [job for job in done if job.request.klass == "critical"]
    batch = [job for job in done if job.request.klass == "batch"]
    assert len(critical) + len(batch) == len(done)
    assert len(batch) == pytest.approx(0.5 * 0.75 * len(done), rel=0.03)
    assert not [job for job in batch if job.request.tenant == "vip"]
    for job in critical:
        assert job.request.priority == 0
        assert job.request.deadline == pytest.approx(job.arrived + 2.0)
        assert job.patience is None
    patience = [job.patience for job in batch if job.patience is not None]
    assert len(patience) == len(batch)
    assert np.mean(patience) == pytest.approx(60.0, rel=0.03)
    assert np.std(patience) == pytest.approx(30.0, rel=0.06)
    assert {job.request.deadline for job in batch} == {None}


def test_what_may_be_shed_first_is_a_class_of_its_own() -> None:
    stream = Generated(
        name="a", rate=200, classes=(Class(name="critical", priority=2, deadline=3.0),), sheddable=0.3
    )  # fmt: skip
    done = jobs(stream)
    shed = [job for job in done if job.request.klass == "sheddable"]
    assert len(shed) == pytest.approx(0.3 * len(done), rel=0.05)
    assert {job.request.priority for job in shed} == {3}
    assert all(job.request.deadline is not None for job in shed)


def test_tenants_that_share_a_prefix_which_is_not_theirs() -> None:
    stream = Generated(
        name="a",
        rate=50,
        prompt=Fixed(tokens=130),
        prefix=Prefix(tokens=Fixed(tokens=200), prompts=2, zipf=1.0, share=0.8),
        tenants=(Tenant(name="x"), Tenant(name="y")),
    )
    done = jobs(stream)
    with_system = [job for job in done if job.request.prompt_tokens == 330]
    without = [job for job in done if job.request.prompt_tokens == 130]
    assert len(with_system) + len(without) == len(done)
    assert len(with_system) == pytest.approx(0.8 * len(done), rel=0.03)
    assert {len(job.request.prefix) for job in with_system} == {330 // 64}
    # Three of the blocks lie wholly in the system prompt.
    heads = Counter((job.request.tenant, job.request.prefix[:3]) for job in with_system)
    assert len(heads) == 4
    assert len({head for _, head in heads}) == 4
    x = sorted(count for (tenant, _), count in heads.items() if tenant == "x")
    assert x[1] / x[0] == pytest.approx(2.0, rel=0.15)
    assert len({job.request.prefix[3] for job in with_system}) == len(with_system)


def test_a_common_system_prompt_is_shared_by_all_tenants() -> None:
    prefix = Prefix(tokens=Fixed(tokens=640), common=True)
    done = jobs(Generated(name="a", rate=20, prefix=prefix, tenants=(Tenant(name="x", count=5),)))
    assert len({job.request.prefix[:10] for job in done}) == 1


TALK = Generated(
    name="talk",
    rate=30,
    prompt=Lognormal(mean=200, cv=1.0),
    answer=Lognormal(mean=150, cv=0.8),
    prefix=Prefix(tokens=Fixed(tokens=500)),
    conversations=Conversations(turns=4, think=20.0, pace=0.02),
    tenants=(Tenant(name="x"), Tenant(name="y")),
    classes=(Class(name="p"), Class(name="q")),
)


def test_a_later_turn_whose_prefix_is_not_the_turn_before_never_hits_a_cache() -> None:
    done = jobs(TALK, duration=400.0)
    by_session: dict[str, list[Job]] = {}
    for job in done:
        by_session.setdefault(job.request.session, []).append(job)
    pairs = [pair for turns in by_session.values() for pair in itertools.pairwise(turns)]
    assert len(pairs) > 5000
    for before, after in pairs:
        a, b = before.request, after.request
        assert b.prompt_tokens > a.prompt_tokens + before.output
        known = a.prefix + before.after
        assert len(known) == (a.prompt_tokens + before.output) // a.block
        assert b.prefix[: len(known)] == known
        assert len(b.prefix) == b.prompt_tokens // b.block
        assert after.arrived >= before.arrived + 0.02 * before.output
        assert (a.tenant, a.klass) == (b.tenant, b.klass)
    first = [turns[0] for turns in by_session.values()]
    strangers = itertools.pairwise(first)
    most = 500 // 64  # the system prompt, where it is of the same tenant
    assert {shared_blocks(a, b) for a, b in strangers} == {0, most}


def test_turns_think_time_and_rate_are_what_was_asked_for() -> None:
    done = jobs(TALK, duration=2000.0)
    assert len(done) / 2000 == pytest.approx(30, rel=0.03)
    early = sum(job.arrived < START + 60 for job in done)
    assert early / 60 == pytest.approx(30, rel=0.15)  # as if it had always been there
    by_session: dict[str, list[Job]] = {}
    for job in done:
        by_session.setdefault(job.request.session, []).append(job)
    whole = [turns for turns in by_session.values() if START + 300 < turns[0].arrived < START + 1500]
    assert np.mean([len(turns) for turns in whole]) == pytest.approx(4.0, rel=0.03)
    pauses = [b.arrived - a.arrived - 0.02 * a.output for turns in whole for a, b in itertools.pairwise(turns)]
    assert np.mean(pauses) == pytest.approx(20.0, rel=0.03)


def test_a_conversation_never_outgrows_the_context() -> None:
    stream = Generated(
        name="a", rate=20, prompt=Fixed(tokens=300), answer=Fixed(tokens=200),
        conversations=Conversations(turns=50, think=1.0, context=2000),
    )  # fmt: skip
    lengths = {job.request.prompt_tokens for job in jobs(stream)}
    assert lengths == {300, 800, 1300, 1800}
    long = dataclasses.replace(stream, prompt=Fixed(tokens=3000))  # a first prompt is asked whatever its length
    assert {job.request.prompt_tokens for job in jobs(long)} == {3000}
