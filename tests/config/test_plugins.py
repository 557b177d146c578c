"""A plug-in declares its parameters as a dataclass: users get units, bounds and refused typos; it gets its values."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from controller import registry
from controller.config import ConfigError, config_hash, json_schema, loads
from controller.config.plugins import build, choose
from controller.core.params import SecretRef
from controller.core.signals import Signal
from controller.registry import Group, InstallationError, PluginError
from tests.support.installed import only_test_plugins
from tests.support.plugins import Steady, StillSource
from tests.support.wheels import install, wheel

CONFIG = """
version: 1
source: {{kind: "{source}", {parameters}}}
pools:
  chat:
    engine: vllm
    levers: {{replicas: {{min: 1, max: 2, policy: {{kind: "tests.support.plugins:Steady"}}}}}}
"""


def config(source: str = "tests.support.plugins:StillSource", parameters: str = "url: here") -> str:
    return CONFIG.format(source=source, parameters=parameters)


def test_parameters_arrive_parsed_in_the_plugins_own_dataclass() -> None:
    written = (
        "url: here, timeout: 500ms, share: 25%, retries: 2, headers: {a: b}, pauses: [1s, 1m], method: GET, "
        "token: {env: TOKEN}, verify: false, nap: 2m, limits: {burst: 7, pause: 3s}"
    )
    loaded = loads(config(parameters=written), engines=lambda: ["vllm"])
    assert loaded.source.cls is StillSource
    assert loaded.source.settings == StillSource.Config(
        url="here", timeout=0.5, share=0.25, retries=2, headers={"a": "b"}, pauses=(1.0, 60.0), method="GET",
        token=SecretRef(env="TOKEN"), verify=False, nap=120.0, limits=StillSource.Limits(7, 3.0),
    )  # fmt: skip
    assert loaded.pools["chat"].levers  # the policy's defaults need no mention
    (lever,) = loaded.pools["chat"].levers.values()
    assert lever.policy.settings == Steady.Config(signal=Signal.QUEUE_TIME)


def test_a_secret_is_a_reference_in_the_hash_and_in_every_dump() -> None:
    loaded = loads(config(parameters="url: here, token: {file: /run/secret}"), engines=lambda: ["vllm"])
    assert loaded.model_dump()["source"]["token"] == {"env": None, "file": "/run/secret"}


def test_one_parameter_changes_the_hash_and_spelling_does_not() -> None:
    def hash_of(parameters: str) -> str:
        return config_hash(loads(config(parameters=parameters), engines=lambda: ["vllm"]))

    assert hash_of("url: here, timeout: 1m") == hash_of("timeout: 60s, url: here")
    assert hash_of("url: here, timeout: 1m") != hash_of("url: here, timeout: 59s")


def test_every_wrong_parameter_is_named_at_once() -> None:
    written = "url: 5, timeout: 0s, share: 200%, retries: 1.5, headers: {a: 1}, pauses: 1s, method: PUT, verify: no"
    with pytest.raises(ConfigError) as caught:
        loads(config(parameters=written), engines=lambda: ["vllm"])
    named = {problem.path for problem in caught.value.problems}
    parameters = {"url", "timeout", "share", "retries", "headers.a", "pauses", "method", "verify"}
    assert named == {f"source.{name}" for name in parameters}


def test_a_check_of_the_plugins_own_is_reported_at_its_parameter() -> None:
    with pytest.raises(ValueError, match="is not below high"):
        choose(Group.POLICY, {"kind": "tests.support.plugins:Steady", "low": "90%"})


def test_a_programmer_may_hand_over_plain_values() -> None:
    assert build(Steady.Config, {"low": 0.1, "horizon": "5m"}) == Steady.Config(low=0.1, horizon=300.0)


def test_the_schema_tells_plugins_apart_by_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    only_test_plugins(monkeypatch)
    definitions = json_schema()["$defs"]
    assert {"$ref": "#/$defs/source-still"} in definitions["source"]["oneOf"]
    still = definitions["source-still"]
    assert still["properties"]["kind"] == {"const": "still"}
    assert set(still["required"]) == {"kind", "url"}
    assert still["additionalProperties"] is False
    assert references(json_schema()) <= {f"#/$defs/{name}" for name in definitions}


def references(node: object) -> set[str]:
    if isinstance(node, dict):
        own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
        return own.union(*(references(value) for value in node.values()))
    if isinstance(node, list):
        return set[str]().union(*(references(value) for value in node))
    return set()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the path into which `install` puts distributions with pip."""
    target = tmp_path / "site"
    target.mkdir()
    monkeypatch.syspath_prepend(str(target))
    yield target
    monkeypatch.undo()
    registry.refresh()


