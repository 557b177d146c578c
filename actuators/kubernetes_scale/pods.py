"""Where each replica is on its way to serving, read from the pods of a workload. Pure; pods are the API's JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from controller.core.model import Pending, Phase

Json = Mapping[str, Any]


def ready_and_pending(pods: Sequence[Json], wanted: int, short_since: float) -> tuple[int, tuple[Pending, ...]]:
    """Ready replicas, and those that are on their way, one entry per phase and start.

    Pods that are being deleted or have ended count for neither. Replicas that were asked for and have no pod yet are
    ``requested`` since `short_since` (unix seconds).
    """
    alive = [pod for pod in pods if _alive(pod)]
    waiting = [pod for pod in alive if not _ready(pod)]
    groups = Counter((phase(pod), since(pod)) for pod in waiting)
    pending = [Pending(count, where, when) for (where, when), count in groups.items()]
    if wanted > len(alive):
        pending.append(Pending(wanted - len(alive), Phase.REQUESTED, short_since))
    order = list(Phase)
    return len(alive) - len(waiting), tuple(sorted(pending, key=lambda p: (order.index(p.phase), p.since)))


def phase(pod: Json) -> Phase:
    """The phase of a pod that is not ready.

    Without a startup probe a loading engine cannot be told from a warming one (its port is closed in both), so
    ``warming`` is only said of a pod whose startup probe passed, or whose containers are ready while a gate is not.
    """
    status = pod.get("status", {})
    if not _condition(pod, "PodScheduled"):
        return Phase.PENDING
    starting = status.get("initContainerStatuses", [])
    main = status.get("containerStatuses", [])
    if _any_in("running", starting) and not _any_in("running", main):
        return Phase.LOADING  # an init container that fetches weights
    restarted = any(c.get("restartCount", 0) > 0 for c in main)
    if not restarted and (not main or _any_in("waiting", main)):
        return Phase.PULLING
    if _condition(pod, "ContainersReady"):
        return Phase.WARMING
    probed = {c.get("name") for c in pod.get("spec", {}).get("containers", []) if "startupProbe" in c}
    slow = [c for c in main if not c.get("ready", False)]
    if slow and all(c.get("name") in probed and c.get("started", False) for c in slow):
        return Phase.WARMING
    return Phase.LOADING


def since(pod: Json) -> float:
    """When this replica was asked for, unix seconds; for one that served and then restarted, when it stopped."""
    created = _seconds(pod.get("metadata", {}).get("creationTimestamp"))
    restarted = any(c.get("restartCount", 0) > 0 for c in pod.get("status", {}).get("containerStatuses", []))
    if not restarted:
        return created
    stopped = [_seconds(c.get("lastTransitionTime")) for c in _conditions(pod) if c.get("type") == "Ready"]
    return max([created, *stopped])


def _any_in(state: str, containers: Sequence[Json]) -> bool:
    return any(state in c.get("state", {}) for c in containers)


def _alive(pod: Json) -> bool:
    ended = pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not ended and "deletionTimestamp" not in pod.get("metadata", {})


def _ready(pod: Json) -> bool:
    return _condition(pod, "Ready")


def _conditions(pod: Json) -> Sequence[Json]:
    conditions: Sequence[Json] = pod.get("status", {}).get("conditions") or []
    return conditions


def _condition(pod: Json, kind: str) -> bool:
    return any(c.get("type") == kind and c.get("status") == "True" for c in _conditions(pod))


def _seconds(stamp: str | None) -> float:
    return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0
