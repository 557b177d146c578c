"""The contracts themselves: nothing undefined, nothing contradictory, no fact without a metric or a reason."""

import re

import pytest

from controller.core.facts import Fact, Kind
from sources.contracts import Candidate, Contract, engines, load
from sources.contracts.resolve import resolve
from sources.contracts.toml import matcher, parse

ALL = [load(engine) for engine in engines()]
CANDIDATES = [(c.engine, fact, one) for c in ALL for fact, several in c.candidates.items() for one in several]
GOOD = 'title = "X"\nmarks = ["x_"]\n[unsupported]\ndefault = "no"\n[[facts.ttft]]\nmetric = "x_ttft"\n'


def contract_ids(contract: Contract) -> str:
    return contract.engine


@pytest.mark.parametrize("contract", ALL, ids=contract_ids)
def test_every_fact_has_a_metric_or_a_reason(contract: Contract) -> None:
    for fact in Fact:
        assert (fact in contract.candidates) != (fact in contract.unsupported), fact
    assert all(len(reason) > 10 for reason in contract.unsupported.values())


@pytest.mark.parametrize("contract", ALL, ids=contract_ids)
def test_an_empty_page_yields_reasons_and_no_metric(contract: Contract) -> None:
    choices = resolve(contract, frozenset())
    assert choices.keys() == set(Fact)
    assert all(isinstance(choice, str) and choice for choice in choices.values())


@pytest.mark.parametrize("contract", ALL, ids=contract_ids)
def test_each_candidate_can_be_chosen_when_it_alone_is_exposed(contract: Contract) -> None:
    """A candidate that can never win is a mistake: its name is that of an earlier one with the same filter."""
    for fact, several in contract.candidates.items():
        for one in several:
            kind = one.workload_kind
            chosen = resolve(contract, frozenset(one.metrics), kind=kind)[fact]
            assert isinstance(chosen, Candidate)
            assert chosen.metric == one.metric, f"{fact}: {chosen.metric} hides {one.metric}"


@pytest.mark.parametrize(("engine", "fact", "one"), CANDIDATES)
def test_kinds_fit_their_facts(engine: str, fact: Fact, one: Candidate) -> None:
    if fact.kind is Kind.HISTOGRAM:
        assert one.kind in ("histogram", "mean")
        assert one.observed_at, f"{engine} {fact}: when a sample is written decides what is censored"
        assert not one.metric.endswith(("_bucket", "_count", "_sum")), "the base name belongs here"
    else:
        assert one.kind == fact.kind.value
    if fact in (Fact.KV_USAGE, Fact.PREFIX_HIT_RATIO, Fact.GPU_UTILISATION):
        assert one.across == "mean", "ratios of replicas do not add up"
        assert one.within in ("max", "mean"), "nor do those of the parts of a replica"


@pytest.mark.parametrize(("engine", "fact", "one"), [(e, f, o) for e, f, o in CANDIDATES if f.kind is Kind.HISTOGRAM])
def test_the_unit_in_the_name_is_the_unit_of_the_scale(engine: str, fact: Fact, one: Candidate) -> None:
    units = {"_ms": 1e-3, "_milliseconds": 1e-3, "_us": 1e-6, "_seconds": 1.0, "_s": 1.0}
    unit = next((scale for suffix, scale in units.items() if one.metric.endswith(suffix)), None)
    assert unit is None or one.scale == unit


def test_aliases_name_one_contract() -> None:
    names = [name for contract in ALL for name in (contract.engine, *contract.aliases)]
    assert len(names) == len(set(names))
    assert load("llm_d") is load("epp")
    with pytest.raises(ValueError, match=r"no metric contract for engine 'vlm'; there are dcgm, .*vllm"):
        load("vlm")


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (GOOD + "sacle = 0.001\n", "x: ttft[0]: unknown key sacle"),
        (GOOD.replace("facts.ttft", "facts.ttf"), "x: 'ttf' is not a fact"),
        (GOOD + 'kind = "gauge"\n', "x: ttft[0]: a histogram cannot be read from a gauge"),
        (GOOD + 'kind = "mean"\n', "x: ttft[0]: a mean needs count_metric, and nothing else has one"),
        (GOOD + "where = ['a=b']\n", "x: ttft[0]: 'a=b' is not a label matcher"),
        (GOOD + 'within = "median"\n', "x: ttft[0]: 'median' is none of sum, max, mean"),
        (GOOD + 'on = ["pod"]\n', "x: ttft[0]: only_with and on go together"),
        (GOOD.replace('default = "no"', 'default = "no"\nttft = "no"'), "x: ttft: both supported and unsupported"),
        (GOOD.replace('default = "no"', ""), "x: tpot: neither a candidate nor a reason why there is none"),
        ("surprise = 1\n" + GOOD, "x: unknown key surprise"),
    ],
)
def test_a_typing_error_in_a_contract_is_refused_and_not_swallowed(text: str, mistake: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(mistake)}$"):
        parse("x", text)


def test_matchers_are_read_as_promql_writes_them() -> None:
    assert matcher("x", 'handler=~"/v1/.*"').value == "/v1/.*"
    assert matcher("x", 'a!~"b|c"').op == "!~"
    assert matcher("x", r'a="say \"hi\""').value == 'say "hi"'
    assert matcher("x", 'priority=""').value == ""


def test_only_the_candidate_of_the_workloads_kind_is_chosen() -> None:
    names = frozenset({"kube_deployment_status_replicas_ready", "kube_statefulset_status_replicas_ready"})
    ksm = load("kube_state_metrics")
    for kind, metric in (
        ("Deployment", "kube_deployment_status_replicas_ready"),
        ("StatefulSet", "kube_statefulset_status_replicas_ready"),
    ):
        chosen = resolve(ksm, names, kind=kind)[Fact.READY_REPLICAS]
        assert isinstance(chosen, Candidate)
        assert chosen.metric == metric
    assert "DaemonSet" in str(resolve(ksm, names, kind="DaemonSet")[Fact.READY_REPLICAS])
