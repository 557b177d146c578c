"""kube-state-metrics shows of the twin what it shows of a cluster: Deployments by counts, pods by their states."""

from simulator.cluster.disturbances import Crash, OutOfMemory, PullFailure, Quota
from simulator.twin import Twin
from tests.support.twins import CHAT, START, ask, fleet, pool, traffic, twin


def shown(one: Twin) -> dict[str, dict[str, float]]:
    """Metric -> "pod or deployment[/label]" -> value."""
    found: dict[str, dict[str, float]] = {}
    for name, pairs, value in one.fleet.cluster.page().samples():
        labels = dict(pairs)
        of = labels.get("pod") or labels["deployment"]
        more = labels.get("phase") or labels.get("reason")
        if value or not more:
            found.setdefault(name, {})[f"{of}/{more}" if more else of] = value
    return found


def test_a_deployment_on_its_way_up_and_its_pods() -> None:
    one = twin(fleet(pool(1), disturbances=(Quota(at=0.0, pool="chat", limit=2),)), traffic(5.0, 60.0))
    one.advance(START + 1.0)
    one.apply([ask(CHAT, 1.0, 3.0)], one.now)
    one.advance(START + 15.0)
    seen = shown(one)
    counts = {name.removeprefix("kube_deployment_"): rows["chat"] for name, rows in seen.items() if "deploy" in name}
    assert counts == {
        "spec_replicas": 3.0,
        "status_replicas": 3.0,
        "status_replicas_ready": 1.0,
        "status_replicas_available": 1.0,
        "status_replicas_unavailable": 2.0,
        "status_replicas_updated": 3.0,
    }
    assert set(seen["kube_pod_status_phase"]) == {"chat-v1-0/Running", "chat-v1-1/Pending", "chat-v1-2/Pending"}
    assert seen["kube_pod_status_scheduled"] == {"chat-v1-0": 1.0, "chat-v1-1": 1.0, "chat-v1-2": 0.0}
    assert seen["kube_pod_container_status_waiting_reason"] == {"chat-v1-1/ContainerCreating": 1.0}
    # The kubelet has not told anything of a container that has no node.
    assert set(seen["kube_pod_container_status_restarts_total"]) == {"chat-v1-0", "chat-v1-1"}


def test_restarts_and_what_ended_the_last_run() -> None:
    one = twin(fleet(pool(2), disturbances=(OutOfMemory(at=10.0, pool="chat"), Crash(at=10.5, pool="chat"))))
    one.advance(START + 12.0)
    seen = shown(one)
    assert seen["kube_pod_container_status_last_terminated_reason"] == {
        "chat-v1-0/OOMKilled": 1.0,
        "chat-v1-1/Error": 1.0,
    }
    assert seen["kube_deployment_status_replicas_ready"] == {"chat": 0.0}
    assert seen["kube_pod_container_status_restarts_total"] == {"chat-v1-0": 1.0, "chat-v1-1": 1.0}


def test_a_crash_loop_and_an_image_that_cannot_be_pulled_are_told_by_their_names() -> None:
    loop = tuple(Crash(at=10.0 + 40.0 * i, pool="chat") for i in range(2))
    one = twin(fleet(pool(1), disturbances=(*loop, PullFailure(at=0.0, pool="chat", duration=200.0))))
    one.apply([ask(CHAT, 1.0, 2.0)], START)
    one.advance(START + 52.0)
    assert set(shown(one)["kube_pod_container_status_waiting_reason"]) == {
        "chat-v1-0/CrashLoopBackOff",
        "chat-v1-1/ImagePullBackOff",
    }


def test_a_draining_pod_is_no_replica_of_its_deployment_any_more() -> None:
    one = twin(fleet(pool(2)), traffic(30.0, 60.0, output=300.0))
    one.advance(START + 30.0)
    one.apply([ask(CHAT, 2.0, 1.0)], one.now)
    one.advance(START + 31.0)
    seen = shown(one)
    assert seen["kube_deployment_status_replicas"] == {"chat": 1.0}
    assert seen["kube_pod_status_ready"] == {"chat-v1-0": 1.0, "chat-v1-1": 0.0}
