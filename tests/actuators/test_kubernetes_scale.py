"""Disasters of scaling through Kubernetes, each against a fake API server that the real client talks to."""

import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from actuators.kubernetes_scale import KubernetesScale, KubernetesScaleConfig
from controller.core.model import Applied, Decision, Lever, Outcome, Target, TargetState
from controller.core.ports import ActuatorError, Binding
from tests.support.decisions import decide, replicas
from tests.support.kube import FakeKube, Trouble, fake_kube

NOW = 1_704_067_800.0  # 2024-01-01T00:10:00Z
LLAMA = replicas("llama")


@pytest.fixture
def kube(tmp_path: Path) -> Iterator[FakeKube]:
    with fake_kube(tmp_path) as kube:
        yield kube


def actuator(kube: FakeKube, *targets: Target, **config: object) -> KubernetesScale:
    """An actuator that is left to the end of the process, as most tests here need no more of it."""
    values = {"namespace": "prod", "kubeconfig": kube.kubeconfig, "timeout": 0.3} | config
    return KubernetesScale(KubernetesScaleConfig(**values), Binding(targets or (LLAMA,), "governor"))  # type: ignore[arg-type]


def read(hands: KubernetesScale, target: Target = LLAMA, now: float = NOW) -> TargetState:
    return hands.read([target], now)[target]


def apply(hands: KubernetesScale, *decisions: Decision, now: float = NOW) -> list[Applied]:
    return list(hands.apply(decisions, now))


def scaler(name: str, target: str, **ref: str) -> dict[str, object]:
    return {"metadata": {"name": name}, "spec": {"scaleTargetRef": {"name": target} | ref}}


# --- two writers -------------------------------------------------------------------------------------------------


def test_a_hand_scaled_deployment_is_seen_named_and_left_alone_for_a_while(kube: FakeKube) -> None:
    workload = kube.deploy("llama", 4)
    hands = actuator(kube, yield_for=600.0)
    assert read(hands).foreign_writer == ""
    kube.set_scale(workload, 9, "kubectl")
    seen = read(hands, now=NOW + 15)
    assert (seen.accepted, seen.foreign_writer) == (9, "kubectl")
    assert read(hands, now=NOW + 600).foreign_writer == "kubectl"
    assert read(hands, now=NOW + 616).foreign_writer == ""


def test_a_custom_resource_has_no_managed_fields_for_scale_yet_a_foreign_write_is_seen(kube: FakeKube) -> None:
    lws = {"group": "leaderworkerset.x-k8s.io", "plural": "leaderworkersets"}
    workload = kube.deploy("llama", 2, kind="LeaderWorkerSet", **lws)
    hands = actuator(kube, workload_kind="LeaderWorkerSet", api_version=f"{lws['group']}/v1", plural=lws["plural"])
    read(hands)
    kube.set_scale(workload, 5, "kubectl")
    assert read(hands, now=NOW + 15).foreign_writer != ""


def test_our_own_write_is_never_taken_for_somebody_elses(kube: FakeKube) -> None:
    kube.deploy("llama", 4)
    hands = actuator(kube)
    read(hands)
    apply(hands, decide(LLAMA, 4, 6))
    after = read(hands, now=NOW + 15)
    assert (after.accepted, after.foreign_writer, after.last_change) == (6, "", NOW)
    assert after.last_outcome is Outcome.DONE


def test_after_a_restart_our_last_write_is_still_ours_and_a_fresh_manual_scale_is_not(kube: FakeKube) -> None:
    workload = kube.deploy("llama", 4)
    first = actuator(kube)
    read(first)
    apply(first, decide(LLAMA, 4, 6))
    assert read(actuator(kube)).foreign_writer == ""
    kube.set_scale(workload, 3, "kubectl", time="2024-01-01T00:09:00Z")
    assert read(actuator(kube)).foreign_writer == "kubectl"
    assert read(actuator(kube), now=NOW + 3600).foreign_writer == ""


def test_a_fresh_manifest_is_not_taken_for_a_manual_scale(kube: FakeKube) -> None:
    kube.deploy("llama", 4)
    assert read(actuator(kube), now=1_704_067_201.0).foreign_writer == ""


