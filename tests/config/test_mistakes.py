"""Mistakes that only the built-in sources and laws can make, and that used to pass `governor check`."""

import pickle
import re
import time

import pytest

from controller.config import ConfigError, Problem, loads
from sources.direct import DirectConfig
from sources.prometheus.config import PrometheusConfig

CONFIG = """
version: 1
source: {source}
pools:
  chat:
    engine: {engine}
    selector: {selector}
    objectives: {objectives}
    levers: {{replicas: {{min: 1, max: 8, policy: {policy}, pin: {pin}}}}}
"""
PARTS = {
    "source": "{kind: prometheus, url: http://127.0.0.1:9090}",
    "engine": "vllm",
    "selector": "{model_name: chat}",
    "objectives": "[{signal: ttft, percentile: p90, target: 2s}]",
    "policy": "{kind: capacity}",
    "pin": "{value: 2, until: 2026-12-24T18:00:00Z, reason: x}",
}


def mistakes(**parts: str) -> list[str]:
    """What is wrong, without the line, each with a mend."""
    problems: tuple[Problem, ...] = ()
    try:
        loads(CONFIG.format(**{**PARTS, **parts}))
    except ConfigError as error:
        problems = error.problems
    assert all(one.mend for one in problems)
    return [str(one) for one in problems]


def test_the_config_of_these_tests_is_good() -> None:
    assert mistakes() == []


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("{kind: threshold, signal: kv_usage, upper: 90, lower: 0.5}", "policy.upper: 90 is above 1, .* write 0.9"),
        ("{kind: threshold, signal: kv_usage_max, upper: 90, lower: 20}", "policy.lower: 20 is above 1.* write 0.2"),
        ("{kind: pid, signal: kv_usage, target: 80}", "policy.target: 80 is above 1, and kv_usage .* write 0.8"),
        ("{kind: threshold, signal: gpu_memory, upper: 9, lower: 1}", "policy.signal: gpu_memory .* use kv_usage or"),
        ("{kind: pid, signal: gpu_utilisation, target: 0.8}", "policy.signal: gpu_utilisation .* use kv_usage or"),
        ("{kind: threshold, signal: ttft, statistic: p42, upper: 2, lower: 1}", "'p42' of ttft is not measured; write"),
        ("{kind: threshold, signal: itl, statistic: p90, upper: 2, lower: 1}", "'p90' of itl is not measured; write"),
        ("{kind: pid, statistic: median}", "'median' of ttft is not measured; write one of p50, p95, p99, mean, p90"),
    ],
)
def test_a_law_that_would_never_or_always_act_is_refused(policy: str, expected: str) -> None:
    (first, *_) = mistakes(policy=policy)
    assert first.startswith("pools.chat.levers.replicas.policy.")
    assert re.search(expected, first), first


@pytest.mark.parametrize(
    ("lever", "expected"),
    [
        ("breaker: {policy: {kind: pid}}", "breaker.policy.kind: pid cannot drive breaker; it drives admission"),
        ("tenant_cap: {policy: {kind: pid}}", "tenant_cap.max: pid moves tenant_cap from where it stands"),
        ("admission: {policy: {kind: threshold, signal: itl, upper: 2, lower: 1}}", "admission.max: threshold moves"),
        ("weight: {policy: {kind: capacity}}", "weight.policy.kind: capacity cannot drive weight"),
        (
            "weight: {policy: {kind: threshold, signal: queue_depth, upper: 2, lower: 1, per_replica: true}}",
            "weight.policy.per_replica: divides by the number of replicas, which the value of weight is not",
        ),
        (
            "weight: {policy: {kind: threshold, signal: e2e, upper: 2, lower: 1}}",
            "weight.policy.signal: e2e of a single replica is not read; write one of ttft, itl, tpot, or scope: pool",
        ),
        (
            "tenant_cap: {max: 9000, policy: {kind: pid, scope: member}}",
            "tenant_cap.policy.signal: ttft of a single tenant is not read; write scope: pool",
        ),
        (
            "admission: {setpoints: [concurrency], max: 9, policy: {kind: pid, signal: itl, target: 1, scope: member}}",
            "admission.policy.scope: nothing is read of the members of admission one by one",
        ),
    ],
)
def test_a_law_that_cannot_move_a_lever_is_refused(lever: str, expected: str) -> None:
    text = CONFIG.format(**PARTS)[: CONFIG.format(**PARTS).index("    levers:")]
    with pytest.raises(ConfigError) as caught:
        loads(f"{text}    labels: {{tenant: user}}\n    tenants: {{acme: {{}}}}\n    levers: {{{lever}}}\n")
    (found,) = caught.value.problems
    assert f"pools.chat.levers.{expected}" in str(found)
    assert found.mend


