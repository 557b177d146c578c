"""A gateway's page tells what engines cannot: what was offered, refused, and waits before them."""

import math
from dataclasses import replace

import pytest

from controller.core.facts import Fact
from controller.core.observation import Observation
from controller.core.ports import Matcher, PoolNeeds
from routing.actions import Reason
from routing.counts import Counts, Decisions, Tally
from routing.knobs import Concurrency, Klass, Knobs, Queue
from routing.model import Replica, Request
from simulator.job import Ending, Job
from simulator.spec import EngineLimits, GatewaySpec
from simulator.twin import Twin
from simulator.watch.picker import Picker
from sources.scraped import ScrapedSource
from tests.support.twins import START, fleet, pool, traffic, twin

FACTS = frozenset(
    {
        Fact.TTFT, Fact.TPOT, Fact.E2E, Fact.ARRIVED, Fact.FINISHED, Fact.ERRORS, Fact.REJECTED, Fact.PROMPT_TOKENS,
        Fact.GENERATION_TOKENS, Fact.PREFIX_HITS, Fact.PREFIX_QUERIES, Fact.RUNNING, Fact.WAITING, Fact.KV_USAGE,
        Fact.READY_REPLICAS, Fact.SATURATION,
    }
)  # fmt: skip
NOTHING = Counts({}, Decisions(), {})
NEEDS = PoolNeeds(
    "chat", "gaie", (Matcher("model_name", "=", "chat"),), FACTS,
    tenant_facts=frozenset({Fact.ARRIVED, Fact.REJECTED}),
    class_facts=frozenset({Fact.ARRIVED, Fact.REJECTED, Fact.TTFT}),
    class_label="request_class",
)  # fmt: skip


def gated(**more: object) -> Knobs:
    return Knobs(concurrency=Concurrency(per_slot=1.0), queue=Queue(wait=30.0, length=200), **more)  # type: ignore[arg-type]


def crowded(knobs: Knobs) -> tuple[Twin, list[Observation]]:
    """One replica with a standing cap, and twice what it can serve."""
    limits = EngineLimits(max_num_seqs=8, kv_tokens=100_000)
    one = twin(fleet(pool(1, limits=limits, gateway=GatewaySpec(knobs=knobs))), traffic(40.0, 120.0))
    source = ScrapedSource([NEEDS], one.pages)
    return one, [source.observe(START + at, 1.0) for at in range(5, 181, 5)]


def total(seen: list[Observation], fact: Fact, tenant: str = "", klass: str = "") -> float:
    added = 0.0
    for one in seen:
        facts = one.pools["chat"]
        part = facts.tenants.get(tenant) if tenant else facts.classes.get(klass) if klass else facts
        added += part.counters.get(fact, 0.0) if part is not None else 0.0
    return added


def test_every_fact_of_the_contract_that_a_gateway_without_flow_control_times_can_give_is_given() -> None:
    _, seen = crowded(gated())
    last = seen[15].pools["chat"]
    assert FACTS - (last.histograms.keys() | last.counters.keys() | last.gauges.keys()) == set()
    assert not last.failed


def test_what_waits_before_the_engines_is_seen_at_the_gateway_alone() -> None:
    one, seen = crowded(gated())
    gauges = seen[10].pools["chat"].gauges
    assert gauges[Fact.RUNNING] == 8.0
    assert gauges[Fact.WAITING] > 50.0
    assert gauges[Fact.SATURATION] > 5.0
    (server,) = one.fleet.cluster.pools["chat"].servers.values()
    assert server.engine is not None
    assert server.engine.waiting == 0


def test_offered_is_served_and_refused_by_tenant_and_class_too() -> None:
    one, seen = crowded(gated(classes={"batch": Klass(load_lo=1.0, load_hi=1.0)}))
    jobs = one.truth.jobs
    endings = jobs.column("ending").tolist()
    assert one.inflight == 0
    # The first observation has no increments.
    assert total(seen, Fact.ARRIVED) == pytest.approx(len(jobs), rel=0.06)
    assert total(seen, Fact.FINISHED) == pytest.approx(endings.count(0), rel=0.06)
    refused = total(seen, Fact.REJECTED)
    assert refused > 100
    assert refused == pytest.approx(len(endings) - endings.count(0), rel=0.06)
    assert sum(total(seen, Fact.ARRIVED, tenant=name) for name in "abc") == total(seen, Fact.ARRIVED)
    assert total(seen, Fact.REJECTED, klass="batch") > 0.8 * refused
    assert total(seen, Fact.ERRORS) == 0.0


def served(number: int, **more: object) -> Job:
    job = Job(Request(number, 100, 50, klass="critical", tenant="acme"), 5, 10.0)
    for name, value in more.items():
        setattr(job, name, value)
    return job