@pytest.mark.parametrize(
    ("plural", "item", "owner"),
    [
        ("horizontalpodautoscalers", scaler("web", "llama", kind="Deployment", apiVersion="apps/v1"),
         "HorizontalPodAutoscaler/web"),
        ("scaledobjects", scaler("queue", "llama"), "ScaledObject/queue"),
    ],
)  # fmt: skip
def test_an_autoscaler_on_the_same_workload_is_refused_with_the_mend(
    kube: FakeKube, plural: str, item: dict[str, object], owner: str
) -> None:
    kube.deploy("llama", 4)
    kube.lists[plural] = [item]
    hands = actuator(kube)
    assert read(hands).foreign_writer == owner
    (applied,) = apply(hands, decide(LLAMA, 4, 6))
    assert applied.outcome is Outcome.REFUSED
    assert owner in applied.detail
    assert "observe" in applied.detail
    assert kube.writes == []


def test_an_autoscaler_of_another_workload_does_not_disarm_us(kube: FakeKube) -> None:
    kube.deploy("llama", 4)
    kube.lists["horizontalpodautoscalers"] = [
        scaler("a", "mistral", kind="Deployment", apiVersion="apps/v1"),
        scaler("b", "llama", kind="StatefulSet", apiVersion="apps/v1"),
    ]
    hands = actuator(kube)
    assert read(hands).foreign_writer == ""
    assert apply(hands, decide(LLAMA, 4, 6))[0].outcome is Outcome.DONE


def test_the_child_of_an_operator_is_not_scaled_behind_its_back(kube: FakeKube) -> None:
    owner = {"kind": "DynamoGraphDeployment", "name": "chat", "controller": True}
    kube.deploy("llama", 4, ownerReferences=[owner])
    hands = actuator(kube)
    assert read(hands).foreign_writer == "DynamoGraphDeployment/chat"
    assert apply(hands, decide(LLAMA, 4, 6))[0].outcome is Outcome.REFUSED
    assert apply(actuator(kube, allow_owned=True), decide(LLAMA, 4, 6))[0].outcome is Outcome.DONE


def test_blindness_for_autoscalers_is_refused_not_ignored(kube: FakeKube) -> None:
    kube.deploy("llama", 4)
    hands = actuator(kube)
    kube.trouble += [Trouble("GET", "horizontalpodautoscalers", 403) for _ in range(2)]
    state = read(hands)
    assert (state.accepted, "forbidden" in state.error) == (4, True)
    (applied,) = apply(hands, decide(LLAMA, 4, 6))
    assert applied.outcome is Outcome.REFUSED
    assert "rbac.yaml" in applied.detail


# --- compare and swap --------------------------------------------------------------------------------------------


def test_a_write_between_our_read_and_our_write_loses_nobodys_change(kube: FakeKube) -> None:
    kube.deploy("llama", 4)
    hands = actuator(kube)
    read(hands)
    kube.trouble.append(Trouble("PUT", "/scale", "late"))
    (applied,) = apply(hands, decide(LLAMA, 4, 2))
    assert applied.outcome is Outcome.FAILED
    assert kube.replicas("llama") == 5


def test_a_decision_on_an_outdated_count_is_not_sent(kube: FakeKube) -> None:
    workload = kube.deploy("llama", 4)
    hands = actuator(kube)
    read(hands)
    kube.set_scale(workload, 8, "kubectl")
    (applied,) = apply(hands, decide(LLAMA, 4, 3))
    assert applied.outcome is Outcome.FAILED
    assert "has 8, the decision was made on 4" in applied.detail
    assert kube.writes == []


def test_status_updates_that_bump_the_version_do_not_starve_scaling(kube: FakeKube) -> None:
    workload = kube.deploy("llama", 4)
    hands = actuator(kube)
    read(hands)
    kube.set_scale(workload, 4, "kube-controller-manager")  # only the resourceVersion moves, as when a pod gets ready
    assert apply(hands, decide(LLAMA, 4, 6))[0].outcome is Outcome.DONE


def test_a_recreated_workload_of_the_same_name_is_not_scaled_by_an_old_read(kube: FakeKube) -> None:
    kube.deploy("llama", 4)
    kube.trouble.append(Trouble("PUT", "/scale", "recreated"))
    (applied,) = apply(actuator(kube), decide(LLAMA, 4, 9))
    assert applied.outcome is Outcome.FAILED
    assert kube.replicas("llama") == 4


