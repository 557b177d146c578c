"""Real traces: every request at its time, and the shape that stays when the rate is scaled."""

import dataclasses
import itertools
from collections import Counter
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from controller.core.errors import InputError
from simulator.job import Job
from simulator.traffic.build import build
from simulator.traffic.chance import Floats
from simulator.traffic.lengths import Empirical, Pairs
from simulator.traffic.shapes import Step
from simulator.traffic.spec import (
    Agentic,
    Azure,
    Class,
    Generated,
    Mooncake,
    Requests,
    ServeGen,
    Stream,
    Tenant,
)
from tests.support.streams import shared

Scaling = Literal["even", "independent"]

START = 1_767_571_200.0


def jobs(stream: Stream, duration: float = 86400.0, seed: int = 1) -> list[Job]:
    return list(build([stream], seed=seed, start=START, duration=duration))


def times(done: list[Job]) -> Floats:
    return np.array([job.arrived - START for job in done])


def minutes(done: list[Job], until: float, width: float = 60.0) -> Floats:
    return np.histogram(times(done), bins=np.arange(0.0, until + 1e-9, width))[0].astype(float)


def hit_rate(done: list[Job]) -> float:
    """Of an infinite cache."""
    seen: set[int] = set()
    hit = total = 0
    for job in done:
        known = sum(1 for _ in itertools.takewhile(seen.__contains__, job.request.prefix))
        seen.update(job.request.prefix)
        hit, total = hit + known * job.request.block, total + job.request.prompt_tokens
    return hit / total


@pytest.fixture(scope="module")
def azure() -> Azure:
    return Azure(name="azure", file=str(shared("traces/azure_llm_2023_conv.csv.gz")))


@pytest.fixture(scope="module")
def mooncake() -> Mooncake:
    return Mooncake(name="mooncake", file=str(shared("traces/mooncake_conversation_trace.jsonl.gz")))


@pytest.fixture(scope="module")
def day() -> Requests:
    return Requests(name="day", file=str(shared("traces/servegen_realised_deepseek-r1_24h.csv.gz")))


def test_azure_every_request_at_its_time(azure: Azure) -> None:
    done = jobs(azure)
    assert len(done) == 19_366
    at = times(done)
    assert at[0] == 0.0
    assert at[1] == pytest.approx(50.995169 - 46.680590, abs=1e-5)
    assert at[-1] == pytest.approx(3501.72, abs=0.01)
    assert len(done) / at[-1] == pytest.approx(5.53, abs=0.005)
    assert minutes(done, 3501).max() / 60 == pytest.approx(8.45, abs=0.01)
    prompts, answers = [job.request.prompt_tokens for job in done], [job.output for job in done]
    assert np.mean(prompts) == pytest.approx(1155, abs=1)
    assert np.mean(answers) == pytest.approx(211, abs=1)
    assert np.median(prompts) == 1020
    assert np.median(answers) == 129
    assert {job.request.max_tokens for job in done} == {max(answers)}


