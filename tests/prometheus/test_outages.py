"""Backends that fail: each way gives a clear message or a held fact, in bounded time, and never a zero."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

import pytest

from controller.core.facts import Fact
from controller.core.observation import Observation
from controller.core.params import SecretRef
from controller.core.ports import Matcher, PoolNeeds
from sources.prometheus import PrometheusSource
from sources.prometheus.config import PrometheusConfig
from sources.prometheus.errors import BadAnswer, BadQuery, PrometheusError, Refused, TimedOut, Unreachable
from sources.prometheus.transport import Transport
from tests.support.ports import free_port
from tests.support.query_api import JSON, Api, Rows, failure, query_api, vector

TARGET = {"job": "vllm", "instance": "i", "model_name": "m", "pod": "p"}
NEEDS = PoolNeeds(
    pool="llama",
    engine="vllm",
    matchers=(Matcher("model_name", "=", "m"),),
    facts=frozenset({Fact.RUNNING, Fact.WAITING, Fact.FINISHED}),
)
Behaviour = Callable[[str], tuple[int, str, bytes] | None]


@pytest.fixture
def api() -> Iterator[Api]:
    with query_api() as served:
        yield served


def ask(api: Api, budget: float = 5.0, **options: object) -> None:
    transport = Transport(PrometheusConfig(url=api.url, **options))  # type: ignore[arg-type]
    try:
        transport.query("up", 1000.0, budget)
    finally:
        transport.close()


def healthy(query: str) -> tuple[int, str, bytes]:
    """One vLLM replica with 3 requests running and 4 waiting, which has finished 5 since the last tick."""
    if "__name__" in query and query.startswith("count by"):
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:request_success_total")
        return vector([({"__name__": name, **TARGET}, "1") for name in names])
    if "process_start_time_seconds" in query:
        return vector([({"__name__": "up", "job": "vllm", "instance": "i"}, "1")])
    if query.startswith("max by") and "timestamp" in query:
        return vector([(TARGET, "1000")])
    return vector([(TARGET, value_of(query))])


def value_of(query: str) -> str:
    return "3" if "running" in query else "4" if "waiting" in query else "5"


def broken(word: str, behaviour: tuple[int, str, bytes] | None) -> Behaviour:
    """Healthy, but for queries of facts with this word in them."""
    return lambda query: behaviour if not query.startswith("count by") and word in query else healthy(query)


def observe(api: Api, *ats: float, deadline: float = 5.0) -> list[Observation]:
    source = PrometheusSource(PrometheusConfig(url=api.url), [NEEDS], clock=lambda: 5000.0)
    seen = [source.observe(at, deadline) for at in ats]
    source.close()
    return seen


# --- one query ---


@pytest.mark.parametrize(
    ("answer", "error", "word"),
    [
        (failure(503, "service unavailable"), BadAnswer, "503"),
        ((503, "text/plain", b""), BadAnswer, "503"),
        ((200, "text/html", b"<html>Log in</html>"), BadAnswer, "login page"),
        ((200, JSON, b""), BadAnswer, "not JSON"),
        ((200, JSON, b'{"status":"success","data":{"resu'), BadAnswer, "cut"),
        ((200, JSON, b'{"status":"success"}'), BadAnswer, "not from a Prometheus"),
        ((200, JSON, b'{"data":{"resultType":"scalar","result":[0,"5"]}}'), BadAnswer, "not an instant vector"),
        ((200, JSON, b'{"data":{"resultType":"vector","result":5}}'), BadAnswer, "not a list"),
        (failure(422, "found duplicate series"), BadQuery, "duplicate series"),
        (failure(400, "parse error"), BadQuery, "parse error"),
        (failure(422, "query timed out in expression evaluation"), TimedOut, "timed out"),
        (failure(503, "query timed out in query execution"), TimedOut, "timed out"),
        ((401, "text/plain", b"no"), Refused, "bearer"),
        ((403, "text/plain", b"no"), Refused, "tenant header"),
        ((404, "text/plain", b"no"), BadAnswer, "before /api/v1"),
    ],
)
def test_each_bad_answer_has_its_name_and_its_mend(
    api: Api, answer: tuple[int, str, bytes], error: type[PrometheusError], word: str
) -> None:
    api.behave = lambda query: answer
    with pytest.raises(error, match=word):
        ask(api)
    assert len(api.asked) == 1, "a retry that nobody asked for"


def test_no_server_at_all_is_unreachable() -> None:
    transport = Transport(PrometheusConfig(url=f"http://127.0.0.1:{free_port()}"))
    with pytest.raises(Unreachable, match="check url and network"):
        transport.query("up", 0.0, 5.0)
    transport.close()


def test_a_hanging_query_ends_at_its_budget(api: Api) -> None:
    api.behave = lambda query: None
    began = time.monotonic()
    with pytest.raises(TimedOut):
        ask(api, budget=0.3)
    assert time.monotonic() - began < 2.0


def test_an_answer_that_drips_ends_at_its_budget(api: Api) -> None:
    api.behave = lambda query: (200, JSON, b"{" + b" " * 10_000)
    api.drip = True
    began = time.monotonic()
    with pytest.raises(TimedOut, match="not complete"):
        ask(api, budget=0.4)
    assert time.monotonic() - began < 2.0


def test_headers_that_drip_end_at_the_budget(api: Api) -> None:
    api.behave = lambda query: vector([])
    api.drip_headers = True
    began = time.monotonic()
    with pytest.raises(TimedOut, match="no answer within"):
        ask(api, budget=0.4)
    assert time.monotonic() - began < 2.0


def test_an_endless_answer_is_cut_off(api: Api) -> None:
    api.behave = lambda query: (200, JSON, b"{" + b" " * 100_000)
    with pytest.raises(BadAnswer, match="max_bytes"):
        ask(api, max_bytes=10_000)


def test_a_redirect_does_not_carry_credentials_away(api: Api) -> None:
    with query_api() as elsewhere:
        api.behave = lambda query: (302, "text/plain", b"")
        api.location = f"{elsewhere.url}/api/v1/query"
        with pytest.raises(Refused, match="redirects"):
            ask(api, headers={"X-Scope-OrgID": "team"})
        assert elsewhere.asked == []


def test_nan_and_infinity_are_dropped_and_named(api: Api) -> None:
    api.behave = lambda query: vector([({"n": "1"}, "NaN"), ({"n": "2"}, "+Inf"), ({"n": "3"}, "-Inf"), ({}, "2")])
    transport = Transport(PrometheusConfig(url=api.url))
    answer = transport.query("x", 0.0, 5.0)
    transport.close()
    assert ([value for _, value in answer.rows], answer.dropped) == ([2.0], [{"n": "1"}, {"n": "2"}, {"n": "3"}])


def test_warnings_are_kept_and_remarks_on_the_query_are_not(api: Api) -> None:
    api.behave = lambda query: vector([], warnings=["store 10.0.0.7 did not answer", "PromQL warning: odd bucket"])
    transport = Transport(PrometheusConfig(url=api.url))
    assert transport.query("x", 0.0, 5.0).warnings == ("store 10.0.0.7 did not answer",)
    api.behave = lambda query: vector([])
    assert transport.query("x", 0.0, 5.0).warnings == ()
    transport.close()


def test_the_query_travels_in_the_body(api: Api) -> None:
    ask(api)
    assert (api.asked, api.target) == (["up"], "/api/v1/query")


def test_a_rotated_token_is_used_at_once(api: Api, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("old\n")
    transport = Transport(PrometheusConfig(url=api.url, bearer=SecretRef(file=str(token))))
    transport.query("up", 0.0, 5.0)
    assert api.headers["Authorization"] == "Bearer old"
    token.write_text("new\n")
    transport.query("up", 0.0, 5.0)
    transport.close()
    assert api.headers["Authorization"] == "Bearer new"


def test_basic_credentials_and_tenant_headers_are_sent(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "pa:ss")
    ask(api, username="me", password=SecretRef(env="SECRET"), headers={"X-Scope-OrgID": "team"})
    assert api.headers["Authorization"] == "Basic bWU6cGE6c3M="
    assert api.headers["X-Scope-OrgID"] == "team"


def test_a_netrc_of_the_user_is_not_sent(api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    ask(api)
    assert "Authorization" not in api.headers


def test_a_missing_secret_is_named_without_asking(api: Api) -> None:
    with pytest.raises(Refused, match="GOVERNOR_NO_SUCH"):
        ask(api, bearer=SecretRef(env="GOVERNOR_NO_SUCH"))
    assert api.asked == []


# --- a tick ---


def test_healthy_backend_reads(api: Api) -> None:
    api.behave = healthy
    first, second = observe(api, 1000.0, 1015.0)
    assert first.pools["llama"].gauges == {Fact.RUNNING: 3.0, Fact.WAITING: 4.0}
    assert (second.since, second.pools["llama"].counters) == (1000.0, {Fact.FINISHED: 5.0})
    assert second.pools["llama"].failed == {}


@pytest.mark.parametrize(
    "answer", [failure(503, "down"), (200, "text/html", b"<html>"), (200, JSON, b"{"), failure(422, "no")]
)
def test_a_failed_query_is_not_read_as_zero_dynamo_14765(api: Api, answer: tuple[int, str, bytes]) -> None:
    api.behave = broken("waiting", answer)
    pool = observe(api, 1000.0)[0].pools["llama"]
    assert pool.gauges == {Fact.RUNNING: 3.0}
    assert list(pool.failed) == [Fact.WAITING]


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
def test_nan_is_not_read_as_zero_keda_3065(api: Api, value: str) -> None:
    rows: Rows = [(TARGET, value)]
    api.behave = broken("waiting", vector(rows))
    assert observe(api, 1000.0)[0].pools["llama"].gauges == {Fact.RUNNING: 3.0}


def test_an_empty_fleet_is_no_series_and_not_zero(api: Api) -> None:
    observation = observe(api, 1000.0)[0]
    pool = observation.pools["llama"]
    assert (observation.error, pool.gauges, pool.counters) == ("", {}, {})
    assert "no series matches the selector of pool llama" in pool.failed[Fact.WAITING]


def test_a_backend_that_is_down_is_an_error_and_loses_no_increment(api: Api) -> None:
    api.behave = healthy
    source = PrometheusSource(PrometheusConfig(url=api.url), [NEEDS], clock=lambda: 5000.0)
    source.observe(1000.0, 5.0)
    api.behave = lambda query: failure(503, "down")
    lost = source.observe(1015.0, 5.0)
    assert (lost.pools, "503" in lost.error) == ({}, True)
    api.behave = healthy
    back = source.observe(1030.0, 5.0)
    source.close()
    assert back.since == 1000.0
    assert any("offset 30000ms" in query for query in api.asked)


@pytest.mark.parametrize("seen_before", [False, True])
def test_a_backend_that_hangs_is_said_to_have_been_given_no_time(api: Api, seen_before: bool) -> None:
    """`no time was left to ask` is of the last question, and true of no backend."""
    api.behave = healthy
    source = PrometheusSource(PrometheusConfig(url=api.url), [NEEDS], clock=lambda: 5000.0)
    if seen_before:
        source.observe(1000.0, 5.0)
    api.behave = lambda query: None
    hung = source.observe(1015.0, 0.4)
    source.close()
    assert hung.error == f"{api.url}: did not answer within 0.4 s"


def test_one_failed_fact_is_caught_up_by_its_next_answer(api: Api) -> None:
    api.behave = healthy
    source = PrometheusSource(PrometheusConfig(url=api.url), [NEEDS], clock=lambda: 5000.0)
    source.observe(1000.0, 5.0)
    api.behave = broken("success", failure(503, "down"))
    assert Fact.FINISHED in source.observe(1015.0, 5.0).pools["llama"].failed
    api.behave = healthy
    api.asked.clear()
    source.observe(1030.0, 5.0)
    source.close()
    assert [query for query in api.asked if "success" in query and "offset 30000ms" in query]


def test_one_hanging_query_fails_its_fact_at_the_deadline_and_no_other(api: Api) -> None:
    api.behave = broken("waiting", None)
    began = time.monotonic()
    pool = observe(api, 1000.0, deadline=1.0)[0].pools["llama"]
    assert time.monotonic() - began < 3.0
    assert pool.gauges == {Fact.RUNNING: 3.0}
    assert Fact.WAITING in pool.failed


def test_dripping_headers_cost_their_tick_and_not_the_next(api: Api) -> None:
    api.behave = healthy
    source = PrometheusSource(PrometheusConfig(url=api.url, concurrency=1), [NEEDS], clock=lambda: 5000.0)
    assert source.observe(1000.0, 5.0).error == ""
    api.drip_headers = True
    began = time.monotonic()
    assert source.observe(1015.0, 0.4).error != ""
    assert time.monotonic() - began < 2.0
    api.drip_headers = False
    back = source.observe(1030.0, 5.0)
    source.close()
    assert (back.error, back.since, back.pools["llama"].failed) == ("", 1000.0, {})


def test_a_half_answered_thanos_query_makes_the_pool_partial(api: Api) -> None:
    status, kind, body = vector([(TARGET, "4")], warnings=["no store matched"])
    api.behave = broken("waiting", (status, kind, body))
    pool = observe(api, 1000.0)[0].pools["llama"]
    assert (pool.gauges[Fact.WAITING], pool.partial) == (4.0, "no store matched")


def test_a_clock_ahead_of_the_backend_does_not_read_the_future(api: Api) -> None:
    """Read ahead of the backend's clock, now and before would be the same sample, and every increment zero."""
    server = time.time() - 90.0
    api.date = format_datetime(datetime.fromtimestamp(server, UTC), usegmt=True)
    api.behave = lambda query: (
        vector([(TARGET, str(server - 8.0))]) if "timestamp" in query and query.startswith("max by") else healthy(query)
    )
    source = PrometheusSource(PrometheusConfig(url=api.url), [NEEDS])
    pool = source.observe(time.time(), 5.0).pools["llama"]
    source.close()
    assert pool.replicas["p"].age == pytest.approx(8.0, abs=1.5)


