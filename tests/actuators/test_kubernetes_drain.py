"""Who goes when a Deployment is lowered: those that have finished, or nobody."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actuators.kubernetes_scale import KubernetesScale, KubernetesScaleConfig
from actuators.kubernetes_scale.api import COST
from actuators.kubernetes_scale.leaving import costs
from controller.core.model import Applied, Lever, Outcome
from controller.core.ports import Binding
from tests.support.decisions import decide, replicas
from tests.support.kube import FakeKube, Json, Trouble, fake_kube

NOW = 1_704_067_800.0
LLAMA = replicas("llama")


def pod(name: str, cost: str = "") -> Json:
    annotations = {"annotations": {COST: cost}} if cost else {}
    return {"metadata": {"name": name, "namespace": "prod", "labels": {"app": "llama"}, **annotations}}


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[FakeKube]:
    with fake_kube(tmp_path) as kube:
        kube.deploy("llama", 3)
        kube.pods = [pod("llama-a"), pod("llama-b", "-7"), pod("llama-c")]
        yield kube


def lower(kube: FakeKube, *leaving: str, to: float = 2.0) -> Applied:
    config = KubernetesScaleConfig(namespace="prod", kubeconfig=kube.kubeconfig, timeout=0.3)
    hands = KubernetesScale(config, Binding((LLAMA,), "governor"))
    (applied,) = hands.apply([decide(LLAMA, 3.0, to)._replace(leaving=leaving)], NOW)
    return applied


def cost(kube: FakeKube) -> dict[str, str]:
    return {p["metadata"]["name"]: p["metadata"].get("annotations", {}).get(COST, "") for p in kube.pods}


def test_who_has_finished_costs_less_than_all_others_before_the_count_falls(kube: FakeKube) -> None:
    assert lower(kube, "llama-c", "gone-meanwhile").outcome is Outcome.DONE
    assert cost(kube) == {"llama-a": "", "llama-b": "-7", "llama-c": "-8"}
    assert [call.verb for call in kube.calls if call.verb in ("patch", "update")] == ["patch", "update"]


def test_a_raise_and_a_fall_that_names_nobody_touch_no_pod(kube: FakeKube) -> None:
    lower(kube, "llama-c", to=4.0)
    kube.deploy("llama", 3)
    lower(kube)
    assert not [call for call in kube.calls if call.verb == "patch"]


@pytest.mark.parametrize("what", [500, 409, "hang", "cut", "html"])
def test_when_nobody_could_be_pointed_out_nobody_is_ended(kube: FakeKube, what: int | str) -> None:
    """The newest would go instead, with all that it holds."""
    kube.trouble.append(Trouble("PATCH", "pods", what))
    assert lower(kube, "llama-c").outcome is Outcome.FAILED
    assert kube.replicas("llama") == 3
    assert kube.writes == []


def test_a_pod_that_ended_in_between_is_passed_over(kube: FakeKube) -> None:
    kube.trouble.append(Trouble("PATCH", "pods/llama-c", 404))
    assert lower(kube, "llama-b", "llama-c").outcome is Outcome.DONE


def test_names_that_are_no_pods_are_said_and_scale_nothing(kube: FakeKube) -> None:
    """The label holds addresses: every scale-down would silently take whom it likes."""
    applied = lower(kube, "10.0.0.7:8000")
    assert (applied.outcome, kube.replicas("llama")) == (Outcome.FAILED, 3)
    assert "labels.replica of the pool must be the name of the pod" in applied.detail


def test_only_what_can_choose_says_so() -> None:
    def chooses(kind: str, version: str = "apps/v1") -> bool:
        config = KubernetesScaleConfig("prod", workload_kind=kind, api_version=version)
        return KubernetesScale.describe(config)[Lever.REPLICAS].chooses

    assert chooses("Deployment")
    assert not chooses("StatefulSet")
    assert not chooses("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1")


numbers = st.sampled_from(["", "0", "5", "-1", "-9", "-2147483648", "much", "1.5"])


@given(st.dictionaries(st.sampled_from("abcdef"), numbers, min_size=1), st.sets(st.sampled_from("abcdefg")))
def test_no_other_pod_goes_before_those_that_are_named(pods: dict[str, str], leaving: set[str]) -> None:
    def number(text: str) -> int:
        return int(text) if text.lstrip("-").isdigit() else 0

    written = costs([pod(name, text) for name, text in pods.items()], leaving)
    after = {name: written.get(name, number(text)) for name, text in pods.items()}

    assert written.keys() <= leaving
    assert all(-(2**31) <= value < 0 for value in written.values())
    others = [value for name, value in after.items() if name not in leaving and value > -(2**31)]
    assert all(after[name] < other for name in leaving & pods.keys() for other in others)
