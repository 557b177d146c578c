"""Every lever can be configured, has defaults that hold together, and reaches the core as what was written."""

import pytest

from controller import registry
from controller.config import ConfigError, GovernorConfig, json_schema, load, loads
from controller.config.lever_checks import on_quantum
from controller.config.levers import DEFAULTS, EVERY_SETPOINT, SETPOINTS
from controller.config.spell import spell
from controller.config.terms import fleet_rules
from controller.core import operating
from controller.core.model import Lever, Mode, Target
from controller.core.rest import NO_LIMIT
from controller.core.rules import PER_REPLICA, RELAX_DOWN, LeverRules, Rate
from controller.core.setpoints import OWN
from controller.core.tenancy import ClassRules, TenantRules
from controller.registry import Group
from policies import gate
from simulator.front import knobs
from tests.support.levers import ROOT, config


def rules(made: GovernorConfig, lever: Lever) -> LeverRules:
    return next(one for one in fleet_rules(made).pools[0].levers if one.lever is lever)


@pytest.mark.parametrize("lever", [one for one in Lever if one is not Lever.REPLICAS])
def test_a_lever_that_says_its_policy_alone_has_the_documented_limits(lever: Lever) -> None:
    made = load(ROOT / "examples" / "levers.yaml")
    facts, got = DEFAULTS[lever], rules(made, lever)

    assert (got.limits.min, got.limits.max, got.limits.quantum) == (facts.min, facts.max, facts.quantum)
    assert (got.rate_up, got.rate_down) == (facts.rate_up, facts.rate_down)
    assert (got.expiry, got.stabilise, got.group) == (facts.expiry, facts.stabilise, facts.group)
    assert got.mode is Mode.OBSERVE


def test_replicas_keep_the_limits_that_they_had() -> None:
    got = rules(load(ROOT / "examples" / "minimal.yaml"), Lever.REPLICAS)

    assert (got.limits.min, got.limits.max, got.limits.quantum) == (1, 8, 1)
    assert (got.rate_up, got.rate_down) == (Rate(1.0, 60.0, relative=True), Rate(0.25, 60.0, relative=True))
    assert (got.cooldown_up, got.cooldown_down, got.stabilise, got.expiry) == (0.0, 60.0, 180.0, 0.0)


@pytest.mark.parametrize("lever", list(Lever))
def test_defaults_hold_together(lever: Lever) -> None:
    """What sheds must come to rest by itself, and nothing that protects waits for a rate."""
    facts = DEFAULTS[lever]
    if lever is Lever.REPLICAS:
        assert facts.min is None
        assert facts.max is None
        assert facts.expiry == 0
        return
    assert facts.min is not None
    assert facts.max is not None
    assert on_quantum(facts.min, facts.quantum)
    assert on_quantum(facts.max, facts.quantum)
    assert facts.expiry >= 120
    protecting = facts.rate_up if RELAX_DOWN[lever] else facts.rate_down
    assert protecting is None or lever in (Lever.WEIGHT, Lever.DOWNGRADE)
    assert facts.cooldown_up == facts.cooldown_down == 0


def test_members_are_those_that_the_config_knows() -> None:
    pool = fleet_rules(load(ROOT / "examples" / "levers.yaml")).pools[0]
    members = {one.lever: one.members for one in pool.levers}

    assert [one.lever for one in pool.levers] == [
        Lever.REPLICAS, Lever.WEIGHT, Lever.BREAKER, Lever.ROUTING, Lever.TENANT_CAP, Lever.DOWNGRADE, Lever.ADMISSION,
    ]  # fmt: skip
    assert members[Lever.REPLICAS] == ("",)
    assert members[Lever.TENANT_CAP] == ("assistant", "batch", "search")
    assert members[Lever.ADMISSION] == ("concurrency", "longest_prompt")
    assert members[Lever.DOWNGRADE] == ("llama-8b",)
    assert not any(target.lever in PER_REPLICA for target in pool.targets)
    assert Target("llama-70b", Lever.TENANT_CAP, "search") in pool.targets
    assert members[Lever.ROUTING] == ("affinity",)
    assert len(pool.targets) == 1 + 1 + 3 + 2 + 1


def test_tenants_and_classes_reach_the_core() -> None:
    pool = fleet_rules(load(ROOT / "examples" / "levers.yaml")).pools[0]

    assert pool.tenants["search"] == TenantRules(20000.0, 2.0, consents=False)
    assert pool.tenants["batch"] == TenantRules(0.0, 0.5, consents=True)
    assert pool.classes["background"] == ClassRules(2, sheddable=True, consents=True)


