"""Replicas on their way: each stage of a pod has its name, so that a cold start is neither missed nor counted twice."""

from typing import Any

import pytest

from actuators.kubernetes_scale.pods import phase, ready_and_pending, since
from controller.core.model import Pending, Phase
from tests.support.kube import conditions, pod

CREATED = 1_704_067_200.0


def made(ready: str = "False", scheduled: str = "True", **status: Any) -> dict[str, Any]:
    return pod("p", "llama", conditions=conditions(PodScheduled=scheduled, Ready=ready), **status)


def container(state: str, **more: Any) -> dict[str, Any]:
    return {"name": "engine", "state": {state: {}}, "ready": False, "restartCount": 0, **more}


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (made(scheduled="False"), Phase.PENDING),
        (pod("p", "llama"), Phase.PENDING),
        (made(), Phase.PULLING),
        (made(containerStatuses=[container("waiting")]), Phase.PULLING),
        (made(containerStatuses=[container("waiting")], initContainerStatuses=[container("running")]), Phase.LOADING),
        (made(containerStatuses=[container("running", started=False)]), Phase.LOADING),
        (made(containerStatuses=[container("running", started=True)]), Phase.WARMING),
        (made(containerStatuses=[container("waiting", restartCount=3)]), Phase.LOADING),
    ],
)
def test_each_stage_of_a_cold_start_has_its_name(one: dict[str, Any], expected: Phase) -> None:
    assert phase(one) is expected


def test_without_a_startup_probe_loading_is_not_called_warming() -> None:
    one = made(containerStatuses=[container("running", started=True)])
    one["spec"]["containers"] = [{"name": "engine"}]
    assert phase(one) is Phase.LOADING


def test_a_pod_that_waits_for_its_readiness_gate_is_warming() -> None:
    one = made(containerStatuses=[container("running", ready=True, started=True)])
    one["status"]["conditions"] += conditions(ContainersReady="True")
    assert phase(one) is Phase.WARMING


def test_dying_and_ended_pods_are_neither_ready_nor_pending() -> None:
    dying = made(ready="True")
    dying["metadata"]["deletionTimestamp"] = "2024-01-01T01:00:00Z"
    evicted = made(phase="Failed")
    ready, pending = ready_and_pending([dying, evicted, made(ready="True")], wanted=1, short_since=0.0)
    assert (ready, pending) == (1, ())


def test_replicas_without_a_pod_are_requested_since_the_shortfall_was_seen() -> None:
    ready, pending = ready_and_pending([made(ready="True"), made()], wanted=4, short_since=77.0)
    assert ready == 1
    assert pending == (Pending(2, Phase.REQUESTED, 77.0), Pending(1, Phase.PULLING, CREATED))


def test_a_pod_pending_for_an_hour_keeps_its_age_through_every_phase() -> None:
    assert since(made(containerStatuses=[container("running")])) == CREATED


def test_a_crashed_replica_is_pending_since_its_crash_and_not_since_its_birth() -> None:
    assert since(made(containerStatuses=[container("running", restartCount=1)])) == CREATED + 300