def test_the_first_answer_after_a_query_that_failed_says_how_far_it_reaches_back(api: Api) -> None:
    """Five finished in a minute are not five in fifteen seconds."""
    source = PrometheusSource(PrometheusConfig(url=api.url), [NEEDS], clock=lambda: 5000.0)
    seen = []
    for number in range(7):
        api.behave = broken("success", failure(503, "overloaded")) if 2 <= number < 5 else healthy
        seen.append(source.observe(1000.0 + 15.0 * number, 5.0).pools["llama"])
    source.close()

    assert [Fact.FINISHED in one.failed for one in seen] == [False, False, True, True, True, False, False]
    assert [dict(one.since) for one in seen] == [*[{}] * 5, {Fact.FINISHED: 1015.0}, {}]


# --- a family that cannot be looked for ---


OTHER = PoolNeeds(
    pool="other",
    engine="sglang",
    matchers=(Matcher("model_name", "=", "n"),),
    facts=frozenset({Fact.RUNNING, Fact.FINISHED}),
)
OTHERS = {"job": "sglang", "instance": "o", "model_name": "n", "pod": "q"}
TOO_MANY = failure(422, "query processing would load too many samples")


def mixed(query: str) -> tuple[int, str, bytes]:
    """As `healthy`, with a replica of another engine beside it, which both began long ago."""
    if query.startswith("count by") and "sglang" in query:
        names = ("sglang:num_running_reqs", "sglang:num_requests_total")
        return vector([({"__name__": name, **OTHERS}, "1") for name in names])
    if "process_start_time_seconds" in query:
        rows = [("up", "1"), ("process_start_time_seconds", "100")]
        both = [("vllm", "i"), ("sglang", "o")]
        return vector([({"__name__": n, "job": job, "instance": i}, v) for n, v in rows for job, i in both])
    if "sglang" in query:
        return vector([(OTHERS, "1000" if query.startswith("max by") and "timestamp" in query else "2")])
    return healthy(query)


