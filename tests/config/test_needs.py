"""What a config needs is what a source reads: too little blinds the loop, too much costs the Prometheus."""

import pytest

from controller.config import GovernorConfig, loads, pool_needs
from controller.core.facts import Fact
from controller.core.ports import Matcher, PoolNeeds
from controller.core.tally import ENDINGS
from tests.support.installed import only_test_plugins

POOL = """
version: 1
interval: 15s
source: {{kind: still, url: here}}
pools:
  chat:
    engine: vllm
    selector: {{model_name: chat, namespace: {{regex: "prod-.*"}}, zone: {{not: b}}}}
{more}
"""
REPLICAS = "    levers: {{replicas: {{mode: {mode}, min: 1, max: 4, policy: {{kind: steady, signal: {signal}}}}}}}\n"


@pytest.fixture(autouse=True)
def _plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    only_test_plugins(monkeypatch)


def config(more: str) -> GovernorConfig:
    return loads(POOL.format(more=more))


def needs(more: str) -> PoolNeeds:
    (only,) = pool_needs(config(more))
    return only


def test_the_selector_arrives_as_matchers() -> None:
    assert needs("").matchers == (
        Matcher("model_name", "=", "chat"),
        Matcher("namespace", "=~", "prod-.*"),
        Matcher("zone", "!=", "b"),
    )


def test_an_objective_asks_for_its_histogram_at_its_edges() -> None:
    more = "    objectives:\n" + "".join(
        f"      - {{signal: ttft, percentile: {p}, target: {t}}}\n" for p, t in (("p99", "2s"), ("p50", "300ms"))
    )
    found = needs(more)
    assert Fact.TTFT in found.facts
    assert found.edges == {Fact.TTFT: (0.3, 2.0)}
    assert Fact.E2E not in found.facts


def test_a_mean_has_no_edges() -> None:
    assert needs("    objectives: [{signal: itl, statistic: mean, target: 30ms}]").edges == {}


def test_a_promise_is_a_share_of_offered_requests_so_who_waits_is_always_read() -> None:
    assert {Fact.WAITING, Fact.RUNNING, Fact.FINISHED} <= needs("").facts


def test_a_lost_request_was_offered_so_what_counts_losses_is_read_for_every_share() -> None:
    """Else attainment would rise when the server fails fast."""
    lost = {Fact.ERRORS, Fact.REJECTED, Fact.TIMEOUTS}
    assert lost <= needs("    objectives: [{signal: ttft, percentile: p99, target: 2s}]").facts
    assert not lost & needs("    objectives: [{signal: itl, statistic: mean, target: 30ms}]").facts


def test_the_replicas_lever_asks_for_what_the_estimators_and_guards_read() -> None:
    found = needs(REPLICAS.format(mode="observe", signal="kv_usage"))
    assert {
        Fact.RUNNING, Fact.WAITING, Fact.KV_USAGE, Fact.TTFT, Fact.ITL, Fact.FINISHED, Fact.RESPONSES, Fact.ERRORS,
        Fact.PROMPT_TOKENS, Fact.GENERATION_TOKENS, Fact.PREEMPTIONS, Fact.RESTARTS, Fact.OOM_RESTARTS,
        Fact.READY_REPLICAS, Fact.WANTED_REPLICAS,
    } <= found.facts  # fmt: skip


def test_a_lever_that_is_off_costs_no_query() -> None:
    assert Fact.KV_USAGE not in needs(REPLICAS.format(mode="off", signal="kv_usage")).facts


def test_a_signal_that_only_a_policy_names_is_read() -> None:
    assert Fact.LORA_LOADED in needs(REPLICAS.format(mode="observe", signal="lora_loaded")).facts
    assert Fact.LORA_LOADED not in needs(REPLICAS.format(mode="observe", signal="kv_usage")).facts


def test_a_pool_that_receives_what_others_send_is_learned_though_nothing_moves_it() -> None:
    """Without its capacity it had no room for ever, and the downgrade never moved."""
    lever = """
    labels: {{class: priority}}
    classes: {{low: {{consents: true}}}}
    levers: {{downgrade: {{mode: {mode}, receivers: [small], policy: {{kind: "policies.downgrade:Downgrade"}}}}}}
  small: {{engine: vllm, selector: {{model_name: small}}}}
"""
    for mode, read in (("auto", True), ("off", False)):
        found = pool_needs(config(lever.format(mode=mode)))
        assert (Fact.GENERATION_TOKENS in found[-1].facts) is read
        assert (Fact.PROMPT_TOKENS in found[-1].facts) is read


def test_tenants_are_read_only_where_a_label_names_them() -> None:
    assert needs("").tenant_facts == frozenset()
    found = needs("    labels: {tenant: user}")
    assert (found.tenant_label, Fact.PROMPT_TOKENS in found.tenant_facts) == ("user", True)


def test_classes_are_read_only_for_what_an_objective_names() -> None:
    """A histogram per class costs as many rows as there are classes."""
    plain = "    objectives:\n      - {signal: e2e, percentile: p99, target: 20s}\n"
    assert needs("    labels: {class: priority}\n" + plain).class_facts == frozenset()
    critical = "      - {signal: ttft, percentile: p99, target: 2s, class: critical}\n"
    found = needs("    labels: {class: priority}\n" + plain + critical)
    assert found.class_label == "priority"
    assert found.class_facts == {Fact.TTFT, *ENDINGS}
    assert found.class_facts <= found.facts, "the pool's own are read anyway"


def test_the_workload_is_passed_on() -> None:
    assert needs("    workload: {namespace: prod, name: chat}").workload == ("prod", "Deployment", "chat")


def test_objectives_arrive_in_the_cores_one_form() -> None:
    more = """
    labels: {class: priority}
    window: 2m
    objectives:
      - {signal: ttft, percentile: p99.9, target: 2s}
      - {signal: ttft, attainment: 95%, target: 500ms, class: critical, window: 5m}
      - {signal: itl, statistic: mean, target: 30ms}
      - {signal: error_ratio, target: 1%}
"""
    found = config(more).pools["chat"].to_objectives()
    assert [(o.name, o.share, o.target, o.window, o.klass) for o in found] == [
        ("ttft_p99.9", 0.999, 2.0, 120.0, ""),
        ("ttft_p95_critical_5m", 0.95, 0.5, 300.0, "critical"),
        ("itl_mean", None, 0.03, 120.0, ""),
        ("error_ratio", 0.99, 0.01, 120.0, ""),
    ]
    assert [o.stat for o in found[:3]] == ["p99.9", "p95", "mean"]


def test_versions_are_told_apart_by_what_single_replicas_do() -> None:
    """Without the work of each replica a canary could only be told from the rest by its name."""
    found = needs("    labels: {version: pod_template_hash}\n")
    assert found.version_label == "pod_template_hash"
    assert {Fact.FINISHED, Fact.ERRORS, Fact.GENERATION_TOKENS} <= found.replica_facts
    assert Fact.ITL in found.replica_means
    assert not needs("").version_label
    assert not needs("").replica_means