def test_a_shared_gpu_budget_holds_after_every_step(kube: FakeKube) -> None:
    for name, count in (("a", 2), ("b", 6), ("c", 3)):
        kube.deploy(name, count)
    targets = [replicas(n) for n in "abc"]
    hands = actuator(kube, *targets)
    apply(hands, decide(targets[0], 2, 5), decide(targets[1], 6, 4), decide(targets[2], 3, 2))
    assert kube.writes == [("b", 4), ("c", 2), ("a", 5)]


# --- what an answer means ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "outcome"),
    [
        (400, Outcome.REFUSED), (401, Outcome.REFUSED), (403, Outcome.REFUSED), (404, Outcome.REFUSED),
        (409, Outcome.FAILED), (410, Outcome.REFUSED), (422, Outcome.REFUSED), (429, Outcome.FAILED),
        (302, Outcome.REFUSED), (503, Outcome.FAILED),
        (500, Outcome.UNKNOWN), (502, Outcome.UNKNOWN), (504, Outcome.UNKNOWN),
        ("hang", Outcome.UNKNOWN), ("cut", Outcome.UNKNOWN), ("lost", Outcome.UNKNOWN), ("html", Outcome.UNKNOWN),
        ("headers", Outcome.UNKNOWN),
    ],
)  # fmt: skip
def test_an_unclear_answer_is_never_called_a_failure(kube: FakeKube, what: int | str, outcome: Outcome) -> None:
    kube.deploy("llama", 4)
    hands = actuator(kube)
    kube.trouble.append(Trouble("PUT", "/scale", what))
    (applied,) = apply(hands, decide(LLAMA, 4, 6))
    assert applied.outcome is outcome
    assert applied.detail


def test_a_lost_answer_is_written_once_and_found_by_verify(kube: FakeKube) -> None:
    kube.deploy("llama", 4)
    hands = actuator(kube)
    kube.trouble.append(Trouble("PUT", "/scale", "lost"))
    decision = decide(LLAMA, 4, 6)
    assert apply(hands, decision)[0].outcome is Outcome.UNKNOWN
    assert read(hands, now=NOW + 15).foreign_writer == ""
    (verified,) = hands.verify([decision], NOW + 15)
    assert verified.outcome is Outcome.DONE
    assert kube.writes == [("llama", 6)]


def test_a_write_that_never_arrived_may_be_repeated_after_verify(kube: FakeKube) -> None:
    kube.deploy("llama", 4)
    hands = actuator(kube)
    kube.trouble.append(Trouble("PUT", "/scale", "hang"))
    decision = decide(LLAMA, 4, 6)
    assert apply(hands, decision)[0].outcome is Outcome.UNKNOWN
    assert hands.verify([decision], NOW + 15)[0].outcome is Outcome.FAILED
    assert apply(hands, decision, now=NOW + 15)[0].outcome is Outcome.DONE


def test_verify_of_a_silent_server_stays_unknown(kube: FakeKube) -> None:
    kube.deploy("llama", 4)
    hands = actuator(kube)
    kube.trouble.append(Trouble("GET", "/scale", 503))
    assert hands.verify([decide(LLAMA, 4, 6)], NOW)[0].outcome is Outcome.UNKNOWN


def test_a_hanging_api_server_costs_one_timeout_and_not_one_per_pool(kube: FakeKube) -> None:
    targets = [replicas(f"p{i}") for i in range(20)]
    for target in targets:
        kube.deploy(target.pool, 1)
    kube.trouble += [Trouble("GET", "/scale", "hang") for _ in targets]
    states = actuator(kube, *targets).read(targets, NOW)
    assert len(kube.trouble) == len(targets) - 1
    assert all(state.accepted is None and state.error for state in states.values())


def test_pools_with_actuators_of_their_own_share_the_wait_and_the_listing(kube: FakeKube) -> None:
    targets = [replicas(f"p{i}") for i in range(5)]
    for target in targets:
        kube.deploy(target.pool, 1)
    several = [actuator(kube, target, name=target.pool) for target in targets]
    for hands, target in zip(several, targets, strict=True):
        assert hands.read([target], NOW)[target].accepted == 1
    assert sum(call.resource == "horizontalpodautoscalers" for call in kube.calls) == 1
    kube.trouble += [Trouble("GET", "/scale", "hang") for _ in targets]
    states = [hands.read([target], NOW + 15)[target] for hands, target in zip(several, targets, strict=True)]
    assert len(kube.trouble) == len(targets) - 1
    assert all(state.accepted is None for state in states)
    kube.trouble.clear()
    several[0].close()
    assert several[1].read([targets[1]], NOW + 30)[targets[1]].accepted == 1