@pytest.mark.parametrize(
    ("ending", "why", "code"),
    [
        (Ending.REJECTED, Reason.PROMPT_TOO_LONG, "BadRequest"),
        (Ending.REJECTED, "a context of 9 tokens is longer than 8 (HTTP 400)", "BadRequest"),
        (Ending.REJECTED, Reason.NO_CAPACITY, "ServiceUnavailable"),
        (Ending.REJECTED, Reason.SHED, "ResourceExhausted"),
        (Ending.TIMED_OUT, Reason.WAITED, "ResourceExhausted"),
        (Ending.TIMED_OUT, "waited 3 s for a place in the batch", "ModelServerError"),
        (Ending.REJECTED, "40 requests wait already (HTTP 503)", "ModelServerError"),
        (Ending.FAILED, "the replica failed", "ModelServerError"),
    ],
)
def test_each_bad_end_has_the_word_that_llm_d_has_for_it(ending: Ending, why: str, code: str) -> None:
    picker = Picker("chat-gateway", "chat", "default")
    picker.ended(served(1, ending=ending, why=str(why), ended_at=12.0))
    page = picker.page([], NOTHING, 0, 0, math.inf)
    codes = [dict(pairs)["error_code"] for name, pairs in page.keys if name == "llm_d_epp_request_error_total"]
    assert codes == [code]


def test_a_client_that_went_away_is_counted_nowhere_as_with_the_real_one() -> None:
    picker = Picker("chat-gateway", "chat", "default")
    picker.arrived(served(1))
    picker.ended(served(1, ending=Ending.ABORTED, ended_at=12.0))
    names = [name for name, _ in picker.page([], NOTHING, 0, 0, math.inf).keys]
    assert "llm_d_epp_request_error_total" not in names
    assert "llm_d_epp_request_total" in names


def test_the_keys_are_one_object_while_the_series_are_the_same() -> None:
    picker = Picker("chat-gateway", "chat", "default")
    first = picker.page([Replica("a")], NOTHING, 1, 2, 8.0)
    assert picker.page([Replica("a", waiting=3)], NOTHING, 4, 0, 8.0).keys is first.keys
    assert picker.page([Replica("b")], NOTHING, 4, 0, 8.0).keys is not first.keys


def test_prefix_hits_and_decision_times_are_exported_the_latter_only_where_there_is_a_clock() -> None:
    picker = Picker("chat-gateway", "chat", "default")
    tally = Tally(prompt_tokens=100, hit_tokens=40)

    def shown(counts: Counts) -> dict[str, float]:
        page = picker.page([], counts, 0, 0, math.inf)
        return {name: value for name, pairs, value in page.samples() if dict(pairs).get("le", "+Inf") == "+Inf"}

    quiet = shown(Counts({("", ""): tally}, Decisions(), {}))
    assert (quiet["routing_prefix_hit_tokens_total"], quiet["routing_prompt_tokens_total"]) == (40.0, 100.0)
    assert not any(name.startswith("routing_decision") for name in quiet)
    decisions = Decisions(3, 6e-5, 4e-5, (0, 1, 0, 2, 0, 0, 0, 0, 0, 0))
    timed = shown(Counts({("", ""): tally}, decisions, {}))
    assert timed["routing_decision_seconds_bucket"] == timed["routing_decision_seconds_count"] == 3.0
    assert timed["routing_decision_seconds_sum"] == 6e-5


def test_a_first_token_is_counted_when_it_comes_and_not_when_the_answer_ends() -> None:
    """A gateway that told it at the end would be late by an answer just when answers are slow."""
    picker = Picker("chat-gateway", "chat", "default")
    picker.first_token(served(1, first_token_at=10.5))
    counts = {name: value for name, _, value in picker.page([], NOTHING, 1, 0, math.inf).samples()}
    assert counts["llm_d_epp_request_ttft_seconds_count"] == 1.0
    assert counts["llm_d_epp_request_ttft_seconds_sum"] == 0.5
    assert "llm_d_epp_request_duration_seconds_count" not in counts


def test_retries_of_clients_are_counted_from_nought_by_class_and_tenant() -> None:
    picker = Picker("chat-gateway", "chat", "default")
    first = served(1)
    picker.arrived(first)

    def retries() -> list[float]:
        page = picker.page([], NOTHING, 1, 0, math.inf)
        return [value for name, _, value in page.samples() if name == "routing_client_retries_total"]

    assert retries() == [0.0]
    picker.arrived(Job(replace(first.request, id=2, attempt=1), 5, 12.0))
    assert retries() == [1.0]
