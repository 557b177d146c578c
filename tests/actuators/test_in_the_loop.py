"""The whole chain: a recorded overload, the real loop, the real Kubernetes client, and a fake API server at the end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller import registry
from controller.config import load, pool_needs
from controller.core.model import Outcome
from controller.registry import Group
from controller.run.assembly import RunMode, assemble
from controller.run.loop import TickResult
from tests.support.kube import FakeKube, Trouble, fake_kube

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RECORDING = EXAMPLES / "recordings" / "vllm-0.32-cpu-1s.jsonl.gz"


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[FakeKube]:
    with fake_kube(tmp_path) as kube:
        yield kube


def ticks(kube: FakeKube, folder: Path, mode: RunMode) -> Iterator[TickResult]:
    """The demo config with a Kubernetes actuator, over the shipped recording."""
    config: dict[str, Any] = yaml.safe_load((EXAMPLES / "demo.yaml").read_text())
    for name, pool in config["pools"].items():
        kube.deploy(name, 1)
        actuator = {"kind": "kubernetes", "namespace": "prod", "kubeconfig": kube.kubeconfig, "timeout": "300ms"}
        pool["levers"]["replicas"] |= {"mode": "auto", "actuator": actuator}
    file = folder / "governor.yaml"
    file.write_text(yaml.safe_dump(config))
    loaded = load(file)
    recording = registry.plugin(Group.SOURCE, "recording")
    source = recording(recording.Config(path=str(RECORDING)), pool_needs(loaded))
    loop = assemble(loaded, mode=mode, source=source, ledger_path=folder / "ledger")
    try:
        for at in source.times():
            yield loop.tick(at)
    finally:
        loop.close()


def test_an_overload_raises_the_real_count_and_every_step_starts_where_the_last_ended(
    kube: FakeKube, tmp_path: Path
) -> None:
    changes = [
        (decision.current, decision.final)
        for result in ticks(kube, tmp_path, RunMode.LIVE)
        for decision in result.plan.decisions
        if decision.send
    ]
    counts = [count for _, count in kube.writes]
    assert len(counts) > 1
    assert counts == sorted(counts)
    assert changes == list(zip([1, *counts], counts, strict=False))


def test_a_rehearsal_over_a_real_cluster_writes_nothing(kube: FakeKube, tmp_path: Path) -> None:
    outcomes = {a.outcome for result in ticks(kube, tmp_path, RunMode.DRY_RUN) for a in result.applied}
    assert outcomes == {Outcome.DRY_RUN}
    assert kube.writes == []
    assert {call.verb for call in kube.calls} == {"get", "list"}


def test_a_lost_answer_blocks_the_target_until_it_is_read_back_and_is_never_sent_twice(
    kube: FakeKube, tmp_path: Path
) -> None:
    kube.trouble.append(Trouble("PUT", "/scale", "lost"))
    outcomes = [a.outcome for result in ticks(kube, tmp_path, RunMode.LIVE) for a in result.applied]
    assert outcomes[0] is Outcome.UNKNOWN
    assert set(outcomes[1:]) == {Outcome.DONE}
    assert len(kube.writes) == len(set(kube.writes)) == len(outcomes)