@pytest.mark.parametrize(
    ("law", "expected"),
    [
        ("{kind: pid}", "policy.kind: pid has nothing to hold concurrency at: no promise is on itl or tpot"),
        ("{kind: pid, signal: ttft, target: 2}", "policy.signal: ttft has the wait before this cap in it"),
        ("{kind: threshold, signal: queue_delay, upper: 3, lower: 1}", "policy.signal: queue_delay has the wait"),
        ("{kind: threshold, signal: queue_depth, upper: 30, lower: 1}", "policy.signal: queue_depth has the wait"),
        (
            "{kind: threshold, signal: itl, upper: 0.1, lower: 0.05, raise_when_high: true}",
            "policy.raise_when_high: a higher concurrency makes itl higher, which raises it again",
        ),
    ],
)
def test_a_cap_is_not_driven_by_what_it_makes_worse_itself(law: str, expected: str) -> None:
    """With the defaults a PID took the cap from 64 to 16 for a queue that stood before the cap."""
    text = CONFIG.format(**PARTS)[: CONFIG.format(**PARTS).index("    levers:")]
    lever = f"admission: {{setpoints: [concurrency], max: 64, policy: {law}}}"
    with pytest.raises(ConfigError) as caught:
        loads(f"{text}    levers: {{{lever}}}\n")
    (found,) = caught.value.problems
    assert f"pools.chat.levers.admission.{expected}" in str(found)
    assert "gate" in found.mend or found.mend == "remove it"


@pytest.mark.parametrize(
    "law",
    [
        "{kind: pid, signal: itl, target: 0.05}",
        "{kind: threshold, signal: kv_usage, upper: 0.9, lower: 0.7}",
        "{kind: threshold, signal: queue_delay, upper: 3, lower: 1, raise_when_high: true}",
    ],
)
def test_a_cap_is_driven_by_what_a_lower_one_makes_better(law: str) -> None:
    text = CONFIG.format(**PARTS)[: CONFIG.format(**PARTS).index("    levers:")]
    loads(f"{text}    levers: {{admission: {{setpoints: [concurrency], max: 64, policy: {law}}}}}\n")


@pytest.mark.parametrize(
    "policy",
    [
        "{kind: threshold, signal: ttft, statistic: p90, upper: 2, lower: 1}",  # the pool promises it
        "{kind: threshold, signal: queue_depth, per_replica: true, upper: 90, lower: 20}",
        "{kind: pid, signal: itl, statistic: mean, target: 0.05}",
        "{kind: pid}",
    ],
)
def test_a_law_in_its_units_is_taken(policy: str) -> None:
    assert mistakes(policy=policy) == []


@pytest.mark.parametrize("objectives", ["[]", "[{signal: error_ratio, target: 1%}]"])
def test_a_pid_with_nothing_to_hold_is_refused(objectives: str) -> None:
    (found,) = mistakes(policy="{kind: pid}", objectives=objectives)
    assert "policy.signal: is not given, and the pool promises no latency" in found


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("prometheus:9090", "does not begin with http"),
        ("http://[::1]x:80", "is no address"),
        ("http://[::1", "is no address"),
        ("http://", "names no host"),
        ("http://:9090", "names no host"),
        ("http://a:99999", "is no address"),
        ("http://a:0", "names no host"),
        ("http://a b", "names no host"),
        ("http://a:9090/api/v1", "must be the address before /api/v1"),
        ("https://a/prom/api/v1/", "must be the address before /api/v1"),
        ("http://a/?x=1", "something behind"),
        ("http://user:secret@a", "credentials in the URL would be logged; use username"),
        ("http://user:secret@[::1", "is no address"),
        ("user:secret@a:9090", "does not begin with http"),
        ("http://user:1/secret@a", "looks like credentials"),
    ],
)
def test_an_address_that_cannot_be_asked_is_refused(url: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected) as caught:
        PrometheusConfig(url=url)
    assert "secret" not in str(caught.value)
    assert str(caught.value).startswith("url: ")


