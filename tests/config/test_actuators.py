"""Actuators that levers share by name, and what lever and actuator must agree on."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import ClassVar, get_args, get_type_hints

import pytest
import yaml

from actuators.file.config import FileConfig
from controller import registry
from controller.config import ConfigError, GovernorConfig, loads
from controller.config.load import config_hash
from controller.config.matrix import cells
from controller.config.spell import spell
from controller.config.terms import fleet_rules
from controller.core.model import Lever
from controller.core.ports import Binding, Capability
from controller.registry import Group
from controller.run.assembly import RunMode, assemble
from tests.support.cli import governor
from tests.support.spy_file import SpyFile
from tests.support.written import pool, written

HOOK = "kind: webhook, url: 'http://127.0.0.1:9/set', read_url: 'http://127.0.0.1:9/get'"


def config(levers: str, shared: str = "") -> GovernorConfig:
    capped = "tenants: {acme: {guarantee: 100}}"
    lever = f"replicas: {{min: 1, max: 8, policy: {{kind: threshold, signal: queue_depth, upper: 5, lower: 1}}{levers}"
    return loads(written(pool("chat", "labels: {tenant: tenant}", capped, levers=[lever]), actuators=f"{{{shared}}}"))


def mistakes(levers: str, shared: str = "") -> str:
    with pytest.raises(ConfigError) as caught:
        config(levers, shared)
    return str(caught.value)


def test_levers_that_name_one_actuator_get_one_object_and_not_two_that_undo_each_other(tmp_path: Path) -> None:
    made = config(
        """, actuator: edge}
      breaker: {policy: {kind: breaker}, actuator: edge}""",
        f"edge: {{{HOOK}, quantum: 0.01}}",
    )
    loop = assemble(made, mode=RunMode.LIVE, ledger_path=tmp_path)
    try:
        one, other = loop.parts.actuators["chat/replicas"], loop.parts.actuators["chat/breaker"]
        assert one is other
    finally:
        loop.close()


def test_a_shared_actuator_means_the_same_after_it_was_spelled() -> None:
    made = config(", actuator: edge}", f"edge: {{{HOOK}}}")
    again = loads(yaml.safe_dump(spell(made), sort_keys=False))
    assert config_hash(again) == config_hash(made)
    assert again.actuator("chat", Lever.REPLICAS) == made.actuator("chat", Lever.REPLICAS)


def test_a_name_that_nobody_has_is_told_with_those_there_are() -> None:
    said = mistakes(", actuator: egde}", f"edge: {{{HOOK}}}")
    assert "pools.chat.levers.replicas.actuator" in said
    assert "'egde'" in said
    assert "edge" in said


def test_an_actuator_that_no_lever_uses_is_a_slip_of_the_pen() -> None:
    assert "actuators.edge: no lever uses it" in mistakes("}", f"edge: {{{HOOK}}}")


def test_a_mistake_in_a_shared_actuator_is_told_once_and_at_its_place() -> None:
    said = mistakes(", actuator: edge}", "edge: {kind: webhook, url: 'ftp://x'}")
    assert "actuators.edge" in said
    assert "no actuator is called" not in said


def test_a_lever_that_the_actuator_cannot_move_is_refused() -> None:
    said = mistakes(
        """}
      breaker: {policy: {kind: breaker}, actuator: {kind: kubernetes, namespace: prod, name: chat}}"""
    )
    assert "kubernetes cannot move breaker" in said


def test_a_cap_that_would_outlive_every_governor_is_refused_until_somebody_accepts_that() -> None:
    levers = """}}
      tenant_cap: {{mode: auto, policy: {{kind: fair_share}}, actuator: {{{hook}}}{more}}}"""
    said = mistakes(levers.format(hook=HOOK, more=""))
    assert "pools.chat.levers.tenant_cap.actuator" in said
    assert "fail_static: true" in said
    config(levers.format(hook=HOOK, more=", fail_static: true"))
    config(levers.format(hook=HOOK + ", honours_expiry: true", more=""))


def test_steps_finer_than_the_target_can_keep_are_refused() -> None:
    said = mistakes(f", actuator: {{{HOOK}, quantum: 2}}}}")
    assert "pools.chat.levers.replicas.quantum" in said
    assert "write quantum: 2" in said


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize(
    ("body", "step"),
    [("routing: {policy: {kind: affinity}", 0.05), ("weight: {policy: {kind: weights}", 0.01)],
)
def test_a_share_is_not_made_a_switch_to_please_an_actuator_that_can_be_told_finer_steps(
    body: str, step: float, own: bool
) -> None:
    """A quantum of 1 in the lever leaves 0 and 1 alone: the affinity would be all or none."""
    lever = f"""}}
      {body}, mode: auto, actuator: """
    if own:
        said = mistakes(f"{lever}{{{HOOK}, honours_expiry: true}}}}")
        place = f"pools.chat.levers.{body.partition(':')[0]}.actuator.quantum"
    else:
        said = mistakes(f"{lever}edge}}", f"edge: {{{HOOK}, honours_expiry: true}}")
        place = "actuators.edge.quantum"
    assert f"{place}: 1 is too coarse for {body.partition(':')[0]}" in said
    assert f"write quantum: {step:g}" in said


def test_two_pools_that_scale_one_deployment_are_refused() -> None:
    """Each would take the other's count for a stranger's, and both would write for ever."""
    scale = "{{kind: kubernetes, namespace: ml, name: {}}}"
    lever = f"replicas: {{{{min: 1, max: 8, policy: {{{{kind: capacity}}}}, actuator: {scale}}}}}"

    def scaled(one: str, other: str) -> str:
        return written(pool("chat", levers=[lever.format(one)]), pool("code", levers=[lever.format(other)]))

    with pytest.raises(ConfigError, match="scales llm, which pool chat scales too"):
        loads(scaled("llm", "llm"))
    loads(scaled("llm", "coder"))


def test_a_file_that_would_never_know_a_later_replica_is_refused() -> None:
    """Its reads would fail for ever, and check had passed it."""
    said = mistakes(
        """}
      weight: {policy: {kind: weights}, actuator: {kind: file, path: /tmp/w.json, quantum: 0.01}}"""
    )

    assert "pools.chat.levers.weight.actuator.initial" in said
    assert "write initial: 1" in said


class Anything(SpyFile):
    """One that takes every value."""

    @classmethod
    def describe(cls, config: object = None) -> Mapping[Lever, Capability]:
        return {Lever.REPLICAS: Capability("replicas", quantum=0.0)}


class Small(SpyFile):
    """One whose target has a most, and a least."""

    @classmethod
    def describe(cls, config: object = None) -> Mapping[Lever, Capability]:
        return {Lever.REPLICAS: Capability("replicas", low=2.0, high=4.0)}


class Mute(SpyFile):
    """One that breaks where it should say what it can."""

    @classmethod
    def describe(cls, config: object = None) -> Mapping[Lever, Capability]:
        raise RuntimeError("no licence")


class Named(SpyFile):
    """One that keeps under which name it would write."""

    names: ClassVar[list[str]] = []

    def __init__(self, config: FileConfig, binding: Binding) -> None:
        super().__init__(config, binding)
        self.names.append(binding.identity)


@pytest.mark.parametrize(("said", "name"), [("", "inference-governor"), ("identity: governor-eu", "governor-eu")])
def test_two_governors_of_two_clusters_do_not_write_under_one_name(tmp_path: Path, said: str, name: str) -> None:
    """Whoever looked at a field manager, or at `by` in Redis, could not tell which of them it was."""
    actuator = f"{{kind: '{__name__}:Named', path: {tmp_path}/r.json, initial: 1}}"
    shared = f"actuators: {{one: {actuator}}}"
    lever = "replicas: {{min: 1, max: 2, policy: {{kind: capacity}}, actuator: {}}}"
    text = written(pool("a", levers=[lever.format("one")]), pool("b", levers=[lever.format(actuator)]))
    made = loads(f"{text}{shared}\n{said}\n")
    Named.names.clear()
    assemble(made, mode=RunMode.LIVE, ledger_path=tmp_path / "ledger").close()
    assert Named.names == [name, name]


def test_a_lever_that_may_ask_for_more_or_less_than_its_target_takes_is_refused() -> None:
    """Each such decision would be refused when it is made, that is in the rush, and its whole batch with it."""
    said = mistakes(f", actuator: {{kind: '{__name__}:Small', path: /tmp/r.json}}}}")
    lever = "pools.chat.levers.replicas"
    assert f"{lever}.max: 8 is above 4, the most that {__name__}:Small takes; write max: 4" in said
    assert f"{lever}.min: 1 is below 2, the least that {__name__}:Small takes; write min: 2" in said


def test_a_strangers_actuator_that_takes_every_value_or_cannot_say_what_it_takes_breaks_no_check() -> None:
    config(f", actuator: {{kind: '{__name__}:Anything', path: /tmp/r.json}}}}")
    said = mistakes(f", actuator: {{kind: '{__name__}:Mute', path: /tmp/r.json}}}}")
    assert "pools.chat.levers.replicas.actuator" in said
    assert "no licence" in said


def test_check_asks_actuators_what_they_need_before_the_daemon_does_at_night(tmp_path: Path) -> None:
    example = (Path(__file__).parents[2] / "examples" / "targets" / "envoy" / "governor.yaml").read_text()
    good, bad = tmp_path / "good.yaml", tmp_path / "bad.yaml"
    good.write_text(example)
    bad.write_text("".join(line for line in example.splitlines(True) if "tokens_per_request" not in line))
    done = governor("check", bad, good)
    assert done.returncode == 2
    assert "bad.yaml" in done.stderr
    assert "tokens_per_request" in done.stderr
    assert "good.yaml: good" in done.stdout


def test_an_actuator_is_kept_over_a_reload_that_only_moves_lines(tmp_path: Path) -> None:
    """A new object would drop every stream of an Envoy, and find its own port taken."""
    shared = f"{{edge: {{{HOOK}, quantum: 0.01}}}}"
    lever = "breaker: {policy: {kind: breaker}, actuator: edge}"
    first, second = (
        loads(written(*(pool(name, levers=[lever]) for name in order), actuators=shared)) for order in ("ab", "ba")
    )
    loop = assemble(first, mode=RunMode.LIVE, ledger_path=tmp_path)
    again = assemble(second, mode=RunMode.LIVE, ledger_path=tmp_path, previous=loop)
    try:
        assert again.parts.actuators["a/breaker"] is loop.parts.actuators["a/breaker"]
    finally:
        loop.close()
        again.close()


def test_a_time_out_that_no_wait_can_take_is_refused_before_anything_waits() -> None:
    """30 days are more milliseconds than fit where the system counts them: the reload would break after its write."""
    found = mistakes(", actuator: {kind: file, path: /tmp/governed.json, timeout: 30d, initial: 1}}")
    assert "pools.chat.levers.replicas.actuator.timeout: 30d is out of bounds; write at most 1h" in found


@pytest.mark.parametrize("kind", registry.builtin(Group.ACTUATOR))
def test_each_time_out_of_an_actuator_has_an_upper_bound(kind: str) -> None:
    seen: set[type] = set()

    def unbounded(config: type) -> list[str]:
        seen.add(config)
        own = [
            f"{config.__name__}.{f.name}" for f in fields(config) if "timeout" in f.name and f.metadata["le"] is None
        ]
        parts = [part for hint in get_type_hints(config).values() for part in parts_of(hint)]
        return own + [name for part in parts if part not in seen for name in unbounded(part)]

    def parts_of(hint: object) -> list[type]:
        if isinstance(hint, type) and is_dataclass(hint):
            return [hint]
        return [part for inner in get_args(hint) for part in parts_of(inner)]

    assert unbounded(registry.actuator(kind).Config) == []


def test_what_an_actuator_says_of_the_time_until_a_value_shows_is_waited_for() -> None:
    """`settle` of an actuator was written in configs, checked, and read by nobody."""

    def settles(lever: str, own: str) -> float:
        made = config(f"{lever}, actuator: {{{HOOK}{own}}}}}")
        return fleet_rules(made).pools[0].levers[0].settle

    assert settles("", "") == 0
    assert settles("", ", settle: 40s") == 40
    assert settles(", settle: 10s", ", settle: 40s") == 40
    assert settles(", settle: 90s", ", settle: 40s") == 90


def test_the_table_of_actuators_tells_when_a_value_is_in_force_and_how_a_batch_is_written() -> None:
    slow = cells(Capability("x", settle=90.0, hot=False, atomic=True, cas=True))
    assert (slow["in force"], slow["a batch"]) == ("after 1m30s, by a restart", "as one")
    assert slow["compares before it writes"] == "yes"
    quick = cells(Capability("x"))
    assert (quick["in force"], quick["a batch"]) == ("at once", "one by one")
    assert quick["compares before it writes"] == "no"


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("tenants: [batch], classes: [standard, background]", ""),
        ("tenants: ['*'], classes: [standard, background]", ".tenants: would send acme to a smaller model"),
        ("classes: [standard, background]", ".tenants: would send acme to a smaller model"),
        ("tenants: [batch, btach], classes: [standard, background]", ".tenants: would send btach to a smaller model"),
        ("tenants: [batch], classes: [critical, standard, background]", ".classes: would send critical to a smaller"),
        ("tenants: [batch], classes: [standard]", ".classes: leaves out background, with consent in pool chat"),
        ("tenants: []", ""),
    ],
)
def test_nobody_is_sent_to_a_smaller_model_who_consents_in_the_actuator_alone(told: str, said: str) -> None:
    """LiteLLM reads who consents in its own part of the config, where a slip of the pen is a degraded customer."""
    example = (Path(__file__).parents[2] / "examples" / "targets" / "litellm" / "governor.yaml").read_text()
    assert "chat: {model: chat}" in example
    text = example.replace("chat: {model: chat}", f"chat: {{model: chat, {told}}}")
    if not said:
        loads(text)
        return
    with pytest.raises(ConfigError) as caught:
        loads(text)
    assert f"actuators.proxy.pools.chat{said}" in str(caught.value)
    assert "those that consent there" in str(caught.value)


def test_a_whole_number_of_an_actuator_that_no_float_holds_is_refused() -> None:
    found = mistakes(f", actuator: {{kind: litellm, pools: {{}}, document: /a, processes: 1{'0' * 400}}}}}")
    assert "replicas.actuator.processes: 1000" in found
    assert "is larger than any number may be; write at most 1000000000000000" in found