def test_an_api_server_that_drips_its_headers_holds_us_without_limit(kube: FakeKube) -> None:
    """The time-out of the client counts from byte to byte."""
    kube.deploy("llama", 4)
    kube.trouble.append(Trouble("GET", "/scale", "headers"))
    began = time.monotonic()
    state = read(actuator(kube))
    assert time.monotonic() - began < 3.0
    assert state.accepted is None
    assert "no answer from the API server within 0.3 s" in state.error


def test_actuators_that_are_asked_side_by_side_list_the_autoscalers_once_each(kube: FakeKube) -> None:
    targets = [replicas(f"p{i}") for i in range(12)]
    for target in targets:
        kube.deploy(target.pool, 1)
    several = [actuator(kube, target, name=target.pool, timeout=5.0) for target in targets]
    with ThreadPoolExecutor(len(targets)) as pool:
        states = list(pool.map(lambda one, target: one.read([target], NOW)[target], several, targets))
    assert [state.accepted for state in states] == [1.0] * len(targets)
    assert sum(call.resource == "horizontalpodautoscalers" for call in kube.calls) == 1


def test_one_missing_workload_does_not_blind_the_others(kube: FakeKube) -> None:
    kube.deploy("llama", 4)
    gone = replicas("gone")
    states = actuator(kube, LLAMA, gone).read([gone, LLAMA], NOW)
    assert states[LLAMA].accepted == 4
    assert states[gone].accepted is None
    assert 'deployments.apps "gone" not found' in states[gone].error


def test_an_admission_webhooks_words_reach_the_operator(kube: FakeKube) -> None:
    kube.deploy("llama", 4)
    kube.trouble.append(Trouble("PUT", "/scale", 403, 'admission webhook "quota" denied the request: 8 GPUs at most'))
    (applied,) = apply(actuator(kube), decide(LLAMA, 4, 6))
    assert applied.outcome is Outcome.REFUSED
    assert "8 GPUs at most" in applied.detail


def test_a_broken_tls_handshake_is_a_failure_since_nothing_was_sent(kube: FakeKube) -> None:
    config = Path(kube.kubeconfig)
    config.write_text(config.read_text().replace("http://", "https://"))
    hands = actuator(kube)
    (applied,) = apply(hands, decide(LLAMA, 4, 6))
    assert applied.outcome is Outcome.FAILED
    assert "not trusted" in applied.detail
    assert "not trusted" in read(hands).error


def test_nobody_listening_is_a_failure_that_says_so(kube: FakeKube) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        config = Path(kube.kubeconfig)
        config.write_text(re.sub(r"127\.0\.0\.1:\d+", f"127.0.0.1:{free.getsockname()[1]}", config.read_text()))
    (applied,) = apply(actuator(kube), decide(LLAMA, 4, 6))
    assert applied.outcome is Outcome.FAILED
    assert "cannot be reached" in applied.detail


@pytest.mark.parametrize(
    ("what", "outcome", "last"),
    [(403, Outcome.REFUSED, Outcome.DONE), (503, Outcome.FAILED, Outcome.DONE),
     ("lost", Outcome.UNKNOWN, Outcome.FAILED)],
    ids=["it refuses one of many", "half of a batch fails", "the answer to one is lost"],
)  # fmt: skip
def test_one_of_many_undoes_no_other(kube: FakeKube, what: int | str, outcome: Outcome, last: Outcome) -> None:
    """A server that says nothing is not asked further in this batch: what comes after was certainly not sent."""
    small, large = replicas("small"), replicas("large")
    for target in (LLAMA, small, large):
        kube.deploy(target.pool, 4)
    kube.trouble.append(Trouble("PUT", "/llama/scale", what))
    batch = [decide(LLAMA, 4, 6), decide(small, 4, 5), decide(large, 4, 2)]  # told: large, llama, small
    applied = {one.target: one.outcome for one in apply(actuator(kube, LLAMA, small, large), *batch)}
    assert applied == {large: Outcome.DONE, LLAMA: outcome, small: last}
    stands = [kube.replicas(target.pool) for target in (large, LLAMA, small)]
    assert stands == [2, 6 if what == "lost" else 4, 5 if last is Outcome.DONE else 4]