@pytest.mark.parametrize("page", ["host/metrics", "http://", "http://u:p@a/metrics", "http://a:x/metrics"])
def test_a_replica_that_cannot_be_asked_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match=r"^replicas: "):
        DirectConfig(replicas={"chat": [page]})


@pytest.mark.parametrize("headers", [{"X-Org": "a\r\nEvil: b"}, {"X-Org": "a\n"}, {"X Org": "a"}, {"X-Org": "ü"}])
def test_a_header_that_would_break_the_request_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"^headers: "):
        PrometheusConfig(url="http://a", headers=headers)


def test_a_direct_source_lists_the_pools_that_there_are() -> None:
    (missing, unknown) = mistakes(source='{kind: direct, replicas: {caht: ["http://a/metrics"]}}')
    assert "source.replicas: lists no replica of pool chat; add chat:" in missing
    assert "source.replicas.caht: there is no pool 'caht'; did you mean chat?" in unknown
    assert mistakes(source='{kind: direct, replicas: {chat: ["http://a/metrics"]}}') == []


@pytest.mark.parametrize("engine", ["dcgm", "kube_state_metrics"])
def test_an_exporter_that_knows_no_requests_is_no_engine(engine: str) -> None:
    (found,) = mistakes(engine=engine)
    assert f"no engine is called {engine!r}; write one of " in found


def test_a_pin_between_two_replicas_is_refused() -> None:
    (found,) = mistakes(pin="{value: 2.5, until: 2026-12-24T18:00:00Z, reason: x}")
    assert "pin.value: 2.5 is not a whole number of replicas; write 2 or 3" in found


@pytest.mark.parametrize(
    "regex",
    [
        "(?=x)a", "(?!x)a", "(?<=x)a", "(?<!x)a", r"(a)\1", "(?P<n>a)(?P=n)", "a++", "a*+", "a{2}+", "(?>a)", r"a\Z",
        "(?x)a", "(a)?(?(1)b|c)", "a(?#b)", "[[:alpha:]]", "a{1001}", "((",
    ],
)  # fmt: skip
def test_a_regular_expression_that_prometheus_refuses_is_refused(regex: str) -> None:
    (found,) = mistakes(selector=f"{{model_name: {{regex: '{regex}'}}}}")
    assert found.startswith("pools.chat.selector.model_name: ")


@pytest.mark.parametrize(
    "regex", [r"a\+\+b", "[+*]+", "(?i)llama-(7|70)b", "(?P<n>a)b*?", r"[\]=]+\d{1,3}", r"\\1", "(?:a|b)+", "[^]]+"]
)
def test_a_regular_expression_that_both_know_is_taken(regex: str) -> None:
    assert mistakes(selector=f"{{model_name: {{regex: '{regex}'}}}}") == []


def test_the_name_of_a_metric_is_no_selector() -> None:
    (found,) = mistakes(selector="{__name__: up}")
    assert "the name of a metric selects no pool" in found


def test_a_key_with_control_characters_does_not_reach_the_terminal() -> None:
    text = CONFIG.format(**PARTS).replace("  chat:", '  "a\\e[31mred\\n":')
    with pytest.raises(ConfigError) as caught:
        loads(text)
    assert str(caught.value).splitlines()[0].isprintable()
    assert len(str(caught.value).splitlines()) == 1
    assert r"pools.'a\x1b[31mred\n'" in str(caught.value)


def test_brackets_without_end_are_refused_at_once() -> None:
    begun = time.perf_counter()
    with pytest.raises(ConfigError, match="nested too deeply"):
        loads("version: 1\npools: " + "[" * 20_000)
    assert time.perf_counter() - begun < 1.0


def test_a_mistake_that_a_worker_finds_reaches_who_asked() -> None:
    """A process pool that cannot rebuild the error says that a worker died, and nothing of the mistake."""
    error = ConfigError([Problem("pools.a.levers", "is wrong", "mend it", 7)], "governor.yaml")

    again = pickle.loads(pickle.dumps(error))

    assert (str(again), again.problems) == (str(error), error.problems)