def unfound(answer: tuple[int, str, bytes] | None, engine: str = "sglang") -> Behaviour:
    """As `mixed`, but what there is of one engine cannot be read."""
    return lambda query: answer if query.startswith("count by") and engine in query else mixed(query)


def of_both(api: Api) -> PrometheusSource:
    return PrometheusSource(PrometheusConfig(url=api.url), [NEEDS, OTHER], clock=lambda: 5000.0)


def test_a_first_look_that_fails_for_one_engine_does_not_blind_the_pools_of_another(api: Api) -> None:
    """A reload that added an SGLang pool to a fleet of vLLM ended all control, for as long as its names were too
    costly to look for."""
    api.behave = unfound(TOO_MANY)
    source = of_both(api)
    first, second = source.observe(1000.0, 5.0), source.observe(1015.0, 5.0)
    source.close()

    assert (first.error, second.error) == ("", "")
    seen = second.pools["llama"]
    assert (seen.gauges, seen.counters) == ({Fact.RUNNING: 3.0, Fact.WAITING: 4.0}, {Fact.FINISHED: 5.0})
    assert (seen.failed, seen.partial) == ({}, "")


def test_pools_that_could_not_be_looked_for_are_missing_with_the_reason_and_not_empty(api: Api) -> None:
    api.behave = unfound(TOO_MANY)
    source = of_both(api)
    pool = [source.observe(at, 5.0).pools["other"] for at in (1000.0, 1015.0)][-1]
    source.close()

    assert (pool.gauges, pool.counters, pool.histograms, pool.targets_up) == ({}, {}, {}, None)
    assert pool.failed.keys() == OTHER.facts
    assert all("too many samples" in why for why in (*pool.failed.values(), pool.partial))


