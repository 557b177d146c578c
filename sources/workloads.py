"""Which series of a platform exporter (kube-state-metrics, DCGM) are about a pool: told by its workload's name, since
those exporters know nothing of models."""

from collections.abc import Sequence

from controller.core.ports import PoolNeeds
from sources.contracts.contract import Candidate


def fits(candidate: Candidate, need: PoolNeeds, labels: dict[str, str]) -> bool:
    """Whether a series is about this pool's workload; series of an engine always are."""
    if not candidate.workload_labels:
        return True
    return need.workload is not None and named(candidate, need.workload, labels) is not None


def named(candidate: Candidate, workload: tuple[str, str, str], labels: dict[str, str]) -> str | None:
    """The pod ("" for the workload itself) that a series is about; None when it is about something else."""
    namespace, kind, name = workload
    if labels.get("exported_namespace", labels.get("namespace", "")) != namespace:
        return None
    value = next((labels[label] for label in candidate.workload_labels if label in labels), "")
    if candidate.workload_kind:
        return "" if candidate.workload_kind.lower() == kind.lower() and value == name else None
    return value if value.startswith(f"{name}-") else None


def workload_replica(need: PoolNeeds, labels: dict[str, str], candidates: Sequence[Candidate]) -> str | None:
    """The replica that a platform series belongs to, "" for the pool as a whole, None when it is not of this pool."""
    if need.workload is None:
        return None
    names = (named(candidate, need.workload, labels) for candidate in candidates if candidate.workload_labels)
    return next((name for name in names if name is not None), None)
