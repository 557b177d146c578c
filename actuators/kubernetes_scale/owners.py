"""Who else writes the replica count of a workload. Pure; objects are JSON as the API gives it.

``GET …/scale`` carries no managedFields (the API server builds the Scale without them), so they are read from the
workload itself. For custom resources the API server does not record writes through /scale at all, and an ``Update``
that loses its last field vanishes from the list; that is why the actuator also remembers its own values (``Memory``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Writer:
    """A field manager that owns spec.replicas. `at` unix seconds; `scaled` when it wrote through /scale."""

    name: str
    at: float
    scaled: bool


def last_writer(workload: Json) -> Writer | None:
    """The newest owner of spec.replicas, None when nobody is recorded."""
    writers = [
        Writer(entry.get("manager") or "unnamed", _seconds(entry.get("time")), entry.get("subresource") == "scale")
        for entry in workload.get("metadata", {}).get("managedFields") or []
        if "f:replicas" in entry.get("fieldsV1", {}).get("f:spec", {})
    ]
    return max(writers, key=lambda w: (w.at, w.name), default=None)


def controlling_parent(workload: Json) -> str:
    """``Kind/name`` of the object that manages this workload, "" when it stands alone."""
    for owner in workload.get("metadata", {}).get("ownerReferences") or []:
        if owner.get("controller"):
            return f"{owner.get('kind')}/{owner.get('name')}"
    return ""


def bound_to(scalers: Sequence[Json], group: str, kind: str, name: str) -> str:
    """Name of the autoscaler whose scaleTargetRef is this workload, "" when there is none.

    KEDA's reference may leave out kind and apiVersion; they default to a Deployment of apps.
    """
    for scaler in scalers:
        ref = scaler.get("spec", {}).get("scaleTargetRef", {})
        bound = (ref.get("apiVersion", "apps/v1").rpartition("/")[0], ref.get("kind", "Deployment"), ref.get("name"))
        if bound == (group, kind, name):
            return str(scaler.get("metadata", {}).get("name", "unnamed"))
    return ""


def _seconds(stamp: str | None) -> float:
    return datetime.fromisoformat(stamp).timestamp() if stamp else 0.0