def test_what_could_not_be_looked_for_is_read_as_soon_as_it_can_be_and_its_replicas_are_not_new(api: Api) -> None:
    """Taken as just started, replicas that have served for a day would be spared as cold ones."""
    api.behave = unfound(TOO_MANY)
    source = of_both(api)
    source.observe(1000.0, 5.0)
    api.behave = mixed
    found, after = (source.observe(at, 5.0).pools["other"] for at in (1015.0, 1030.0))
    source.close()

    assert (found.gauges, found.partial) == ({Fact.RUNNING: 2.0}, "")
    assert (found.counters, list(found.failed)) == ({}, [Fact.FINISHED]), "what it counted before is of no interval"
    assert found.replicas["q"].started_at == 100.0
    assert (after.counters, after.failed) == ({Fact.FINISHED: 2.0}, {})


def test_only_when_nothing_can_be_looked_for_nothing_is_read(api: Api) -> None:
    api.behave = lambda query: TOO_MANY if query.startswith("count by") else mixed(query)
    source = of_both(api)
    blind = source.observe(1000.0, 5.0)
    api.behave = mixed
    back = source.observe(1015.0, 5.0)
    source.close()

    assert (blind.pools, "too many samples" in blind.error) == ({}, True)
    assert (back.error, back.pools["other"].failed) == ("", {})


