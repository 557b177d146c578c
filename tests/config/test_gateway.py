"""A pool with a gateway is read at two places, each asked for what it knows better; and single replicas only where a
lever moves them, for they are most of a fleet's rows."""

import json

import pytest

from controller.config import ConfigError, GovernorConfig, config_hash, loads, pool_needs
from controller.config.spell import spell
from controller.config.terms import pool_specs
from controller.core.facts import Fact
from controller.core.join import READ
from controller.core.ports import Matcher, PoolNeeds
from tests.support.written import SOURCE, pool, written

GATEWAY = "    gateway: {engine: gaie, selector: {model_name: chat}, labels: {tenant: fairness_id, class: klass}}\n"
TTFT = "    objectives: [{signal: ttft, percentile: p99, target: 2s, class: critical}]\n"


def config(more: str, source: str = SOURCE) -> GovernorConfig:
    return loads(written(f"{pool()}\n{more}", source=source))


def both(more: str = "") -> tuple[PoolNeeds, PoolNeeds]:
    engines, gateway = pool_needs(config(GATEWAY + TTFT + more))
    return engines, gateway


def test_the_gateway_is_asked_for_what_engines_cannot_know_and_for_nothing_else() -> None:
    engines, gateway = both()
    assert (gateway.pool, gateway.fronts, gateway.engine) == ("chat@gateway", "chat", "gaie")
    assert gateway.matchers == (Matcher("model_name", "=", "chat"),)
    assert {Fact.ARRIVED, Fact.RETRIES, Fact.REJECTED, Fact.ERRORS, Fact.HELD, Fact.TTFT} <= gateway.facts <= READ
    assert Fact.HELD not in engines.facts
    assert gateway.workload is None
    assert gateway.edges == {Fact.TTFT: (2.0,)}


def test_tenants_and_classes_are_asked_for_once_where_their_label_is() -> None:
    engines, gateway = both()
    assert not engines.tenant_facts
    assert not engines.class_facts
    assert gateway.tenant_label == "fairness_id"
    assert {Fact.ARRIVED, Fact.RETRIES, Fact.PROMPT_TOKENS} <= gateway.tenant_facts
    assert Fact.TTFT in gateway.class_facts
    (spec,) = pool_specs(config(GATEWAY + TTFT))
    assert spec.gateway is not None
    assert spec.gateway.tenants
    assert spec.class_label == "klass"


def test_without_a_gateway_a_pool_is_one_thing_to_read() -> None:
    (only,) = pool_needs(config("    labels: {tenant: team}\n"))
    assert only.fronts == ""
    assert only.tenant_facts
    assert pool_specs(config(""))[0].gateway is None


@pytest.mark.parametrize("mode", ["observe", "auto", "off"])
def test_single_replicas_cost_rows_only_where_a_lever_moves_them(mode: str) -> None:
    (bare,) = pool_needs(config(""))
    assert bare.replica_facts == {Fact.RUNNING, Fact.WAITING, Fact.KV_USAGE, Fact.GENERATION_TOKENS}
    assert not bare.replica_means
    lever = f"    levers: {{breaker: {{mode: {mode}, policy: {{kind: breaker}}}}}}\n"
    (moved,) = pool_needs(config(lever))
    single = mode != "off"
    assert (moved.replica_means == {Fact.TTFT, Fact.ITL, Fact.TPOT}) is single
    assert ({Fact.ERRORS, Fact.FINISHED, Fact.XID_ERRORS} <= moved.replica_facts) is single
    # The mean is enough: no buckets of single replicas.
    assert not moved.replica_means & moved.replica_facts
    assert pool_specs(config(lever))[0].singles is single


def test_classes_that_were_promised_nothing_are_told_apart_where_somebody_asks() -> None:
    named = "    labels: {class: klass}\n"
    assert not pool_needs(config(named))[0].class_facts
    asked = pool_needs(config(named + "    classes: {batch: {sheddable: true}}\n"))[0]
    assert Fact.ARRIVED in asked.class_facts
    assert asked.class_label == "klass"


def test_a_listing_of_pages_must_have_the_gateways_too() -> None:
    source = '{kind: direct, replicas: {chat: ["http://a:8000/metrics"]}}'
    with pytest.raises(ConfigError, match="lists no page of the gateway of pool chat; add chat@gateway: "):
        config(GATEWAY, source)
    listed = source.replace("]}", '], "chat@gateway": ["http://g:9090/metrics"]}')
    assert config(GATEWAY, listed).pools["chat"].gateway is not None


def test_a_gateway_comes_back_from_the_ledger_as_it_was() -> None:
    made = config(GATEWAY.replace("{model_name: chat}", "{model_name: chat, zone: {not: b}}") + TTFT)
    assert config_hash(loads(json.dumps(spell(made)))) == config_hash(made)
