"""The page of kube-state-metrics: what Kubernetes holds of the pools' Deployments and pods."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.cluster.deployment import Pod, active
from simulator.cluster.life import Stage
from simulator.watch.page import Labels, Page, SeriesKey, labels

CONTAINER = "engine"
JOB = "kube-state-metrics"
INSTANCE = "kube-state-metrics:8080"
_Put = Callable[[str, Labels, float], None]
_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
_RUNNING = frozenset({Stage.LOADING, Stage.WARMING, Stage.READY, Stage.DRAINING})


@dataclass(frozen=True, slots=True)
class Workload:
    """One Deployment: its name and namespace, the replicas asked for, and its pods by name, the dying ones included."""

    namespace: str
    name: str
    wanted: int
    version: str
    pods: Sequence[tuple[str, Pod]]


def page(workloads: Sequence[Workload]) -> Page:
    """One scrape."""
    keys: list[SeriesKey] = []
    values: list[float] = []

    def put(name: str, pairs: Labels, value: float) -> None:
        keys.append((name, pairs))
        values.append(float(value))

    for work in workloads:
        of = labels(job=JOB, instance=INSTANCE, namespace=work.namespace, deployment=work.name)
        alive = active([pod for _, pod in work.pods])
        ready = sum(pod.life.stage is Stage.READY for pod in alive)
        put("kube_deployment_spec_replicas", of, work.wanted)
        put("kube_deployment_status_replicas", of, len(alive))
        put("kube_deployment_status_replicas_ready", of, ready)
        put("kube_deployment_status_replicas_available", of, ready)
        put("kube_deployment_status_replicas_unavailable", of, max(0, max(work.wanted, len(alive)) - ready))
        put("kube_deployment_status_replicas_updated", of, sum(pod.version == work.version for pod in alive))
        for name, pod in work.pods:
            _pod(work.namespace, name, pod, put)
    return Page(tuple(keys), np.array(values))


def _pod(namespace: str, name: str, pod: Pod, put: _Put) -> None:
    life = pod.life
    stage = life.stage
    own = {"job": JOB, "instance": INSTANCE, "namespace": namespace, "pod": name}
    scheduled = stage not in (Stage.REQUESTED, Stage.PROVISIONING)
    now_in = "Running" if scheduled and stage is not Stage.PULLING else "Pending"
    for phase in _PHASES:
        put("kube_pod_status_phase", labels(**own, phase=phase), phase == now_in)
    put("kube_pod_status_ready", labels(**own, condition="true"), stage is Stage.READY)
    put("kube_pod_status_scheduled", labels(**own, condition="true"), scheduled)
    if not scheduled:
        return  # the kubelet has not told anything of its container
    own["container"] = CONTAINER
    put("kube_pod_container_status_restarts_total", labels(**own), life.restarts)
    put("kube_pod_container_status_running", labels(**own), stage in _RUNNING)
    put("kube_pod_container_status_ready", labels(**own), stage is Stage.READY)
    waiting = {Stage.PULLING: "ContainerCreating", Stage.BACKOFF: "CrashLoopBackOff"}.get(stage, "")
    if stage is Stage.PULLING and life.pull_failures:
        waiting = "ImagePullBackOff"
    if waiting:
        put("kube_pod_container_status_waiting_reason", labels(**own, reason=waiting), 1.0)
    if life.reason:
        put("kube_pod_container_status_last_terminated_reason", labels(**own, reason=life.reason), 1.0)