def test_a_platform_that_cannot_be_looked_for_hides_what_it_alone_tells_and_no_engine(api: Api) -> None:
    needs = replace(NEEDS, facts=NEEDS.facts | {Fact.READY_REPLICAS}, workload=("ml", "Deployment", "llama"))
    api.behave = lambda query: TOO_MANY if query.startswith("count by") and "kube_" in query else healthy(query)
    source = PrometheusSource(PrometheusConfig(url=api.url), [needs], clock=lambda: 5000.0)
    seen = source.observe(1000.0, 5.0)
    source.close()

    pool = seen.pools["llama"]
    assert (seen.error, pool.partial, pool.gauges) == ("", "", {Fact.RUNNING: 3.0, Fact.WAITING: 4.0})
    assert "too many samples" in pool.failed[Fact.READY_REPLICAS]


@pytest.mark.parametrize("hangs", ["sglang", "vllm"])
def test_a_look_that_hangs_leaves_the_engines_that_are_known_the_time_to_be_read(api: Api, hangs: str) -> None:
    """Waited for to the end of the deadline, it left no time for anything else, at this tick and at each after it."""
    api.behave = unfound(None, hangs)
    source = of_both(api)
    source.observe(1000.0, 1.0)
    second = source.observe(1015.0, 3.0)
    source.close()

    known, other = ("llama", "other") if hangs == "sglang" else ("other", "llama")
    assert second.error == ""
    assert Fact.RUNNING in second.pools[known].gauges
    assert Fact.RUNNING in second.pools[other].failed