def test_a_part_of_a_rate_leaves_the_other_part_as_the_lever_has_it() -> None:
    got = rules(
        config("downgrade: {receivers: [small], rate: {down: none}, policy: {kind: downgrade}}"), Lever.DOWNGRADE
    )

    assert (got.rate_up, got.rate_down) == (Rate(0.1, 15.0), None)


def test_no_limit_survives_being_spelled_and_hashed() -> None:
    made = config("tenant_cap: {rate: {up: none}, policy: {kind: fair_share}}")
    spelled = spell(made)["pools"]["chat"]["levers"]["tenant_cap"]

    assert spelled["rate"] == {"up": "none", "down": "none"}
    assert spelled["max"] == NO_LIMIT


@pytest.mark.parametrize("lever", [one for one in Lever if one is not Lever.REPLICAS])
def test_whatever_is_wrong_with_a_lever_is_said_once(lever: Lever) -> None:
    """A wrong bound must not be followed by what only follows from it."""
    extra = ", receivers: [small]" if lever is Lever.DOWNGRADE else ""
    law = "policy: {kind: threshold, signal: itl, upper: 2, lower: 1}"
    with pytest.raises(ConfigError) as caught:
        config(f"{lever}: {{min: low, max: high, quantum: 0{extra}, {law}}}")
    assert sorted(one.path.rpartition(".")[2] for one in caught.value.problems) == ["max", "min", "quantum"]


def test_a_config_without_levers_is_still_a_config() -> None:
    text = (ROOT / "examples" / "minimal.yaml").read_text(encoding="utf-8")
    assert loads(text[: text.index("    levers:")]).pools["chat"].levers == {}


def test_an_editor_asks_for_no_key_that_a_lever_has_a_default_for() -> None:
    schema = json_schema()["$defs"]["LeverConfig"]
    assert schema["required"] == ["policy"]
    assert "default" not in schema["properties"]["max"]
    assert schema["properties"]["mode"]["default"] == "observe"
    assert {"const": "none"} in json_schema()["$defs"]["RateConfig"]["properties"]["down"]["anyOf"]


def test_the_page_says_which_law_drives_what() -> None:
    text = (ROOT / "docs" / "levers.md").read_text(encoding="utf-8")
    told = {}
    for line in text[text.index("## Which law drives what") :].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0].strip("`") in set(Lever):
            own = {cells[1].strip("`")}
            others = {law for law, cell in zip(("pid", "threshold"), cells[2:], strict=True) if cell.startswith("yes")}
            told[Lever(cells[0].strip("`"))] = own | others
    true = {
        lever: {kind for kind in registry.builtin(Group.POLICY) if lever in registry.policy(kind).levers}
        for lever in Lever
    }
    assert told == true


def test_the_names_of_set_points_mean_the_same_everywhere() -> None:
    assert {knobs.CONCURRENCY, knobs.LONGEST_PROMPT} == {operating.CONCURRENCY, gate.LONGEST_PROMPT} == set(SETPOINTS)
    assert {*SETPOINTS, *OWN} == set(EVERY_SETPOINT)


@pytest.mark.parametrize(
    ("group", "share", "fine"),
    [("80%", "20%", False), ("80%", "50%", False), ("50%", "80%", False), ("40%", "30%", False), ("60%", "60%", True),
     ("50%", "20%", True), ("30%", "50%", True), ("50%", "0%", True)],
)  # fmt: skip
def test_a_share_of_one_version_that_only_half_of_it_was_told_does_nothing(group: str, share: str, fine: bool) -> None:
    """Who wrote 80 % for the guard alone, or for the law alone, still had half."""
    text = f"""
version: 1
source: {{kind: prometheus, url: http://127.0.0.1:9090}}
pools:
  chat:
    engine: vllm
    selector: {{model_name: chat}}
    labels: {{version: rev}}
    objectives: [{{signal: ttft, percentile: p90, target: 2s}}]
    levers: {{breaker: {{version_group: {group}, policy: {{kind: breaker, version_share: {share}}}}}}}
"""
    if fine:
        loads(text)
    else:
        with pytest.raises(ConfigError, match=r"version_share of the policy .* the smaller one counts"):
            loads(text)