def test_when_every_governor_is_dead_the_fleet_keeps_its_size(kube: FakeKube) -> None:
    """The write was lost on its way back, and whoever sent it is gone: the next one finds it, and nothing ends it."""
    kube.deploy("llama", 4)
    kube.trouble.append(Trouble("PUT", "/scale", "lost"))
    hands = actuator(kube)
    assert apply(hands, decide(LLAMA, 4, 6))[0].outcome is Outcome.UNKNOWN
    hands.close()
    assert not KubernetesScale.describe()[Lever.REPLICAS].expiry
    heir = actuator(kube)
    assert heir.verify([decide(LLAMA, 4, 6)], NOW + 86_400)[0].outcome is Outcome.DONE
    assert (read(heir).accepted, read(heir).foreign_writer) == (6, "")


# --- reading -----------------------------------------------------------------------------------------------------


def test_a_workload_scaled_to_zero_reads_as_zero_and_not_as_unreadable(kube: FakeKube) -> None:
    kube.deploy("llama", 0)
    assert read(actuator(kube)).accepted == 0
    assert apply(actuator(kube), decide(LLAMA, 0, 1))[0].outcome is Outcome.DONE


def test_an_empty_selector_never_counts_every_pod_of_the_namespace(kube: FakeKube) -> None:
    kube.deploy("llama", 2)["status"]["selector"] = ""
    state = read(actuator(kube))
    assert (state.accepted, state.ready, state.pending) == (2, None, ())


def test_a_login_page_is_not_a_replica_count(kube: FakeKube) -> None:
    kube.deploy("llama", 4)
    kube.trouble.append(Trouble("GET", "/scale", "html"))
    state = read(actuator(kube))
    assert state.accepted is None
    assert "not JSON" in state.error


def test_any_kind_with_a_scale_subresource_is_found_by_discovery(kube: FakeKube) -> None:
    group = "leaderworkerset.x-k8s.io"
    kube.discovery[group, "v1"] = [
        {"name": "leaderworkersets", "kind": "LeaderWorkerSet"},
        {"name": "leaderworkersets/scale", "kind": "Scale"},
        {"name": "tokens", "kind": "Token"},
    ]
    kube.deploy("llama", 2, group=group, plural="leaderworkersets", kind="LeaderWorkerSet")
    hands = actuator(kube, workload_kind="LeaderWorkerSet", api_version=f"{group}/v1")
    assert apply(hands, decide(LLAMA, 2, 3))[0].outcome is Outcome.DONE
    assert kube.replicas("llama", group, "leaderworkersets") == 3
    assert "no scale subresource" in read(actuator(kube, workload_kind="Token", api_version=f"{group}/v1")).error
    assert "no kind Nothing" in read(actuator(kube, workload_kind="Nothing", api_version=f"{group}/v1")).error


# --- set-up ------------------------------------------------------------------------------------------------------


def test_two_pools_cannot_share_one_named_workload(kube: FakeKube) -> None:
    with pytest.raises(ActuatorError, match="cannot serve 2 targets"):
        actuator(kube, LLAMA, replicas("mistral"), name="llama")


def test_a_weight_is_not_a_replica_count(kube: FakeKube) -> None:
    with pytest.raises(ActuatorError, match="moves replicas of a pool and nothing else"):
        actuator(kube, Target("llama", Lever.WEIGHT, "pod-0"))


def test_an_api_version_without_a_group_is_refused_by_the_config() -> None:
    with pytest.raises(ValueError, match="api_version: no group"):
        KubernetesScaleConfig("prod", api_version="v1")


def test_without_credentials_the_error_names_the_mend(tmp_path: Path) -> None:
    with pytest.raises(ActuatorError, match="set kubeconfig and context"):
        KubernetesScale(KubernetesScaleConfig("prod", kubeconfig=str(tmp_path / "none")), Binding((LLAMA,)))


def test_without_the_client_library_the_error_names_the_mend(monkeypatch: pytest.MonkeyPatch, kube: FakeKube) -> None:
    monkeypatch.setitem(__import__("sys").modules, "kubernetes", None)
    with pytest.raises(ActuatorError, match=r"pip install 'inference-governor\[kubernetes\]'"):
        actuator(kube)