def test_mooncake_prefixes_and_its_coarse_clock(mooncake: Mooncake) -> None:
    done = jobs(mooncake)
    assert len(done) == 12_031
    assert hit_rate(done) == pytest.approx(0.37, abs=0.005)
    assert {job.request.block for job in done} == {512}
    assert all(len(job.request.prefix) == job.request.prompt_tokens // 512 for job in done)
    coarse = jobs(dataclasses.replace(mooncake, quantum=0.0))
    assert len(set(times(coarse).tolist())) == 1180
    assert len(set(times(done).tolist())) > 12_000
    # Spread, each request stays with its stamp and behind those before it.
    assert [job.output for job in done] == [job.output for job in coarse]
    late = times(done) - times(coarse)
    assert late.min() >= -1e-6
    assert late.max() <= 3.0
    assert late.mean() == pytest.approx(1.5, abs=0.05)


def test_servegen_a_day_with_its_tenants(day: Requests) -> None:
    tenants, hours = Counter[str](), [0] * 24
    for job in build([day], seed=1, start=START, duration=86400.0):
        tenants[job.request.tenant] += 1
        hours[int((job.arrived - START) / 3600)] += 1
    assert sum(hours) == 284_499
    assert len(tenants) == 73
    assert max(hours) / min(hours) == pytest.approx(4.7, abs=0.05)
    # An hour of it, from noon, at twelve times the speed.
    noon = jobs(dataclasses.replace(day, since=43200.0, until=46800.0, speed=12.0))
    assert len(noon) == pytest.approx(hours[12], abs=1)
    assert times(noon)[-1] == pytest.approx(300.0, abs=2.0)


def test_vtc_and_its_tenants() -> None:
    done = jobs(Requests(name="vtc", file=str(shared("traces/vtc_arena_27tenants.csv.gz"))))
    assert len(done) == 1500
    assert len({job.request.tenant for job in done}) == 27
    assert times(done)[-1] == pytest.approx(600.0)


@pytest.mark.parametrize("scaling", ["even", "independent"])
@pytest.mark.parametrize("factor", [0.2, 5.0, 1.3])
def test_a_scaled_trace_that_lost_its_shape_is_another_trace(azure: Azure, factor: float, scaling: Scaling) -> None:
    whole = jobs(azure)
    done = jobs(dataclasses.replace(azure, factor=factor, scaling=scaling))
    assert len(done) == pytest.approx(factor * len(whole), abs=1 if scaling == "even" else 250)
    before, after = minutes(whole, 3480, 120.0), minutes(done, 3480, 120.0)
    if scaling == "even":
        assert np.abs(after - factor * before).max() <= max(2.0, 2 * factor)
    assert np.corrcoef(before, after)[0, 1] > (0.99 if factor > 1 or scaling == "even" else 0.85)
    assert np.mean([job.request.prompt_tokens for job in done]) == pytest.approx(1155, rel=0.03)
    # Bursts stay: over ten seconds, the variance of the relative rate is at least as high as it was.
    ten, tenth = minutes(whole, 3480, 10.0), minutes(done, 3480, 10.0)
    assert np.std(tenth) / np.mean(tenth) > 0.8 * np.std(ten) / np.mean(ten)


def test_copies_at_the_very_same_time_are_bursts_that_nobody_sent(azure: Azure) -> None:
    part = dataclasses.replace(azure, until=600.0)
    once = len(set(times(jobs(part)).tolist()))
    for scaling in ("even", "independent"):
        twice = times(jobs(dataclasses.replace(part, factor=3.0, scaling=scaling)))
        assert len(set(twice.tolist())) > 2.99 * once


def test_every_seed_keeps_other_requests(azure: Azure) -> None:
    part = dataclasses.replace(azure, until=600.0, factor=0.2)
    kept = {tuple(job.output for job in jobs(part, seed=seed)) for seed in range(8)}
    assert 2 <= len(kept) <= 5  # of five, the first, second, ... that comes
    others = {
        tuple(job.output for job in jobs(dataclasses.replace(part, scaling="independent"), seed=s)) for s in (1, 2)
    }
    assert len(others) == 2


def test_copies_keep_the_cv_of_the_gaps(azure: Azure) -> None:
    def cv(done: list[Job]) -> float:
        gaps = np.diff(times(done))
        return float(gaps.std() / gaps.mean())

    assert cv(jobs(dataclasses.replace(azure, factor=5.0))) == pytest.approx(cv(jobs(azure)), rel=0.02)


@pytest.mark.parametrize("scaling", ["even", "independent"])
@pytest.mark.parametrize("factor", [0.2, 5.0])
def test_copies_that_share_their_prefixes_fake_a_cache(mooncake: Mooncake, factor: float, scaling: Scaling) -> None:
    done = jobs(dataclasses.replace(mooncake, factor=factor, scaling=scaling))
    assert len(done) == pytest.approx(factor * 12_031, rel=0.05)
    assert hit_rate(done) == pytest.approx(0.373, abs=0.04)


def test_lengths_scale_with_their_blocks(mooncake: Mooncake) -> None:
    whole = jobs(mooncake)
    done = jobs(dataclasses.replace(mooncake, prompt_factor=0.25, answer_factor=2.0, longest=8192))
    assert {job.request.block for job in done} == {128}
    assert max(job.request.prompt_tokens for job in done) <= 8192
    kept = [job for job in whole if round(job.request.prompt_tokens * 0.25) <= 8192]
    assert len(done) == len(kept)
    assert [job.output for job in done] == [2 * job.output for job in kept]
    assert hit_rate(done) == pytest.approx(hit_rate(kept), abs=0.002)


def test_a_trace_that_ends_before_the_run_begins_anew(azure: Azure) -> None:
    part = dataclasses.replace(azure, until=600.0)
    once = jobs(part, 1800.0)
    again = jobs(dataclasses.replace(part, repeat=True), 1800.0)
    assert times(once).max() <= 600.0
    assert len(again) == pytest.approx(3 * len(once), abs=3)
    assert [job.output for job in again[: len(once)]] == [job.output for job in once]


def test_tenants_of_a_trace_are_described_where_they_differ(day: Requests) -> None:
    stream = dataclasses.replace(
        day,
        until=3600.0,
        tenants=(Tenant(name="c39", classes={"critical": 1.0}, model="big"),),
        classes=(Class(name="critical", share=0.0, deadline=2.0), Class(name="usual")),
    )
    done = jobs(stream)
    assert {(job.request.klass, job.request.model) for job in done if job.request.tenant == "c39"} == {
        ("critical", "big")
    }
    assert {(job.request.klass, job.request.model) for job in done if job.request.tenant != "c39"} == {("usual", "")}
    with pytest.raises(
        InputError, match=r"traffic 'day': tenant 'acme' is not in the trace; it has c0, .* and 63 more"
    ):
        jobs(dataclasses.replace(day, tenants=(Tenant(name="acme"),)))


def test_one_conversation_stays_with_one_tenant(mooncake: Mooncake) -> None:
    done = jobs(dataclasses.replace(mooncake, tenants=(Tenant(name="a", share=3), Tenant(name="b"))))
    by_text: dict[int, set[str]] = {}
    for job in done:
        if len(job.request.prefix) >= 2:
            by_text.setdefault(job.request.prefix[1], set()).add(job.request.tenant)
    assert all(len(tenants) == 1 for tenants in by_text.values())
    assert sum(tenants == {"a"} for tenants in by_text.values()) / len(by_text) == pytest.approx(0.75, abs=0.02)


def test_servegen_clients_come_at_their_rates() -> None:
    file = str(shared("traces/servegen_deepseek-r1_clients_trace.csv.gz"))
    counts = [len(jobs(ServeGen(name="g", file=file, factor=0.05), 14_400.0, seed)) for seed in range(8)]
    rows = np.genfromtxt(file, delimiter=",", skip_header=1, usecols=(1, 2))
    expected = 0.05 * 600 * rows[rows[:, 0] < 14_400, 1].sum()
    assert np.mean(counts) == pytest.approx(expected, abs=4 * float(np.std(counts)) / 8**0.5 + 0.01 * expected)
    done = jobs(ServeGen(name="g", file=file, factor=0.05, since=600.0, speed=10.0), 60.0)
    window = rows[rows[:, 0] == 600, 1].sum() * 0.05 * 600
    assert len(done) == pytest.approx(window, rel=0.25)
    assert {job.request.tenant for job in done} <= {f"c{n}" for n in range(100)}


def test_agents_sessions_grow_and_have_texts_of_their_own() -> None:
    file = str(shared("traces/agentic_claude_code_sample_hashids.jsonl.gz"))
    stream = Agentic(name="agents", file=file, rate=1.0, longest=100_000, shapes=(Step(at=1800.0, factor=2.0),))
    done = jobs(stream, 3600.0)
    first, second = (minutes(done, 3600, 1800.0) / 1800).tolist()
    assert first == pytest.approx(1.0, rel=0.2)
    assert second > 1.3 * first
    assert max(job.request.prompt_tokens for job in done) <= 100_000
    assert 0.6 < hit_rate(done) < 0.95
    owner: dict[int, str] = {}
    for job in done:
        assert len(job.request.prefix) == job.request.prompt_tokens // 64
        assert {owner.setdefault(block, job.request.session) for block in job.request.prefix[:50]} == {
            job.request.session
        }


def test_lengths_drawn_from_a_trace_are_those_of_the_trace(azure: Azure) -> None:
    pairs = Generated(name="a", rate=200, pairs=Pairs(format="azure", file=azure.file, prompt_factor=2.0))
    done = jobs(pairs, 200.0)
    prompts, answers = [job.request.prompt_tokens for job in done], [job.output for job in done]
    assert np.mean(prompts) == pytest.approx(2310, rel=0.03)
    whole = jobs(azure)
    together = {(2 * job.request.prompt_tokens, job.output) for job in whole}
    assert set(zip(prompts, answers, strict=True)) <= together
    apart = Generated(
        name="a", rate=200, prompt=Empirical(format="azure", file=azure.file, column="prompt", longest=2000)
    )  # fmt: skip
    drawn = [job.request.prompt_tokens for job in jobs(apart, 200.0)]
    assert np.median(drawn) == pytest.approx(1020, rel=0.03)
    assert max(drawn) == 2000


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def test_an_empty_window_is_said_and_not_replayed_as_silence(tmp_path: Path) -> None:
    file = write(tmp_path / "t.csv", "arrival_s,tenant,input_tokens,output_tokens\n1,a,5,5\n2,a,900,5\n")
    stream = Requests(name="r", file=file, since=10.0)
    with pytest.raises(InputError, match=r"t\.csv: nothing of traffic 'r' is left .* lasts 2 s, widen them"):
        build([stream], seed=1, start=START, duration=60.0)
    clients = write(tmp_path / "c.csv", "client_id,t_s,rate_rps,cv,arrival_pattern\n0,0,1,1,Gamma\n")
    with pytest.raises(InputError, match=r"c\.csv: since of traffic 'c' is after the end of the trace, 600 s"):
        build([ServeGen(name="c", file=clients, since=600.0)], seed=1, start=START, duration=60.0)
    short = Requests(name="r", file=file, longest=100)
    assert [job.request.prompt_tokens for job in jobs(short)] == [5]
    with pytest.raises(ValueError, match="until: is not later than since"):
        Requests(name="r", file=file, since=10.0, until=5.0)
