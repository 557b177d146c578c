"""What reaches the loop from the twin has gone through the contracts, with resets, births, gaps and vanished pods."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from controller.core.facts import Fact
from controller.core.observation import Observation
from controller.core.ports import Matcher, PoolNeeds
from simulator.cluster.disturbances import Crash, Hang, MetricsOutage, OutOfMemory, Rollout
from simulator.spec import EngineLimits, LifeSpec, PrometheusSpec
from simulator.twin import Twin
from simulator.watch.page import Page, labels
from sources.scraped import ScrapedSource
from tests.support.twins import CHAT, START, ask, fleet, pool, traffic, twin

FACTS = frozenset(
    {
        Fact.TTFT, Fact.ITL, Fact.TPOT, Fact.E2E, Fact.QUEUE_TIME, Fact.FINISHED, Fact.RESPONSES, Fact.ERRORS,
        Fact.ADMITTED, Fact.PROMPT_TOKENS, Fact.GENERATION_TOKENS, Fact.PREFIX_HITS, Fact.PREFIX_QUERIES,
        Fact.PREEMPTIONS, Fact.RUNNING, Fact.WAITING, Fact.KV_USAGE, Fact.RESTARTS, Fact.OOM_RESTARTS,
        Fact.READY_REPLICAS, Fact.WANTED_REPLICAS,
    }
)  # fmt: skip
NEEDS = PoolNeeds(
    "chat", "vllm", (Matcher("model_name", "=", "chat"),), FACTS,
    replica_facts=frozenset({Fact.RUNNING, Fact.WAITING, Fact.KV_USAGE, Fact.GENERATION_TOKENS}),
    zone_label="zone",
    version_label="version",
    role_label="role",
    workload=("default", "Deployment", "chat"),
)  # fmt: skip


def observe(one: Twin, until: int, step: int = 5, source: ScrapedSource | None = None) -> list[Observation]:
    eyes = source or ScrapedSource([NEEDS], one.pages)
    begin = int(one.now - START)
    return [eyes.observe(START + at, 1.0) for at in range(begin + step, until + 1, step)]


def total(seen: list[Observation], fact: Fact) -> float:
    return sum(one.pools["chat"].counters.get(fact, 0.0) for one in seen if not one.error)


def test_every_fact_that_vllm_and_kubernetes_can_give_is_given() -> None:
    last = observe(twin(), 120)[-1].pools["chat"]
    given = last.histograms.keys() | last.counters.keys() | last.gauges.keys()
    assert FACTS - given == set()
    assert not last.failed
    assert last.gauges[Fact.READY_REPLICAS] == last.gauges[Fact.WANTED_REPLICAS] == 2
    assert (last.targets_up, last.targets_down) == (2, 0)
    assert sorted(last.replicas) == ["chat-v1-0", "chat-v1-1"]


def test_a_replica_is_known_by_its_zone_and_by_when_its_process_started() -> None:
    one = twin(fleet(pool(2, zones=("a", "b"))))
    replicas = observe(one, 60)[-1].pools["chat"].replicas
    assert [replica.zone for replica in replicas.values()] == ["a", "b"]
    assert {replica.started_at for replica in replicas.values()} == {START}


def test_a_replica_is_known_by_the_version_that_it_runs() -> None:
    one = twin(fleet(pool(2), disturbances=(Rollout(at=1.0, pool="chat", version="v2"),)))
    begun = observe(one, 30)[-1].pools["chat"].replicas
    done = observe(one, 1200, 15)[-1].pools["chat"].replicas
    assert {replica.version for replica in begun.values()} == {"v1"}
    assert {name: replica.version for name, replica in done.items()} == {"chat-v2-2": "v2", "chat-v2-3": "v2"}


def test_the_halves_of_a_split_fleet_are_told_apart_by_their_role() -> None:
    spec = fleet(
        pool(1, role="prefill", model_name="chat"), pools={"decode": pool(1, role="decode", model_name="chat")}
    )
    (first, second) = observe(twin(spec), 60)[-1].pools["chat"].replicas.values()
    assert (first.role, second.role) == ("prefill", "decode")


def test_a_crash_resets_its_counters_and_no_increment_is_negative() -> None:
    quick = LifeSpec(pull=0.0, load=1.0, warm=1.0)  # up again before the next scrape, so the reset shows as one
    crashes = tuple(Crash(at=20.0 + 40.0 * i, pool="chat", replica=i % 2) for i in range(6))
    one = twin(fleet(pool(2, life=quick), disturbances=crashes))
    seen = observe(one, 320)
    for observation in seen[1:]:
        facts = observation.pools["chat"]
        assert min(facts.counters.values()) >= 0.0
        for histogram in facts.histograms.values():
            assert all(a <= b for a, b in pairwise((0.0, *histogram.cumulative, histogram.count)))
            assert histogram.sum >= 0.0
    finished = (one.truth.jobs.column("ending") == 0).sum()
    # What was counted between the last scrape and a crash went with the process.
    assert 0.9 * finished < total(seen, Fact.FINISHED) <= finished
    assert total(seen, Fact.RESTARTS) == 6
    assert total(seen, Fact.OOM_RESTARTS) == 0


def test_an_oom_kill_is_told_from_a_crash() -> None:
    one = twin(fleet(disturbances=(OutOfMemory(at=50.0, pool="chat"), Crash(at=60.0, pool="chat"))))
    seen = observe(one, 300)
    assert (total(seen, Fact.RESTARTS), total(seen, Fact.OOM_RESTARTS)) == (2, 1)


def test_a_loading_pod_has_no_series_and_an_ended_one_takes_them_with_it() -> None:
    one = twin(fleet(pool(1)), traffic(10.0, 300.0))
    source = ScrapedSource([NEEDS], one.pages)
    observe(one, 30, source=source)
    one.apply([ask(CHAT, 1.0, 2.0)], one.now)
    while_loading = observe(one, 75, source=source)
    assert {len(o.pools["chat"].replicas) for o in while_loading} == {1}
    assert [o.pools["chat"].gauges[Fact.WANTED_REPLICAS] for o in while_loading][-1] == 2
    both = observe(one, 100, source=source)[-1].pools["chat"]
    assert (len(both.replicas), both.targets_up) == (2, 2)
    one.apply([ask(CHAT, 2.0, 1.0)], one.now)
    after = observe(one, 170, source=source)[-1].pools["chat"]
    assert sorted(after.replicas) == ["chat-v1-0"]
    assert (after.targets_up, after.targets_down) == (1, 0)


def test_a_pool_whose_scrapes_fail_is_down_and_not_empty() -> None:
    one = twin(fleet(disturbances=(MetricsOutage(at=60.0, pool="chat", duration=60.0),)))
    seen = observe(one, 200)
    dark = [o.pools["chat"] for o in seen if 66.0 <= o.at - START <= 120.0]
    assert {(facts.targets_up, facts.targets_down) for facts in dark} == {(0, 2)}
    assert all(Fact.WAITING not in facts.gauges for facts in dark)
    assert {replica.up for facts in dark for replica in facts.replicas.values()} == {False}
    assert seen[-1].pools["chat"].targets_up == 2


def test_an_engine_that_hangs_shows_a_page_that_stands_still() -> None:
    one = twin(fleet(pool(1), disturbances=(Hang(at=60.0, pool="chat", duration=40.0),)))
    seen = observe(one, 150)
    stuck = [o.pools["chat"] for o in seen if 66.0 <= o.at - START <= 100.0]
    assert {facts.targets_up for facts in stuck} == {1}
    assert sum(facts.counters[Fact.GENERATION_TOKENS] for facts in stuck) == 0
    assert len({(facts.gauges[Fact.RUNNING], facts.gauges[Fact.WAITING]) for facts in stuck}) == 1
    # The requests of meanwhile show when it moves again.
    later = [o.pools["chat"].gauges for o in seen if 101.0 <= o.at - START <= 106.0]
    assert max(gauges[Fact.RUNNING] + gauges[Fact.WAITING] for gauges in later) > 300


def test_a_process_that_answers_nothing_is_down() -> None:
    one = twin(fleet(pool(1), disturbances=(Hang(at=60.0, pool="chat", duration=40.0, answers=False),)))
    seen = observe(one, 150)
    stuck = [o.pools["chat"] for o in seen if 66.0 <= o.at - START <= 100.0]
    assert {(facts.targets_up, facts.targets_down) for facts in stuck} == {(0, 1)}
    assert seen[-1].pools["chat"].targets_up == 1


def test_aborts_are_responses_that_did_not_finish_and_refusals_are_errors() -> None:
    limits = EngineLimits(max_num_seqs=4, kv_tokens=50_000, max_queue=40)
    one = twin(fleet(pool(1, limits=limits)), traffic(20.0, 200.0, patience=3.0))
    seen = observe(one, 260)
    endings = one.truth.jobs.column("ending").tolist()
    finished, rejected, aborted = (endings.count(code) for code in (0, 1, 3))
    assert rejected > 100
    assert aborted > 100
    responses, errors = total(seen, Fact.RESPONSES), total(seen, Fact.ERRORS)
    assert errors == pytest.approx(rejected, rel=0.05)
    assert responses - errors - total(seen, Fact.FINISHED) == pytest.approx(aborted, rel=0.05)
    assert total(seen, Fact.FINISHED) == pytest.approx(finished, rel=0.05)


def test_scrapes_that_come_late_lose_nothing_that_was_counted() -> None:
    calm = twin(fleet(prometheus=PrometheusSpec(interval=5.0)), seed=4)
    rough = twin(fleet(prometheus=PrometheusSpec(interval=5.0, delay=7.0, jitter=4.0)), seed=4)
    assert total(observe(calm, 400), Fact.FINISHED) == pytest.approx(
        total(observe(rough, 400), Fact.FINISHED), rel=0.04
    )
    assert calm.truth.jobs.raw() == rough.truth.jobs.raw()  # and looking changes nothing


def test_a_query_that_fails_is_an_error_and_the_next_one_has_it_all() -> None:
    down = {START + 20.0, START + 25.0}
    one = twin()

    def pages(at: float) -> Iterator[Page]:
        if at in down:
            raise ConnectionError("refused")
        return one.pages(at)

    seen = observe(one, 60, source=ScrapedSource([NEEDS], pages))
    assert [bool(o.error) for o in seen] == [False] * 3 + [True] * 2 + [False] * 7
    assert "the scrape of 1000020.000 failed: refused" in seen[3].error
    assert seen[5].since == START + 15.0
    assert seen[5].pools["chat"].counters[Fact.FINISHED] > 2 * 5 * 20.0


def test_a_tick_that_is_not_later_is_refused() -> None:
    source = ScrapedSource([NEEDS], twin().pages)
    source.observe(START + 10.0, 1.0)
    assert "is not later than the one before" in source.observe(START + 10.0, 1.0).error


def test_keys_that_are_new_objects_each_time_are_read_as_well() -> None:
    def pages(at: float) -> Iterator[Page]:
        target = {"job": "chat", "instance": "i", "pod": "p", "model_name": "chat"}
        yield Page((("up", labels(job="chat", instance="i", pod="p")),), np.array([1.0]))
        yield Page((("vllm:num_requests_running", labels(**target, engine="0")),), np.array([at]))
        yield Page((("vllm:num_requests_waiting", labels(**target, engine="0")),), np.array([np.inf]))

    source = ScrapedSource([NEEDS], pages)
    assert [source.observe(at, 1.0).pools["chat"].gauges for at in (1.0, 2.0)] == [
        {Fact.RUNNING: 1.0},
        {Fact.RUNNING: 2.0},
    ]