ORACLE = """
from dataclasses import dataclass
from controller.core.model import Lever
from controller.core.params import Unit, param

class Oracle:
    levers = (Lever.REPLICAS,)

    @dataclass(frozen=True)
    class Config:
        ahead: float = param("how far it sees", 60.0, unit=Unit.DURATION)

    def __init__(self, config):
        self.config = config
"""


def test_a_strangers_installed_policy_is_found_and_configured_like_a_built_in(tmp_path: Path, installed: Path) -> None:
    entries = "[governor.policies]\noracle = oracle_plugin:Oracle\n"
    install(installed, wheel(tmp_path, "oracle", entries, ORACLE))
    assert "oracle" in registry.names(Group.POLICY)
    assert "oracle" not in registry.builtin(Group.POLICY)
    assert choose(Group.POLICY, {"kind": "oracle", "ahead": "2m"}).settings.ahead == 120.0
    assert "policy-oracle" in json_schema()["$defs"]


def test_a_broken_plugin_is_named_with_its_distribution_and_only_when_it_is_asked_for(
    tmp_path: Path, installed: Path
) -> None:
    entries = "[governor.policies]\nbroken = broken_plugin:Gone\n"
    install(installed, wheel(tmp_path, "broken", entries, "raise RuntimeError('no licence')\n"))
    assert "broken" in registry.names(Group.POLICY)
    with pytest.raises(PluginError, match=r"the policy 'broken' of broken \(broken_plugin:Gone\) cannot be imported: RuntimeError: no licence; update or uninstall broken"):  # fmt: skip  # noqa: E501
        registry.policy("broken")


def test_two_plugins_of_one_name_are_refused_rather_than_one_of_them_chosen(tmp_path: Path, installed: Path) -> None:
    entries = "[governor.policies]\noracle = {}_plugin:Oracle\n"
    wheels = [wheel(tmp_path, name, entries.format(name), ORACLE) for name in ("delphi", "dodona")]
    install(installed, *wheels)
    with pytest.raises(PluginError, match=r"two governor\.policies are called 'oracle', of delphi .* and dodona"):
        registry.policy("oracle")
    with pytest.raises(InstallationError, match=r"'oracle'.*uninstall one of them"):
        registry.check_installation({})


def test_a_distribution_that_overwrites_our_packages_stops_the_start(tmp_path: Path, installed: Path) -> None:
    """pip installs it without a word, and uninstalling it deletes our files."""
    install(installed, wheel(tmp_path, "squatter", "", files={"policies/__init__.py": ""}))
    with pytest.raises(InstallationError, match="the package 'policies' is also installed by squatter"):
        registry.check_installation()


def test_the_installation_of_this_project_is_sound() -> None:
    registry.check_installation()


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("nowhere:Source", "ModuleNotFoundError"),
        ("tests.support.plugins:Absent", "AttributeError"),
        ("tests.support.plugins:Bare", "has no dataclass Config"),
        ("tests.support.plugins:KNOBS", "is not a class"),
    ],
)
def test_a_module_string_that_leads_nowhere_says_why(kind: str, words: str) -> None:
    with pytest.raises(PluginError, match=words):
        registry.source(kind)
