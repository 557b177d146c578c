"""A look at Envoy's folder must not change it: files that appear there move traffic."""

from pathlib import Path

import pytest

from controller.config import GovernorConfig, load
from controller.run.assembly import RunMode, assemble
from controller.run.look import look

CONFIG = """
version: 1
source: {{kind: prometheus, url: "http://127.0.0.1:1"}}
ledger: {{path: {folder}/ledger}}
actuators:
  edge:
    kind: envoy
    transport: {{kind: files, folder: {folder}/envoy}}
    pools: {{chat: {{cluster: chat, endpoints: {{kind: inline, replicas: {{r1: "127.0.0.1:9001"}}}}}}}}
pools:
  chat:
    engine: vllm
    objectives: [{{signal: ttft, percentile: p99, target: 2500ms}}]
    levers:
      admission: {{setpoints: [concurrency], policy: {{kind: gate}}, actuator: edge, fail_static: true}}
"""


@pytest.fixture
def config(tmp_path: Path) -> GovernorConfig:
    (tmp_path / "envoy").mkdir()
    path = tmp_path / "governor.yaml"
    path.write_text(CONFIG.format(folder=tmp_path))
    return load(path)


def _files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "envoy").iterdir())


def test_a_dry_run_and_the_doctor_write_into_envoys_folder(config: GovernorConfig, tmp_path: Path) -> None:
    loop = assemble(config, mode=RunMode.DRY_RUN)
    try:
        states = loop.tick(1_704_067_800.0).snapshot.targets
        loop.tick(1_704_067_815.0)
    finally:
        loop.close()
    assert [state.error for state in states.values()] == [""]
    assert not [found for found in look(config) if found.subject.startswith("chat/")]
    assert _files(tmp_path) == []


def test_a_governor_that_acts_tells_where_replicas_are_before_it_decides_anything(
    config: GovernorConfig, tmp_path: Path
) -> None:
    loop = assemble(config, mode=RunMode.LIVE)
    try:
        loop.tick(1_704_067_800.0)
    finally:
        loop.close()
    assert "endpoints-chat.json" in _files(tmp_path)
